// SPDX-License-Identifier: Apache-2.0
/* Users' buffers on GPUs, mapped by the ranks of other processes, which may then read and write
 * them in a call (see exec/gpu/program/program_kernel.h, kolo_program_bind_direct()).
 *
 * A rank that is to use a buffer it does not know lends the buffer's allocation to all others:
 *
 *   lender, in a call:  finds no loan: enters one, wakes its thread; this call goes through slots
 *   its thread:         LEND number, handle or descriptors  ->  each other rank's thread
 *   theirs:             maps it                             ->  LENT number, where it lies there
 *   lender, later:      all have answered: a launch carries, for each rank, by how much addresses
 *                       there differ, and the kernel tells each rank where it has the buffer
 *   its thread, once the memory is gone:  BACK number       ->  each unmaps it
 *
 * So what ranks must agree on, they agree on in the kernel: one that has not lent what it brings
 * says so there, and all take the slots. The host waits for nobody, memory may be known at one rank
 * and new at another, and a loan is found by the driver's number of the allocation, which one query
 * gives. Graphs keep addresses: so while a stream captures, a call waits until its buffers are
 * mapped, which the others' threads alone bring about, but not for ever; and a loan ends with the
 * communicator or the memory, never to make room.
 *
 * A loan whose memory was freed is found when another one is made, or within a second. Nobody uses
 * it then: a rank's kernel ends when all are through with its buffers, and memory is freed after
 * that. Messages are those of unix_socket.h; a thread that cannot send takes what came for it
 * meanwhile. */
#ifndef KOLO_GPU_IPC_REGISTRY_H
#define KOLO_GPU_IPC_REGISTRY_H

#include "core/comm.h"
#include "gpu/gpu.h"

struct kolo_loans;

/* Collective over host memory of `comm`, of several processes of one host and KOLO_PROGRAM_RANKS
 * ranks at most. `gpu` is borrowed. *out NULL: some rank has no socket or no thread for it. Errors:
 * those of collectives. */
kolo_status kolo_loans_open(struct kolo_comm *comm, const struct kolo_gpu *gpu,
                            struct kolo_loans **out);
/* In the GPU's context; NULL is allowed. over: no kernel of this rank uses the others' memory any
 * more; else what it has mapped stays. */
void kolo_loans_close(struct kolo_loans *loans, bool over);

/* Whether all ranks reach so many bytes from `ptr` on; if not, they are asked to, and `wait` waits
 * a second at most for that. shift_out[q]: rank q has them at the address here plus this. In the
 * GPU's context. Takes one query of the driver where the answer is known. */
bool kolo_loans_find(struct kolo_loans *loans, const void *ptr, size_t bytes, bool wait,
                     uint64_t *shift_out);

#endif
