// SPDX-License-Identifier: Apache-2.0
/* The parser of a table of measured choices.
 *
 * It reads line by line, word by word. A word is a place in the text, so that an error can name its
 * line and column. The parser also refuses a row that no call can reach, because earlier rows take
 * all its calls. The author of the row expects it to count.
 */
#include "plan/plan.h"
#include "table_inner.h"
#include "tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct word {
    const char *at;
    size_t len;
};

struct parser {
    const struct kolo_table_source *source;
    struct kolo_table *table;
    const char *line_at, *line_end; /* the comment is cut off */
    const char *next;               /* the next of the line's words */
    int line;                       /* from 1 */
    int line_of[KOLO_TABLE_ROWS];
};

/* ---- words ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Take the next word. It is empty at the end of the line. */
static struct word take_word(struct parser *p)
{
    while (p->next < p->line_end && is_blank(*p->next)) {
        p->next++;
    }
    const char *at = p->next;
    while (p->next < p->line_end && !is_blank(*p->next)) {
        p->next++;
    }
    return (struct word){at, (size_t)(p->next - at)};
}

static bool is_word(struct word w, const char *text)
{
    return strlen(text) == w.len && strncmp(w.at, text, w.len) == 0;
}

/* Fail with `FILE:line:column: "word" why`. `format` and its arguments make the why. */
static kolo_status refuse_line(const struct parser *p, struct word w, const char *format, ...)
    KOLO_PRINTF(3, 4);
static kolo_status refuse_line(const struct parser *p, struct word w, const char *format, ...)
{
    char why[768];
    const char *what = w.len > 0 ? "" : "the end of the line ";
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return kolo_fail(KOLO_ERR_INVALID, "%s:%d:%d: %s%s%.*s%s%s", p->source->name, p->line,
                     (int)(w.at - p->line_at) + 1, what, w.len > 0 ? "\"" : "",
                     (int)kolo_min(w.len, 80), w.at, w.len > 0 ? "\" " : "", why);
}

static bool copy_word(struct word w, char *out, size_t cap)
{
    if (w.len == 0 || w.len >= cap) {
        return false;
    }
    memcpy(out, w.at, w.len);
    out[w.len] = '\0';
    return true;
}

static bool parse_bytes(struct word w, size_t *out)
{
    char text[32];
    return copy_word(w, text, sizeof text) && kolo_parse_bytes(text, out);
}

static bool parse_number(struct word w, int *out)
{
    char text[16];
    long value = 0;
    if (!copy_word(w, text, sizeof text) || !kolo_parse_int(text, 1, 1 << 24, &value)) {
        return false;
    }
    *out = (int)value;
    return true;
}

/* ---- the words of a row ---- */

static kolo_status parse_coll(const struct parser *p, struct word w, struct kolo_row *row)
{
    struct kolo_text allowed = {0};
    if (kolo_coll_find(w.at, w.len, &row->coll)) {
        return KOLO_OK;
    }
    kolo_coll_list(&allowed, ", ");
    const kolo_status st = refuse_line(p, w, "is no collective; there are %s", allowed.chars);
    kolo_text_free(&allowed);
    return st;
}

static kolo_status parse_ranks(const struct parser *p, struct word w, struct kolo_row *row)
{
    const char *dash = w.len > 0 ? memchr(w.at, '-', w.len) : NULL;
    row->ranks_low = 1;
    row->ranks_high = INT32_MAX;
    if (is_word(w, "*")) {
        return KOLO_OK;
    }
    const size_t before = dash != NULL ? (size_t)(dash - w.at) : w.len;
    const struct word low = {w.at, before};
    const struct word high = dash != NULL ? (struct word){dash + 1, w.len - before - 1} : low;
    if (!parse_number(low, &row->ranks_low) || !parse_number(high, &row->ranks_high)) {
        return refuse_line(p, w, "is no number of ranks; \"2\", \"2-8\" or \"*\" would be");
    }
    if (row->ranks_low > row->ranks_high) {
        return refuse_line(p, w, "is empty; the lower number comes first");
    }
    return KOLO_OK;
}

static kolo_status parse_range(const struct parser *p, struct word w, struct kolo_row *row)
{
    const char *comma = w.len > 0 ? memchr(w.at, ',', w.len) : NULL;
    row->low = 0;
    row->high = SIZE_MAX;
    if (is_word(w, "*")) {
        return KOLO_OK;
    }
    if (comma == NULL || w.at[0] != '[' || w.at[w.len - 1] != ')') {
        return refuse_line(p, w,
                           "is no range of bytes; \"[4k,64k)\", \"[64k,)\" or \"*\" would be");
    }
    const struct word low = {w.at + 1, (size_t)(comma - w.at) - 1};
    const struct word high = {comma + 1, w.len - low.len - 3};
    if (!parse_bytes(low, &row->low)) {
        return refuse_line(p, low.len > 0 ? low : w,
                           "is no number of bytes; \"512\", \"4k\" or \"1M\" would be");
    }
    if (high.len > 0 && !parse_bytes(high, &row->high)) {
        return refuse_line(p, high, "is no number of bytes; \"512\", \"4k\", \"1M\" or nothing is");
    }
    if (row->low >= row->high) {
        return refuse_line(p, w, "is empty; the end of a range is not part of it");
    }
    return KOLO_OK;
}

