// SPDX-License-Identifier: Apache-2.0
#ifndef KOLO_TOOLS_PS_H
#define KOLO_TOOLS_PS_H

/* `kolo ps` shows for each rank on this host its call, the call's age, and the ranks it waits for.
 */
int kolo_tool_ps(int argc, char **argv);

#endif
