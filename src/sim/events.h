// SPDX-License-Identifier: Apache-2.0
/* A queue of events by time. Events of one time come in the order in which they were added. */
#ifndef KOLO_SIM_EVENTS_H
#define KOLO_SIM_EVENTS_H

#include "util/grow.h"

#include <stdbool.h>
#include <stdint.h>

enum kolo_sim_kind {
    KOLO_SIM_LANE,  /* number: the lane that goes on */
    KOLO_SIM_LEAVE, /* number: the message that leaves its rank */
    KOLO_SIM_END    /* number: the flow that ends, if it is still `version` */
};

struct kolo_sim_event {
    double us;
    uint64_t turn;
    uint32_t kind, version;
    int number;
};

struct kolo_sim_events {
    struct kolo_sim_event *heap; /* each node is before its four children */
    int count, cap;
    uint64_t turn;
};

static inline bool kolo_sim_is_before(const struct kolo_sim_event *a,
                                      const struct kolo_sim_event *b)
{
    return a->us < b->us || (a->us == b->us && a->turn < b->turn);
}

/* False: out of memory. */
static inline bool kolo_sim_events_add(struct kolo_sim_events *q, double us,
                                       enum kolo_sim_kind kind, int number, uint32_t version)
{
    struct kolo_sim_event *heap = kolo_grow(q->heap, q->count, &q->cap, sizeof *heap);
    if (heap == NULL) {
        return false;
    }
    q->heap = heap;
    const struct kolo_sim_event e = {us, q->turn++, kind, version, number};
    int at = q->count++;
    for (; at > 0 && kolo_sim_is_before(&e, &heap[(at - 1) / 4]); at = (at - 1) / 4) {
        heap[at] = heap[(at - 1) / 4];
    }
    heap[at] = e;
    return true;
}

/* Take the first event; the queue is not empty. */
static inline struct kolo_sim_event kolo_sim_events_take(struct kolo_sim_events *q)
{
    struct kolo_sim_event *heap = q->heap;
    const struct kolo_sim_event first = heap[0], e = heap[--q->count];
    for (int at = 0;;) {
        const int child = 4 * at + 1;
        int best = -1;
        for (int i = child; i < child + 4 && i < q->count; i++) {
            if (best < 0 || kolo_sim_is_before(&heap[i], &heap[best])) {
                best = i;
            }
        }
        if (best < 0 || !kolo_sim_is_before(&heap[best], &e)) {
            heap[at] = e;
            return first;
        }
        heap[at] = heap[best];
        at = best;
    }
}

#endif
