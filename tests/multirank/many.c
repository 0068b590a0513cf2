// SPDX-License-Identifier: Apache-2.0
/* A rank of a job of many ranks on one host. Most of them do not watch the rank that dies.
 *
 * usage: many chain FIRST COUNT | many stopped VICTIM | many left VICTIM
 *   chain    ranks FIRST to FIRST + COUNT - 1 die together in a call; the others shrink
 *   stopped  rank VICTIM dies while rank VICTIM + 1 alone waits for it. Those before it are stopped.
 *   left     rank VICTIM dies once all between rank 0 and it have left; rank 0 waits for another one
 * Each survivor prints "STATUS RANK SIZE": how its call ended, and because of whom; the ranks that
 * are left after its shrink. */
#include "sum.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS_MOST = 256, WAIT_US = 100 * 1000 };

static void say(struct kolo_comm *comm, kolo_status st, int left)
{
    struct kolo_failure failure = {.size = sizeof failure};
    if (kolo_comm_failure(comm, &failure) != KOLO_OK) {
        failure.rank = -1;
    }
    (void)printf("%s %d %d\n", kolo_status_name(st), failure.rank, left);
    (void)fflush(stdout);
}

/* Shrink until all who died are known. The size of what is left; 0: it failed for another reason. */
static int go_on(struct kolo_comm *comm)
{
    struct kolo_comm *rest = NULL;
    kolo_status st = KOLO_ERR_PEER;
    while (st == KOLO_ERR_PEER) {
        int lost[RANKS_MOST], count = 0;
        if (kolo_comm_failed_ranks(comm, lost, RANKS_MOST, &count) != KOLO_OK) {
            return 0;
        }
        st = kolo_comm_shrink(comm, lost, count, NULL, &rest);
        if (st == KOLO_OK) {
            st = sum(rest);
        }
    }
    const int left = st == KOLO_OK ? kolo_comm_size(rest) : 0;
    kolo_comm_destroy(rest);
    return left;
}

static int chain(struct kolo_comm *comm, int first, int count)
{
    const int me = kolo_comm_rank(comm);
    kolo_status st = sum(comm);
    if (me >= first && me < first + count) {
        (void)raise(SIGKILL);
    }
    while (st == KOLO_OK) {
        st = sum(comm);
    }
    say(comm, st, st == KOLO_ERR_PEER ? go_on(comm) : 0);
    return 0;
}

static kolo_status wait_for(struct kolo_comm *comm, int rank)
{
    int32_t none = 0;
    return kolo_recv(&none, 1, KOLO_INT32, rank, comm, NULL);
}

/* The test stops the others once all have said that they are here. A first message has opened the
 * link to the victim, which could not be opened later. */
static int stopped(struct kolo_comm *comm, int victim)
{
    const int me = kolo_comm_rank(comm);
    const int32_t first = 1;
    kolo_status st = sum(comm);
    if (st == KOLO_OK && me == victim) {
        st = kolo_send(&first, 1, KOLO_INT32, victim + 1, comm, NULL);
    } else if (st == KOLO_OK && me == victim + 1) {
        st = wait_for(comm, victim);
    }
    (void)puts("here");
    (void)fflush(stdout);
    if (st == KOLO_OK && me == victim + 1) {
        say(comm, wait_for(comm, victim), 0);
    } else {
        (void)getchar(); /* until the test ends this process */
    }
    return 0;
}

static int left(struct kolo_comm *comm, int victim)
{
    const int me = kolo_comm_rank(comm);
    const kolo_status st = sum(comm);
    if (me > 0 && me < victim) {
        kolo_comm_destroy(comm);
        return 0;
    }
    if (me == victim) {
        (void)usleep(WAIT_US); /* most have left by then, and none needs to have */
        (void)raise(SIGKILL);
    }
    say(comm, st == KOLO_OK ? wait_for(comm, me == 0 ? victim + 1 : 0) : st, 0);
    return 0;
}

int main(int argc, char **argv)
{
    struct kolo_comm *comm = NULL;
    const char *what = argc > 2 ? argv[1] : "";
    const int victim = argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0;
    if (kolo_comm_create_env(NULL, &comm) != KOLO_OK) {
        (void)printf("create: %s\n", kolo_error_text());
        return 3;
    }
    return strcmp(what, "chain") == 0 && argc > 3
               ? chain(comm, victim, (int)strtol(argv[3], NULL, 10))
           : strcmp(what, "stopped") == 0 ? stopped(comm, victim)
           : strcmp(what, "left") == 0    ? left(comm, victim)
                                          : 2;
}
