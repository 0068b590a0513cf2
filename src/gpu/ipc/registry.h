// SPDX-License-Identifier: Apache-2.0
/* The IPC registry: users' buffers on GPUs that the ranks of other processes have mapped. In a call
 * these ranks may then read and write them (exec/gpu/program/program_kernel.h,
 * kolo_program_bind_direct()).
 *
 * A rank registers the allocation of a buffer with all other ranks at the first call with it:
 *
 *   owner, in a call:   finds no entry: makes one, wakes its thread; this call uses the inboxes
 *   its thread:         OFFER number, handle or descriptors ->  each other rank's thread
 *   theirs:             maps it                             ->  ANSWER number, its address there
 *   owner, later:       all have answered: a launch has the difference of addresses for each rank,
 *                       and the kernel tells each rank the address of the buffer there
 *   its thread, when the memory is gone:  WITHDRAW number   ->  each unmaps it
 *
 * The ranks agree in the kernel: a rank whose buffer is not registered yet says so there, and all
 * ranks use the inboxes. So no host waits, and memory may be known to one rank and new to another.
 * The key of an entry is the driver's number of the allocation, which takes one query.
 *
 * A graph keeps addresses. So while a stream captures, a call waits until its buffers are mapped.
 * Only the threads of the other ranks are needed for that, and the wait is limited. An entry ends
 * with the communicator or with its memory, and never to make room.
 *
 * An entry whose memory was freed is withdrawn when another entry is made, or within a second.
 * No rank uses it then: a rank's kernel ends when all ranks are done with its buffers, and memory
 * is freed after that. unix_socket.h carries the messages. A thread that cannot send takes the
 * messages that have come for it meanwhile. */
#ifndef KOLO_GPU_IPC_REGISTRY_H
#define KOLO_GPU_IPC_REGISTRY_H

#include "core/comm.h"
#include "gpu/context/gpu.h"

struct kolo_ipc_registry;

/* Open the registry. Collective over host memory of `comm`, which has several processes of one host
 * and at most KOLO_PROGRAM_RANKS ranks. `gpu` is borrowed. *out NULL: a rank has no socket or no
 * thread for it. Errors: those of collectives. */
kolo_status kolo_ipc_registry_open(struct kolo_comm *comm, const struct kolo_gpu *gpu,
                                   struct kolo_ipc_registry **out);
/* Close the registry, which may be NULL; the GPU's context is current. If `over`, no kernel of this
 * rank uses memory of other ranks any more; otherwise that memory stays mapped. */
void kolo_ipc_registry_close(struct kolo_ipc_registry *registry, bool over);

/* Whether all ranks have mapped `bytes` from `ptr` on. If not, they are asked to map them, and with
 * `wait` the call waits for that, a second at most. Rank q has the bytes at the address here plus
 * shift_out[q]. The GPU's context is current. A known answer takes one query of the driver. */
bool kolo_ipc_registry_find(struct kolo_ipc_registry *registry, const void *ptr, size_t bytes,
                            bool wait, uint64_t *shift_out);

#endif
