// SPDX-License-Identifier: Apache-2.0
/* Whether a plan's partial sums are stored between additions, and how often its elements are encoded. */
#ifndef KOLO_TUNE_SUMS_H
#define KOLO_TUNE_SUMS_H

#include "plan/plan.h"

/* The sources of a pass at most, as in a lowered program. */
enum { KOLO_PASS_SOURCES = 500 };

struct kolo_plan_sums {
    bool stored;   /* a partial sum leaves the pass that made it: it is sent or added to later */
    int encodings; /* of an element on its way into OUT, if the plan runs on the units of a codec */
};

/* What the sums of a plan do.
 *
 * A partial sum that is stored in a 16-bit type is rounded there. To round only once, a plan that
 * stores partial sums must run in the accumulator type. Units of a codec are encoded again by each
 * pass. `plan` has all ranks. Errors: INVALID (the plan does not walk), SYSTEM. */
KOLO_CHECK kolo_status kolo_sums_of_plan(const struct kolo_plan *plan, struct kolo_plan_sums *out);

#endif
