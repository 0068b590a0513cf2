// SPDX-License-Identifier: Apache-2.0
/* Undresses a log: Docker and collectors wrap a line in JSON, terminals colour it, web pages escape
 * it, progress bars end it by CR. A line is undressed in a buffer of its own; no step makes it
 * longer. */
#include "tools/log/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- escape sequences of terminals (ECMA-48) ---- */

static const char *skip_until_end_of_string(const char *at, const char *end)
{
    while (at < end && *at != '\a' && !(at[0] == '\033' && at + 1 < end && at[1] == '\\')) {
        at++;
    }
    return at < end ? at + (*at == '\a' ? 1 : 2) : end;
}

/* `at` is behind ESC. */
static const char *skip_escape(const char *at, const char *end)
{
    if (at < end && *at == '[') { /* parameters, then one final byte */
        at++;
        while (at < end && *at >= 0x20 && *at <= 0x3f) {
            at++;
        }
        return at < end && *at >= 0x40 && *at <= 0x7e ? at + 1 : at;
    }
    if (at < end && strchr("]P^_X", *at) != NULL && *at != '\0') {
        return skip_until_end_of_string(at + 1, end);
    }
    while (at < end && *at >= 0x20 && *at <= 0x2f) {
        at++;
    }
    return at < end && *at >= 0x30 && *at <= 0x7e ? at + 1 : at;
}

/* "^[[32m" and "#033[32m": an escape character that cat -v or syslog has written out. "[32m": one
 * that was dropped. */
static size_t written_escape(const char *at, const char *end)
{
    static const char *const forms[] = {"^[[", "#033[", "\\x1b[", "\\033[", "\\e[", "["};
    for (size_t i = 0; i < KOLO_LENGTH(forms); i++) {
        const size_t len = strlen(forms[i]);
        const char *stop = at + len;
        if ((size_t)(end - at) <= len || memcmp(at, forms[i], len) != 0) {
            continue;
        }
        while (stop < end && (isdigit((unsigned char)*stop) || *stop == ';')) {
            stop++;
        }
        if (stop < end &&
            (len > 1 ? isalpha((unsigned char)*stop) : stop > at + 1 && *stop == 'm')) {
            return (size_t)(stop + 1 - at);
        }
    }
    return 0;
}

/* ---- HTML ---- */

/* "&#62;" and "&#x3e;". */
static size_t take_numeric(const char *at, const char *end, char *out)
{
    const char *digit = at + 2;
    const bool hex = digit < end && (*digit == 'x' || *digit == 'X');
    int value = 0;
    for (digit += hex; digit < end && isxdigit((unsigned char)*digit) && value < 0x400; digit++) {
        const int c = tolower((unsigned char)*digit);
        value = value * (hex ? 16 : 10) + (isdigit(c) ? c - '0' : c - 'a' + 10);
    }
    if (digit >= end || *digit != ';' || value < ' ' || (value > 0x7e && value != 0xa0)) {
        return 0;
    }
    *out = value == 0xa0 ? ' ' : (char)value;
    return (size_t)(digit + 1 - at);
}

static size_t take_entity(const char *at, const char *end, char *out)
{
    static const struct {
        const char *name;
        char is;
    } entities[] = {{"&gt;", '>'},   {"&lt;", '<'},    {"&amp;", '&'},
                    {"&quot;", '"'}, {"&apos;", '\''}, {"&nbsp;", ' '}};
    if (end - at > 3 && at[1] == '#') {
        return take_numeric(at, end, out);
    }
    for (size_t i = 0; i < KOLO_LENGTH(entities); i++) {
        const size_t len = strlen(entities[i].name);
        if ((size_t)(end - at) >= len && memcmp(at, entities[i].name, len) == 0) {
            *out = entities[i].is;
            return len;
        }
    }
    return 0;
}

/* The length of "<br/>", "</span>" and similar tags. mpirun's "<stdout>" and an address's "<0>"
 * stay. */
static size_t tag_length(const char *at, const char *end, bool *ends_line)
{
    static const char *const names[] = {"span", "br", "pre", "code", "div", "td", "tr",
                                        "p",    "b",  "i",   "font", "a",   "li", "table"};
    const char *name = at + 1 + (end - at > 1 && at[1] == '/');
    const char *close = memchr(at, '>', (size_t)(end - at));
    for (size_t i = 0; i < KOLO_LENGTH(names) && close != NULL; i++) {
        const size_t len = strlen(names[i]);
        if ((size_t)(close - name) >= len && memcmp(name, names[i], len) == 0 &&
            (name[len] == '>' || name[len] == ' ' || name[len] == '/')) {
            *ends_line = strchr("bdpt", names[i][0]) != NULL && strcmp(names[i], "b") != 0 &&
                         strcmp(names[i], "td") != 0 && strcmp(names[i], "pre") != 0;
            return (size_t)(close + 1 - at);
        }
    }
    return 0;
}

