// SPDX-License-Identifier: Apache-2.0
/* Plans on GPUs that store to each other's memory.
 *
 * Each rank runs one kernel, which interprets the lowered plan of the rank. Each lane has as many
 * thread blocks as *slices*. A block runs the lane's ops on its part of every chunk, in tiles. It
 * has its own words, inboxes and epoch, and is independent of the other slices.
 *
 * The host's executor leaves data in the sender's outbox. Here the sender stores the data into the
 * inbox of each reader, and a signal is a word beside it. So every rank polls and loads its own
 * memory. Only stores cross the link, and stores need no answer.
 *
 *   slab of a rank: | slice: epoch, words by writer | ... | inboxes | scratch | LL slots |
 *
 * Words hold epochs that only grow, with one writer each. The slab keeps the epochs, so a launch
 * that a graph holds does the next tiles each time. A writer fills an inbox again when the reader's
 * `done` word says that it has finished the tile KOLO_PROGRAM_DEPTH before. Every rank gets the
 * `done` of the last tile of a call, so the next call may cut inboxes in another way.
 *
 * A program names chunks, never their addresses or lengths, so it is made once for a plan. A short
 * program goes with the launch. A longer program lies in pinned host memory, and a block
 * reads it in windows. So no call allocates or copies memory, nor does the capture of a graph. */
#ifndef KOLO_EXEC_GPU_PROGRAM_PROGRAM_KERNEL_H
#define KOLO_EXEC_GPU_PROGRAM_PROGRAM_KERNEL_H

#include "exec/gpu/program/program_layout.h"
#include "exec/lower/extents.h"
#include "exec/lower/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a slab, which begins as zeros, and the offset of the slots of exec/gpu/ll/ll.h in it. */
size_t kolo_program_slab_bytes(const struct kolo_program_room *room);
size_t kolo_program_ll_at(const struct kolo_program_room *room);

struct kolo_program {
    const struct kolo_plan *plan;
    int me;
    bool joined; /* lanes wait for each other */
    uint32_t nlanes, nstages;
    uint32_t inbox_chunks, scratch_chunks; /* the maximum over ranks and lanes */
    struct kolo_program_lane lane[KOLO_LANES];
    uint32_t nwords;
    uint64_t *word;
};
/* Make the program of rank `me` in `plan`, which outlives it and has all ranks' steps. Errors:
 * UNSUPPORTED (more ranks, sides of a move, or signals than a kernel has room for), SYSTEM. */
KOLO_CHECK kolo_status kolo_program_make(const struct kolo_plan *plan, int me,
                                         struct kolo_program **out);
void kolo_program_destroy(struct kolo_program *program);

/* Fill the parts of a launch that do not change from call to call: all but `ends` and the divisor.
 * A lane has `slices` blocks. `program` is the GPU's address of the program's words; 0: they are in
 * the launch, which holds KOLO_PROGRAM_HELD of them. Errors: UNSUPPORTED (more blocks, or chunks of
 * a tile, than there is room for; blocks whose lengths not all ranks know). */
KOLO_CHECK kolo_status kolo_program_bind(const struct kolo_program *p, uint64_t program,
                                         const struct kolo_extents *extents,
                                         const struct kolo_program_room *room, unsigned slices,
                                         struct kolo_program_launch *out);

/* Add the direct form to the launch of an all-reduce, all-gather or reduce-scatter whose count is
 * `bytes`. In this form each rank reads its share of all inputs and stores the result to all
 * outputs, over the links and without inboxes.
 *
 * The ranks first tell each other whether launch.reached is set. If it is set on all, they use the
 * direct form, else the program. Afterwards they tell each other that they are done, so no rank's
 * buffers are used after its kernel ends. All ranks must add the direct form, or none.
 *
 * Source: the two-shot kernels of NCCL (RSxLD_AGxST), vLLM and others. */
void kolo_program_bind_direct(enum kolo_coll coll, size_t bytes,
                              struct kolo_program_launch *launch);

/* The kernel that serves the call, as kolo_fused_name(): "kolo_program_sum_float32", ... */
enum { KOLO_PROGRAM_NAME = 48 }; /* and KOLO_FUSED_NAME */
void kolo_program_name(enum kolo_coll coll, enum kolo_type type, kolo_op op,
                       char out[KOLO_PROGRAM_NAME]);

/* Cubins and PTX of all these kernels. NULL if kolo was built without nvcc. */
const void *kolo_program_image(void);

#ifdef __cplusplus
}
#endif
#endif
