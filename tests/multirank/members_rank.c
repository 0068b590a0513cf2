// SPDX-License-Identifier: Apache-2.0
/* One rank of a trial of members.c. */
#include "members.h"
#include "random_calls.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { SUMS = 10, ROUNDS = 4, FEW = 4, CALLS_OF_PAUSE = 150, LOOKS = 40, LOOK_US = 500 };

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const kolo_status st_ = (call);                                                            \
        if (st_ != KOLO_OK) {                                                                      \
            return st_;                                                                            \
        }                                                                                          \
    } while (0)

static int me;
static struct report *to;
static struct random_calls calls;

double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void *be_hit(void *arg)
{
    (void)arg;
    (void)usleep((useconds_t)trial.victim_us[me]);
    to->hit_ms = now_ms();
    (void)kill(getpid(), trial.fault == KILL ? SIGKILL : SIGSTOP);
    return NULL;
}

static void begin_operation(void)
{
    pthread_t thread;
    to->begun_ms = now_ms();
    if (trial.victim_us[me] >= 0 && pthread_create(&thread, NULL, be_hit, NULL) == 0) {
        (void)pthread_detach(thread);
    }
}

static kolo_status sum(struct kolo_comm *comm)
{
    const int n = kolo_comm_size(comm);
    int32_t mine = kolo_comm_rank(comm) + 1, all = 0;
    const kolo_status st = kolo_all_reduce(&mine, &all, 1, KOLO_INT32, KOLO_SUM, comm, NULL);
    to->wrong |= st == KOLO_OK && all != n * (n + 1) / 2;
    return st;
}

/* The bit of this rank is missing in its word. failed[] gets the ranks that are gone. */
static kolo_status agree(struct kolo_comm *comm, bool content, int failed[], int *nfailed)
{
    uint64_t word = ~(UINT64_C(1) << kolo_comm_rank(comm)) & (content ? ~UINT64_C(0) : INT64_MAX);
    const kolo_status st = kolo_comm_agree(comm, &word, failed, MOST, nfailed);
    const int n = atomic_load(&to->nsteps);
    if (st == KOLO_OK && n < STEPS) {
        to->step[n] = (struct step){.epoch = kolo_comm_epoch(comm), .word = word};
        for (int i = 0; i < *nfailed; i++) {
            to->step[n].failed |= UINT64_C(1) << failed[i];
        }
        atomic_store(&to->nsteps, n + 1);
    }
    return st == KOLO_OK && (word >> 63) == 0 ? KOLO_INPROGRESS : st;
}

/* Use a communicator, and go on without the dead, until all survivors agree that it works. */
static kolo_status use(struct kolo_comm **comm)
{
    int failed[MOST], nfailed = 0;
    for (int round = 0; round < STEPS / 2; round++) {
        kolo_status st = KOLO_OK;
        for (int i = 0; i < SUMS && st == KOLO_OK; i++) {
            st = sum(*comm);
        }
        st = agree(*comm, st == KOLO_OK, failed, &nfailed);
        while (st >= KOLO_OK && nfailed > 0) {
            struct kolo_comm *rest = NULL;
            st = kolo_comm_shrink(*comm, failed, nfailed, NULL, &rest);
            if (st == KOLO_OK) {
                kolo_comm_destroy(*comm);
                *comm = rest;
                nfailed = -1;
            } else if (st == KOLO_ERR_PEER) { /* one more has died: on all ranks alike */
                st = agree(*comm, true, failed, &nfailed);
            }
        }
        if (st != KOLO_INPROGRESS && (st != KOLO_OK || nfailed == 0)) {
            return st;
        }
    }
    return KOLO_ERR_INTERNAL;
}

/* ---- the operations ---- */

/* What a rank learns when a call has failed. */
static void note_failure(struct kolo_comm *comm)
{
    struct kolo_failure failure = {.size = sizeof failure};
    to->failed_ms = now_ms();
    if (kolo_comm_failure(comm, &failure) == KOLO_OK) {
        to->failed = failure.status;
        to->named = failure.rank;
    }
}

static kolo_status work_until_failure(struct kolo_comm *comm)
{
    kolo_status st = KOLO_OK;
    const bool ends = trial.fault == PAUSE;
    for (int i = 0; st == KOLO_OK && (!ends || i < CALLS_OF_PAUSE); i++) {
        st = trial.operation == SHRINK ? sum(comm) : random_calls_make(&calls, comm);
    }
    to->wrong |= calls.wrong;
    return st;
}

/* Make no call. A rank hears of a failure all the same. */
static kolo_status idle_until_failure(struct kolo_comm *comm)
{
    kolo_status st = KOLO_OK;
    for (int i = 0; st == KOLO_OK && (trial.fault != PAUSE || i < LOOKS); i++) {
        (void)usleep(LOOK_US);
        st = kolo_comm_error(comm);
    }
    return st;
}

/* Go on without the ranks that this one knows to be lost, as a program does that agrees on
 * nothing. */
