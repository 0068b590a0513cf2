// SPDX-License-Identifier: Apache-2.0
/* Sizes that lowered programs depend on: bytes of a line, copies of shared memory that let a rank
 * run ahead of its readers, and channels of a link. */
#ifndef KOLO_EXEC_LOWER_LIMITS_H
#define KOLO_EXEC_LOWER_LIMITS_H

#include <kolo/plugin.h>

enum { KOLO_LINE_BYTES = 128, KOLO_INLINE_BYTES = 48 };
enum {
    KOLO_DEPTH = 32,      /* copies of a line and a short slot: tiles a rank may run ahead */
    KOLO_LONG_DEPTH = 4,  /* copies of a long slot */
    KOLO_TILE_COPIES = 4, /* copies of a call's private memory and message requests; lanes and
                             stages of a rank are at most 3 tiles apart */
    KOLO_ENTRY_LINES = 4  /* copies of the entry line, which describes a rank's buffers of a call */
};
/* Channels of a link. Each lane has its own, from 0 on. The channels behind them are for
 * point-to-point messages. */
enum { KOLO_PLAN_CHANNELS = KOLO_LANES };

#endif
