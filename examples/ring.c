// SPDX-License-Identifier: Apache-2.0
/* Sends and receives: each rank passes what it got to its right neighbour, until everybody has
 * seen everything. (kolo_all_gather() does this, and faster: this is the model of a program whose
 * pattern is its own, such as one that computes with each block as it comes by.)
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

/* What stands for work on a block. */
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
        /* All ranks send at once. A send may wait for its receive, so that a send before the
         * receive could leave all of them waiting; in a group neither waits for the other. */
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
