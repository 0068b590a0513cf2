// SPDX-License-Identifier: Apache-2.0
/* Wait for a word that a peer stores, and wake the peers that wait for this rank's stores. */
#ifndef KOLO_EXEC_CPU_WAIT_H
#define KOLO_EXEC_CPU_WAIT_H

#include "exec/cpu/region.h"
#include "util/util.h"

struct kolo_exec_env;

/* Wait until *word, which rank `peer` writes, reaches `want`. The comparison is a signed distance,
 * so wrapping is harmless. The wait spins, then yields, then sleeps on the peer's doorbell. */
kolo_status kolo_wait(struct kolo_exec_env *env, _Atomic uint32_t *word, uint32_t want, int peer);
/* One pause of a loop that polls several words: spin, then yield, then sleep. *spins counts the
 * pauses, from 0 in each wait. *deadline is set when it is time to yield. */
kolo_status kolo_pause(struct kolo_exec_env *env, unsigned *spins, double *deadline);
/* kolo_pause() for a loop that waits for messages. Their transports have file descriptors that
 * become readable when there is news, and the pause sleeps on these. Lines of shared memory wake
 * nobody here: the pause sleeps briefly, unless the descriptors are `alone`. */
enum { KOLO_NEWS_MAX = 8 };
struct kolo_news {
    int fd[KOLO_NEWS_MAX];
    int count;
    bool alone;
};
kolo_status kolo_pause_for_news(struct kolo_exec_env *env, unsigned *spins, double *deadline,
                                const struct kolo_news *news);
/* End the loop: this rank no longer waits. */
void kolo_paused(struct kolo_exec_env *env);
/* Call env->progress if there is one, and the last call by this wait was 50 us ago. */
void kolo_wait_progress(const struct kolo_exec_env *env, double *last_us);
/* Wake all ranks that sleep on this doorbell. */
void kolo_ring(struct kolo_head *head);
/* Wake the ranks that sleep until this rank stores a word. Call after that store. */
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
