// SPDX-License-Identifier: Apache-2.0
/* The costs that nobody measured. */
#ifndef KOLO_TUNE_COSTS_H
#define KOLO_TUNE_COSTS_H

#include "tune.h"

/* Typical costs of a server whose two cores share no cache; those beyond an L3 are 0. */
extern const struct kolo_costs kolo_costs_default;

/* Replace costs that no machine has by their defaults: other programs had the cores meanwhile. */
void kolo_costs_keep_plausible(struct kolo_costs *costs);
/* Fill in the defaults of unknown costs beyond an L3. Farther is never faster: a measurement that
 * says so is noise. */
void kolo_costs_complete(struct kolo_costs *costs);

#endif
