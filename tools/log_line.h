// SPDX-License-Identifier: Apache-2.0
/* One line of a log. A launcher or torch may put any text before the library's prefix. The message
 * begins after " NCCL INFO " (or RCCL, KOLO; or WARN). The host stands before ":pid:tid [". */
#ifndef KOLO_TOOLS_LOG_LINE_H
#define KOLO_TOOLS_LOG_LINE_H

#include "log.h"

enum { KOLO_LOG_NAME = 128 };

struct kolo_log_line {
    const char *at, *end;     /* the rest of the message */
    char host[KOLO_LOG_NAME]; /* "" unknown */
    bool warn;
};

/* Find the library's message in a line of the file, and note the library in `log`. False: the line
 * is not the library's. */
bool kolo_line_find(struct kolo_log *log, const char *begin, const char *end,
                    struct kolo_log_line *out);

/* ---- parsers: each moves `at` only if it matches ---- */

bool kolo_line_skip(struct kolo_log_line *l, const char *text);
void kolo_line_skip_blanks(struct kolo_log_line *l);
/* A number from 0 to `most`, or -1. */
bool kolo_line_number(struct kolo_log_line *l, int most, int *out);

/* A number after `name` and a blank, anywhere in the rest of the line. Does not move. */
bool kolo_line_named(const struct kolo_log_line *l, const char *name, int most, int *out);
bool kolo_line_contains(const struct kolo_log_line *l, const char *text);

#endif
