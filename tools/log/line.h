// SPDX-License-Identifier: Apache-2.0
/* One line of a log. A launcher or torch may put any text before the library's prefix. The message
 * begins after " NCCL INFO " (or RCCL, KOLO; or WARN). The speaker stands before it, as in
 * "host:pid:tid [device] file:line". */
#ifndef KOLO_TOOLS_LOG_LINE_H
#define KOLO_TOOLS_LOG_LINE_H

#include "tools/log/log.h"

struct kolo_log_line {
    const char *at, *end;     /* the rest of the message */
    const char *begin;        /* of the prefix */
    char host[KOLO_LOG_NAME]; /* "" unknown */
    int pid, tid;             /* 0 unknown */
    bool warn;
};

/* Find the library's first message in [begin, end), and note the library in `log`. The message ends
 * where another one's prefix begins: two processes may write at once. False: no message. */
bool kolo_line_find(struct kolo_log *log, const char *begin, const char *end,
                    struct kolo_log_line *out);

/* ---- parsers: each moves `at` only if it matches ---- */

bool kolo_line_skip(struct kolo_log_line *l, const char *text);
void kolo_line_skip_blanks(struct kolo_log_line *l);
/* A number from 0 to `most`, or -1. */
bool kolo_line_number(struct kolo_log_line *l, int most, int *out);
/* A hexadecimal number, with or without "0x". */
bool kolo_line_hex(struct kolo_log_line *l, uint64_t *out);

/* A number after `name` and a blank, anywhere in the rest of the line. Does not move. */
bool kolo_line_named(const struct kolo_log_line *l, const char *name, int most, int *out);
bool kolo_line_named_hex(const struct kolo_log_line *l, const char *name, uint64_t *out);
bool kolo_line_contains(const struct kolo_log_line *l, const char *text);
/* What stands behind `text` in the line; NULL: it is not there. */
const char *kolo_line_behind(const struct kolo_log_line *l, const char *text);

#endif
