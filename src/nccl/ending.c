// SPDX-License-Identifier: Apache-2.0
/* Communicators: their end, and questions about them. */
#include "shim.h"

#include <string.h>

/* ---- going down ---- */

static ncclResult_t run_finalize(struct shim_job *job)
{
    pthread_mutex_lock(&job->parent->lock);
    struct kolo_comm *going = job->parent->comm;
    job->parent->comm = NULL;
    pthread_mutex_unlock(&job->parent->lock);
    kolo_comm_destroy(going);
    return ncclSuccess;
}

ncclResult_t pncclCommFinalize(ncclComm_t comm)
{
    if (comm == NULL) {
        return ncclSuccess;
    }
    SHIM_TRY(shim_group_note(shim_enter(comm, "ncclCommFinalize")));
    struct shim_job *job = NULL;
    ncclResult_t result = shim_job_new(NULL, comm, comm->blocking, &job);
    if (result == ncclSuccess) {
        shim_ops_free(comm);
        job->run = run_finalize;
        result = shim_job_submit(job);
    }
    shim_release(comm);
    return shim_group_note(result);
}
SHIM_NAME(ncclCommFinalize)

/* Mark a communicator as closed by its user, who may do so once. Its last holder frees it. */
static ncclResult_t close_comm(struct ncclComm *comm, const char *call)
{
    if (comm == NULL) {
        return ncclSuccess;
    }
    SHIM_TRY(shim_check(comm, call));
    if (atomic_exchange(&comm->closed, true)) {
        return shim_fail(ncclInvalidArgument, "%s: comm was destroyed or aborted already", call);
    }
    return ncclSuccess;
}

ncclResult_t pncclCommDestroy(ncclComm_t comm)
{
    SHIM_TRY(close_comm(comm, "ncclCommDestroy"));
    if (comm != NULL) {
        shim_release(comm);
    }
    return ncclSuccess;
}
SHIM_NAME(ncclCommDestroy)

/* Abort works also during a split. A communicator that is coming up ends when that job ends. */
ncclResult_t pncclCommAbort(ncclComm_t comm)
{
    SHIM_TRY(close_comm(comm, "ncclCommAbort"));
    if (comm != NULL) {
        pthread_mutex_lock(&comm->lock);
        if (comm->comm != NULL) {
            kolo_comm_abort(comm->comm);
        }
        pthread_mutex_unlock(&comm->lock);
        shim_release(comm);
    }
    return ncclSuccess;
}
SHIM_NAME(ncclCommAbort)

ncclResult_t pncclCommRevoke(ncclComm_t comm, int revokeFlags)
{
    if (revokeFlags != NCCL_REVOKE_DEFAULT) {
        return shim_fail(ncclInvalidArgument, "revokeFlags is %d; it must be NCCL_REVOKE_DEFAULT",
                         revokeFlags);
    }
    SHIM_TRY(shim_enter_revoked(comm, "ncclCommRevoke"));
    atomic_store(&comm->revoked, true);
    kolo_comm_abort(comm->comm);
    shim_release(comm);
    return ncclSuccess;
}
SHIM_NAME(ncclCommRevoke)

/* ---- questions ---- */

kolo_status shim_ended(struct ncclComm *comm, struct kolo_failure *out)
{
    kolo_status ended = KOLO_OK;
    pthread_mutex_lock(&comm->lock);
    if (comm->comm != NULL) {
        ended = kolo_comm_error(comm->comm);
        if (out != NULL && kolo_comm_failure(comm->comm, out) != KOLO_OK) {
            out->text[0] = '\0';
        }
    }
    pthread_mutex_unlock(&comm->lock);
    return ended;
}

ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    SHIM_TRY(shim_check(comm, "ncclCommGetAsyncError"));
    if (asyncError == NULL) {
        return shim_fail(ncclInvalidArgument, "asyncError is NULL");
    }
    ncclResult_t state = (ncclResult_t)atomic_load(&comm->state);
    if (state == ncclSuccess && !atomic_load(&comm->revoked)) {
        state = shim_meaning(shim_ended(comm, NULL));
    }
    *asyncError = state;
    return ncclSuccess;
}
SHIM_NAME(ncclCommGetAsyncError)

static ncclResult_t answer_member(struct ncclComm *comm, const char *call, size_t member, int *out)
{
    SHIM_TRY(shim_check_settled(comm, call));
    if (out == NULL) {
        return shim_fail(ncclInvalidArgument, "%s: where the answer goes is NULL", call);
    }
    memcpy(out, (const char *)comm + member, sizeof *out);
    return ncclSuccess;
}

ncclResult_t pncclCommCount(const ncclComm_t comm, int *count)
{
    return answer_member(comm, "ncclCommCount", offsetof(struct ncclComm, nranks), count);
}
SHIM_NAME(ncclCommCount)

ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int *device)
{
    return answer_member(comm, "ncclCommCuDevice", offsetof(struct ncclComm, device), device);
}
SHIM_NAME(ncclCommCuDevice)

ncclResult_t pncclCommUserRank(const ncclComm_t comm, int *rank)
{
    return answer_member(comm, "ncclCommUserRank", offsetof(struct ncclComm, rank), rank);
}
SHIM_NAME(ncclCommUserRank)