static kolo_status parse_algo(const struct parser *p, struct word w, struct kolo_row *row)
{
    struct kolo_text allowed = {0};
    for (int i = 0; i < p->source->algo_count(); i++) {
        const struct kolo_algo *algo = p->source->algo_at(i);
        if (algo->coll != row->coll) {
            continue;
        }
        if (is_word(w, kolo_algo_word(algo))) {
            kolo_text_free(&allowed);
            row->algo = algo;
            return KOLO_OK;
        }
        kolo_text_add(&allowed, "%s%s", allowed.len > 0 ? ", " : "", kolo_algo_word(algo));
    }
    const kolo_status st = refuse_line(p, w, "is no algorithm of %s; there are %s",
                                       kolo_coll_name(row->coll), allowed.chars);
    kolo_text_free(&allowed);
    return st;
}

static kolo_status parse_tile(const struct parser *p, struct word w, struct kolo_row *row)
{
    row->tile_bytes = 0;
    if (is_word(w, "default") || (parse_bytes(w, &row->tile_bytes) && row->tile_bytes > 0)) {
        return KOLO_OK;
    }
    return refuse_line(p, w, "is no tile; bytes (\"64k\") or \"default\" would be");
}

static kolo_status parse_buffers(const struct parser *p, struct word w, struct kolo_row *row)
{
    static const char *const names[] = {"private", "shared", "any"};
    for (int i = 0; i < (int)KOLO_LENGTH(names); i++) {
        if (is_word(w, names[i])) {
            row->buffers = (enum kolo_buffers)i;
            return KOLO_OK;
        }
    }
    return refuse_line(p, w,
                       "says nothing about buffers; \"private\", \"shared\" or \"any\" would");
}

/* ---- what was measured ---- */

/* Parse "12.3", alike in every locale. A table never has exponents. */
static bool parse_decimal(struct word w, double *out)
{
    double value = 0, unit = 1;
    size_t digits = 0;
    bool fraction = false;
    for (size_t i = 0; i < w.len; i++) {
        if (w.at[i] == '.' && !fraction) {
            fraction = true;
        } else if (w.at[i] >= '0' && w.at[i] <= '9') {
            unit = fraction ? unit / 10 : unit;
            value = fraction ? value + unit * (w.at[i] - '0') : value * 10 + (w.at[i] - '0');
            digits++;
        } else {
            return false;
        }
    }
    *out = value;
    return digits > 0 && digits < 18;
}

static const struct measured {
    const char *name; /* with its '=' */
    size_t offset;
    bool percent;
} measured[] = {
    {"us=", offsetof(struct kolo_row, us), false},
    {"default_us=", offsetof(struct kolo_row, default_us), false},
    {"gain=", offsetof(struct kolo_row, gain), true},
    {"sigma=", offsetof(struct kolo_row, sigma), true},
};

static kolo_status parse_measured(const struct parser *p, struct word w, unsigned *seen,
                                  struct kolo_row *row)
{
    for (unsigned i = 0; i < KOLO_LENGTH(measured); i++) {
        const size_t name_len = strlen(measured[i].name);
        if (w.len <= name_len || strncmp(w.at, measured[i].name, name_len) != 0) {
            continue;
        }
        struct word number = {w.at + name_len, w.len - name_len};
        const bool percent = number.at[number.len - 1] == '%';
        double value = 0;
        number.len -= percent;
        if (percent != measured[i].percent || !parse_decimal(number, &value)) {
            return refuse_line(p, w, "wants a decimal number%s",
                               measured[i].percent ? " and \"%\"" : "");
        }
        if ((*seen >> i & 1) != 0) {
            return refuse_line(p, w, "is there twice");
        }
        *seen |= 1u << i;
        value = percent ? value / 100 : value;
        memcpy((char *)row + measured[i].offset, &value, sizeof value);
        return KOLO_OK;
    }
    return refuse_line(p, w, "is not known; us=, default_us=, gain= and sigma= may follow a row");
}

/* ---- rows ---- */

