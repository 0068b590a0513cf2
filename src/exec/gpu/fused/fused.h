// SPDX-License-Identifier: Apache-2.0
/* A collective as one kernel, for ranks whose buffers one GPU can all reach.
 *
 * The collective is then a few *moves*. Each move reads equal blocks of one rank's IN or of all
 * ranks' IN, folds them in rank order, and writes the result to one rank's OUT or to all.
 * All-to-all swaps blocks between two ranks instead. It reads both blocks before it writes either,
 * so it may be in place.
 *
 * Moves are cut into *pieces*, and thread blocks take pieces. No block waits. Each byte of input is
 * read once and each byte of output is written once, which is the least possible. */
#ifndef KOLO_EXEC_GPU_FUSED_FUSED_H
#define KOLO_EXEC_GPU_FUSED_FUSED_H

#include "exec/gpu/fused/fused_layout.h"
#include "plan/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Make the moves of a call of nranks ranks, 1 to KOLO_FUSED_RANKS. Of the v-forms it takes those
 * whose counts all ranks know, all_gather and reduce_scatter; barriers move no data. `sms` is the
 * number of the GPU's multiprocessors. It decides the length of pieces and never changes the
 * result. */
void kolo_fused_lower(const struct kolo_coll_args *args, int nranks, unsigned sms,
                      struct kolo_fused *out);
/* Blocks that pay: one for each piece, up to `sms` times 2. */
unsigned kolo_fused_blocks(const struct kolo_fused *call, unsigned sms);

/* The kernel that serves the call: "kolo_fused_sum_float32", "kolo_fused_copy_4", ... `op` above
 * KOLO_OPS is a PREMULSUM; it counts for collectives that reduce, which must be valid pairs. */
enum { KOLO_FUSED_NAME = 48 };
void kolo_fused_name(enum kolo_coll coll, enum kolo_type type, kolo_op op,
                     char out[KOLO_FUSED_NAME]);

/* Cubins and PTX of all fused kernels for the driver's module loader. NULL if kolo was built
 * without nvcc. */
const void *kolo_fused_image(void);

#ifdef __cplusplus
}
#endif
#endif
