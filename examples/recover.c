// SPDX-License-Identifier: Apache-2.0
/* Continue after a rank has died. The other ranks learn which rank it was, make a communicator
 * without it, and repeat the call that failed.
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

/* The communicator of the survivors. */
static struct kolo_comm *without_the_dead(struct kolo_comm *comm)
{
    struct kolo_failure failure = {.size = sizeof failure};
    struct kolo_comm *rest = NULL;
    /* All members get the same cause, so all of them exclude the same rank. Otherwise they would
     * not meet in the new communicator. Rank -1: the rank at fault is not known. */
    must(kolo_comm_failure(comm, &failure));
    if (failure.status != KOLO_ERR_PEER || failure.rank < 0) {
        must(failure.status);
    }
    must(kolo_comm_shrink(comm, &failure.rank, 1, NULL, &rest));
    printf("rank %d is rank %d of %d now, without rank %d\n", kolo_comm_rank(comm),
           kolo_comm_rank(rest), kolo_comm_size(rest),
           failure.rank);    /* failure.text tells the cause */
    kolo_comm_destroy(comm); /* a failed communicator must be destroyed, too */
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
            _exit(0); /* a sudden death; after another status kolo run would end the job */
        }
        const int mine = 1 << first_rank;
        const kolo_status status =
            kolo_all_reduce(&mine, &sum, 1, KOLO_INT32, KOLO_SUM, comm, NULL);
        if (status == KOLO_ERR_PEER) {
            comm = without_the_dead(comm);
            /* Some ranks may already have the result of this step. So all ranks go back to the
             * earliest step that any rank has not finished. They can repeat it because `mine` is
             * unchanged. After a failure the content of `sum` is undefined. */
            must(kolo_all_reduce(&step, &step, 1, KOLO_INT32, KOLO_MIN, comm, NULL));
            step--;
        } else {
            must(status);
        }
    }
    printf("rank %d ends with the sum %d of %d ranks\n", first_rank, sum, kolo_comm_size(comm));
    kolo_comm_destroy(comm);
}
