// SPDX-License-Identifier: Apache-2.0
/* The simulator may not include core. Its copies of core's sizes are compared here. */
#include "boot/wire.h"
#include "core/comm.h"
#include "core/setup/join.h"
#include "sim/program/program.h"
#include "sim/start.h"

#include <assert.h>

static_assert((int)KOLO_SIM_WHOLE_RANKS == (int)KOLO_WHOLE_PLAN_RANKS, "plans of all ranks");
static_assert((int)KOLO_SIM_SLOT_BYTES == (int)KOLO_SLOT_BYTES, "long slots");
static_assert((int)KOLO_SIM_SHORT_BYTES == (int)KOLO_SHORT_SLOT_BYTES, "short slots");
static_assert((size_t)KOLO_SIM_HEADER_BYTES == sizeof(struct kolo_boot_header), "a frame");
static_assert((size_t)KOLO_SIM_HELLO_BYTES == sizeof(struct kolo_hello), "round 1");
static_assert((size_t)KOLO_SIM_ADDRESS_BYTES == sizeof(struct kolo_address), "round 2");
static_assert((size_t)KOLO_SIM_READY_BYTES == sizeof(struct kolo_ready), "round 3");
static_assert((int)KOLO_SIM_SHARE_BYTES == (int)KOLO_BOOT_SHARE_BYTES, "a long answer");
