// SPDX-License-Identifier: Apache-2.0
/* Text as a value in XML and in JSON, and as a part of a line: special characters are escaped. */
#ifndef KOLO_UTIL_ESCAPE_H
#define KOLO_UTIL_ESCAPE_H

#include "util/util.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Append `text`, escaped for an attribute or the text of an element. Control characters become
 * blanks; bytes outside ASCII become '?'. */
void kolo_text_xml(struct kolo_text *out, const char *text);
/* Append `text`, escaped for a JSON string. Bytes outside ASCII count as Latin-1. */
void kolo_text_json(struct kolo_text *out, const char *text);

/* Write `text` to out[cap], with control characters as in C (\n, \x1b). So text from outside can
 * neither begin a line nor command a terminal. Text that does not fit is left out. */
void kolo_escape_line(const char *text, char *out, size_t cap);

#ifdef __cplusplus
}
#endif
#endif
