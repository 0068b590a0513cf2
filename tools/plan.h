// SPDX-License-Identifier: Apache-2.0
/* `kolo plan`: the plan of an algorithm. */
#ifndef KOLO_TOOLS_PLAN_H
#define KOLO_TOOLS_PLAN_H

/* Show, prove, price and draw the plan of an algorithm. Returns the exit status: 0, 1 (there is no
 * such plan, or the proof fails), 2 (bad option). */
int kolo_tool_plan(int argc, char **argv);

#endif
