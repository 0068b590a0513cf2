// SPDX-License-Identifier: Apache-2.0
/* The sizes that lowered programs are made for: bytes of a line, how many copies of a shared thing
 * let a rank run ahead of its readers, and the channels of a link. */
#ifndef KOLO_EXEC_LOWER_LIMITS_H
#define KOLO_EXEC_LOWER_LIMITS_H

#include <kolo/plugin.h>

enum { KOLO_LINE_BYTES = 128, KOLO_INLINE_BYTES = 48 };
enum {
    KOLO_DEPTH = 32,      /* copies of a line and of a short slot: tiles ahead of one's readers */
    KOLO_LONG_DEPTH = 4,  /* of a long slot */
    KOLO_TILE_COPIES = 4, /* of a call's private memory and message requests; lanes and stages of a
                             rank are at most 3 tiles apart */
    KOLO_ENTRY_LINES = 4  /* of the line that says what a rank brings to a call */
};
/* Channels of a link: each lane has its own, from 0 on; point-to-point has those behind. */
enum { KOLO_PLAN_CHANNELS = KOLO_LANES };

#endif
