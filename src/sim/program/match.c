// SPDX-License-Identifier: Apache-2.0
/* Messages match in order per (from, to, channel). The sends to a rank are collected in the order
 * of their senders, so that a receive finds its sender by bisection. */
#include "sim/program/match.h"

#include <stdlib.h>

struct send {
    int from;
    uint32_t channel;
    int32_t request; /* -1: matched */
    uint32_t done;   /* in a sender's first: so many of its sends are matched, from this one on */
};

static int partner(const struct kolo_sim_set *set, int rank, int peer)
{
    return set->peer[set->member[rank].peer + (uint32_t)peer];
}

/* first[r] becomes the number of sends to ranks below r. */
static void count_sends(const struct kolo_sim_set *set, size_t *first)
{
    for (int r = 0; r < set->nranks; r++) {
        const struct kolo_sim_prog *p = kolo_sim_prog_of(set, r);
        for (int i = 0; i < p->nops; i++) {
            if (p->op[i].code == KOLO_DO_SEND) {
                first[partner(set, r, p->op[i].peer) + 1]++;
            }
        }
    }
    for (int r = 0; r < set->nranks; r++) {
        first[r + 1] += first[r];
    }
}

static void collect_sends(const struct kolo_sim_set *set, size_t *next, struct send *send)
{
    for (int r = 0; r < set->nranks; r++) {
        const struct kolo_sim_prog *p = kolo_sim_prog_of(set, r);
        for (int i = 0; i < p->nops; i++) {
            const struct kolo_sim_op *op = &p->op[i];
            if (op->code == KOLO_DO_SEND) {
                send[next[partner(set, r, op->peer)]++] =
                    (struct send){r, op->ref, (int32_t)op->index, 0};
            }
        }
    }
}

/* The send among count ones, sorted by sender, that a receive gets; -1: none. */
static int32_t take_send(struct send *send, size_t count, int from, uint32_t channel)
{
    size_t low = 0;
    for (size_t high = count; low < high;) {
        const size_t middle = (low + high) / 2;
        if (send[middle].from < from) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    struct send *first = &send[low];
    for (size_t i = low < count ? low + first->done : count; i < count && send[i].from == from;
         i++) {
        if (send[i].channel == channel && send[i].request >= 0) {
            const int32_t request = send[i].request;
            send[i].request = -1;
            first->done += i == low + first->done;
            return request;
        }
    }
    return -1;
}

static kolo_status match_rank(struct kolo_sim_set *set, int rank, struct send *send, size_t count)
{
    const struct kolo_sim_prog *p = kolo_sim_prog_of(set, rank);
    for (int i = 0; i < p->nops; i++) {
        const struct kolo_sim_op *op = &p->op[i];
        if (op->code != KOLO_DO_RECV) {
            continue;
        }
        const int from = partner(set, rank, op->peer);
        const int32_t request = take_send(send, count, from, op->ref);
        if (request < 0) {
            return kolo_fail(KOLO_ERR_INVALID, "rank %d receives from rank %d, which sends nothing",
                             rank, from);
        }
        set->source[set->member[rank].source + op->index] = request;
    }
    return KOLO_OK;
}

kolo_status kolo_sim_match(struct kolo_sim_set *set)
{
    const size_t n = (size_t)set->nranks;
    size_t *first = calloc(2 * (n + 2), sizeof *first);
    struct send *send = NULL;
    kolo_status st = KOLO_OK;
    if (first != NULL) {
        count_sends(set, first);
        send = malloc((first[n] + 1) * sizeof *send);
    }
    if (send == NULL) {
        st = kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the messages of %zu ranks", n);
    } else {
        size_t *next = first + n + 2;
        for (size_t r = 0; r < n; r++) {
            next[r] = first[r];
        }
        collect_sends(set, next, send);
    }
    for (int r = 0; r < set->nranks && st == KOLO_OK; r++) {
        st = match_rank(set, r, send + first[r], first[r + 1] - first[r]);
    }
    free(first);
    free(send);
    return st;
}
