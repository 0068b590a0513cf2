// SPDX-License-Identifier: Apache-2.0
/* Sends and receives: each rank passes the block that it got to its right neighbour, until every
 * rank has seen every block.
 *
 * kolo_all_gather() does the same, and faster. This example is a model for programs with a pattern
 * of their own, for example one that computes with each block as it passes.
 *
 *   0 -> 1 -> 2 -> 3 -> 0
 *
 *   cc ring.c -o ring $(pkg-config --cflags --libs kolo)
 *   kolo run -n 4 ./ring */
#include <kolo/kolo.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4096 };

static void must(kolo_status status)
{
    if (status < 0) {
        (void)fprintf(stderr, "%s: %s\n", kolo_status_name(status), kolo_error_text());
        exit(1);
    }
}

/* A stand-in for work on a block. */
static double sum_of(const double *block)
{
    double sum = 0;
    for (int i = 0; i < BLOCK; i++) {
        sum += block[i];
    }
    return sum;
}

int main(void)
{
    struct kolo_comm *comm = NULL;
    must(kolo_comm_create_env(NULL, &comm));
    const int rank = kolo_comm_rank(comm);
    const int n = kolo_comm_size(comm);
    static double have[BLOCK];
    static double next[BLOCK];
    for (int i = 0; i < BLOCK; i++) {
        have[i] = rank + 1;
    }

    double seen = sum_of(have);
    for (int step = 1; step < n; step++) {
        /* All ranks send at once, and a send may wait for its receive. If the send came first, all
         * ranks could wait for ever. In a group neither call waits for the other. */
        must(kolo_group_begin());
        must(kolo_send(have, BLOCK, KOLO_FLOAT64, (rank + 1) % n, comm, NULL));
        must(kolo_recv(next, BLOCK, KOLO_FLOAT64, (rank + n - 1) % n, comm, NULL));
        must(kolo_group_end());
        memcpy(have, next, sizeof have);
        seen += sum_of(have);
    }
    printf("rank %d: the sum of all %d blocks is %g\n", rank, n, seen);
    kolo_comm_destroy(comm);
}
