// SPDX-License-Identifier: Apache-2.0
/* Lowered programs on GPUs that store to each other's memory.
 *
 * A kernel a rank: its thread blocks are *slices*, each of which runs the whole program on its part
 * of every chunk, in tiles, with words, slots and an epoch of its own, and knows nothing of the
 * others. What the host's executor leaves in the sender's outbox is stored into a slot at each
 * reader here, and a signal is a word there: so everybody polls and loads its own memory, and what
 * crosses the link are stores, which need no answer.
 *
 *   slab of a rank: | slice: epoch, readers, words by writer | ... | slots | scratch | low.h's |
 *
 * Words hold epochs that only grow, with one writer each. Epochs are kept in the slab, so that a
 * launch that a graph holds does the next tiles each time. A slot is written again when those who
 * read the tile KOLO_PEER_DEPTH before have finished it (their `done` words). The program is part
 * of the kernel's argument: nothing is allocated or copied for a call. */
#ifndef KOLO_EXEC_PEER_H
#define KOLO_EXEC_PEER_H

#include "exec/extents.h"
#include "exec/peer_layout.h"
#include "exec/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a slab, which begins as zeros; where in it the slots of low.h are. */
size_t kolo_peer_slab_bytes(const struct kolo_peer_room *room);
size_t kolo_peer_low_at(const struct kolo_peer_room *room);

/* A call of rank prog->me, by `slices` blocks, for what does not change from call to call: all of
 * the launch but `ends` and the divisor. `prog` is lowered from `plan`, which has all ranks' steps
 * and one lane, with links of KOLO_LINK_MAP alone. Errors: UNSUPPORTED (lanes, ranks, or more ops
 * than fit), SYSTEM. */
KOLO_CHECK kolo_status kolo_peer_bind(const struct kolo_prog *prog,
                                      const struct kolo_extents *extents,
                                      const struct kolo_peer_room *room, unsigned slices,
                                      struct kolo_peer_launch *out);

/* Beside the program of an all-reduce, all-gather or reduce-scatter whose count is `bytes`: each
 * rank reads its share of all inputs and stores what comes of it to all outputs, over the links and
 * without slots. It is done so if launch.reached is set on all ranks, which they tell each other
 * first; else the program is run. Afterwards they tell that they are through: nobody's buffers are
 * used once its kernel is over. All ranks must make the launch so, or none.
 * Source: the two-shot kernels of NCCL (RSxLD_AGxST), vLLM and others. */
void kolo_peer_bind_direct(enum kolo_coll coll, size_t bytes, unsigned slices,
                           struct kolo_peer_launch *launch);

/* The kernel that serves the call, as kolo_fused_name(): "kolo_peer_sum_float32", ... */
enum { KOLO_PEER_NAME = 48 }; /* and KOLO_FUSED_NAME */
void kolo_peer_name(enum kolo_coll coll, enum kolo_type type, kolo_op op, char out[KOLO_PEER_NAME]);

/* Cubins and PTX of all of them, or NULL where kolo was built without nvcc. */
const void *kolo_peer_image(void);

#ifdef __cplusplus
}
#endif
#endif
