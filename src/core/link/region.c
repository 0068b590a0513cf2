// SPDX-License-Identifier: Apache-2.0
/* The memory that a rank shows its peers, and what the executor knows of each peer. */
#include "core/link/region.h"

#include <stdlib.h>
#include <string.h>

/* The device whose memory our peers can map: the first that reaches one so, else the first there
 * is. */
static struct kolo_opened *find_mapper(struct kolo_comm *c)
{
    for (int q = 0; q < c->nranks; q++) {
        const struct kolo_member *m = &c->member[q];
        for (int i = 0; i < c->nopened && q != c->rank; i++) {
            if (c->opened[i].device == m->device && (m->reach.caps & KOLO_CAP_MAP) != 0) {
                return &c->opened[i];
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
    const int rings = c->nrings < KOLO_LANES ? c->nrings : KOLO_LANES;
    const bool crowd = c->nhosts == 1 && c->nranks > 128;
    return (crowd ? 1 : 2 * rings) * c->nranks + 62;
}

static kolo_status make_arrays(struct kolo_wires *w, size_t n)
{
    w->region = calloc(n, sizeof *w->region);
    w->slots = calloc(n, sizeof *w->slots);
    w->peer_in = calloc(n, sizeof *w->peer_in);
    w->peer_out = calloc(n, sizeof *w->peer_out);
    w->link = calloc(n, sizeof *w->link);
    w->transport = calloc(n, sizeof *w->transport);
    w->device = calloc(n, sizeof *w->device);
    w->seen_done = calloc(n, sizeof *w->seen_done);
    if (w->region == NULL || w->slots == NULL || w->peer_in == NULL || w->peer_out == NULL ||
        w->link == NULL || w->transport == NULL || w->device == NULL || w->seen_done == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", w->nranks);
    }
    return KOLO_OK;
}

kolo_status kolo_region_make(struct kolo_comm *c, const struct kolo_region_calls *calls)
{
    struct kolo_wires *w = &c->wires;
    const size_t bytes = kolo_region_bytes(phases_for(c));
    *w = (struct kolo_wires){.me = c->rank,
                             .nranks = c->nranks,
                             .slot_bytes = KOLO_SLOT_BYTES,
                             .short_slot_bytes = KOLO_SHORT_SLOT_BYTES,
                             .phases = phases_for(c),
                             .timeout_us = c->timeout_ms * 1e3,
                             .aborted = &c->error,
                             .resolve = calls->resolve,
                             .owner = c,
                             .stalled = calls->stalled,
                             .stuck_at = -1,
                             .blamed = -1};
    KOLO_TRY(make_arrays(w, (size_t)c->nranks));
    c->mapper = find_mapper(c);
    if (c->mapper != NULL) {
        KOLO_TRY(c->mapper->transport->map(c->mapper->device, NULL, bytes, &c->region));
    } else { /* nobody maps it, but the executor keeps its own flags there */
        c->region.ptr = aligned_alloc(4096, kolo_round_up(bytes, 4096));
        if (c->region.ptr == NULL) {
            return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a region of %zu bytes", bytes);
        }
        memset(c->region.ptr, 0, bytes);
    }
    w->region[c->rank] = c->region.ptr;
    c->own = &w->region[c->rank]->head;
    atomic_store(&c->member[c->rank].abort_region, w->region[c->rank]);
    return KOLO_OK;
}

void kolo_region_free(struct kolo_wires *w)
{
    free(w->region);
    free(w->slots);
    free(w->peer_in);
    free(w->peer_out);
    free(w->link);
    free(w->transport);
    free(w->device);
    free(w->seen_done);
}
