// SPDX-License-Identifier: Apache-2.0
/* A rank that any launcher may start: it meets the others twice, each time by what the environment
 * says, and checks that everybody is who he should be.
 *
 * usage: meet [VICTIM]   with a VICTIM that rank kills itself between the meetings */
#include "boot/launch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { TIMEOUT_MS = 30000 };

struct card {
    int32_t rank, round;
    uint64_t host, process;
};

static bool are_right(const struct card *cards, int nranks, int round)
{
    const uint64_t host = kolo_host_id();
    for (int i = 0; i < nranks; i++) {
        if (cards[i].rank != i || cards[i].round != round || cards[i].host != host) {
            return false;
        }
        for (int j = 0; j < i; j++) {
            if (cards[i].process == cards[j].process) {
                return false;
            }
        }
    }
    return true;
}

static kolo_status meet(int round, struct kolo_launch *launch)
{
    struct kolo_boot *boot = NULL;
    KOLO_TRY(kolo_launch_next(TIMEOUT_MS, launch));
    const int nranks = launch->nranks;
    const struct card mine = {launch->rank, round, kolo_host_id(), kolo_process_id()};
    struct card *all = calloc((size_t)nranks, sizeof *all);
    if (all == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "no memory");
    }
    kolo_status st = kolo_boot_open(&launch->meet, nranks, launch->rank, launch->rank == 0,
                                    TIMEOUT_MS, NULL, &boot);
    if (st == KOLO_OK) {
        st = kolo_boot_all_gather(boot, &mine, sizeof mine, all);
    }
    if (st == KOLO_OK && !are_right(all, nranks, round)) {
        st = kolo_fail(KOLO_ERR_INTERNAL, "round %d: not everybody is who he should be", round);
    }
    kolo_boot_close(boot);
    free(all);
    return st;
}

int main(int argc, char **argv)
{
    struct kolo_launch launch = {0};
    for (int round = 0; round < 2; round++) {
        const kolo_status st = meet(round, &launch);
        if (st != KOLO_OK) {
            (void)fprintf(stderr, "%s: %s\n", kolo_status_name(st), kolo_error_text());
            return 1;
        }
        if (argc > 1 && atoi(argv[1]) == launch.rank) {
            (void)raise(SIGKILL);
        }
    }
    (void)printf("rank %d of %d met the others twice, started by %s\n", launch.rank, launch.nranks,
                 launch.launcher);
    return 0;
}
