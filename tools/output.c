// SPDX-License-Identifier: Apache-2.0
/* Reports bad options and writes texts, for all subcommands. */
#include "tools/output.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>

bool kolo_option_refuse(const char *command, int argc, char **argv, int seen)
{
    /* The option as the user wrote it: getopt has just passed it. */
    const char *written = optind > 0 && optind <= argc ? argv[optind - 1] : "?";
    const bool is_long = strncmp(written, "--", 2) == 0;
    const char *problem = "is unknown";
    if (seen == ':') {
        problem = "needs a value";
    } else if (is_long && optopt != 0) {
        problem = "takes no value";
    }
    if (is_long) {
        (void)fprintf(stderr, "%s: option %.*s %s (see %s --help)\n", command,
                      (int)strcspn(written, "="), written, problem, command);
    } else {
        (void)fprintf(stderr, "%s: option -%c %s (see %s --help)\n", command, optopt, problem,
                      command);
    }
    return false;
}

int kolo_output_write(const char *command, const char *path, const struct kolo_text *text)
{
    const bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdout : fopen(path, "we");
    if (file == NULL || text->chars == NULL) {
        (void)fprintf(stderr, "%s: cannot write %s: %s\n", command, path, strerror(errno));
        if (file != NULL && !standard) {
            (void)fclose(file);
        }
        return 1;
    }
    const bool written = fwrite(text->chars, 1, text->len, file) == text->len;
    if ((standard ? fflush(file) : fclose(file)) != 0 || !written) {
        (void)fprintf(stderr, "%s: cannot write %s: %s\n", command, path, strerror(errno));
        return 1;
    }
    return 0;
}
