// SPDX-License-Identifier: Apache-2.0
/* Proofs about whole plans (plan.h), by walking them with symbols in place of data. */
#ifndef KOLO_PLAN_VERIFY_VERIFY_H
#define KOLO_PLAN_VERIFY_VERIFY_H

#include "plan/plan.h"

/* Prove, out of place and in place:
 * - No step reads an unwritten chunk. No step writes IN.
 * - Every contribution is in a sum exactly once. LAST marks the addition that completes the sum.
 * - The output chunks hold the values that the collective promises, on every rank by the same
 *   expression.
 * - Every message has two ends that agree, and carries the same in place or not.
 * - There is no deadlock with one slot a link.
 * - Lanes that touch the same chunk are ordered.
 * - STABLE, FRESH and the places of outboxes are true.
 * - After a barrier every rank has entered.
 *
 * Cost: linear in the steps. Barriers, and plans that order the lanes of a rank by messages through
 * other ranks, cost the steps times the lanes of all ranks.
 * Errors: INVALID, with rank, step, chunk, the value found and the value expected; SYSTEM. */
KOLO_CHECK kolo_status kolo_verify_plan(const struct kolo_plan *plan);

/* Whether every reduced output is ((x0 + x1) + x2) + ... in rank order (true if the collective does
 * not reduce). Errors: as above, as far as the run out of place meets them. */
KOLO_CHECK kolo_status kolo_verify_expression(const struct kolo_plan *plan, bool *rank_order);

#endif
