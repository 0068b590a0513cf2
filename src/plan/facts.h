// SPDX-License-Identifier: Apache-2.0
/* The other end of each message, and the facts STABLE and FRESH about messages. */
#ifndef KOLO_FACTS_H
#define KOLO_FACTS_H

#include "plan.h"

struct kolo_match {
    int *other; /* [count]: for a SEND the peer's receiving step, for a receive the peer's SEND;
                   else -1 */
};

/* Match all ranks of a whole plan; NULL if out of memory. Free with kolo_match_free(match, nranks).
 */
struct kolo_match *kolo_match_make(const struct kolo_plan *plan);
void kolo_match_free(struct kolo_match *match, int nranks);

/* Set KOLO_STEP_STABLE and KOLO_STEP_FRESH on both ends of every message of a whole plan. */
kolo_status kolo_plan_mark_facts(struct kolo_plan *plan);

#endif
