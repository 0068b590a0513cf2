// SPDX-License-Identifier: Apache-2.0
/* Whether a plan's partial sums are stored between additions. */
#ifndef KOLO_TUNE_SUMS_H
#define KOLO_TUNE_SUMS_H

#include "plan/plan.h"

/* True where a sum that is not complete leaves the pass that made it: it is sent, or added to
 * later. Stored in a 16-bit type it would be rounded there; so, to be rounded once, such a plan has
 * to run in the accumulator type. `plan` has all ranks. Errors: INVALID (it does not walk), SYSTEM.
 */
KOLO_CHECK kolo_status kolo_sums_are_stored(const struct kolo_plan *plan, bool *out);

#endif
