// SPDX-License-Identifier: Apache-2.0
/* Threads that sleep until messages move: on the bell of an endpoint, which its peers ring. */
#ifndef KOLO_CORE_DOORBELL_H
#define KOLO_CORE_DOORBELL_H

#include <kolo/plugin.h>

#include <stdbool.h>
#include <stdint.h>

struct kolo_comm;

/* A thread that sleeps on the bell of a communicator, in a list. The bell must stay until the thread
 * has left the list. The caller holds the list's lock, except in kolo_sleeper_sleep(). */
struct kolo_sleeper {
    const struct kolo_comm *comm;
    struct kolo_doorbell *bell;
    struct kolo_sleeper *next;
};

/* Join the list. After that, make progress once more, then sleep. The result is for
 * kolo_sleeper_sleep(). */
uint32_t kolo_sleeper_listen(struct kolo_sleeper **list, struct kolo_sleeper *self);
/* Sleep until the bell rings, unless it has rung since, and at most `ns`. */
void kolo_sleeper_sleep(const struct kolo_sleeper *self, uint32_t heard, long ns);
/* Leave the list. */
void kolo_sleeper_get_up(struct kolo_sleeper **list, const struct kolo_sleeper *self);
/* Wake those of the communicator; NULL: all. False: there are none. */
bool kolo_sleepers_wake(const struct kolo_sleeper *list, const struct kolo_comm *comm);

#endif
