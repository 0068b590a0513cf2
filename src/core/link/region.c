// SPDX-License-Identifier: Apache-2.0
/* The memory that a rank shows its peers, and what the executor knows of each peer. */
#include "core/link/region.h"

#include "memory/segment.h"

#include <stdlib.h>
#include <string.h>

/* The device whose memory our peers can map: the first that reaches one so, else the first there
 * is. */
static struct kolo_opened *find_mapper(struct kolo_comm *c)
{
    for (int q = 0; q < c->ranks.nranks; q++) {
        const struct kolo_member *m = &c->member[q];
        for (int i = 0; i < c->links.nopened && q != c->ranks.rank; i++) {
            if (c->links.opened[i].endpoint == m->device && (m->reach.caps & KOLO_CAP_MAP) != 0) {
                return &c->links.opened[i];
            }
        }
    }
    return NULL;
}

/* A ring has 2(n-1) rounds, an all-to-all n - 1; trees and chains of few ranks some dozens. Inside
 * one host a ring of very many ranks is slower than what else there is, and its lines would be most
 * of the memory that they take. */
static int phases_for(const struct kolo_comm *c)
{
    const int rings = c->layout.nrings < KOLO_LANES ? c->layout.nrings : KOLO_LANES;
    const bool crowd = c->ranks.nhosts == 1 && c->ranks.nranks > 128;
    return (crowd ? 1 : 2 * rings) * c->ranks.nranks + 62;
}

static kolo_status make_arrays(struct kolo_exec_env *env, size_t n)
{
    env->region = calloc(n, sizeof *env->region);
    env->slots = calloc(n, sizeof *env->slots);
    env->peer_in = calloc(n, sizeof *env->peer_in);
    env->peer_out = calloc(n, sizeof *env->peer_out);
    env->link = calloc(n, sizeof *env->link);
    env->transport = calloc(n, sizeof *env->transport);
    env->endpoint = calloc(n, sizeof *env->endpoint);
    env->seen_done = calloc(n, sizeof *env->seen_done);
    if (env->region == NULL || env->slots == NULL || env->peer_in == NULL ||
        env->peer_out == NULL || env->link == NULL || env->transport == NULL ||
        env->endpoint == NULL || env->seen_done == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", env->nranks);
    }
    return KOLO_OK;
}

kolo_status kolo_region_make(struct kolo_comm *c, const struct kolo_region_calls *calls)
{
    struct kolo_exec_env *env = &c->links.exec_env;
    const size_t bytes = kolo_region_bytes(phases_for(c));
    *env = (struct kolo_exec_env){.me = c->ranks.rank,
                                  .nranks = c->ranks.nranks,
                                  .slot_bytes = KOLO_SLOT_BYTES,
                                  .short_slot_bytes = KOLO_SHORT_SLOT_BYTES,
                                  .phases = phases_for(c),
                                  .store_rule = c->options.store_rule,
                                  .timeout_us = c->options.timeout_ms * 1e3,
                                  .aborted = &c->failure.error,
                                  .progress = c->options.progress,
                                  .progress_arg = c->options.progress_arg,
                                  .resolve = calls->resolve,
                                  .owner = c,
                                  .stalled = calls->stalled,
                                  .stuck_at = -1,
                                  .membarrier = env->membarrier, /* asked before any thread */
                                  .blamed = -1};
    KOLO_TRY(make_arrays(env, (size_t)c->ranks.nranks));
    c->links.mapper = find_mapper(c);
    if (c->links.mapper != NULL) {
        KOLO_TRY(c->links.mapper->transport->map(c->links.mapper->endpoint, NULL, bytes,
                                                 &c->links.region));
    } else { /* nobody maps it, but the executor keeps its own flags there */
        c->links.region.ptr = aligned_alloc(4096, kolo_round_up(bytes, 4096));
        if (c->links.region.ptr == NULL) {
            return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a region of %zu bytes", bytes);
        }
        memset(c->links.region.ptr, 0, bytes);
    }
    KOLO_TRY(kolo_region_reserve(c, 0));
    env->region[c->ranks.rank] = c->links.region.ptr;
    c->links.own = &env->region[c->ranks.rank]->head;
    atomic_store(&c->member[c->ranks.rank].abort_region, env->region[c->ranks.rank]);
    return KOLO_OK;
}

kolo_status kolo_region_reserve(struct kolo_comm *c, int phases)
{
    const size_t from = c->links.reserved_bytes, to = kolo_region_bytes(phases);
    if (to <= from) {
        return KOLO_OK;
    }
    KOLO_TRY(kolo_segment_reserve_at((char *)c->links.region.ptr + from, to - from));
    c->links.reserved_bytes = to;
    return KOLO_OK;
}

void kolo_region_free(struct kolo_exec_env *env)
{
    free(env->region);
    free(env->slots);
    free(env->peer_in);
    free(env->peer_out);
    free(env->link);
    free(env->transport);
    free(env->endpoint);
    free(env->seen_done);
    free(env->is_far);
    kolo_lessons_free(env->lessons);
}
