// SPDX-License-Identifier: Apache-2.0
/* The send of each receive. */
#ifndef KOLO_SIM_MATCH_H
#define KOLO_SIM_MATCH_H

#include "sim/program/program.h"

/* Fill in set->source. Errors: INVALID (a receive without a send), SYSTEM. */
KOLO_CHECK kolo_status kolo_sim_match(struct kolo_sim_set *set);

#endif
