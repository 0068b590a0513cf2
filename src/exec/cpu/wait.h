// SPDX-License-Identifier: Apache-2.0
/* Waiting for a word that a peer stores, and waking the peers that wait for this rank's stores. */
#ifndef KOLO_EXEC_CPU_WAIT_H
#define KOLO_EXEC_CPU_WAIT_H

#include "exec/cpu/region.h"
#include "util/util.h"

struct kolo_wires;

/* Wait until *word >= want (as a distance), which rank `peer` writes: spin, yield, sleep on its
 * doorbell. */
kolo_status kolo_wait(struct kolo_wires *w, _Atomic uint32_t *word, uint32_t want, int peer);
/* One pause of a loop that polls several things: spin, then yield, then sleep; *spins counts. */
kolo_status kolo_pause(struct kolo_wires *w, unsigned *spins, double *deadline);
/* The same where messages are waited for, whose transports have descriptors that tell of news: it
 * sleeps for these, and unless they are `alone` also for the lines of shared memory, which tell
 * nothing. */
enum { KOLO_NEWS_MAX = 8 };
struct kolo_news {
    int fd[KOLO_NEWS_MAX];
    int count;
    bool alone;
};
kolo_status kolo_pause_for_news(struct kolo_wires *w, unsigned *spins, double *deadline,
                                const struct kolo_news *news);
/* The loop is over. */
void kolo_paused(struct kolo_wires *w);
/* Wake all who sleep on this doorbell. */
void kolo_ring(struct kolo_head *head);
/* Wake those who sleep until this rank stores something. Call after that store. */
static inline void kolo_wake(struct kolo_head *own)
{
    atomic_signal_fence(memory_order_seq_cst);
    if (KOLO_UNLIKELY(atomic_load_explicit(&own->asleep, memory_order_relaxed) != 0)) {
        kolo_ring(own);
    }
}
/* Make membarrier available to this process; false where the system denies it. */
bool kolo_membarrier_register(void);

static inline bool kolo_reached(const _Atomic uint32_t *word, uint32_t want)
{
    return (int32_t)(atomic_load_explicit(word, memory_order_acquire) - want) >= 0;
}

#endif
