// SPDX-License-Identifier: Apache-2.0
/* Which rank waits for which, as far as this rank knows: from the board for ranks of this host,
 * from their last word for the others. */
#include "core/health/waits.h"

enum { FRESH_US = 700 * 1000 };

/* 'R', 'S', 'T', 'Z', ... of another process of this host; 0: not known. This process runs. To look
 * would take the kernel a turn over all its threads, and each of these looks at each. */
static char process_state(const struct kolo_comm *c, int q)
{
    const struct kolo_peer *peer = &c->member[q].peer, *own = &c->member[c->ranks.rank].peer;
    return peer->host == own->host && peer->process != own->process ? kolo_process_state(peer->pid)
                                                                    : 0;
}

bool kolo_waits_is_stopped(const struct kolo_comm *c, int q)
{
    const char state = process_state(c, q);
    return state == 'T' || state == 't';
}

bool kolo_waits_known(const struct kolo_comm *c, int q, int *waits_for_out, uint64_t *calls_out)
{
    const struct kolo_member *m = &c->member[q];
    const uint64_t word = atomic_load(&m->word);
    if (word == 0 || kolo_now_us() - (double)atomic_load(&m->word_us) > FRESH_US) {
        return false;
    }
    *waits_for_out = (int)(uint32_t)word - 1;
    *calls_out = word >> 32 & KOLO_WORD_CALLS; /* of ours, the nearest that ends in these bits */
    *calls_out |= kolo_comm_calls(c) & ~KOLO_WORD_CALLS;
    return true;
}

/* For whom rank q waits; where that is a rank of another host, for whom that one waits in the end.
 * -1: for nobody, or it is not known. */
static int next_of(const struct kolo_comm *c, int q)
{
    const struct kolo_post *post = kolo_comm_post(c, q);
    uint64_t calls = 0;
    int next = -1;
    if (post == NULL) {
        return kolo_waits_known(c, q, &next, &calls) ? next : -1;
    }
    next = atomic_load_explicit(&post->waits_for, memory_order_relaxed) - 1;
    return next < 0 || kolo_comm_post(c, next) != NULL
               ? next
               : atomic_load_explicit(&post->waits_for_last, memory_order_relaxed) - 1;
}

/* The end of the chain of waits that begins with one for rank q. */
int kolo_waits_end(const struct kolo_comm *c, int q)
{
    for (int steps = 0; steps < c->ranks.nranks; steps++) {
        const int next = kolo_waits_is_stopped(c, q) ? -1 : next_of(c, q);
        if (next < 0 || next >= c->ranks.nranks || next == c->ranks.rank || next == q) {
            return q;
        }
        q = next;
    }
    return q;
}

int kolo_waits_last(const struct kolo_comm *c)
{
    const int next = atomic_load_explicit(&c->health.post->waits_for, memory_order_relaxed) - 1;
    return next >= 0 && next < c->ranks.nranks ? kolo_waits_end(c, next) : -1;
}
