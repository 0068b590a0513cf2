// SPDX-License-Identifier: Apache-2.0
/* The registry, as registry.c (calls) and exchange.c (its thread) see it. */
#ifndef KOLO_GPU_IPC_REGISTRY_INNER_H
#define KOLO_GPU_IPC_REGISTRY_INNER_H

#include "cuda/ipc.h"
#include "exec/gpu/program/program_layout.h"
#include "gpu/ipc/mapping.h"
#include "gpu/ipc/registry.h"
#include "gpu/ipc/unix_socket.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum {
    PIECES = 32,    /* allocations that one buffer may lie in */
    ENTRIES = 1024, /* of a rank, at the same time */
    SWEEP_MS = 1000
};

enum kolo_ipc_kind { OFFER, ANSWER, WITHDRAW };
struct kolo_ipc_message {
    uint32_t kind, by_fd;
    uint32_t piece, pieces; /* OFFER: its index, and the number of pieces */
    uint64_t number;
    uint64_t offset, bytes; /* the piece in the buffer's memory */
    uint64_t total;         /* bytes of all pieces */
    uint64_t at;            /* ANSWER: the address there; 0: it cannot be mapped */
    uint64_t base, id;      /* OFFER: the piece in its process */
    struct kolo_cuda_ipc_handle handle;
};
_Static_assert(sizeof(struct kolo_ipc_message) <= KOLO_UNIX_SOCKET_BYTES, "one message");

struct kolo_ipc_arrival { /* a message that came while this rank was sending */
    struct kolo_ipc_arrival *next;
    struct kolo_ipc_message message;
    int rank, fd;
};

enum kolo_ipc_state { NEW, ASKED, THERE, REFUSED };
struct kolo_ipc_entry { /* calls make it, the thread ends it */
    struct kolo_ipc_entry *next;
    uint64_t number, bytes;
    enum kolo_ipc_state state;
    int answers;
    uint64_t there[KOLO_PROGRAM_RANKS];
    unsigned pieces;
    struct kolo_cuda_ipc_memory piece[]; /* one after the other in memory */
};

struct kolo_ipc_mapping { /* of another rank's memory; only the thread uses it */
    struct kolo_ipc_mapping *next;
    int rank;
    uint64_t number, total;
    bool by_fd;
    struct kolo_ipc_mapped *mapped; /* if not by_fd */
    kolo_cuda_address at;           /* 0: it could not be mapped */
    unsigned pieces;
    uint64_t offset[PIECES], bytes[PIECES];
};

struct kolo_ipc_registry {
    struct kolo_comm *comm;
    const struct kolo_gpu *gpu;
    struct kolo_unix_socket sockets;
    struct kolo_bell wake;
    atomic_bool stop;
    pthread_t thread;
    struct kolo_ipc_mapping *mappings; /* this member and the next ones are the thread's */
    struct kolo_ipc_arrival *inbox, **end;
    double swept_us;

    pthread_mutex_t lock; /* of the members below and of entries' states; never held in a wait */
    struct kolo_ipc_entry *entries;
    int count;
    uint64_t numbers;
    bool told, impatient;
};

static inline void kolo_ipc_nap(void)
{
    const struct timespec time = {0, 50 * 1000};
    nanosleep(&time, NULL);
}

/* exchange.c: the thread's function, which runs until `stop`. */
void *kolo_ipc_registry_run(void *registry);
/* Whether an entry's memory is still the same allocation. */
bool kolo_ipc_registry_is_alive(const struct kolo_ipc_registry *l,
                                const struct kolo_ipc_entry *entry);
/* After the thread has ended: unmap the memory of other ranks; free the thread's records. */
void kolo_ipc_registry_unmap(struct kolo_ipc_registry *l);
void kolo_ipc_registry_forget(struct kolo_ipc_registry *l);

#endif
