// SPDX-License-Identifier: Apache-2.0
/* `kolo sim --svg`. */
#ifndef KOLO_TOOLS_SIM_SVG_H
#define KOLO_TOOLS_SIM_SVG_H

#include "tools/sim/sim.h"

/* Add the picture of a row whose result has its use. */
void sim_svg(const struct sim_sweep *sweep, const struct sim_row *row, struct kolo_text *out);

#endif
