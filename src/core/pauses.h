// SPDX-License-Identifier: Apache-2.0
/* The pauses of a loop that drives calls and waits for their end. */
#ifndef KOLO_CORE_PAUSES_H
#define KOLO_CORE_PAUSES_H

#include <pthread.h>

/* Zeroed at the begin of the wait. The first pauses return at once: if no other thread wants the
 * core, a yield costs more than another poll. Then the loop yields, and then it naps. A nap takes 20 us
 * and a hundredth of the wait so far, at most 4 ms. So a long wait takes less than a hundredth of a
 * core, and the nap makes it hardly longer. */
struct kolo_pauses {
    unsigned count;
    long nap_ns;   /* the last nap */
    unsigned news; /* as of the last kolo_pauses_hear() */
};

/* One pause, a poll if it is one of the first `polls`. */
void kolo_pauses_make(struct kolo_pauses *p, unsigned polls);
/* The same, but the caller naps: the nap in nanoseconds; 0: the pause is over. */
long kolo_pauses_nap(struct kolo_pauses *p, unsigned polls);
/* Wait for a signal for at most `ns`. `cond` goes by CLOCK_MONOTONIC, and `lock` is held. */
void kolo_pauses_doze(pthread_cond_t *cond, pthread_mutex_t *lock, long ns);
/* `news` counts what has moved, in any unit. If it has changed, the wait for the next news begins:
 * naps are short again. */
static inline void kolo_pauses_hear(struct kolo_pauses *p, unsigned news)
{
    p->nap_ns = p->news == news ? p->nap_ns : 0;
    p->news = news;
}

#endif
