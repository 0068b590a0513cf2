// SPDX-License-Identifier: Apache-2.0
/* Plans for readers: text in the manner of GOAL (Hoefler et al. 2009, doi:10.1109/ICPP.2009.70),
 * one line a step, and a picture of the messages between ranks. */
#ifndef KOLO_PRINT_H
#define KOLO_PRINT_H

#include "plan.h"

#define KOLO_STEP_TEXT  192
#define KOLO_SLICE_TEXT 48
/* "recv_reduce from 1 out[1] -> out[1] last"; room for KOLO_STEP_TEXT. */
void kolo_step_print(const struct kolo_step *step, char *out);

/* "allreduce_ring 4 ranks root 0: 48 steps, 24 messages, ..."; one line without its end. */
void kolo_plan_summary(const struct kolo_plan *plan, struct kolo_text *out);
/* The summary, and the steps of the ranks that the plan has. */
void kolo_plan_text(const struct kolo_plan *plan, struct kolo_text *out);
/* An SVG of a whole plan: a line a rank, time from left to right (every message takes one unit),
 * messages as arrows that carry the chunk. INVALID: the plan does not walk. */
kolo_status kolo_plan_svg(const struct kolo_plan *plan, struct kolo_text *out);

#endif
