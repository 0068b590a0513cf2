// SPDX-License-Identifier: Apache-2.0
/* The signal of a line: the one sequence of stores by which a rank publishes a tile to its readers.
 *
 * The epoch is stored last and with release. A reader that loads it with acquire and finds the tile
 * it waits for may read the line's bytes, `chain`, `done` and the outbox slots of that tile. */
#ifndef KOLO_EXEC_CPU_SIGNAL_H
#define KOLO_EXEC_CPU_SIGNAL_H

#include "exec/cpu/wait.h"

/* Publish tile `epoch` in `line`, a line of the rank whose head is `own`, and wake its readers.
 * `chain`: kolo_chain() of the call. `done`: how many tiles this rank has finished. */
static inline void kolo_line_publish(struct kolo_line *line, uint64_t chain, uint32_t done,
                                     uint32_t epoch, struct kolo_head *own)
{
    line->chain = chain;
    line->done = done;
    atomic_store_explicit(&line->epoch, epoch + 1, memory_order_release);
    kolo_wake(own);
}

#endif
