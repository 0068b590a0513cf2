// SPDX-License-Identifier: Apache-2.0
/* `kolo topo`: the machine and the layout of ranks on it. */
#ifndef KOLO_TOOLS_TOPO_TOPO_H
#define KOLO_TOOLS_TOPO_TOPO_H

/* Show this machine or a file's, and kolo's rings and trees on it. Returns the exit status: 0, 1
 * (the machine or a file cannot be read or written), 2 (bad option). For --diff: 0 equal, 1
 * different, 2 an error. */
int kolo_tool_topo(int argc, char **argv);

#endif
