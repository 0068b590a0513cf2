// SPDX-License-Identifier: Apache-2.0
/* Whether a plan's partial sums are stored between additions. */
#ifndef KOLO_TUNE_SUMS_H
#define KOLO_TUNE_SUMS_H

#include "plan/plan.h"

/* Whether a partial sum leaves the pass that made it, because it is sent or added to later.
 *
 * A partial sum that is stored in a 16-bit type is rounded there. To round only once, a plan that
 * stores partial sums must run in the accumulator type. `plan` has all ranks. Errors: INVALID (the
 * plan does not walk), SYSTEM. */
KOLO_CHECK kolo_status kolo_sums_are_stored(const struct kolo_plan *plan, bool *out);

#endif
