// SPDX-License-Identifier: Apache-2.0
/* Functions that the subcommands share: they refuse options and write texts. */
#ifndef KOLO_TOOLS_OUTPUT_H
#define KOLO_TOOLS_OUTPUT_H

#include "util/util.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Report a bad option on stderr; `seen` is the result of getopt_long(). Returns false. */
bool kolo_option_refuse(const char *command, int argc, char **argv, int seen);
/* Write to a file, or to standard output ("-"). Returns the exit status, 0 or 1. */
int kolo_output_write(const char *command, const char *path, const struct kolo_text *text);

#ifdef __cplusplus
}
#endif
#endif
