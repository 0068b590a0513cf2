// SPDX-License-Identifier: Apache-2.0
/* `kolo topo`. */
#ifndef KOLO_TOOLS_TOPO_H
#define KOLO_TOOLS_TOPO_H

/* Show this machine (or a file's), and the rings and trees kolo would lay on it. Returns the exit
 * status: 0, 1 (the machine or a file cannot be read or written), 2 (bad option); of --diff 0
 * alike, 1 not, 2 trouble. */
int kolo_tool_topo(int argc, char **argv);

#endif