/* Undress a line in `room`, which is as long as the line, and hand on its parts. */
static kolo_status take_dressed(const char *at, const char *end, char *room,
                                kolo_log_line_taker *take, void *context)
{
    size_t len = 0;
    while (at < end) {
        bool ends_line = false;
        size_t skip = 0;
        char is = '\0';
        if (*at == '\033') {
            at = skip_escape(at + 1, end);
            continue;
        }
        if (*at != '\0' && strchr("^#\\[", *at) != NULL && (skip = written_escape(at, end)) > 0) {
            at += skip;
            continue;
        }
        if (*at == '<' && (skip = tag_length(at, end, &ends_line)) > 0) {
            if (ends_line) {
                KOLO_TRY(take(context, room, room + len));
                len = 0;
            }
            at += skip;
            continue;
        }
        if (*at == '&' && (skip = take_entity(at, end, &is)) > 0) {
            room[len++] = is;
            at += skip;
            continue;
        }
        if (*at == '\b') { /* overstruck */
            len -= len > 0;
            at++;
            continue;
        }
        const unsigned char c = (unsigned char)*at++;
        room[len++] = c < ' ' || c == 0x7f ? ' ' : (char)c;
    }
    return take(context, room, room + len);
}

/* ---- JSON ---- */

static int hex4(const char *at, const char *end)
{
    int value = 0;
    for (int i = 0; i < 4; i++) {
        const int c = at + i < end ? tolower((unsigned char)at[i]) : ' ';
        if (!isxdigit(c)) {
            return -1;
        }
        value = value * 16 + (isdigit(c) ? c - '0' : c - 'a' + 10);
    }
    return value;
}

/* Decode a string from behind its quotation mark into `out`. Returns the place behind its end. */
static const char *take_string(const char *at, const char *end, char *out, size_t *len)
{
    *len = 0;
    while (at < end && *at != '"') {
        if (*at != '\\' || at + 1 == end) {
            out[(*len)++] = *at++;
            continue;
        }
        static const char names[] = "nrtbf", values[] = "\n\r\t\b\f";
        const char c = at[1];
        const char *name = strchr(names, c);
        const int code = c == 'u' ? hex4(at + 2, end) : -1;
        if (code >= 0) {
            out[(*len)++] = code < 0x80 ? (char)code : '?';
            at += 6;
        } else {
            out[(*len)++] = name != NULL && c != '\0' ? values[name - names] : c;
            at += 2;
        }
    }
    return at < end ? at + 1 : end;
}

static bool has_words(const char *text, size_t len)
{
    static const char *const words[] = {"CCL INFO", "CCL WARN", "CCL version", "KOLO INFO",
                                        "KOLO WARN"};
    for (size_t i = 0; i < KOLO_LENGTH(words); i++) {
        if (memmem(text, len, words[i], strlen(words[i])) != NULL) {
            return true;
        }
    }
    return false;
}

/* The end of the line at `at`; `next` is behind its LF, CR or both. */
static const char *line_end(const char *at, const char *end, const char **next)
{
    const char *stop = at;
    while (stop < end && *stop != '\n' && *stop != '\r') {
        stop++;
    }
    const bool both = end - stop > 1 && stop[0] == '\r' && stop[1] == '\n';
    *next = stop + (stop < end) + both;
    return stop;
}

static kolo_status take_plain(const char *at, const char *end, kolo_log_line_taker *take,
                              void *context)
{
    char *room = malloc((size_t)(end - at) + 1);
    kolo_status st = room != NULL ? KOLO_OK : kolo_fail(KOLO_ERR_SYSTEM, "out of memory");
    while (at < end && st == KOLO_OK) {
        const char *next = NULL;
        const char *stop = line_end(at, end, &next);
        st = take_dressed(at, stop, room, take, context);
        at = next;
    }
    free(room);
    return st;
}

/* A line of JSON: the strings in it that hold lines of a library. False: there is none. */
static kolo_status take_json(const char *at, const char *end, kolo_log_line_taker *take,
                             void *context, bool *taken)
{
    kolo_status st = KOLO_OK;
    char *room = malloc((size_t)(end - at) + 1);
    if (room == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a line");
    }
    while (at < end && st == KOLO_OK) {
        at = memchr(at, '"', (size_t)(end - at));
        if (at == NULL) {
            break;
        }
        size_t len = 0;
        at = take_string(at + 1, end, room, &len);
        if (has_words(room, len)) {
            *taken = true;
            st = take_plain(room, room + len, take, context);
        }
    }
    free(room);
    return st;
}

