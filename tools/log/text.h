// SPDX-License-Identifier: Apache-2.0
/* A log's bytes as lines of plain text, without the dress that terminals, containers and web pages
 * put around them. */
#ifndef KOLO_TOOLS_LOG_TEXT_H
#define KOLO_TOOLS_LOG_TEXT_H

#include "util/util.h"

/* Takes a line [begin, end), without its end of line. */
typedef kolo_status kolo_log_line_taker(void *context, const char *begin, const char *end);
/* Takes the number of the line of the file that the next lines come from. */
typedef void kolo_log_line_counter(void *context, long line);

/* Call `take` for each line. A line ends at LF, CR, or an escaped LF in a JSON string. Colours,
 * other escape sequences, tags and escapes of HTML are removed; control characters become blanks.
 * Errors: those of `take`, SYSTEM. */
KOLO_CHECK kolo_status kolo_log_text(const char *bytes, size_t len, kolo_log_line_taker *take,
                                     kolo_log_line_counter *count, void *context);

/* What a file without a line of use is: "compressed with gzip: ...", as the rest of a sentence
 * behind the file's name. */
const char *kolo_log_kind(const char *bytes, size_t len);

/* Append text from a log to a message for people. Control characters, and bytes that are no UTF-8,
 * become '?'. */
void kolo_log_text_safe(struct kolo_text *out, const char *text, size_t len);

#endif
