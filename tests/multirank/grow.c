// SPDX-License-Identifier: Apache-2.0
/* A rank of a communicator that takes in new ranks, or one of the new ranks.
 *
 * usage: grow old FILE NRANKS DIES_US ABORTS_US     (rank and size from the environment)
 *        grow new FILE NRANKS DIES_US RANK
 * DIES_US: this rank kills itself so many microseconds after it has begun to grow; -1: never; 0: it
 * does not grow, and dies a little later.
 * ABORTS_US: another thread aborts the old communicator then. Rank 0 puts the id into FILE. */
#include "sum.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 2000, DIES_MS = 50 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int say(const char *what, kolo_status st, double since)
{
    (void)printf("%s %s %.0f %s\n", what, kolo_status_name(st), now_ms() - since,
                 st == KOLO_OK ? "" : kolo_error_text());
    (void)fflush(stdout);
    return 0;
}

struct later {
    struct kolo_comm *comm;
    int us;
};

static void *die_later(void *arg)
{
    (void)usleep((useconds_t)((struct later *)arg)->us);
    (void)raise(SIGKILL);
    return NULL;
}

static void *abort_later(void *arg)
{
    (void)usleep((useconds_t)((struct later *)arg)->us);
    kolo_comm_abort(((struct later *)arg)->comm);
    return NULL;
}

static void start(void *(*run)(void *), void *arg)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, arg) != 0) {
        exit(4);
    }
    (void)pthread_detach(thread);
}

/* ---- the id ---- */

static bool put_id(const char *path, const struct kolo_id *id)
{
    char part[512];
    (void)snprintf(part, sizeof part, "%s.part", path);
    FILE *file = fopen(part, "w");
    const bool written = file != NULL && fwrite(id, sizeof *id, 1, file) == 1;
    return file != NULL && fclose(file) == 0 && written && rename(part, path) == 0;
}

static void get_id(const char *path, struct kolo_id *id)
{
    FILE *file = fopen(path, "r");
    while (file == NULL) {
        (void)usleep(500);
        file = fopen(path, "r");
    }
    if (fread(id, sizeof *id, 1, file) != 1) {
        exit(5);
    }
    (void)fclose(file);
}

/* ---- the ranks ---- */

struct calls {
    struct kolo_comm *comm;
    kolo_status st;
};

/* Calls on the old communicator go on meanwhile. */
static void *make_calls(void *arg)
{
    struct calls *calls = arg;
    for (int i = 0; i < CALLS && calls->st == KOLO_OK; i++) {
        calls->st = sum(calls->comm);
    }
    return NULL;
}

static kolo_status share_id(struct kolo_comm *comm, const char *path, struct kolo_id *id)
{
    kolo_status st = KOLO_OK;
    if (kolo_comm_rank(comm) == 0) {
        st = kolo_id_create(id);
        if (st != KOLO_OK || !put_id(path, id)) {
            exit(6);
        }
    }
    return kolo_broadcast(id, id, sizeof *id, KOLO_UINT8, 0, comm, NULL);
}

static int use(struct kolo_comm *grown, kolo_status st, double since)
{
    (void)say("grow", st, since);
    for (int i = 0; i < 50 && st == KOLO_OK; i++) {
        st = sum(grown);
    }
    (void)say("sums", st, since);
    return kolo_comm_size(grown);
}

static int old_rank(const char *path, int nranks, int dies_us, int aborts_us)
{
    struct kolo_comm *comm = NULL, *grown = NULL;
    struct kolo_id id;
    pthread_t thread;
    kolo_status st = kolo_comm_create_env(NULL, &comm);
    st = st == KOLO_OK ? share_id(comm, path, &id) : st;
    if (st != KOLO_OK) {
        return say("start", st, now_ms());
    }
    struct calls calls = {comm, KOLO_OK};
    struct later dies = {comm, dies_us}, aborts = {comm, aborts_us};
    if (dies_us == 0) {
        (void)usleep(DIES_MS * 1000); /* the others have the id, and grow */
        (void)raise(SIGKILL);
    } else if (dies_us > 0) {
        start(die_later, &dies);
    }
    if (aborts_us >= 0) {
        start(abort_later, &aborts);
    }
    if (pthread_create(&thread, NULL, make_calls, &calls) != 0) {
        return 4;
    }
    const double since = now_ms();
    st = kolo_comm_grow(comm, &id, nranks, kolo_comm_rank(comm), NULL, &grown);
    (void)use(grown, st, since);
    (void)pthread_join(thread, NULL);
    (void)say("calls", calls.st, since);
    kolo_comm_destroy(comm);
    kolo_comm_destroy(grown);
    return 0;
}

static int new_rank(const char *path, int nranks, int dies_us, int rank)
{
    struct kolo_comm *grown = NULL;
    struct kolo_id id;
    struct later dies = {NULL, dies_us};
    get_id(path, &id);
    if (dies_us >= 0) {
        start(die_later, &dies);
    }
    const double since = now_ms();
    const kolo_status st = kolo_comm_grow(NULL, &id, nranks, rank, NULL, &grown);
    (void)use(grown, st, since);
    kolo_comm_destroy(grown);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        return 2;
    }
    const int nranks = atoi(argv[3]), dies_us = atoi(argv[4]), last = atoi(argv[5]);
    return strcmp(argv[1], "old") == 0 ? old_rank(argv[2], nranks, dies_us, last)
                                       : new_rank(argv[2], nranks, dies_us, last);
}