static bool is_json(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '[')) {
        at++;
    }
    return at < end && (*at == '{' || *at == '"') && memchr(at, '"', (size_t)(end - at)) != NULL;
}

kolo_status kolo_log_text(const char *bytes, size_t len, kolo_log_line_taker *take,
                          kolo_log_line_counter *count, void *context)
{
    const char *end = bytes + len;
    kolo_status st = KOLO_OK;
    long line = 1;
    for (const char *at = bytes; at < end && st == KOLO_OK;) {
        const char *next = NULL;
        const char *stop = line_end(at, end, &next);
        bool taken = false;
        count(context, line);
        if (at == stop) {
            st = take(context, at, at); /* an empty line may end a line that was interrupted */
            taken = true;
        } else if (is_json(at, stop)) {
            st = take_json(at, stop, take, context, &taken);
        }
        if (st == KOLO_OK && !taken) {
            st = take_plain(at, stop, take, context);
        }
        line += next[-1] == '\n';
        at = next;
    }
    return st;
}

/* ---- files without a line of use ---- */

const char *kolo_log_kind(const char *bytes, size_t len)
{
    static const struct {
        const char *magic;
        size_t len;
        const char *is;
    } magics[] = {
        {"\x1f\x8b", 2, "is compressed with gzip: zcat FILE | kolo log -"},
        {"\xfd"
         "7zXZ",
         5, "is compressed with xz: xzcat FILE | kolo log -"},
        {"\x28\xb5\x2f\xfd", 4, "is compressed with zstd: zstdcat FILE | kolo log -"},
        {"BZh", 3, "is compressed with bzip2: bzcat FILE | kolo log -"},
        {"PK\003\004", 4, "is a zip archive: unzip -p FILE | kolo log -"},
        {"\xff\xfe", 2, "is UTF-16 text: iconv -f UTF-16 -t UTF-8 FILE | kolo log -"},
        {"\xfe\xff", 2, "is UTF-16 text: iconv -f UTF-16 -t UTF-8 FILE | kolo log -"},
        {"\x7f"
         "ELF",
         4, "is a program (ELF), not a log"},
        {"%PDF", 4, "is a PDF document, not a log"},
        {"\x89PNG", 4, "is a picture (PNG), not a log"},
    };
    size_t odd = 0, zero[2] = {0, 0};
    const size_t most = len < 4096 ? len : 4096;
    for (size_t i = 0; i < KOLO_LENGTH(magics); i++) {
        if (len >= magics[i].len && memcmp(bytes, magics[i].magic, magics[i].len) == 0) {
            return magics[i].is;
        }
    }
    for (size_t i = 0; i < most; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        zero[i % 2] += c == 0;
        odd += c < ' ' && strchr("\t\n\r\f\b\033", c) == NULL;
        odd += c == 0;
    }
    if (len == 0) {
        return "is empty";
    }
    if ((zero[0] > most / 4) != (zero[1] > most / 4)) {
        return "is UTF-16 text: iconv -f UTF-16LE -t UTF-8 FILE | kolo log -";
    }
    return odd > most / 32 ? "is binary, not a log"
                           : "has no line of NCCL, RCCL or kolo: run with NCCL_DEBUG=INFO";
}

/* The length of the character of UTF-8 at `at`; 0: it is none, or a control character. */
static size_t character_length(const char *at, size_t len)
{
    const unsigned char c = (unsigned char)at[0];
    const size_t need = c < 0x80                ? 1
                        : c >= 0xf0 && c < 0xf5 ? 4
                        : c >= 0xe0             ? 3
                        : c >= 0xc2             ? 2
                                                : 0;
    bool valid = c >= ' ' && c != 0x7f && c < 0xf5 && need > 0 && need <= len;
    for (size_t i = 1; i < need && valid; i++) {
        valid = ((unsigned char)at[i] & 0xc0) == 0x80;
    }
    return valid && !(c == 0xc2 && (unsigned char)at[1] < 0xa0) ? need : 0;
}

void kolo_log_text_safe(struct kolo_text *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len;) {
        const size_t length = character_length(text + i, len - i);
        kolo_text_add(out, "%.*s", length > 0 ? (int)length : 1, length > 0 ? text + i : "?");
        i += length > 0 ? length : 1;
    }
}
