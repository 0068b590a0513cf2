// SPDX-License-Identifier: Apache-2.0
/* Look-ups in a table of measured choices. The first row that fits a call decides. */
#include "table_inner.h"

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
