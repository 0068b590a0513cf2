// SPDX-License-Identifier: Apache-2.0
/* `kolo env`: the variables that kolo reads. */
#ifndef KOLO_TOOLS_ENV_H
#define KOLO_TOOLS_ENV_H

#ifdef __cplusplus
extern "C" {
#endif

/* argv[0] is the subcommand's name. Returns the exit status. */
int kolo_tool_env(int argc, char **argv);

#ifdef __cplusplus
}
#endif
#endif
