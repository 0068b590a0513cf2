// SPDX-License-Identifier: Apache-2.0
/* Reads JSON (RFC 8259), value by value. Objects and arrays are at most 64 deep. */
#include "tools/json_read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 64, NAME = 64 };

/* Fail with file, line and `fault`. */
static kolo_status refuse(const struct kolo_json *json, const char *fault)
{
    int line = 1;
    for (const char *c = json->begin; c < json->at; c++) {
        line += *c == '\n';
    }
    return kolo_fail(KOLO_ERR_INVALID, "%s: line %d: %s", json->path, line, fault);
}

char kolo_json_next(struct kolo_json *json)
{
    json->at += strspn(json->at, " \t\r\n");
    return *json->at;
}

static bool take(struct kolo_json *json, char c)
{
    if (kolo_json_next(json) != c) {
        return false;
    }
    json->at++;
    return true;
}

/* ---- strings and numbers ---- */

/* The character of an escape, whose backslash is taken; '?' outside ASCII; 0: no escape. */
static char escaped(struct kolo_json *json)
{
    static const char written[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char c = *json->at;
    const char *known = c != '\0' ? strchr(written, c) : NULL;
    if (known != NULL) {
        json->at++;
        return meant[known - written];
    }
    if (c != 'u' || strspn(json->at + 1, "0123456789abcdefABCDEF") < 4) {
        return '\0';
    }
    const char digits[5] = {json->at[1], json->at[2], json->at[3], json->at[4], '\0'};
    const long code = strtol(digits, NULL, 16);
    json->at += 5;
    return code > 0 && code < 0x80 ? (char)code : '?';
}

kolo_status kolo_json_string(struct kolo_json *json, char *out, size_t cap)
{
    size_t len = 0;
    if (!take(json, '"')) {
        return refuse(json, "a string is wanted");
    }
    while (*json->at != '"') {
        char c = *json->at;
        if ((unsigned char)c < ' ') {
            return refuse(json, "a string does not end");
        }
        json->at++;
        c = c == '\\' ? escaped(json) : c;
        if (c == '\0') {
            return refuse(json, "a string has a wrong escape");
        }
        if (len + 1 < cap) {
            out[len++] = c;
        }
    }
    json->at++;
    if (cap > 0) {
        out[len] = '\0';
    }
    return KOLO_OK;
}

kolo_status kolo_json_number(struct kolo_json *json, double *out)
{
    char *end = NULL;
    const char c = kolo_json_next(json);
    *out = NAN;
    if (strncmp(json->at, "null", 4) == 0) {
        json->at += 4;
        return KOLO_OK;
    }
    if (c == '-' || (c >= '0' && c <= '9')) { /* strtod() also takes "inf", which JSON has not */
        *out = strtod(json->at, &end);
    }
    if (end == NULL || end == json->at) {
        return refuse(json, "a number is wanted");
    }
    json->at = end;
    return KOLO_OK;
}

/* ---- objects and arrays ---- */

static kolo_status enter(struct kolo_json *json, char bracket)
{
    if (!take(json, bracket)) {
        return refuse(json, bracket == '{' ? "an object is wanted" : "an array is wanted");
    }
    return ++json->depth <= DEEPEST ? KOLO_OK : refuse(json, "values are too deep");
}

kolo_status kolo_json_object(struct kolo_json *json,
                             kolo_status (*member)(void *, struct kolo_json *, const char *),
                             void *context)
{
    KOLO_TRY(enter(json, '{'));
    for (bool first = true; !take(json, '}'); first = false) {
        char name[NAME];
        if (!first && !take(json, ',')) {
            return refuse(json, "an object does not end");
        }
        KOLO_TRY(kolo_json_string(json, name, sizeof name));
        if (!take(json, ':')) {
            return refuse(json, "a member has no value");
        }
        KOLO_TRY(member(context, json, name));
    }
    json->depth--;
    return KOLO_OK;
}

kolo_status kolo_json_array(struct kolo_json *json,
                            kolo_status (*element)(void *, struct kolo_json *, int), void *context)
{
    KOLO_TRY(enter(json, '['));
    for (int i = 0; !take(json, ']'); i++) {
        if (i > 0 && !take(json, ',')) {
            return refuse(json, "an array does not end");
        }
        KOLO_TRY(element(context, json, i));
    }
    json->depth--;
    return KOLO_OK;
}

static kolo_status skip_member(void *context, struct kolo_json *json, const char *name)
{
    (void)context;
    (void)name;
    return kolo_json_skip(json);
}

static kolo_status skip_element(void *context, struct kolo_json *json, int index)
{
    (void)context;
    (void)index;
    return kolo_json_skip(json);
}

// NOLINTNEXTLINE(misc-no-recursion): enter() bounds the depth
kolo_status kolo_json_skip(struct kolo_json *json)
{
    double number;
    switch (kolo_json_next(json)) {
    case '{':
        return kolo_json_object(json, skip_member, NULL);
    case '[':
        return kolo_json_array(json, skip_element, NULL);
    case '"':
        return kolo_json_string(json, NULL, 0);
    default:
        break;
    }
    for (int i = 0; i < 2; i++) {
        const char *word = i == 0 ? "true" : "false";
        if (strncmp(json->at, word, strlen(word)) == 0) {
            json->at += strlen(word);
            return KOLO_OK;
        }
    }
    return kolo_json_number(json, &number);
}
