// SPDX-License-Identifier: Apache-2.0
/* The names that MPItrampoline loads, over kolo: JAX's collectives between processes on CPUs.
 *
 * The jaxlib of the package index has MPItrampoline linked in. It loads the library that
 * MPITRAMPOLINE_LIB names, and ends the process unless that has every constant and function of MPI 3.1,
 * as MPIABI_*. XLA calls some twenty of them. Those are made of kolo's calls here; no MPI is needed.
 * The others end the process with a sentence (lacking.c).
 *
 * XLA ignores the result of MPI_Init() and of MPI_Comm_split(). So the first ends the process if it
 * fails, and the second gives a communicator whose calls all tell why it failed.
 *
 * XLA gives the text of MPI_Error_string() to the program: kolo's, which names the rank at fault.
 *
 * Source: github.com/eschnett/MPItrampoline, mpiabi/mpiabi.h (binary interface, version 2.10);
 * github.com/openxla/xla, xla/backends/cpu/collectives/mpi_communicator.cc (the calls). */
#ifndef KOLO_MPI_TRAMPOLINE_H
#define KOLO_MPI_TRAMPOLINE_H

#include <kolo/kolo.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Handles of communicators, types, operations and requests are words. */
typedef uintptr_t tramp_handle;

struct tramp_status {
    int reserved[6]; /* of the MPI library */
    int source, tag, error;
};

/* The constants, for the code of this folder. */
enum tramp_constant {
#define INT(name, value)  TRAMP_##name = (value),
#define WORD(name, value) TRAMP_##name = (value),
#include "constants.def"
#undef INT
#undef WORD
};

struct tramp_request;

struct tramp_comm {
    struct kolo_comm *kolo; /* NULL: the split failed */
    int rank, size;         /* -1 and 0 if the split failed */
    char why[512];          /* why it failed */
    pthread_mutex_t lock;   /* of the requests */
    struct tramp_request *first, **last;
    struct tramp_comm *next; /* of all that are alive */
};

/* ---- communicators (comm.c) ---- */

/* The communicator of a handle. NULL: there is none, and tramp_fail() has been called. */
struct tramp_comm *tramp_enter(tramp_handle comm);

/* ---- errors (error.c) ---- */

/* Set the text of this thread's error. Returns MPI_ERR_OTHER. */
int tramp_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* MPI_SUCCESS, or MPI_ERR_OTHER with kolo's text. */
int tramp_result(kolo_status st);
/* Say why on standard error, and end the process. The other ranks then name this one. */
_Noreturn void tramp_end(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- types (reduce.c) ---- */

/* The bytes of `count` elements. False: no such type or count, and tramp_fail() has been called. */
bool tramp_bytes(tramp_handle type, int count, size_t *out);

static inline bool tramp_is_in_place(const void *buf)
{
    return (uintptr_t)buf == TRAMP_IN_PLACE;
}

/* The functions of this folder are what MPItrampoline finds. */
#pragma GCC visibility push(default)

/* Where MPI_Init() meets the other ranks, if no launcher tells: kolo.jax calls this before it. */
void kolo_mpitrampoline_join(const struct kolo_id *id, int nranks, int rank);

int MPIABI_Init(int *argc, char ***argv);
int MPIABI_Init_thread(int *argc, char ***argv, int required, int *provided);
int MPIABI_Initialized(int *flag);
int MPIABI_Is_thread_main(int *flag);
int MPIABI_Query_thread(int *provided);
int MPIABI_Finalize(void);
int MPIABI_Finalized(int *flag);
int MPIABI_Comm_rank(tramp_handle comm, int *rank);
int MPIABI_Comm_size(tramp_handle comm, int *size);
int MPIABI_Comm_split(tramp_handle comm, int color, int key, tramp_handle *out);
int MPIABI_Comm_free(tramp_handle *comm);

int MPIABI_Allreduce(const void *send, void *recv, int count, tramp_handle type, tramp_handle op,
                     tramp_handle comm);
int MPIABI_Reduce_scatter(const void *send, void *recv, const int *counts, tramp_handle type,
                          tramp_handle op, tramp_handle comm);
int MPIABI_Allgather(const void *send, int send_count, tramp_handle send_type, void *recv,
                     int recv_count, tramp_handle recv_type, tramp_handle comm);

int MPIABI_Isend(const void *buf, int count, tramp_handle type, int peer, int tag,
                 tramp_handle comm, tramp_handle *request);
int MPIABI_Irecv(void *buf, int count, tramp_handle type, int peer, int tag, tramp_handle comm,
                 tramp_handle *request);
int MPIABI_Wait(tramp_handle *request, struct tramp_status *status);
int MPIABI_Sendrecv(const void *send, int send_count, tramp_handle send_type, int to, int send_tag,
                    void *recv, int recv_count, tramp_handle recv_type, int from, int recv_tag,
                    tramp_handle comm, struct tramp_status *status);

int MPIABI_Error_string(int code, char *text, int *length);
int MPIABI_Abort(tramp_handle comm, int code);
int MPIABI_Get_version(int *version, int *subversion);
int MPIABI_Get_library_version(char *text, int *length);

#pragma GCC visibility pop
#endif
