// SPDX-License-Identifier: Apache-2.0
/* Going on after a rank has died: the others learn which one it was, make a communicator without
 * it, and repeat the call that failed.
 *
 *   cc recover.c -o recover $(pkg-config --cflags --libs kolo)
 *   kolo run -n 4 ./recover */
#include <kolo/kolo.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { STEPS = 10, DIES_AT = 5, VICTIM = 1 };

static void must(kolo_status status)
{
    if (status < 0) {
        (void)fprintf(stderr, "%s: %s\n", kolo_status_name(status), kolo_error_text());
        exit(1);
    }
}

/* The communicator of those that are left. */
static struct kolo_comm *without_the_dead(struct kolo_comm *comm)
{
    struct kolo_failure failure = {.size = sizeof failure};
    struct kolo_comm *rest = NULL;
    /* All members get the same verdict, so all exclude the same rank: without that they would not
     * find together. -1: it is not known whose fault it was. */
    must(kolo_comm_failure(comm, &failure));
    if (failure.status != KOLO_ERR_PEER || failure.rank < 0) {
        must(failure.status);
    }
    must(kolo_comm_shrink(comm, &failure.rank, 1, NULL, &rest));
    printf("rank %d is rank %d of %d now, without rank %d\n", kolo_comm_rank(comm),
           kolo_comm_rank(rest), kolo_comm_size(rest),
           failure.rank);    /* and failure.text tells why */
    kolo_comm_destroy(comm); /* what failed is to be destroyed, too */
    return rest;
}

int main(void)
{
    struct kolo_comm *comm = NULL;
    must(kolo_comm_create_env(NULL, &comm));
    const int first_rank = kolo_comm_rank(comm);
    int sum = 0;

    for (int step = 0; step < STEPS; step++) {
        if (step == DIES_AT && first_rank == VICTIM) {
            _exit(0); /* a death: no goodbye. (kolo run ends the whole job for another status.) */
        }
        const int mine = 1 << first_rank;
        const kolo_status status =
            kolo_all_reduce(&mine, &sum, 1, KOLO_INT32, KOLO_SUM, comm, NULL);
        if (status == KOLO_ERR_PEER) {
            comm = without_the_dead(comm);
            /* Some may have got this step's result before: all go back to the earliest that any
             * has not. That is possible because `mine` is still there; recv is not defined. */
            must(kolo_all_reduce(&step, &step, 1, KOLO_INT32, KOLO_MIN, comm, NULL));
            step--;
        } else {
            must(status);
        }
    }
    printf("rank %d ends with the sum %d of %d ranks\n", first_rank, sum, kolo_comm_size(comm));
    kolo_comm_destroy(comm);
}
