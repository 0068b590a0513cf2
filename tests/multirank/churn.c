// SPDX-License-Identifier: Apache-2.0
/* Calls in a random order that all ranks draw alike from a seed, on all ranks or on a part of them
 * that changes, every result checked, until the seconds are over. When ranks die the others shrink,
 * say "on SIZE without RANKS", and go on.
 *
 * usage: churn SEED SECONDS */
#include <kolo/kolo.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 60 * 1000, RANKS_MOST = 16, PER_PART = 40, TIMEOUT_MS = 20000, LEARNED_MS = 3000 };

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const kolo_status st_ = (call);                                                            \
        if (st_ != KOLO_OK) {                                                                      \
            return st_;                                                                            \
        }                                                                                          \
    } while (0)

struct run {
    struct kolo_comm *world, *part;
    uint64_t random; /* the same on all ranks */
    uint64_t calls;
    int32_t *in, *out; /* [RANKS_MOST * MOST] */
    double end_s;
    bool wrong;
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* splitmix64: public domain, https://prng.di.unimi.it/splitmix64.c */
static uint32_t draw(struct run *r, uint32_t below)
{
    uint64_t z = r->random += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return (uint32_t)((z ^ z >> 31) >> 32) % below;
}

static int32_t value(int rank, uint64_t call, size_t i)
{
    return (int32_t)((uint32_t)rank * 1000003u + (uint32_t)call * 7919u + (uint32_t)i * 31u);
}

static void expect(struct run *r, size_t i, int32_t wanted, const char *what)
{
    if (r->out[i] != wanted && !r->wrong) {
        r->wrong = true;
        (void)printf("wrong: %s, call %llu, element %zu\n", what, (unsigned long long)r->calls, i);
    }
}

/* The sum of what all ranks have at a place. */
static int32_t sum_at(int n, uint64_t call, size_t i)
{
    uint32_t sum = 0;
    for (int q = 0; q < n; q++) {
        sum += (uint32_t)value(q, call, i);
    }
    return (int32_t)sum;
}

static kolo_status reduce_like(struct run *r, struct kolo_comm *c, size_t count, bool scatter)
{
    const int n = kolo_comm_size(c), me = kolo_comm_rank(c);
    const size_t first = scatter ? (size_t)me * count : 0;
    TRY(scatter ? kolo_reduce_scatter(r->in, r->out, count, KOLO_INT32, KOLO_SUM, c, NULL)
                : kolo_all_reduce(r->in, r->out, count, KOLO_INT32, KOLO_SUM, c, NULL));
    for (size_t i = 0; i < count; i++) {
        expect(r, i, sum_at(n, r->calls, first + i), scatter ? "reduce_scatter" : "all_reduce");
    }
    return KOLO_OK;
}

static kolo_status rooted(struct run *r, struct kolo_comm *c, size_t count, int root)
{
    TRY(kolo_broadcast(r->in, r->out, count, KOLO_INT32, root, c, NULL));
    for (size_t i = 0; i < count; i++) {
        expect(r, i, value(root, r->calls, i), "broadcast");
    }
    return KOLO_OK;
}

static kolo_status move(struct run *r, struct kolo_comm *c, size_t count, bool all_to_all)
{
    const int n = kolo_comm_size(c), me = kolo_comm_rank(c);
    const size_t first = all_to_all ? (size_t)me * count : 0;
    TRY(all_to_all ? kolo_all_to_all(r->in, r->out, count, KOLO_INT32, c, NULL)
                   : kolo_all_gather(r->in, r->out, count, KOLO_INT32, c, NULL));
    for (int q = 0; q < n; q++) {
        for (size_t i = 0; i < count; i++) {
            expect(r, (size_t)q * count + i, value(q, r->calls, first + i),
                   all_to_all ? "all_to_all" : "all_gather");
        }
    }
    return KOLO_OK;
}

static kolo_status pass_on(struct run *r, struct kolo_comm *c, size_t count)
{
    const int n = kolo_comm_size(c), me = kolo_comm_rank(c), from = (me + n - 1) % n;
    TRY(kolo_group_begin());
    const kolo_status sent = kolo_send(r->in, count, KOLO_INT32, (me + 1) % n, c, NULL);
    const kolo_status received = kolo_recv(r->out, count, KOLO_INT32, from, c, NULL);
    TRY(kolo_group_end());
    TRY(sent);
    TRY(received);
    for (size_t i = 0; i < count; i++) {
        expect(r, i, value(from, r->calls, i), "send");
    }
    return KOLO_OK;
}

static kolo_status one(struct run *r)
{
    struct kolo_comm *c = draw(r, 2) == 0 ? r->world : r->part;
    const uint32_t what = draw(r, 7), root = draw(r, RANKS_MOST);
    const size_t most = draw(r, 4) == 0 ? MOST : 64, count = draw(r, (uint32_t)most);
    const int n = kolo_comm_size(c), me = kolo_comm_rank(c);
    const size_t all = what == 1 || what == 4 ? count * (size_t)n : count;
    r->calls++;
    for (size_t i = 0; i < all; i++) {
        r->in[i] = value(me, r->calls, i);
    }
    switch (what) {
    case 0:
    case 1:
        return reduce_like(r, c, count, what == 1);
    case 2:
        return rooted(r, c, count, (int)root % n);
    case 3:
    case 4:
        return move(r, c, count, what == 4);
    case 5:
        return pass_on(r, c, count);
    default:
        return kolo_barrier(c, NULL);
    }
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
        const uint32_t mask = draw(r, UINT32_MAX);
        const int color = (int)(mask >> kolo_comm_rank(r->world) & 1);
        TRY(kolo_comm_split(r->world, color, 0, NULL, &r->part));
        for (int i = 0; i < PER_PART; i++) {
            TRY(one(r));
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
    struct run r = {.random = argc > 1 ? strtoull(argv[1], NULL, 10) : 1,
                    .end_s = now_s() + (argc > 2 ? atof(argv[2]) : 1)};
    uint64_t seed = r.random;
    config.timeout_ms = TIMEOUT_MS;
    r.in = calloc((size_t)RANKS_MOST * MOST, sizeof *r.in);
    r.out = calloc((size_t)RANKS_MOST * MOST, sizeof *r.out);
    kolo_status st =
        r.in != NULL && r.out != NULL ? kolo_comm_create_env(&config, &r.world) : KOLO_ERR_SYSTEM;
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
        r.random = seed = seed * 31 + 7; /* they had not all come as far */
        r.calls = 0;
        st = work(&r);
    }
    (void)printf("%s %llu %s\n",
                 st != KOLO_OK ? kolo_status_name(st)
                 : r.wrong     ? "wrong"
                               : "right",
                 (unsigned long long)r.calls, st != KOLO_OK ? kolo_error_text() : "");
    kolo_comm_destroy(r.part);
    kolo_comm_destroy(r.world);
    free(r.in);
    free(r.out);
    return st != KOLO_OK || r.wrong ? 1 : 0;
}
