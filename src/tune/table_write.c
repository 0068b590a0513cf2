// SPDX-License-Identifier: Apache-2.0
/* A table of measured choices as text, in the form that table_read.c reads. */
#include "plan/plan.h"
#include "table.h"
#include "tune.h"

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
