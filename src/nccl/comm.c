// SPDX-License-Identifier: Apache-2.0
/* Communicators: their handles, and their creation. */
#include "shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC        0x6b6f6e63u /* "konc" */
#define CONFIG_MAGIC 0xcafebeefu

/* ---- handles ---- */

ncclResult_t shim_check(struct ncclComm *comm, const char *call)
{
    if (comm == NULL || comm->magic != MAGIC) {
        (void)shim_fail(ncclInvalidArgument, "%s: comm is %p, which is no communicator", call,
                        (void *)comm);
        return ncclInvalidArgument;
    }
    return ncclSuccess;
}

ncclResult_t shim_check_settled(struct ncclComm *comm, const char *call)
{
    SHIM_TRY(shim_check(comm, call));
    if (atomic_load(&comm->state) == ncclInProgress) {
        return shim_fail(
            ncclInvalidArgument,
            "%s: an earlier call on comm is in progress; ncclCommGetAsyncError() tells "
            "when it has ended",
            call);
    }
    return ncclSuccess;
}

/* `revoked_too`: a revoked communicator is accepted. */
static ncclResult_t check_up(struct ncclComm *comm, const char *call, bool revoked_too)
{
    SHIM_TRY(shim_check_settled(comm, call));
    const ncclResult_t state = (ncclResult_t)atomic_load(&comm->state);
    if (state != ncclSuccess) {
        return shim_fail(state, "%s: comm did not come up", call);
    }
    if (comm->comm == NULL || atomic_load(&comm->closed)) {
        return shim_fail(ncclInvalidUsage, "%s: comm was %s", call,
                         comm->comm == NULL ? "finalized" : "destroyed or aborted");
    }
    if (!revoked_too && atomic_load(&comm->revoked)) {
        return shim_fail(ncclInvalidUsage, "%s: comm was revoked", call);
    }
    return ncclSuccess;
}

static ncclResult_t enter_comm(struct ncclComm *comm, const char *call, bool revoked_too)
{
    SHIM_TRY(shim_check(comm, call));
    atomic_fetch_add(&comm->holders, 1);
    const ncclResult_t result = check_up(comm, call, revoked_too);
    if (result != ncclSuccess) {
        shim_release(comm);
    }
    return result;
}

ncclResult_t shim_enter(struct ncclComm *comm, const char *call)
{
    return enter_comm(comm, call, false);
}

ncclResult_t shim_enter_revoked(struct ncclComm *comm, const char *call)
{
    return enter_comm(comm, call, true);
}

void shim_release(struct ncclComm *comm)
{
    if (atomic_fetch_sub(&comm->holders, 1) > 1) {
        return;
    }
    shim_ops_free(comm);
    kolo_comm_destroy(comm->comm);
    pthread_mutex_destroy(&comm->lock);
    comm->magic = 0;
    free(comm);
}

/* ---- configurations ---- */

struct comm_options {
    bool blocking;
    const char *name; /* NULL: none */
};

/* Read a configuration of any version: only the members that its version has are read. */
static ncclResult_t read_config(const ncclConfig_t *config, struct comm_options *out)
{
    ncclConfig_t given = NCCL_CONFIG_INITIALIZER;
    if (config == NULL) {
        return ncclSuccess;
    }
    if (config->magic != CONFIG_MAGIC || config->size < offsetof(ncclConfig_t, cgaClusterSize)) {
        return shim_fail(ncclInvalidArgument,
                         "config (%p) was not set to NCCL_CONFIG_INITIALIZER: its magic is 0x%x "
                         "and its size %zu",
                         (const void *)config, config->magic, config->size);
    }
    memcpy(&given, config, config->size < sizeof given ? config->size : sizeof given);
    if (given.blocking != NCCL_CONFIG_UNDEF_INT && given.blocking != 0 && given.blocking != 1) {
        return shim_fail(ncclInvalidArgument, "config->blocking is %d; it must be 0 or 1",
                         given.blocking);
    }
    out->blocking = given.blocking == NCCL_CONFIG_UNDEF_INT ? out->blocking : given.blocking != 0;
    out->name = given.version >= NCCL_VERSION(2, 27, 0) ? given.commName : NULL;
    return ncclSuccess;
}

/* ---- jobs that bring communicators up ---- */

static struct ncclComm *comm_new(int nranks, int rank, int device, bool blocking)
{
    struct ncclComm *comm = calloc(1, sizeof *comm);
    if (comm == NULL) {
        return NULL;
    }
    comm->magic = MAGIC;
    atomic_init(&comm->holders, 1);
    comm->nranks = nranks;
    comm->rank = rank;
    comm->device = device;
    comm->blocking = blocking;
    comm->on_host = !shim_has_gpu();
    comm->next_op = ncclNumOps;
    pthread_mutex_init(&comm->lock, NULL);
    return comm;
}

