// SPDX-License-Identifier: Apache-2.0
/* `kolo doctor`: whether this machine is set up for collectives. */
#ifndef KOLO_TOOLS_DOCTOR_H
#define KOLO_TOOLS_DOCTOR_H

/* Check this machine; a line for each thing that is looked at, and a fix where it needs one.
 * Returns the exit status: 0 nothing is wrong, 1 something is, 2 bad option. */
int kolo_tool_doctor(int argc, char **argv);

#endif
