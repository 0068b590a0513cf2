// SPDX-License-Identifier: Apache-2.0
/* `kolo doctor`: whether this machine is set up for collectives. */
#ifndef KOLO_TOOLS_DOCTOR_H
#define KOLO_TOOLS_DOCTOR_H

/* Check this machine, and print a line for each check and a fix for each problem. Returns the exit
 * status: 0 no problem, 1 a problem, 2 bad option. */
int kolo_tool_doctor(int argc, char **argv);

#endif
