// SPDX-License-Identifier: Apache-2.0
/* What ops cost: bytes, and time of a core. */
#ifndef KOLO_SIM_COST_H
#define KOLO_SIM_COST_H

#include "sim/engine.h"

static inline uint64_t kolo_sim_op_bytes(const struct kolo_sim *s, const struct kolo_sim_op *op,
                                         uint32_t tile)
{
    return tile + 1 == s->set.tiles ? op->last_bytes : op->bytes;
}
static inline uint64_t kolo_sim_taken_bytes(const struct kolo_sim *s, const struct kolo_sim_prog *p,
                                            uint32_t request, uint32_t tile)
{
    return p->taken_bytes[tile + 1 == s->set.tiles ? (uint32_t)p->nreqs + request : request];
}

struct kolo_sim_core *kolo_sim_core_of(const struct kolo_sim *s, int rank);
/* The time that op number `pc` of a rank takes on its core, in this tile. */
double kolo_sim_work(const struct kolo_sim *s, int rank, uint32_t pc, const struct kolo_sim_op *op,
                     uint32_t tile);
/* The part of a TAKEN's work that is left when its last message is there: a rank takes those before,
 * and the parts of a long one, as they come. */
double kolo_sim_part_left(const struct kolo_sim *s, const struct kolo_sim_lane *l,
                          const struct kolo_sim_op *op, uint32_t tile);

#endif
