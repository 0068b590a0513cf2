// SPDX-License-Identifier: Apache-2.0
/* What the subcommands share: refusing options, writing texts. */
#ifndef KOLO_TOOLS_OUTPUT_H
#define KOLO_TOOLS_OUTPUT_H

#include "util/util.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Say on stderr what is wrong with the option that getopt_long() answered `seen` to. Returns false.
 */
bool kolo_option_refuse(const char *command, int argc, char **argv, int seen);
/* Write to a file, or to standard output ("-"). Returns the exit status, 0 or 1. */
int kolo_output_write(const char *command, const char *path, const struct kolo_text *text);

#ifdef __cplusplus
}
#endif
#endif