ncclResult_t shim_job_new(struct ncclComm *made, struct ncclComm *parent, bool blocks,
                          struct shim_job **out)
{
    struct shim_job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        return shim_fail(ncclSystemError, "out of memory for a communicator");
    }
    job->config = (struct kolo_config)KOLO_CONFIG_INIT;
    job->made = made;
    job->parent = parent;
    job->blocks = blocks;
    if (made != NULL) {
        atomic_fetch_add(&made->holders, 1);
        job->config.device = made->on_host ? KOLO_HOST : made->device;
    }
    if (parent != NULL) {
        atomic_fetch_add(&parent->holders, 1);
    }
    *out = job;
    return ncclSuccess;
}

static ncclResult_t job_with(struct ncclComm *made, struct ncclComm *parent,
                             const struct comm_options *options, struct shim_job **out)
{
    SHIM_TRY(shim_job_new(made, parent, options->blocking, out));
    if (options->name != NULL) {
        (void)snprintf((*out)->name, sizeof(*out)->name, "%s", options->name);
    }
    return ncclSuccess;
}

/* Submit a job that makes a communicator. The user gets the handle at once. */
static ncclResult_t submit_job(struct shim_job *job, struct ncclComm **out)
{
    *out = job->made;
    job->out = job->made != NULL && job->blocks ? out : NULL;
    return shim_job_submit(job);
}

static ncclResult_t keep_comm(struct ncclComm *comm, struct kolo_comm *made)
{
    comm->nranks = kolo_comm_size(made);
    comm->rank = kolo_comm_rank(made);
    pthread_mutex_lock(&comm->lock);
    comm->comm = made;
    pthread_mutex_unlock(&comm->lock);
    return ncclSuccess;
}

static ncclResult_t run_init(struct shim_job *job)
{
    struct kolo_comm *made = NULL;
    SHIM_TRY(shim_said(
        kolo_comm_create(&job->id, job->made->nranks, job->made->rank, &job->config, &made)));
    return keep_comm(job->made, made);
}

static ncclResult_t init_comm(struct ncclComm **out, int nranks, int rank, const ncclUniqueId *id,
                              int device, const ncclConfig_t *config)
{
    struct comm_options options = {true, NULL};
    struct shim_job *job = NULL;
    if (out == NULL) {
        return shim_fail(ncclInvalidArgument, "newcomm is NULL");
    }
    if (nranks < 1 || rank < 0 || rank >= nranks) {
        return shim_fail(ncclInvalidArgument,
                         "nranks is %d and rank %d; they must be 1 at least, and 0 to nranks - 1",
                         nranks, rank);
    }
    SHIM_TRY(read_config(config, &options));
    struct ncclComm *comm = comm_new(nranks, rank, device, options.blocking);
    if (comm == NULL) {
        return shim_fail(ncclSystemError, "out of memory for a communicator");
    }
    const ncclResult_t result = job_with(comm, NULL, &options, &job);
    if (result != ncclSuccess) {
        shim_release(comm);
        return result;
    }
    _Static_assert(sizeof job->id == sizeof *id, "an id of kolo's is one of NCCL's");
    memcpy(&job->id, id, sizeof job->id);
    job->run = run_init;
    return submit_job(job, out);
}

ncclResult_t pncclGetUniqueId(ncclUniqueId *uniqueId)
{
    struct kolo_id id;
    if (uniqueId == NULL) {
        return shim_fail(ncclInvalidArgument, "uniqueId is NULL");
    }
    SHIM_TRY(shim_said(kolo_id_create(&id)));
    memcpy(uniqueId, &id, sizeof id);
    return ncclSuccess;
}
SHIM_NAME(ncclGetUniqueId)

ncclResult_t pncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
                                     ncclConfig_t *config)
{
    return shim_group_note(init_comm(comm, nranks, rank, &commId, shim_current_device(), config));
}
SHIM_NAME(ncclCommInitRankConfig)

ncclResult_t pncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
    return shim_group_note(init_comm(comm, nranks, rank, &commId, shim_current_device(), NULL));
}
SHIM_NAME(ncclCommInitRank)

ncclResult_t pncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId,
                                       ncclUniqueId *commIds, ncclConfig_t *config)
{
    if (nId < 1 || nId > nranks || commIds == NULL) {
        return shim_group_note(shim_fail(ncclInvalidArgument,
                                         "nId is %d and commIds %p; there must be 1 to %d ids", nId,
                                         (void *)commIds, nranks));
    }
    return shim_group_note(
        init_comm(newcomm, nranks, myrank, &commIds[0], shim_current_device(), config));
}
SHIM_NAME(ncclCommInitRankScalable)

