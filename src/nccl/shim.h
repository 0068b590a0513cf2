// SPDX-License-Identifier: Apache-2.0
/* NCCL's names over kolo's public interface: the declarations that the files share.
 *
 * An ncclComm_t is a struct of its own. NCCL hands it out before the communicator is up, and
 * answers questions about it after the communicator is gone. The struct counts its holders: its
 * user, each job that brings it up or down, and each call under way. The last holder frees it. So a
 * communicator can be aborted while other threads are inside a call. */
#ifndef KOLO_NCCL_SHIM_H
#define KOLO_NCCL_SHIM_H

#include <kolo/kolo.h>
#pragma GCC visibility push(default)
#include <kolo/nccl/nccl.h>
#pragma GCC visibility pop
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Define a function's name without the p. It is weak, so that a tool may replace it. */
#define SHIM_NAME(name) extern __typeof__(p##name) name __attribute__((weak, alias("p" #name)));

#define SHIM_TRY(expr)                                                                             \
    do {                                                                                           \
        const ncclResult_t shim_try_ = (expr);                                                     \
        if (shim_try_ != ncclSuccess) {                                                            \
            return shim_try_;                                                                      \
        }                                                                                          \
    } while (0)

struct shim_op { /* an operation that the user created */
    struct shim_op *next;
    int handle;
    enum kolo_type type;
    kolo_op op;         /* for a scalar by value */
    const void *scalar; /* else the scalar's device address */
};

struct ncclComm {
    uint32_t magic;
    atomic_int holders;
    atomic_int state;   /* ncclInProgress while a job runs; then that job's result */
    atomic_bool closed; /* its user has closed it */
    atomic_bool revoked;
    /* NULL: not up yet, or finalized. Jobs write it before `state` and under the lock. Functions
     * that may run during a job take the lock. */
    struct kolo_comm *comm;
    int rank, nranks, device;
    bool blocking, on_host;
    pthread_mutex_t lock; /* also protects all members below */
    struct shim_op *ops;
    int next_op;
};

/* ---- error.c ---- */

/* Keep a sentence for ncclGetLastError(). Returns `result`. */
__attribute__((format(printf, 2, 3))) ncclResult_t shim_fail(ncclResult_t result, const char *text,
                                                             ...);
/* NCCL's result for a status of kolo. */
ncclResult_t shim_meaning(kolo_status st);
/* NCCL's result for the status of a call that just ended in this thread. Keeps its sentence. */
ncclResult_t shim_said(kolo_status st);

/* ---- driver.c: questions to CUDA's driver that kolo does not ask ---- */

/* Whether a driver with a GPU exists. */
bool shim_has_gpu(void);
/* The device of this thread's current context, 0 if it has none. */
int shim_current_device(void);
/* Read `bytes` at `at`, after the work of `stream` that writes them. */
ncclResult_t shim_read(const void *at, size_t bytes, cudaStream_t stream, void *out);

/* ---- comm.c, ending.c ---- */

/* Check that a handle is valid, for calls that do not need the communicator to be up. */
ncclResult_t shim_check(struct ncclComm *comm, const char *call);
/* Check that a handle is valid and that no job runs on it. */
ncclResult_t shim_check_settled(struct ncclComm *comm, const char *call);
/* Hold a communicator for a call on it. Errors: an invalid handle; a communicator that is not up.
 */
ncclResult_t shim_enter(struct ncclComm *comm, const char *call);
/* Hold a communicator for a call on it, even a revoked one. */
ncclResult_t shim_enter_revoked(struct ncclComm *comm, const char *call);
/* The failure that ended a communicator; KOLO_OK: none, or it is not up. `out` may be NULL. */
kolo_status shim_ended(struct ncclComm *comm, struct kolo_failure *out);
/* Release a communicator; the last holder frees it. */
void shim_release(struct ncclComm *comm);

/* ---- group.c ---- */

/* A job brings communicators up or down, and may wait for other ranks. */
struct shim_job {
    struct shim_job *next;
    ncclResult_t (*run)(struct shim_job *job);
    struct ncclComm *made, *parent; /* the job holds both; either may be NULL */
    struct ncclComm **out;          /* set to NULL if a blocking job fails; may be NULL */
    bool blocks;
    struct kolo_id id;
    struct kolo_config config;
    char name[64]; /* memory of config.name, if set */
    bool inherits; /* takes the configuration of `parent` */
    int color, key;
    int *exclude; /* owned */
    int nexclude;
    ncclResult_t result;
    bool has_thread;
    pthread_t thread;
};

/* Make a job that makes `made` out of `parent`, or brings down `parent`. The job holds both. */
ncclResult_t shim_job_new(struct ncclComm *made, struct ncclComm *parent, bool blocks,
                          struct shim_job **out);
/* Run a job: now, at the end of the group, or in the background. Takes the job and its holds. */
ncclResult_t shim_job_submit(struct shim_job *job);
/* Hold a communicator until the group ends. Outside a group, do nothing. */
ncclResult_t shim_group_hold(struct ncclComm *comm);
/* Destroy an operation when no call can use it any more: now, or at the end of the group. */
void shim_group_drop_op(struct ncclComm *comm, kolo_op op);
/* Remember a call's result for the end of the group. Returns the result. */
ncclResult_t shim_group_note(ncclResult_t result);

/* ---- ops.c ---- */

ncclResult_t shim_type(ncclDataType_t datatype, enum kolo_type *out);
/* kolo's operation for `op` in a call. *made_out: it was made for this call, and is dropped after
 * it. */
ncclResult_t shim_op(struct ncclComm *comm, ncclRedOp_t op, enum kolo_type type,
                     cudaStream_t stream, kolo_op *out, bool *made_out);
/* Free the created operations of a communicator that ends. */
void shim_ops_free(struct ncclComm *comm);

#endif
