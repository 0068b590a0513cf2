// SPDX-License-Identifier: Apache-2.0
/* A collective as one kernel, where one GPU reaches the buffers of all its ranks.
 *
 * Every collective is then a few *moves*: each reads equal blocks of one rank's IN or of all
 * ranks', folds them in rank order, and writes the result to one rank's OUT or to all. All-to-all
 * swaps blocks between two ranks instead, reading both before it writes either, so that it may be
 * in place. Moves are cut into *pieces*; thread blocks take pieces. Nothing waits for anything:
 * each byte of input is read once, each byte of output written once, which is the least that memory
 * can be asked for. */
#ifndef KOLO_EXEC_GPU_FUSED_FUSED_H
#define KOLO_EXEC_GPU_FUSED_FUSED_H

#include "exec/gpu/fused/fused_layout.h"

#include <kolo/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* From a call to its moves. nranks is 1 to KOLO_FUSED_RANKS; `count` is what the public call takes;
 * counts[nranks] and displs[nranks] (elements) for all_gather and reduce_scatter with blocks of
 * different lengths, else NULL. */
struct kolo_fused_shape {
    enum kolo_coll coll;
    int nranks, root;
    size_t count, elem;
    const size_t *counts, *displs;
};
/* Not for barriers, which move nothing. `sms` (multiprocessors of the GPU) decides how long pieces
 * are, never what results. */
void kolo_fused_lower(const struct kolo_fused_shape *shape, unsigned sms, struct kolo_fused *out);
/* Blocks that pay: one for each piece, up to `sms` times 2. */
unsigned kolo_fused_blocks(const struct kolo_fused *call, unsigned sms);

/* The kernel that serves the call: "kolo_fused_sum_float32", "kolo_fused_copy_4", ... `op` above
 * KOLO_OPS is a PREMULSUM; it counts for collectives that reduce, which must be valid pairs. */
enum { KOLO_FUSED_NAME = 48 };
void kolo_fused_name(enum kolo_coll coll, enum kolo_type type, kolo_op op,
                     char out[KOLO_FUSED_NAME]);

/* Cubins and PTX of all of them for the driver's module loader, or NULL where kolo was built
 * without nvcc. */
const void *kolo_fused_image(void);

#ifdef __cplusplus
}
#endif
#endif
