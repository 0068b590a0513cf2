// SPDX-License-Identifier: Apache-2.0
/* One line of a log: its prefix, and small parsers for the message behind the prefix. */
#include "log_line.h"

#include <ctype.h>
#include <string.h>

/* ---- small parsers ---- */

bool kolo_line_skip(struct kolo_log_line *l, const char *text)
{
    const size_t len = strlen(text);
    if ((size_t)(l->end - l->at) < len || memcmp(l->at, text, len) != 0) {
        return false;
    }
    l->at += len;
    return true;
}

void kolo_line_skip_blanks(struct kolo_log_line *l)
{
    while (l->at < l->end && (*l->at == ' ' || *l->at == '\t')) {
        l->at++;
    }
}

bool kolo_line_number(struct kolo_log_line *l, int most, int *out)
{
    const char *at = l->at;
    const bool minus = at < l->end && *at == '-';
    long value = 0;
    at += minus;
    if (at >= l->end || !isdigit((unsigned char)*at)) {
        return false;
    }
    for (; at < l->end && isdigit((unsigned char)*at); at++) {
        value = value * 10 + (*at - '0');
        if (value > most) {
            return false;
        }
    }
    if (minus && value != 1) {
        return false; /* -1 is the only negative number of a log */
    }
    *out = minus ? -1 : (int)value;
    l->at = at;
    return true;
}

bool kolo_line_named(const struct kolo_log_line *l, const char *name, int most, int *out)
{
    const size_t len = strlen(name);
    for (const char *at = l->at; (size_t)(l->end - at) > len; at++) {
        if (memcmp(at, name, len) == 0 && at[len] == ' ' && at > l->at && at[-1] == ' ') {
            struct kolo_log_line rest = *l;
            rest.at = at + len + 1;
            return kolo_line_number(&rest, most, out) && *out >= 0;
        }
    }
    return false;
}

bool kolo_line_contains(const struct kolo_log_line *l, const char *text)
{
    return memmem(l->at, (size_t)(l->end - l->at), text, strlen(text)) != NULL;
}

/* ---- the message of a line ---- */

static bool is_host_char(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '.' || c == '_';
}

/* Find the host in "host:123:456 [0]", the text right before " NCCL INFO ". "": no host. */
static void find_host(const char *begin, const char *end, char out[KOLO_LOG_NAME])
{
    const char *at = end;
    int numbers = 0;
    out[0] = '\0';
    while (at > begin && at[-1] == ' ') {
        at--;
    }
    if (at > begin && at[-1] == ']') { /* [device] */
        while (at > begin && at[-1] != '[') {
            at--;
        }
        at -= at > begin;
        while (at > begin && at[-1] == ' ') {
            at--;
        }
    }
    for (; numbers < 2; numbers++) { /* :pid:tid */
        const char *digits = at;
        while (digits > begin && isdigit((unsigned char)digits[-1])) {
            digits--;
        }
        if (digits == at || digits == begin || digits[-1] != ':') {
            return;
        }
        at = digits - 1;
    }
    const char *name = at;
    while (name > begin && is_host_char(name[-1])) {
        name--;
    }
    const size_t len = (size_t)(at - name);
    if (len > 0 && len < KOLO_LOG_NAME) {
        memcpy(out, name, len);
        out[len] = '\0';
    }
}

bool kolo_line_find(struct kolo_log *log, const char *begin, const char *end,
                    struct kolo_log_line *out)
{
    static const char *const libraries[] = {"NCCL", "RCCL", "KOLO"};
    for (const char *at = begin; end - at > 10; at++) {
        if (*at != ' ') {
            continue;
        }
        for (size_t i = 0; i < KOLO_LENGTH(libraries); i++) {
            const bool info = memcmp(at + 5, " INFO ", 6) == 0;
            const bool warn = memcmp(at + 5, " WARN ", 6) == 0;
            if (memcmp(at + 1, libraries[i], 4) == 0 && (info || warn)) {
                out->at = at + 11;
                out->end = end;
                out->warn = warn;
                find_host(begin, at, out->host);
                memcpy(log->library, libraries[i], 5);
                return true;
            }
        }
    }
    return false;
}