ncclResult_t pncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
    ncclUniqueId id;
    ncclResult_t result = ncclSuccess;
    if (comm == NULL || ndev < 1) {
        return shim_group_note(shim_fail(ncclInvalidArgument,
                                         "comm is %p and ndev %d; there must be 1 device at least",
                                         (void *)comm, ndev));
    }
    SHIM_TRY(shim_group_note(pncclGetUniqueId(&id)));
    SHIM_TRY(pncclGroupStart());
    for (int i = 0; i < ndev && result == ncclSuccess; i++) {
        result = shim_group_note(
            init_comm(&comm[i], ndev, i, &id, devlist != NULL ? devlist[i] : i, NULL));
    }
    return pncclGroupEnd();
}
SHIM_NAME(ncclCommInitAll)

/* ---- parts ---- */

static ncclResult_t run_split(struct shim_job *job)
{
    struct kolo_comm *made = NULL;
    SHIM_TRY(shim_said(kolo_comm_split(job->parent->comm, job->color, job->key,
                                       job->inherits ? NULL : &job->config, &made)));
    return job->made != NULL ? keep_comm(job->made, made) : ncclSuccess;
}

static ncclResult_t run_shrink(struct shim_job *job)
{
    struct kolo_comm *made = NULL;
    SHIM_TRY(shim_said(kolo_comm_shrink(job->parent->comm, job->exclude, job->nexclude,
                                        job->inherits ? NULL : &job->config, &made)));
    return keep_comm(job->made, made);
}

/* Make a job for a part of `parent`. `joins`: this rank is in the part. */
static ncclResult_t part_new(struct ncclComm *parent, const ncclConfig_t *config, bool joins,
                             struct shim_job **out)
{
    struct comm_options options = {parent->blocking, NULL};
    struct ncclComm *made = NULL;
    SHIM_TRY(read_config(config, &options));
    if (joins) {
        made = comm_new(0, 0, parent->device, options.blocking);
        if (made == NULL) {
            return shim_fail(ncclSystemError, "out of memory for a communicator");
        }
        made->on_host = parent->on_host;
    }
    const ncclResult_t result = job_with(made, parent, &options, out);
    if (result == ncclSuccess) {
        (*out)->inherits = config == NULL;
    } else if (made != NULL) {
        shim_release(made);
    }
    return result;
}

static ncclResult_t split_comm(struct ncclComm *comm, int color, int key, struct ncclComm **out,
                               const ncclConfig_t *config)
{
    struct shim_job *job = NULL;
    if (out == NULL || (color < 0 && color != NCCL_SPLIT_NOCOLOR)) {
        return shim_fail(ncclInvalidArgument,
                         "newcomm is %p and color %d, which must be 0 at least or "
                         "NCCL_SPLIT_NOCOLOR",
                         (void *)out, color);
    }
    SHIM_TRY(part_new(comm, config, color != NCCL_SPLIT_NOCOLOR, &job));
    job->run = run_split;
    job->color = color != NCCL_SPLIT_NOCOLOR ? color : KOLO_NO_COLOR;
    job->key = key;
    return submit_job(job, out);
}

ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
                            ncclConfig_t *config)
{
    SHIM_TRY(shim_group_note(shim_enter(comm, "ncclCommSplit")));
    const ncclResult_t result = shim_group_note(split_comm(comm, color, key, newcomm, config));
    shim_release(comm);
    return result;
}
SHIM_NAME(ncclCommSplit)

static ncclResult_t shrink_comm(struct ncclComm *comm, const int *exclude, int nexclude,
                                struct ncclComm **out, const ncclConfig_t *config)
{
    struct shim_job *job = NULL;
    if (out == NULL || nexclude < 0 || (exclude == NULL && nexclude > 0)) {
        return shim_fail(ncclInvalidArgument, "newcomm is %p and excludeRanksList %p, of %d ranks",
                         (void *)out, (const void *)exclude, nexclude);
    }
    int *copy = malloc(((size_t)nexclude + 1) * sizeof *copy);
    if (copy == NULL) {
        return shim_fail(ncclSystemError, "out of memory for %d ranks", nexclude);
    }
    if (nexclude > 0) {
        memcpy(copy, exclude, (size_t)nexclude * sizeof *copy);
    }
    const ncclResult_t result = part_new(comm, config, true, &job);
    if (result != ncclSuccess) {
        free(copy);
        return result;
    }
    job->run = run_shrink;
    job->exclude = copy;
    job->nexclude = nexclude;
    return submit_job(job, out);
}

ncclResult_t pncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount,
                             ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags)
{
    if ((shrinkFlags & ~NCCL_SHRINK_ABORT) != 0) {
        return shim_group_note(
            shim_fail(ncclInvalidArgument,
                      "shrinkFlags is %d; it must be NCCL_SHRINK_DEFAULT or _ABORT", shrinkFlags));
    }
    SHIM_TRY(shim_group_note(shim_enter_revoked(comm, "ncclCommShrink")));
    if (shrinkFlags == NCCL_SHRINK_ABORT) {
        kolo_comm_abort(comm->comm);
    }
    const ncclResult_t result =
        shim_group_note(shrink_comm(comm, excludeRanksList, excludeRanksCount, newcomm, config));
    shim_release(comm);
    return result;
}
SHIM_NAME(ncclCommShrink)
