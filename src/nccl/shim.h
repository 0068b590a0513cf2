// SPDX-License-Identifier: Apache-2.0
/* NCCL's names over kolo's public interface: what its files share.
 *
 * An ncclComm_t is a struct of its own, for NCCL gives it out before the communicator is up, and
 * lets it be asked after that has gone. It is counted: its user, each job that brings it up or
 * down, and each call that is under way hold it, and the last to let go frees it. So a communicator
 * can be aborted while others are inside. */
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

/* A function's name without the p: weak, so that a tool may put its own before it. */
#define SHIM_NAME(name) extern __typeof__(p##name) name __attribute__((weak, alias("p" #name)));

#define SHIM_TRY(expr)                                                                             \
    do {                                                                                           \
        const ncclResult_t shim_try_ = (expr);                                                     \
        if (shim_try_ != ncclSuccess) {                                                            \
            return shim_try_;                                                                      \
        }                                                                                          \
    } while (0)

struct shim_op { /* an operation that was created */
    struct shim_op *next;
    int handle;
    enum kolo_type type;
    kolo_op op;         /* of an immediate scalar */
    const void *scalar; /* else where it lies on the device */
};

struct ncclComm {
    uint32_t magic;
    atomic_int holders;
    atomic_int state;   /* ncclInProgress while a job has it; what its last job ended with */
    atomic_bool closed; /* its user let go of it */
    atomic_bool revoked;
    /* NULL: not up yet, or finalized. Written by jobs, before `state` and under the lock, which
     * those take who may come while a job runs. */
    struct kolo_comm *comm;
    int rank, nranks, device;
    bool blocking, on_host;
    pthread_mutex_t lock; /* of all below, too */
    struct shim_op *ops;
    int next_op;
};

/* ---- error.c ---- */

/* Keep a sentence for ncclGetLastError(). Returns `result`. */
__attribute__((format(printf, 2, 3))) ncclResult_t shim_fail(ncclResult_t result, const char *text,
                                                             ...);
/* What a status of kolo means here. */
ncclResult_t shim_meaning(kolo_status st);
/* The same of a call that just ended so in this thread; its sentence is kept. */
ncclResult_t shim_said(kolo_status st);

/* ---- driver.c: what kolo does not ask of CUDA's driver ---- */

/* Whether there is a driver with a GPU. */
bool shim_has_gpu(void);
/* The device of this thread's current context, 0 if it has none. */
int shim_current_device(void);
/* Read `bytes` at `at`, which a stream writes before. */
ncclResult_t shim_read(const void *at, size_t bytes, cudaStream_t stream, void *out);

/* ---- core/setup/create.c, ending.c ---- */

/* Whether a handle is one, for calls that need no communicator that is up. */
ncclResult_t shim_check(struct ncclComm *comm, const char *call);
/* The same, and that no job has it. */
ncclResult_t shim_check_settled(struct ncclComm *comm, const char *call);
/* Hold a communicator that is up, for a call on it. Errors: a handle that is none; not up. */
ncclResult_t shim_enter(struct ncclComm *comm, const char *call);
/* The same of one that may be revoked. */
ncclResult_t shim_enter_revoked(struct ncclComm *comm, const char *call);
/* What ended it: KOLO_OK if nothing did, or if it is not up. `out` may be NULL. */
kolo_status shim_ended(struct ncclComm *comm, struct kolo_failure *out);
/* Let go; the last one frees it. */
void shim_release(struct ncclComm *comm);

/* ---- group.c ---- */

/* Something that brings communicators up or down, and may wait for other ranks. */
struct shim_job {
    struct shim_job *next;
    ncclResult_t (*run)(struct shim_job *job);
    struct ncclComm *made, *parent; /* held by it; either may be NULL */
    struct ncclComm **out;          /* becomes NULL if a job that blocks fails; may be NULL */
    bool blocks;
    struct kolo_id id;
    struct kolo_config config;
    char name[64]; /* what config.name is, if it is set */
    bool inherits; /* the configuration of `parent` */
    int color, key;
    int *exclude; /* owned */
    int nexclude;
    ncclResult_t result;
    bool has_thread;
    pthread_t thread;
};

/* A job that makes `made` out of `parent`, or brings down `parent`, and holds them. */
ncclResult_t shim_job_new(struct ncclComm *made, struct ncclComm *parent, bool blocks,
                          struct shim_job **out);
/* Run a job: now, at the end of the group, or in the background. It takes the job and what that
 * holds. */
ncclResult_t shim_job_submit(struct shim_job *job);
/* Keep a communicator until the group ends; in no group, do nothing. */
ncclResult_t shim_group_hold(struct ncclComm *comm);
/* Destroy an operation once no call can use it any more: at the end of the group. */
void shim_group_drop_op(struct ncclComm *comm, kolo_op op);
/* Remember what a call ended with, for the end of the group. Returns it. */
ncclResult_t shim_group_note(ncclResult_t result);

/* ---- ops.c ---- */

ncclResult_t shim_type(ncclDataType_t datatype, enum kolo_type *out);
/* What stands for `op` in a call: *made_out if it was made for this one and is to be dropped. */
ncclResult_t shim_op(struct ncclComm *comm, ncclRedOp_t op, enum kolo_type type,
                     cudaStream_t stream, kolo_op *out, bool *made_out);
/* Free the created operations of a communicator, which is going. */
void shim_ops_free(struct ncclComm *comm);

#endif
