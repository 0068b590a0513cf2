// SPDX-License-Identifier: Apache-2.0
/* The fields of struct kolo_table, for table.c and table_read.c only. */
#ifndef KOLO_TUNE_TABLE_INNER_H
#define KOLO_TUNE_TABLE_INNER_H

#include "table.h"

struct kolo_table {
    char *machine;
    struct kolo_row *row;
    int count;
};

/* Whether there is a call that fits `row` and no row of the table. */
bool kolo_table_leaves(const struct kolo_table *table, const struct kolo_row *row);
/* The first row that fits this call, or NULL. */
const struct kolo_row *kolo_table_find(const struct kolo_table *table, enum kolo_coll coll,
                                       int nranks, size_t bytes, bool mapped);

#endif
