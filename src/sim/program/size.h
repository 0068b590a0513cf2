// SPDX-License-Identifier: Apache-2.0
/* Whether a plan is small enough to simulate. */
#ifndef KOLO_SIM_SIZE_H
#define KOLO_SIM_SIZE_H

#include "sim/machine.h"

/* Foretell the steps of a plan from those of two small ones, before it is built: some plans grow
 * with the square of the ranks. Errors: UNSUPPORTED, with the number; those of the small plans. */
KOLO_CHECK kolo_status kolo_sim_check_size(const struct kolo_algo *algo,
                                           const struct kolo_sim_place *place);

#endif
