// SPDX-License-Identifier: Apache-2.0
/* Continue after ranks have died. The other ranks learn which ranks these were, make a communicator
 * without them, and repeat the call that failed.
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
    struct kolo_comm *rest = NULL;
    kolo_status status = KOLO_ERR_PEER;
    const int room = kolo_comm_size(comm);
    int *dead = malloc((size_t)room * sizeof *dead), ndead = 0;
    if (dead == NULL) {
        perror("recover");
        exit(1);
    }
    /* Survivors meet if they exclude the same ranks. If one of them knows of one more death, or one
     * more rank dies now, all of them get PEER, and then the longer list. */
    while (status == KOLO_ERR_PEER) {
        must(kolo_comm_failed_ranks(comm, dead, room, &ndead));
        status = kolo_comm_shrink(comm, dead, ndead, NULL, &rest);
    }
    must(status);
    printf("rank %d is rank %d of %d now, without rank %d%s\n", kolo_comm_rank(comm),
           kolo_comm_rank(rest), kolo_comm_size(rest), dead[0], ndead > 1 ? " and others" : "");
    free(dead);
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
