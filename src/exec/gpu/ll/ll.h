// SPDX-License-Identifier: Apache-2.0
/* Short calls between GPUs that store to each other's memory: each rank stores what it has for
 * another straight into a slot there, in lines that carry their own flag, and every rank takes the
 * others' from its own slots, in the order of ranks. One way over the link, no signal, no fence and
 * no answer; for that twice the bytes. It is the LL protocol of NCCL (src/device/prims_ll.h there),
 * with every rank's input sent to all (AGxLL_R in its symmetric kernels).
 *
 * Every rank hears of every other in each call, whatever the collective (ll_body.h says why), so
 * that a broadcast ends when all ranks have come. Epochs are kept in the slab, as in
 * exec/gpu/program/program_kernel.h. */
#ifndef KOLO_EXEC_GPU_LL_LL_H
#define KOLO_EXEC_GPU_LL_LL_H

#include "exec/gpu/ll/ll_layout.h"
#include "exec/gpu/program/program_kernel.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kolo_ll_call {
    enum kolo_coll coll; /* not a barrier, whose callers may want more put in order than a call */
    int nranks, me, root;
    size_t count; /* of elements, as the collective counts */
    enum kolo_type type;
    kolo_op op; /* KOLO_OPS: PREMULSUM */
};

/* Bytes that each rank takes from the others, or sends where it takes none: what a limit is for. */
size_t kolo_ll_bytes(const struct kolo_ll_call *call);

/* All of the launch but `ends`, and how many blocks and threads it takes. False: it is too long for
 * `slices` blocks, or is no such call. */
bool kolo_ll_bind(const struct kolo_ll_call *call, const struct kolo_program_room *room,
                  unsigned slices, struct kolo_ll_launch *out, unsigned *blocks_out,
                  unsigned *threads_out);

/* The kernel that serves the call: "kolo_ll_float32", "kolo_ll_copy", ... */
void kolo_ll_name(enum kolo_coll coll, enum kolo_type type, kolo_op op,
                  char out[KOLO_PROGRAM_NAME]);

#ifdef __cplusplus
}
#endif
#endif
