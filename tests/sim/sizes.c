// SPDX-License-Identifier: Apache-2.0
/* The simulator may not include core. Its copies of core's sizes are compared here. */
#include "core/comm.h"
#include "sim/program/program.h"

#include <assert.h>

static_assert((int)KOLO_SIM_WHOLE_RANKS == (int)KOLO_WHOLE_PLAN_RANKS, "plans of all ranks");
static_assert((int)KOLO_SIM_SLOT_BYTES == (int)KOLO_SLOT_BYTES, "long slots");
static_assert((int)KOLO_SIM_SHORT_BYTES == (int)KOLO_SHORT_SLOT_BYTES, "short slots");
