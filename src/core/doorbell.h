// SPDX-License-Identifier: Apache-2.0
/* Sleeping until messages move: on the bell of an endpoint, which its peers ring. */
#ifndef KOLO_CORE_DOORBELL_H
#define KOLO_CORE_DOORBELL_H

#include <kolo/plugin.h>

#include <stdint.h>

/* Count this thread as a sleeper. After that, make progress once more, then sleep. The result is
 * for kolo_doorbell_sleep(). */
uint32_t kolo_doorbell_listen(struct kolo_doorbell *bell);
/* Sleep until the bell rings, unless it has rung since, and at most `ns`. */
void kolo_doorbell_sleep(struct kolo_doorbell *bell, uint32_t heard, long ns);
/* End what kolo_doorbell_listen() began. */
void kolo_doorbell_get_up(struct kolo_doorbell *bell);
/* Wake all sleepers. */
void kolo_doorbell_ring(struct kolo_doorbell *bell);
/* Wake them until none is left. None comes any more. */
void kolo_doorbell_wake_all(struct kolo_doorbell *bell);

#endif