static kolo_status go_on(struct kolo_comm **comm)
{
    struct kolo_comm *rest = NULL;
    kolo_status st = KOLO_ERR_PEER;
    while (st == KOLO_ERR_PEER) { /* one more may have died */
        int lost[MOST], nlost = 0;
        TRY(kolo_comm_failed_ranks(*comm, lost, MOST, &nlost));
        st = kolo_comm_shrink(*comm, lost, nlost, NULL, &rest);
    }
    TRY(st);
    kolo_comm_destroy(*comm);
    *comm = rest;
    st = sum(rest);
    to->back_ms = st == KOLO_OK ? now_ms() : 0;
    return st == KOLO_ERR_PEER ? KOLO_OK : st; /* yet another: use() goes on without it */
}

static kolo_status lose(struct kolo_comm **comm)
{
    const kolo_status st =
        trial.operation == IDLE ? idle_until_failure(*comm) : work_until_failure(*comm);
    if (st == KOLO_OK) {
        return KOLO_OK;
    }
    note_failure(*comm);
    if (trial.fault != KILL && trial.victim_us[me] >= 0) {
        return st; /* the others have gone on without it */
    }
    return trial.operation == SHRINK ? KOLO_OK : go_on(comm); /* use() agrees first */
}

static kolo_status grow(struct kolo_comm *comm, struct kolo_comm **out)
{
    struct kolo_config config = KOLO_CONFIG_INIT;
    config.timeout_ms = trial.timeout_ms;
    TRY(kolo_comm_grow(comm, &shared->id, trial.nold + trial.nnew, me, &config, out));
    to->grown_ms = sum(*out) == KOLO_OK ? now_ms() : 0;
    return KOLO_OK;
}

static kolo_status reconfigure(struct kolo_comm *comm, struct kolo_comm **out)
{
    struct kolo_config config = KOLO_CONFIG_INIT;
    config.timeout_ms = trial.timeout_ms;
    if (comm != NULL) {
        return kolo_comm_reconfigure(comm, &shared->id, trial.members, trial.nmembers, NULL, out);
    }
    for (int i = 0, fresh = trial.nold; i < trial.nmembers; i++) {
        if (trial.members[i] < 0 && fresh++ == me) {
            return kolo_comm_enter(&shared->id, trial.nmembers, i, &config, out);
        }
    }
    return KOLO_ERR_INTERNAL;
}

static kolo_status agree_often(struct kolo_comm *comm)
{
    int failed[MOST], nfailed = 0;
    kolo_status st = KOLO_OK;
    for (int i = 0; i < ROUNDS && st >= KOLO_OK; i++) {
        st = agree(comm, true, failed, &nfailed);
    }
    return st < KOLO_OK ? st : KOLO_OK;
}

static kolo_status call_and_destroy(struct kolo_comm **comm)
{
    kolo_status st = KOLO_OK;
    for (int i = 0; i < FEW && st == KOLO_OK; i++) {
        st = random_calls_make(&calls, *comm);
    }
    to->wrong |= calls.wrong;
    kolo_comm_destroy(*comm);
    *comm = NULL;
    return st;
}

/* The operation of the trial. What survives it is in *comm or *out. */
static kolo_status change(struct kolo_comm **comm, struct kolo_comm **out)
{
    kolo_status st = KOLO_OK;
    switch (trial.operation) {
    case GROW:
        return grow(*comm, out);
    case RECONFIGURE:
        return reconfigure(*comm, out);
    case CALLS:
    case IDLE:
    case SHRINK:
        st = lose(comm);
        break;
    case AGREE:
        st = agree_often(*comm);
        break;
    case DESTROY:
        return call_and_destroy(comm);
    default:
        break;
    }
    if (st == KOLO_OK) {
        *out = *comm;
        *comm = NULL;
    }
    return st;
}

static kolo_status start_old(struct kolo_comm **comm)
{
    struct kolo_config config = KOLO_CONFIG_INIT;
    config.timeout_ms = trial.timeout_ms;
    kolo_status st = kolo_comm_create_env(&config, comm);
    if (trial.operation == START) {
        return st;
    }
    if (st == KOLO_OK && me == 0) {
        st = kolo_id_create(&shared->id);
    }
    st = st == KOLO_OK ? kolo_barrier(*comm, NULL) : st;
    atomic_fetch_add(&shared->started, 1);
    return st;
}

void run_rank(int rank)
{
    struct kolo_comm *comm = NULL, *now = NULL;
    kolo_status st = KOLO_OK;
    me = rank;
    to = &shared->report[me];
    to->named = -2;
    if (!random_calls_begin(&calls, trial.seed)) {
        _exit(1);
    }
    if (trial.operation == START) {
        begin_operation();
    }
    if (me < trial.nold) {
        st = start_old(&comm);
    }
    while (trial.operation != START && atomic_load(&shared->started) < trial.nold) {
        (void)usleep(200);
    }
    if (trial.operation != START) {
        begin_operation();
    }
    to->changed = to->last = st;
    if (st == KOLO_OK && takes_part(me)) {
        to->changed = change(&comm, &now);
        to->last = to->changed == KOLO_OK && now != NULL ? use(&now) : to->changed;
        to->size = kolo_comm_size(now);
        to->epoch = kolo_comm_epoch(now);
    }
    (void)snprintf(to->text, sizeof to->text, "%s", kolo_error_text());
    kolo_comm_destroy(now);
    kolo_comm_destroy(comm);
    _exit(0);
}
