// SPDX-License-Identifier: Apache-2.0
#ifndef KOLO_TOOL_PS_H
#define KOLO_TOOL_PS_H

/* `kolo ps`: what the ranks on this host are in, since when, and for whom they wait. */
int kolo_tool_ps(int argc, char **argv);

#endif
