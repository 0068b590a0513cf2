// SPDX-License-Identifier: Apache-2.0
/* The ring of the processes of a host: see ring.h. */
#include "core/health/ring.h"

#include "core/health/gone.h"

bool kolo_ring_has(const struct kolo_comm *c, int q)
{
    const struct kolo_peer *me = &c->member[c->ranks.rank].peer, *peer = &c->member[q].peer;
    return peer->host == me->host && peer->process != me->process;
}

/* Those that are gone do not count. Their processes stay watched, for their other ranks. */
static void drop_gone(struct kolo_comm *c)
{
    struct kolo_ring *ring = &c->health.ring;
    int kept = 0;
    for (int i = 0; i < ring->count; i++) {
        if (!kolo_gone_is(c, ring->rank[i])) {
            ring->rank[kept++] = ring->rank[i];
        }
    }
    ring->count = kept;
}

/* Whether a rank of the same process is among them. */
static bool has_process(const struct kolo_comm *c, int q)
{
    const struct kolo_ring *ring = &c->health.ring;
    int i = 0;
    while (i < ring->count && c->member[ring->rank[i]].peer.process != c->member[q].peer.process) {
        i++;
    }
    return i < ring->count;
}

int kolo_ring_next(struct kolo_comm *c)
{
    struct kolo_ring *ring = &c->health.ring;
    drop_gone(c);
    while (ring->walked < c->ranks.nranks - 1 && ring->count < KOLO_RING_WATCHED) {
        const int q = (c->ranks.rank + ++ring->walked) % c->ranks.nranks;
        if (!kolo_ring_has(c, q) || kolo_gone_is(c, q) || has_process(c, q)) {
            continue;
        }
        if (kolo_comm_slot(c, q) != NULL) {
            ring->rank[ring->count++] = q;
        }
        if (!c->member[q].watched) {
            return q;
        }
    }
    return -1;
}

static bool may_wait(const struct kolo_comm *c)
{
    return atomic_load(&c->queue.busy) != 0 || __atomic_load_n(&c->p2p, __ATOMIC_ACQUIRE) != NULL ||
           atomic_load(&c->path) != NULL;
}

bool kolo_ring_relies(const struct kolo_comm *comms)
{
    const struct kolo_comm *c = comms;
    while (c != NULL && (atomic_load(&c->failure.error) != KOLO_OK || !may_wait(c) ||
                         c->health.ring.walked == c->ranks.nranks - 1)) {
        c = c->health.next;
    }
    return c != NULL;
}
