// SPDX-License-Identifier: Apache-2.0
/* `kolo sim --bootstrap`. */
#ifndef KOLO_TOOLS_SIM_START_H
#define KOLO_TOOLS_SIM_START_H

#include "sim/machine.h"

/* Predict the start of `nranks` ranks; `json`: a file, "-", or NULL. Returns the exit status. */
int sim_bootstrap(const struct kolo_sim_machine *machine, const char *name, int nranks,
                  const char *json);

#endif
