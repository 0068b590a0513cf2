// SPDX-License-Identifier: Apache-2.0
/* One line of a log: its prefix, and small parsers for the message behind the prefix. */
#include "tools/log/line.h"

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

bool kolo_line_hex(struct kolo_log_line *l, uint64_t *out)
{
    const char *at = l->at;
    uint64_t value = 0;
    int digits = 0;
    if (l->end - at > 2 && at[0] == '0' && at[1] == 'x') {
        at += 2;
    }
    for (; at < l->end && isxdigit((unsigned char)*at) && digits < 16; at++, digits++) {
        const int c = tolower((unsigned char)*at);
        value = value * 16 + (uint64_t)(isdigit(c) ? c - '0' : c - 'a' + 10);
    }
    if (digits == 0) {
        return false;
    }
    *out = value;
    l->at = at;
    return true;
}

/* Find `name` as a word with a blank behind it. False: it is not there. */
static bool find_name(const struct kolo_log_line *l, const char *name, struct kolo_log_line *rest)
{
    const size_t len = strlen(name);
    for (const char *at = l->at; (size_t)(l->end - at) > len; at++) {
        if (memcmp(at, name, len) == 0 && at[len] == ' ' && (at == l->at || at[-1] == ' ')) {
            *rest = *l;
            rest->at = at + len + 1;
            return true;
        }
    }
    return false;
}

bool kolo_line_named(const struct kolo_log_line *l, const char *name, int most, int *out)
{
    struct kolo_log_line rest;
    int value = 0;
    if (!find_name(l, name, &rest) || !kolo_line_number(&rest, most, &value) || value < 0) {
        return false;
    }
    *out = value;
    return true;
}

bool kolo_line_named_hex(const struct kolo_log_line *l, const char *name, uint64_t *out)
{
    struct kolo_log_line rest;
    return find_name(l, name, &rest) && kolo_line_hex(&rest, out);
}

const char *kolo_line_behind(const struct kolo_log_line *l, const char *text)
{
    const size_t len = strlen(text);
    const char *at = memmem(l->at, (size_t)(l->end - l->at), text, len);
    return at != NULL ? at + len : NULL;
}

bool kolo_line_contains(const struct kolo_log_line *l, const char *text)
{
    return kolo_line_behind(l, text) != NULL;
}

/* ---- the message of a line ---- */

static bool is_host_char(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '.' || c == '_';
}

/* "host:12:34" that ends at `end`. */
static bool find_speaker(const char *begin, const char *end, struct kolo_log_line *out)
{
    const char *at = end;
    int numbers[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        const char *digits = at;
        while (digits > begin && isdigit((unsigned char)digits[-1])) {
            digits--;
        }
        if (digits == at || at - digits > 9 || digits == begin || digits[-1] != ':') {
            return false;
        }
        for (const char *d = digits; d < at; d++) {
            numbers[i] = numbers[i] * 10 + (*d - '0');
        }
        at = digits - 1;
    }
    const char *name = at;
    while (name > begin && is_host_char(name[-1])) {
        name--;
    }
    const size_t len = (size_t)(at - name);
    if (len == 0 || len >= KOLO_LOG_NAME) {
        return false;
    }
    memcpy(out->host, name, len);
    out->host[len] = '\0';
    out->begin = name;
    out->tid = numbers[0];
    out->pid = numbers[1];
    return true;
}

static const char *skip_blanks_back(const char *begin, const char *end)
{
    while (end > begin && end[-1] == ' ') {
        end--;
    }
    return end;
}

/* Find the speaker in [begin, end), the text before " NCCL INFO ". A warning has a file, a line and
 * a function behind the device. */
static void find_prefix(const char *begin, const char *end, struct kolo_log_line *out)
{
    const char *at = skip_blanks_back(begin, end);
    out->host[0] = '\0';
    out->pid = out->tid = 0;
    out->begin = at;
    if (find_speaker(begin, at, out)) {
        return;
    }
    for (const char *close = at; close - begin > 4; close--) {
        const char *open = close - 1;
        if (close[-1] != ']') {
            continue;
        }
        while (open > begin && (isdigit((unsigned char)open[-1]) || open[-1] == '-')) {
            open--;
        }
        if (open > begin && open[-1] == '[' &&
            find_speaker(begin, skip_blanks_back(begin, open - 1), out)) {
            return;
        }
    }
}

/* Whether `text` of a line may stand before the host of another line: "NC" of "NCCL INFO", or
 * digits of a process. */
static bool is_torn_off(const char *text, size_t len)
{
    static const char *const marks[] = {"NCCL", "RCCL", "KOLO"};
    bool torn = len > 0 && strspn(text, "0123456789") >= len;
    for (size_t i = 0; i < KOLO_LENGTH(marks); i++) {
        torn |= len <= 4 && memcmp(text, marks[i], len) == 0;
    }
    return torn;
}

/* Where the text ends into which another message was written: "via P2P/IPCnode7" holds the host
 * node7. `within`: a message stands before. */
static void cut_at_known_host(const struct kolo_log *log, bool within, struct kolo_log_line *second)
{
    const size_t len = strlen(second->host);
    for (int i = 0; i < log->all.nhosts; i++) {
        if (strcmp(log->all.host[i], second->host) == 0) {
            return;
        }
    }
    for (int i = 0; i < log->all.nhosts; i++) {
        const char *known = log->all.host[i];
        const size_t more = strlen(known);
        if (more > 0 && more < len && strcmp(second->host + len - more, known) == 0 &&
            (within || is_torn_off(second->host, len - more))) {
            second->begin += len - more;
            memmove(second->host, second->host + len - more, more + 1);
            return;
        }
    }
}

/* The next " NCCL INFO " or the like. Sets `at` behind it. Returns its begin; NULL: none. */
static const char *find_mark(const char *begin, const char *end, struct kolo_log_line *out,
                             const char **library)
{
    static const char *const libraries[] = {"NCCL", "RCCL", "KOLO"};
    for (const char *at = begin; end - at > 9; at++) {
        at = memchr(at, ' ', (size_t)(end - at - 9));
        if (at == NULL) {
            return NULL;
        }
        for (size_t i = 0; i < KOLO_LENGTH(libraries); i++) {
            const bool info = memcmp(at + 5, " INFO", 5) == 0;
            const bool warn = memcmp(at + 5, " WARN", 5) == 0;
            if (memcmp(at + 1, libraries[i], 4) == 0 && (info || warn) &&
                (end - at == 10 || at[10] == ' ')) {
                out->at = end - at == 10 ? end : at + 11;
                out->end = end;
                out->warn = warn;
                *library = libraries[i];
                return at;
            }
        }
    }
    return NULL;
}

bool kolo_line_find(struct kolo_log *log, const char *begin, const char *end,
                    struct kolo_log_line *out)
{
    const char *library = "";
    const char *mark = find_mark(begin, end, out, &library);
    if (mark == NULL) {
        return false;
    }
    find_prefix(begin, mark, out);
    if (out->begin > begin && out->host[0] != '\0' &&
        strchr("0123456789NRK", out->host[0]) != NULL) {
        cut_at_known_host(log, false, out);
    }
    if (strcmp(log->library, "RCCL") != 0) { /* RCCL says NCCL in its prefix */
        memcpy(log->library, library, 5);
    }
    struct kolo_log_line second;
    const char *next = find_mark(out->at, end, &second, &library);
    if (next != NULL) {
        find_prefix(out->at, next, &second);
        if (second.host[0] != '\0') {
            cut_at_known_host(log, true, &second);
            out->end = second.begin;
        }
    }
    return true;
}
