// SPDX-License-Identifier: Apache-2.0
/* Plans on GPUs that store to each other's memory.
 *
 * A kernel a rank, which interprets what the rank's plan was lowered to. Each lane has as many
 * thread blocks as it has *slices*, each of which runs the lane's ops on its part of every chunk,
 * in tiles, with words, inboxes and an epoch of its own, and knows nothing of the other slices.
 * What the host's executor leaves in the sender's outbox is stored into the inbox of each reader
 * here, and a signal is a word there: so everybody polls and loads its own memory, and what crosses
 * the link are stores, which need no answer.
 *
 *   slab of a rank: | slice: epoch, words by writer | ... | inboxes | scratch | exec/gpu/ll/ll.h's
 * |
 *
 * Words hold epochs that only grow, with one writer each. Epochs are kept in the slab, so that a
 * launch that a graph holds does the next tiles each time. An inbox is stored to again when its
 * reader has finished the tile KOLO_PROGRAM_DEPTH before (its `done` word), which every rank hears
 * of the last tile of a call: so the next call may cut inboxes in another way.
 *
 * A program says which chunks, never where they lie nor how long they are: it is made once a plan.
 * Short ones go with the launch, others lie in memory that the host has pinned, and a block reads
 * them in windows: nothing is allocated or copied for a call, nor while a graph is captured. */
#ifndef KOLO_EXEC_GPU_PROGRAM_PROGRAM_KERNEL_H
#define KOLO_EXEC_GPU_PROGRAM_PROGRAM_KERNEL_H

#include "exec/gpu/program/program_layout.h"
#include "exec/lower/extents.h"
#include "exec/lower/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a slab, which begins as zeros; where in it the slots of exec/gpu/ll/ll.h are. */
size_t kolo_program_slab_bytes(const struct kolo_program_room *room);
size_t kolo_program_ll_at(const struct kolo_program_room *room);

struct kolo_program {
    const struct kolo_plan *plan;
    int me;
    bool joined; /* lanes wait for each other */
    uint32_t nlanes, nstages;
    uint32_t inbox_chunks, scratch_chunks; /* the most of any rank and lane */
    struct kolo_program_lane lane[KOLO_LANES];
    uint32_t nwords;
    uint64_t *word;
};
/* What rank `me` does in `plan`, which outlives it and has all ranks' steps. Errors: UNSUPPORTED
 * (ranks, sides of a move, or signals, than a kernel has room for), SYSTEM. */
KOLO_CHECK kolo_status kolo_program_make(const struct kolo_plan *plan, int me,
                                         struct kolo_program **out);
void kolo_program_destroy(struct kolo_program *program);

/* A call by `slices` blocks a lane, for what does not change from call to call: all of the launch
 * but `ends` and the divisor. `program` is where its words are, as the GPU sees them; 0: in the
 * launch, which holds KOLO_PROGRAM_HELD of them. Errors: UNSUPPORTED (blocks, or chunks of a tile,
 * than there is room for; blocks of lengths that not all ranks know). */
KOLO_CHECK kolo_status kolo_program_bind(const struct kolo_program *p, uint64_t program,
                                         const struct kolo_extents *extents,
                                         const struct kolo_program_room *room, unsigned slices,
                                         struct kolo_program_launch *out);

/* Beside the program of an all-reduce, all-gather or reduce-scatter whose count is `bytes`: each
 * rank reads its share of all inputs and stores what comes of it to all outputs, over the links and
 * without inboxes. It is done so if launch.reached is set on all ranks, which they tell each other
 * first; else the program is run. Afterwards they tell that they are through: nobody's buffers are
 * used once its kernel is over. All ranks must make the launch so, or none.
 * Source: the two-shot kernels of NCCL (RSxLD_AGxST), vLLM and others. */
void kolo_program_bind_direct(enum kolo_coll coll, size_t bytes,
                              struct kolo_program_launch *launch);

/* The kernel that serves the call, as kolo_fused_name(): "kolo_program_sum_float32", ... */
enum { KOLO_PROGRAM_NAME = 48 }; /* and KOLO_FUSED_NAME */
void kolo_program_name(enum kolo_coll coll, enum kolo_type type, kolo_op op,
                       char out[KOLO_PROGRAM_NAME]);

/* Cubins and PTX of all of them, or NULL where kolo was built without nvcc. */
const void *kolo_program_image(void);

#ifdef __cplusplus
}
#endif
#endif
