// SPDX-License-Identifier: Apache-2.0
/* Chains of waits: rank 0 waits for rank 3, which waits for rank 1, which is stopped. */
#ifndef KOLO_CORE_HEALTH_WAITS_H
#define KOLO_CORE_HEALTH_WAITS_H

#include "core/comm.h"

/* The bits of a word (gossip.c) that count calls. */
#define KOLO_WORD_CALLS ((UINT64_C(1) << 30) - 1)

/* Whether the process of rank q is stopped, by a signal or a debugger; false if that is not known.
 */
bool kolo_waits_is_stopped(const struct kolo_comm *c, int q);
/* The last word of rank q, if it is not old: whom that rank waits for in the end, and its calls. */
bool kolo_waits_known(const struct kolo_comm *c, int q, int *waits_for_out, uint64_t *calls_out);
/* The end of the chain of waits that begins with one for rank q. */
int kolo_waits_end(const struct kolo_comm *c, int q);
/* For whom this rank waits in the end, as far as it knows; -1: for nobody. */
int kolo_waits_last(const struct kolo_comm *c);

#endif