static kolo_status check_reached(const struct parser *p, struct word first,
                                 const struct kolo_row *new)
{
    const struct kolo_table *t = p->table;
    if (kolo_table_leaves(t, new)) {
        return KOLO_OK;
    }
    const bool mapped = new->buffers == KOLO_BUFFERS_SHARED;
    const struct kolo_row *other = kolo_table_find(t, new->coll, new->ranks_low, new->low, mapped);
    return refuse_line(p, first,
                       "begins a row that can never match: the rows before it, such as line "
                       "%d, take all that it stands for",
                       p->line_of[other - t->row]);
}

static kolo_status parse_row(struct parser *p, struct word first)
{
    struct kolo_row row = {0};
    unsigned seen = 0;
    KOLO_TRY(parse_coll(p, first, &row));
    KOLO_TRY(parse_ranks(p, take_word(p), &row));
    KOLO_TRY(parse_range(p, take_word(p), &row));
    KOLO_TRY(parse_algo(p, take_word(p), &row));
    KOLO_TRY(parse_tile(p, take_word(p), &row));
    KOLO_TRY(parse_buffers(p, take_word(p), &row));
    for (struct word w = take_word(p); w.len > 0; w = take_word(p)) {
        KOLO_TRY(parse_measured(p, w, &seen, &row));
    }
    if (p->table->count == KOLO_TABLE_ROWS) {
        return refuse_line(p, first, "is one row too many; a table has at most %d",
                           KOLO_TABLE_ROWS);
    }
    KOLO_TRY(check_reached(p, first, &row));
    p->line_of[p->table->count] = p->line;
    p->table->row[p->table->count++] = row;
    return KOLO_OK;
}

/* ---- the head ---- */

static kolo_status parse_version(struct parser *p, struct word first)
{
    int version = 0;
    if (!is_word(first, "kolo-table")) {
        return refuse_line(p, first, "is not how a table begins; \"kolo-table %d\" is",
                           KOLO_TABLE_VERSION);
    }
    const struct word w = take_word(p);
    if (!parse_number(w, &version) || version != KOLO_TABLE_VERSION) {
        return refuse_line(p, w, "is no version that this kolo reads; it reads %d",
                           KOLO_TABLE_VERSION);
    }
    const struct word more = take_word(p);
    return more.len == 0 ? KOLO_OK : refuse_line(p, more, "is too much; the version ends the line");
}

static kolo_status parse_machine(struct parser *p, struct word first)
{
    if (!is_word(first, "machine")) {
        return refuse_line(p, first, "must be \"machine\" and what names it, or \"machine any\"");
    }
    const struct word w = take_word(p);
    if (w.len == 0) {
        return refuse_line(p, w, "where the machine must be named, or \"any\"");
    }
    size_t len = (size_t)(p->line_end - w.at);
    while (len > 0 && is_blank(w.at[len - 1])) {
        len--;
    }
    p->table->machine = strndup(w.at, len);
    return p->table->machine != NULL ? KOLO_OK
                                     : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a table");
}

/* ---- all of it ---- */

static kolo_status parse_line(struct parser *p, int *heads)
{
    const struct word first = take_word(p);
    if (first.len == 0) {
        return KOLO_OK;
    }
    if (*heads == 2) {
        return parse_row(p, first);
    }
    ++*heads;
    return *heads == 1 ? parse_version(p, first) : parse_machine(p, first);
}

static kolo_status parse_all(struct parser *p, const char *text)
{
    int heads = 0;
    for (const char *at = text; *at != '\0';) {
        const size_t len = strcspn(at, "\n");
        const char *comment = memchr(at, '#', len);
        p->line++;
        p->line_at = p->next = at;
        p->line_end = comment != NULL ? comment : at + len;
        KOLO_TRY(parse_line(p, &heads));
        at += len + (at[len] == '\n');
    }
    if (heads < 2) {
        return kolo_fail(KOLO_ERR_INVALID, "%s: it ends before %s", p->source->name,
                         heads == 0 ? "\"kolo-table 1\"" : "\"machine\" and what names it");
    }
    return KOLO_OK;
}

kolo_status kolo_table_parse(const char *text, const struct kolo_table_source *source,
                             struct kolo_table **out)
{
    struct kolo_table *table = calloc(1, sizeof *table);
    struct parser *p = calloc(1, sizeof *p);
    kolo_status st = KOLO_OK;
    if (table != NULL) {
        table->row = calloc(KOLO_TABLE_ROWS, sizeof *table->row);
    }
    if (table == NULL || p == NULL || table->row == NULL) {
        st = kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a table");
    } else {
        p->source = source;
        p->table = table;
        st = parse_all(p, text);
    }
    free(p);
    if (st != KOLO_OK) {
        kolo_table_destroy(table);
        return st;
    }
    *out = table;
    return KOLO_OK;
}
