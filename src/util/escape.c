// SPDX-License-Identifier: Apache-2.0
/* Text as a value in XML and in JSON. A byte outside ASCII may be invalid UTF-8, so it is replaced.
 */
#include "util/escape.h"

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
