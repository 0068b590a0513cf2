// SPDX-License-Identifier: Apache-2.0
/* Calls in a random order that all ranks draw alike from a seed, on all ranks or on a part of them
 * that changes, every result checked, until the seconds are over. When ranks die the others shrink,
 * say "on SIZE without RANKS", and go on.
 *
 * usage: churn SEED SECONDS */
#include "random_calls.h"

#include <kolo/kolo.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { RANKS_MOST = 16, PER_PART = 40, TIMEOUT_MS = 20000, LEARNED_MS = 3000 };

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const kolo_status st_ = (call);                                                            \
        if (st_ != KOLO_OK) {                                                                      \
            return st_;                                                                            \
        }                                                                                          \
    } while (0)

struct run {
    struct kolo_comm *world, *part;
    struct random_calls calls;
    double end_s;
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Rank 0's clock decides for all. */
static kolo_status goes_on(struct run *r, bool *out)
{
    int32_t more = now_s() < r->end_s;
    TRY(kolo_broadcast(&more, &more, 1, KOLO_INT32, 0, r->world, NULL));
    *out = more != 0;
    return KOLO_OK;
}

static kolo_status work(struct run *r)
{
    for (bool more = true; more;) {
        const uint32_t mask = random_calls_draw(&r->calls, UINT32_MAX);
        const int color = (int)(mask >> kolo_comm_rank(r->world) & 1);
        TRY(kolo_comm_split(r->world, color, 0, NULL, &r->part));
        for (int i = 0; i < PER_PART; i++) {
            TRY(random_calls_make(&r->calls,
                                  random_calls_draw(&r->calls, 2) == 0 ? r->world : r->part));
        }
        kolo_comm_destroy(r->part);
        r->part = NULL;
        TRY(goes_on(r, &more));
    }
    return KOLO_OK;
}

/* The part's failure says nothing of the world, which learns of a death without a call. */
static kolo_status survive(struct run *r)
{
    struct kolo_failure failure = {.size = sizeof failure};
    struct kolo_comm *rest = NULL;
    kolo_status st = KOLO_ERR_PEER;
    int lost[RANKS_MOST] = {-1}, nlost = 0;
    kolo_comm_destroy(r->part);
    r->part = NULL;
    for (int ms = 0; kolo_comm_error(r->world) == KOLO_OK && ms < LEARNED_MS; ms++) {
        (void)usleep(1000);
    }
    TRY(kolo_comm_failure(r->world, &failure));
    if (failure.status != KOLO_ERR_PEER) {
        return failure.status == KOLO_OK ? KOLO_ERR_TIMEOUT : failure.status;
    }
    while (st == KOLO_ERR_PEER) { /* one more may have died */
        TRY(kolo_comm_failed_ranks(r->world, lost, RANKS_MOST, &nlost));
        st = kolo_comm_shrink(r->world, lost, nlost, NULL, &rest);
    }
    if (st != KOLO_OK) {
        (void)printf("without %d and %d more, for %s:\n", lost[0], nlost - 1, failure.text);
        return st;
    }
    kolo_comm_destroy(r->world);
    r->world = rest;
    (void)printf("on %d without", kolo_comm_size(rest));
    for (int i = 0; i < nlost; i++) {
        (void)printf(" %d", lost[i]);
    }
    (void)puts("");
    (void)fflush(stdout);
    return KOLO_OK;
}

int main(int argc, char **argv)
{
    struct kolo_config config = KOLO_CONFIG_INIT;
    struct run r = {.end_s = now_s() + (argc > 2 ? atof(argv[2]) : 1)};
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    config.timeout_ms = TIMEOUT_MS;
    kolo_status st = random_calls_begin(&r.calls, seed) ? kolo_comm_create_env(&config, &r.world)
                                                        : KOLO_ERR_SYSTEM;
    if (st == KOLO_OK) {
        (void)puts("works");
        (void)fflush(stdout);
        st = work(&r);
    }
    while (st == KOLO_ERR_PEER || st == KOLO_ERR_LINK || st == KOLO_ERR_ABORTED) {
        st = survive(&r);
        if (st != KOLO_OK) {
            break;
        }
        r.calls.random = seed = seed * 31 + 7; /* they had not all come as far */
        r.calls.calls = 0;
        st = work(&r);
    }
    (void)printf("%s %llu %s\n",
                 st != KOLO_OK   ? kolo_status_name(st)
                 : r.calls.wrong ? "wrong"
                                 : "right",
                 (unsigned long long)r.calls.calls, st != KOLO_OK ? kolo_error_text() : "");
    kolo_comm_destroy(r.part);
    kolo_comm_destroy(r.world);
    random_calls_end(&r.calls);
    return st != KOLO_OK || r.calls.wrong ? 1 : 0;
}
