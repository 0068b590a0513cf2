// SPDX-License-Identifier: Apache-2.0
/* Proofs about whole plans (plan.h), by walking them with symbols in place of data. */
#ifndef KOLO_PLAN_VERIFY_VERIFY_H
#define KOLO_PLAN_VERIFY_VERIFY_H

#include "plan/plan.h"

/* Prove, out of place and in place: nothing unwritten is read, IN is not written, every
 * contribution is in a sum exactly once, LAST marks the addition that completes it, the promised
 * output chunks hold what the collective promises, on every rank by the same expression; every
 * message has two ends that agree and carries the same in place or not; no deadlock with one slot a
 * link; lanes that touch the same chunk are ordered; STABLE, FRESH and the places of outboxes are
 * true; after a barrier every rank has entered. Cost: linear in the steps (times lanes of all
 * ranks, for barriers and plans of several lanes). Errors: INVALID, with rank, step, chunk, what
 * was found and what was expected; SYSTEM. */
KOLO_CHECK kolo_status kolo_verify_plan(const struct kolo_plan *plan);

/* Whether every reduced output is ((x0 + x1) + x2) + ... in rank order (true where nothing is
 * reduced). Errors: as above, for what this finds on its way out of place. */
KOLO_CHECK kolo_status kolo_verify_expression(const struct kolo_plan *plan, bool *rank_order);

#endif
