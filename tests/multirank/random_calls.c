// SPDX-License-Identifier: Apache-2.0
#include "random_calls.h"

#include <stdio.h>
#include <stdlib.h>

enum { RANKS_MOST = 16, MOST = 60 * 1000, MOST_OF_ONE = RANKS_MOST * MOST, KINDS = 8 };

#define TRY(call)                                                                                  \
    do {                                                                                           \
        const kolo_status st_ = (call);                                                            \
        if (st_ != KOLO_OK) {                                                                      \
            return st_;                                                                            \
        }                                                                                          \
    } while (0)

bool random_calls_begin(struct random_calls *r, uint64_t seed)
{
    *r = (struct random_calls){.random = seed};
    r->in = calloc(MOST_OF_ONE, sizeof *r->in);
    r->out = calloc(MOST_OF_ONE, sizeof *r->out);
    return r->in != NULL && r->out != NULL;
}

void random_calls_end(struct random_calls *r)
{
    free(r->in);
    free(r->out);
}

/* splitmix64: public domain, https://prng.di.unimi.it/splitmix64.c */
uint32_t random_calls_draw(struct random_calls *r, uint32_t below)
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

static void expect(struct random_calls *r, size_t i, int32_t wanted, const char *what)
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

static kolo_status reduce_like(struct random_calls *r, struct kolo_comm *c, size_t count,
                               bool scatter)
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

static kolo_status rooted(struct random_calls *r, struct kolo_comm *c, size_t count, int root)
{
    TRY(kolo_broadcast(r->in, r->out, count, KOLO_INT32, root, c, NULL));
    for (size_t i = 0; i < count; i++) {
        expect(r, i, value(root, r->calls, i), "broadcast");
    }
    return KOLO_OK;
}

static kolo_status move(struct random_calls *r, struct kolo_comm *c, size_t count, bool all_to_all)
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

static kolo_status pass_on(struct random_calls *r, struct kolo_comm *c, size_t count)
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

kolo_status random_calls_make(struct random_calls *r, struct kolo_comm *c)
{
    const uint32_t what = random_calls_draw(r, 7), root = random_calls_draw(r, RANKS_MOST);
    const uint32_t most[] = {64, 64, 64, MOST, 64, 64, MOST, MOST_OF_ONE};
    const uint32_t which = random_calls_draw(r, KINDS);
    const bool of_all = what == 1 || what == 3 || what == 4; /* a block for each rank */
    const size_t count = random_calls_draw(r, of_all && most[which] > MOST ? MOST : most[which]);
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
