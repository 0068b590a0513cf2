// SPDX-License-Identifier: Apache-2.0
/* Look-ups in a table of measured choices. The first row that fits a call decides. And such a
 * table as text, in the form that table_read.c reads. */
#include "plan/plan.h"
#include "table_inner.h"
#include "tune.h"

#include <stdlib.h>
#include <string.h>

static bool is_for(const struct kolo_row *row, int nranks, size_t bytes, bool mapped)
{
    /* A range without an end includes SIZE_MAX itself. */
    const bool below = bytes < row->high || row->high == SIZE_MAX;
    const enum kolo_buffers mine = mapped ? KOLO_BUFFERS_SHARED : KOLO_BUFFERS_PRIVATE;
    return nranks >= row->ranks_low && nranks <= row->ranks_high && bytes >= row->low && below &&
           (row->buffers == KOLO_BUFFERS_ANY || row->buffers == mine);
}

const struct kolo_row *kolo_table_find(const struct kolo_table *t, enum kolo_coll coll, int nranks,
                                       size_t bytes, bool mapped)
{
    int at = 0;
    return kolo_table_next(t, coll, nranks, bytes, mapped, &at);
}

/* List the rows that take some of the calls that fit `new`. */
static int list_rivals(const struct kolo_table *t, const struct kolo_row *new, bool mapped,
                       const struct kolo_row *rival[KOLO_TABLE_ROWS])
{
    const enum kolo_buffers other = mapped ? KOLO_BUFFERS_PRIVATE : KOLO_BUFFERS_SHARED;
    int count = 0;
    for (int i = 0; i < t->count; i++) {
        const struct kolo_row *row = &t->row[i];
        if (row->coll == new->coll && row->buffers != other &&
            row->low < new->high &&new->low < row->high &&
            row->ranks_low <= new->ranks_high &&new->ranks_low <= row->ranks_high) {
            rival[count++] = row;
        }
    }
    return count;
}

static bool is_free(const struct kolo_row *const *rival, int count, int nranks, size_t bytes,
                    bool mapped)
{
    for (int i = 0; i < count; i++) {
        if (is_for(rival[i], nranks, bytes, mapped)) {
            return false;
        }
    }
    return true;
}

/* Whether a call can reach `new`. If calls can, take the call with the fewest ranks, then the
 * fewest bytes. Each of the two numbers is the row's own minimum, or the first value behind another
 * row's range. So it is enough to try these values. */
static bool is_reached(const struct kolo_table *t, const struct kolo_row *new, bool mapped)
{
    const struct kolo_row *rival[KOLO_TABLE_ROWS];
    const int count = list_rivals(t, new, mapped, rival);
    for (int i = -1; i < count; i++) {
        const int last = i < 0 ? new->ranks_low - 1 : rival[i]->ranks_high;
        const int nranks = last < INT32_MAX ? last + 1 : last;
        for (int k = -1; k < count; k++) {
            const size_t bytes = k < 0 ? new->low : rival[k]->high;
            if (is_for(new, nranks, bytes, mapped) &&
                is_free(rival, count, nranks, bytes, mapped)) {
                return true;
            }
        }
    }
    return false;
}

bool kolo_table_leaves(const struct kolo_table *table, const struct kolo_row *row)
{
    return is_reached(table, row, false) || is_reached(table, row, true);
}

const struct kolo_row *kolo_table_next(const struct kolo_table *table, enum kolo_coll coll,
                                       int nranks, size_t bytes, bool mapped, int *at)
{
    while (table != NULL && *at < table->count) {
        const struct kolo_row *row = &table->row[(*at)++];
        if (row->coll == coll && is_for(row, nranks, bytes, mapped)) {
            return row;
        }
    }
    return NULL;
}

const char *kolo_table_machine(const struct kolo_table *table)
{
    return table->machine;
}

bool kolo_table_fits(const struct kolo_table *table, const char *machine)
{
    const size_t len = strcspn(table->machine, " ");
    return strcmp(table->machine, "any") == 0 ||
           (strcspn(machine, " ") == len && strncmp(table->machine, machine, len) == 0);
}

int kolo_table_rows(const struct kolo_table *table)
{
    return table->count;
}

const struct kolo_row *kolo_table_row(const struct kolo_table *table, int index)
{
    return &table->row[index];
}

void kolo_table_destroy(struct kolo_table *table)
{
    if (table == NULL) {
        return;
    }
    free(table->machine);
    free(table->row);
    free(table);
}

/* ---- as text ---- */

static void add_bytes(struct kolo_text *out, size_t bytes)
{
    static const char units[] = {'T', 'G', 'M', 'k'};
    for (int i = 0; i < (int)KOLO_LENGTH(units); i++) {
        const size_t unit = (size_t)1 << (40 - 10 * i);
        if (bytes >= unit && bytes % unit == 0) {
            kolo_text_add(out, "%zu%c", bytes / unit, units[i]);
            return;
        }
    }
    kolo_text_add(out, "%zu", bytes);
}

static void add_ranks(struct kolo_text *out, const struct kolo_row *row)
{
    if (row->ranks_low == row->ranks_high) {
        kolo_text_add(out, " %d ", row->ranks_low);
    } else if (row->ranks_high == INT32_MAX) {
        kolo_text_add(out, " * ");
    } else {
        kolo_text_add(out, " %d-%d ", row->ranks_low, row->ranks_high);
    }
}

static void add_range(struct kolo_text *out, const struct kolo_row *row)
{
    if (row->low == 0 && row->high == SIZE_MAX) {
        kolo_text_add(out, "*");
        return;
    }
    kolo_text_add(out, "[");
    add_bytes(out, row->low);
    kolo_text_add(out, ",");
    if (row->high != SIZE_MAX) {
        add_bytes(out, row->high);
    }
    kolo_text_add(out, ")");
}

void kolo_table_write_head(const char *machine, struct kolo_text *out)
{
    kolo_text_add(out, "kolo-table %d\nmachine %s\n", KOLO_TABLE_VERSION, machine);
}

void kolo_table_write_row(const struct kolo_row *row, struct kolo_text *out)
{
    static const char *const buffers[] = {"private", "shared", "any"};
    kolo_text_add(out, "%s", kolo_coll_name(row->coll));
    add_ranks(out, row);
    add_range(out, row);
    kolo_text_add(out, " %s ", kolo_algo_word(row->algo));
    if (row->tile_bytes > 0) {
        add_bytes(out, row->tile_bytes);
    } else {
        kolo_text_add(out, "default");
    }
    kolo_text_add(out, " %s", buffers[row->buffers]);
    if (row->us > 0) {
        kolo_text_add(out, " us=%.2f default_us=%.2f gain=%.1f%% sigma=%.1f%%", row->us,
                      row->default_us, row->gain * 100, row->sigma * 100);
    }
    kolo_text_add(out, "\n");
}
