// SPDX-License-Identifier: Apache-2.0
/* A call of a rank whose result is known. */
#ifndef KOLO_TESTS_MULTIRANK_SUM_H
#define KOLO_TESTS_MULTIRANK_SUM_H

#include <kolo/kolo.h>

#include <stdio.h>
#include <stdlib.h>

/* An all-reduce of the ranks' numbers. A wrong result ends the process with status 3. */
static inline kolo_status sum(struct kolo_comm *comm)
{
    const int n = kolo_comm_size(comm);
    int32_t mine = kolo_comm_rank(comm) + 1, all = 0;
    const kolo_status st = kolo_all_reduce(&mine, &all, 1, KOLO_INT32, KOLO_SUM, comm, NULL);
    if (st == KOLO_OK && all != n * (n + 1) / 2) {
        (void)printf("wrong sum %d of %d ranks\n", all, n);
        exit(3);
    }
    return st;
}

#endif
