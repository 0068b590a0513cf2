// SPDX-License-Identifier: Apache-2.0
/* Ranks as a table of two columns. Each row and each column has a communicator, as a model that is
 * split both ways needs.
 *
 *            column 0   column 1
 *   row 0     rank 0     rank 1
 *   row 1     rank 2     rank 3
 *   ...
 *
 *   cc rows_columns.c -o rows_columns $(pkg-config --cflags --libs kolo)
 *   kolo run -n 4 ./rows_columns */
#include <kolo/kolo.h>

#include <stdio.h>
#include <stdlib.h>

enum { COLUMNS = 2 };

static void must(kolo_status status)
{
    if (status < 0) {
        (void)fprintf(stderr, "%s: %s\n", kolo_status_name(status), kolo_error_text());
        exit(1);
    }
}

/* The sum of all members' numbers. */
static int sum_over(struct kolo_comm *comm, int mine)
{
    int sum = 0;
    must(kolo_all_reduce(&mine, &sum, 1, KOLO_INT32, KOLO_SUM, comm, NULL));
    return sum;
}

int main(void)
{
    struct kolo_comm *all = NULL;
    struct kolo_comm *row = NULL;
    struct kolo_comm *column = NULL;
    must(kolo_comm_create_env(NULL, &all));
    const int rank = kolo_comm_rank(all);

    /* Ranks with the same colour get one communicator, ordered by their key. Every rank of `all`
     * makes both calls. A rank without a communicator would pass KOLO_NO_COLOR, and get NULL. */
    must(kolo_comm_split(all, rank / COLUMNS, rank % COLUMNS, NULL, &row));
    must(kolo_comm_split(all, rank % COLUMNS, rank / COLUMNS, NULL, &column));

    /* Calls on different communicators are independent. But each rank makes them in the same order:
     * here rows first. */
    const int in_row = sum_over(row, rank);
    const int in_column = sum_over(column, rank);
    printf("rank %d: place %d of %d in its row, whose ranks sum up to %d; column: %d\n", rank,
           kolo_comm_rank(row), kolo_comm_size(row), in_row, in_column);

    kolo_comm_destroy(column);
    kolo_comm_destroy(row);
    kolo_comm_destroy(all);
}
