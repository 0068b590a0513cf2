// SPDX-License-Identifier: Apache-2.0
/* Users' buffers on GPUs, mapped by the ranks of other processes, which may then read and write
 * them in a call (see exec/gpu/program/program_kernel.h, kolo_program_bind_direct()).
 *
 * A rank registers the allocation of a buffer with all other ranks when a call first brings it:
 *
 *   owner, in a call:   finds no entry: makes one, wakes its thread; this call goes through slots
 *   its thread:         OFFER number, handle or descriptors ->  each other rank's thread
 *   theirs:             maps it                             ->  ANSWER number, its address there
 *   owner, later:       all have answered: a launch carries, for each rank, by how much addresses
 *                       there differ, and the kernel tells each rank where it has the buffer
 *   its thread, once the memory is gone:  WITHDRAW number   ->  each unmaps it
 *
 * Ranks agree in the kernel: a rank whose buffer is not registered yet says so there, and all take
 * the slots. So the host waits for nobody, and memory may be known at one rank and new at another.
 * An entry is found by the driver's number of the allocation, which one query gives.
 *
 * Graphs keep addresses. So while a stream captures, a call waits until its buffers are mapped; the
 * other ranks' threads alone bring that about, and the wait is limited. An entry ends with the
 * communicator or the memory, never to make room.
 *
 * An entry whose memory was freed is found when another one is made, or within a second. Nobody
 * uses it then: a rank's kernel ends when all are through with its buffers, and memory is freed
 * after that. Messages are those of unix_socket.h. A thread that cannot send takes the messages
 * that have come for it meanwhile. */
#ifndef KOLO_GPU_IPC_REGISTRY_H
#define KOLO_GPU_IPC_REGISTRY_H

#include "core/comm.h"
#include "gpu/context/gpu.h"

struct kolo_ipc_registry;

/* Collective over host memory of `comm`, of several processes of one host and KOLO_PROGRAM_RANKS
 * ranks at most. `gpu` is borrowed. *out NULL: some rank has no socket or no thread for it. Errors:
 * those of collectives. */
kolo_status kolo_ipc_registry_open(struct kolo_comm *comm, const struct kolo_gpu *gpu,
                                   struct kolo_ipc_registry **out);
/* In the GPU's context; NULL is allowed. over: no kernel of this rank uses the others' memory any
 * more; else what it has mapped stays. */
void kolo_ipc_registry_close(struct kolo_ipc_registry *registry, bool over);

/* Whether all ranks reach so many bytes from `ptr` on; if not, they are asked to, and `wait` waits
 * a second at most for that. shift_out[q]: rank q has them at the address here plus this. In the
 * GPU's context. Takes one query of the driver where the answer is known. */
bool kolo_ipc_registry_find(struct kolo_ipc_registry *registry, const void *ptr, size_t bytes,
                            bool wait, uint64_t *shift_out);

#endif
