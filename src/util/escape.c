// SPDX-License-Identifier: Apache-2.0
/* Text as a value in XML and in JSON, and as a part of a line. In a value, a byte outside ASCII may
 * be invalid UTF-8, so it is replaced. */
#include "util/escape.h"

#include <stdio.h>
#include <string.h>

void kolo_text_xml(struct kolo_text *out, const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        switch (*at) {
        case '&':
            kolo_text_add(out, "&amp;");
            break;
        case '<':
            kolo_text_add(out, "&lt;");
            break;
        case '>':
            kolo_text_add(out, "&gt;");
            break;
        case '"':
            kolo_text_add(out, "&quot;");
            break;
        default:
            kolo_text_add(out, "%c", *at < ' ' ? ((unsigned char)*at < ' ' ? ' ' : '?') : *at);
        }
    }
}

void kolo_text_json(struct kolo_text *out, const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        const unsigned char c = (unsigned char)*at;
        if (c == '"' || c == '\\') {
            kolo_text_add(out, "\\%c", c);
        } else if (c < ' ' || c >= 0x7f) {
            kolo_text_add(out, "\\u%04x", c);
        } else {
            kolo_text_add(out, "%c", c);
        }
    }
}

/* Control characters of ASCII, and those of Unicode above it (U+0080 to U+009f, in UTF-8). */
static bool is_control(const unsigned char *at)
{
    return *at < ' ' || *at == 0x7f || (*at == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0);
}

void kolo_escape_line(const char *text, char *out, size_t cap)
{
    size_t len = 0;
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++) {
        char piece[8] = {(char)*at, '\0'};
        if (*at == '\n' || *at == '\r' || *at == '\t') {
            (void)snprintf(piece, sizeof piece, "\\%c",
                           *at == '\n'   ? 'n'
                           : *at == '\r' ? 'r'
                                         : 't');
        } else if (is_control(at)) {
            (void)snprintf(piece, sizeof piece, "\\x%02x", *at);
        }
        const size_t more = strlen(piece);
        if (len + more >= cap) {
            break;
        }
        memcpy(out + len, piece, more);
        len += more;
    }
    out[len] = '\0';
}
