// SPDX-License-Identifier: Apache-2.0
/* The low-latency (LL) protocol for short calls between GPUs that store to each other's memory.
 *
 * Each rank stores its data for another rank straight into a slot there, in lines that carry their
 * own flag. Every rank takes the others' data from its own slots, in the order of ranks. The data
 * crosses the link once, without signal, fence or answer. The price is twice the bytes. This is the
 * LL protocol of NCCL (src/device/prims_ll.h there), with every rank's input sent to all (AGxLL_R
 * in its symmetric kernels).
 *
 * In each call every rank receives lines from every other rank, whatever the collective; ll_body.h
 * says why. So a broadcast ends when all ranks have come. Epochs are kept in the slab, as in
 * exec/gpu/program/program_kernel.h. */
#ifndef KOLO_EXEC_GPU_LL_LL_H
#define KOLO_EXEC_GPU_LL_LL_H

#include "exec/gpu/ll/ll_layout.h"
#include "exec/gpu/program/program_kernel.h"
#include "plan/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kolo_ll_grid { /* of a kernel */
    unsigned blocks, threads;
};

/* Bytes that each rank takes from the others, or sends if it takes none. Size limits apply to this
 * number. */
size_t kolo_ll_bytes(const struct kolo_coll_args *args, int nranks);

/* Fill rank `me`'s launch except `ends`, and its grid. op KOLO_OPS is a PREMULSUM. False: the call
 * is too long for `slices` blocks, or the LL protocol does not serve it. It serves no v-form, and
 * no barrier: a barrier's callers may want more put in order than one call. */
bool kolo_ll_bind(const struct kolo_coll_args *args, int me, const struct kolo_program_room *room,
                  unsigned slices, struct kolo_ll_launch *out, struct kolo_ll_grid *grid_out);

/* The kernel that serves the call: "kolo_ll_float32", "kolo_ll_copy", ... */
void kolo_ll_name(enum kolo_coll coll, enum kolo_type type, kolo_op op,
                  char out[KOLO_PROGRAM_NAME]);

#ifdef __cplusplus
}
#endif
#endif
