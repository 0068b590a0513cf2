// SPDX-License-Identifier: Apache-2.0
/* Groups. NCCL's groups may hold jobs that kolo's groups do not know: jobs that bring communicators
 * up or down. Each job may wait for the others, so each gets a thread at the group's end. */
#include "shim.h"

#include <stdlib.h>

struct held_call {
    struct held_call *next;
    struct ncclComm *comm;
};

struct dropped {
    struct dropped *next;
    struct ncclComm *comm; /* held */
    kolo_op op;
};

static _Thread_local struct {
    int depth;
    ncclResult_t first; /* the first error of a call */
    struct shim_job *jobs, **last;
    struct held_call *held;
    struct dropped *dropped;
} group;

/* ---- jobs ---- */

static void job_free(struct shim_job *job)
{
    if (job->made != NULL) {
        shim_release(job->made);
    }
    if (job->parent != NULL) {
        shim_release(job->parent);
    }
    free(job->exclude);
    free(job);
}

static void set_states(struct shim_job *job, ncclResult_t made, ncclResult_t parent)
{
    if (job->made != NULL) {
        atomic_store(&job->made->state, (int)made);
    }
    if (job->parent != NULL) {
        atomic_store(&job->parent->state, (int)parent);
    }
}

/* Run a job. If the parent ended meanwhile, kolo_comm_error() tells the failure. */
static void job_run(struct shim_job *job)
{
    job->config.name = job->name[0] != '\0' ? job->name : NULL;
    job->result = job->run(job);
    set_states(job, job->result, ncclSuccess);
}

static void *run_in_thread(void *job)
{
    job_run(job);
    return NULL;
}

static void *run_in_background(void *job)
{
    (void)pthread_detach(pthread_self());
    job_run(job);
    job_free(job);
    return NULL;
}

static ncclResult_t not_started(struct shim_job *job)
{
    job->result = shim_fail(ncclSystemError, "no thread for a communicator");
    set_states(job, job->result, ncclSuccess);
    return job->result;
}

static ncclResult_t begin_in_background(struct shim_job *job)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_in_background, job) == 0) {
        return ncclInProgress;
    }
    const ncclResult_t result = not_started(job);
    job_free(job);
    return result;
}

static ncclResult_t job_end(struct shim_job *job)
{
    const ncclResult_t result = job->result;
    if (result != ncclSuccess && job->out != NULL) {
        *job->out = NULL;
        shim_release(job->made); /* the user does not get it */
    }
    job_free(job);
    return result;
}

/* Run all jobs at the same time: the last one in this thread, each other one in its own. */
static ncclResult_t run_blocking(struct shim_job *jobs)
{
    ncclResult_t first = ncclSuccess;
    for (struct shim_job *job = jobs; job != NULL; job = job->next) {
        job->has_thread =
            job->next != NULL && pthread_create(&job->thread, NULL, run_in_thread, job) == 0;
        if (!job->has_thread && job->next != NULL) {
            (void)not_started(job);
        } else if (!job->has_thread) {
            job_run(job);
        }
    }
    while (jobs != NULL) {
        struct shim_job *job = jobs;
        jobs = job->next;
        if (job->has_thread) {
            (void)pthread_join(job->thread, NULL);
        }
        const ncclResult_t result = job_end(job);
        first = first == ncclSuccess ? result : first;
    }
    return first;
}

static ncclResult_t run_jobs(struct shim_job *jobs)
{
    ncclResult_t begun = ncclSuccess;
    struct shim_job *blocking = NULL;
    while (jobs != NULL) {
        struct shim_job *job = jobs;
        jobs = job->next;
        if (job->blocks) {
            job->next = blocking;
            blocking = job;
        } else {
            const ncclResult_t result = begin_in_background(job);
            begun = begun == ncclSuccess || begun == ncclInProgress ? result : begun;
        }
    }
    const ncclResult_t ran = run_blocking(blocking);
    return ran == ncclSuccess ? begun : ran;
}

/* Drop the jobs of a group with a failed call. Run, they would wait for the failed one. */
static void drop_jobs(struct shim_job *jobs, ncclResult_t why)
{
    while (jobs != NULL) {
        struct shim_job *job = jobs;
        jobs = job->next;
        job->result = why;
        set_states(job, why, ncclSuccess);
        (void)job_end(job);
    }
}

ncclResult_t shim_job_submit(struct shim_job *job)
{
    set_states(job, ncclInProgress, ncclInProgress);
    if (group.depth == 0) {
        return run_jobs(job);
    }
    *(group.jobs == NULL ? &group.jobs : group.last) = job;
    group.last = &job->next;
    return ncclSuccess;
}

/* ---- holds of a group ---- */

ncclResult_t shim_group_hold(struct ncclComm *comm)
{
    struct held_call *held = group.held;
    while (held != NULL && held->comm != comm) {
        held = held->next;
    }
    if (group.depth == 0 || held != NULL) {
        return ncclSuccess;
    }
    held = malloc(sizeof *held);
    if (held == NULL) {
        return shim_fail(ncclSystemError, "out of memory for a group");
    }
    atomic_fetch_add(&comm->holders, 1);
    *held = (struct held_call){group.held, comm};
    group.held = held;
    return ncclSuccess;
}

void shim_group_drop_op(struct ncclComm *comm, kolo_op op)
{
    struct dropped *dropped = group.depth > 0 ? malloc(sizeof *dropped) : NULL;
    if (dropped != NULL && shim_group_hold(comm) == ncclSuccess) {
        *dropped = (struct dropped){group.dropped, comm, op};
        group.dropped = dropped;
        return;
    }
    free(dropped);
    if (group.depth == 0) {
        kolo_op_destroy(op, comm->comm);
    } /* without memory, the communicator's end frees it */
}

ncclResult_t shim_group_note(ncclResult_t result)
{
    if (group.depth > 0 && group.first == ncclSuccess && result != ncclInProgress) {
        group.first = result;
    }
    return result;
}

static void let_go(void)
{
    while (group.dropped != NULL) {
        struct dropped *dropped = group.dropped;
        group.dropped = dropped->next;
        kolo_op_destroy(dropped->op, dropped->comm->comm);
        free(dropped);
    }
    while (group.held != NULL) {
        struct held_call *held = group.held;
        group.held = held->next;
        shim_release(held->comm);
        free(held);
    }
}

/* ---- the calls ---- */

ncclResult_t pncclGroupStart(void)
{
    if (group.depth == 0) {
        SHIM_TRY(shim_said(kolo_group_begin()));
    }
    group.depth++;
    return ncclSuccess;
}
SHIM_NAME(ncclGroupStart)

ncclResult_t pncclGroupEnd(void)
{
    if (group.depth == 0) {
        return shim_fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    }
    if (group.depth > 1) {
        group.depth--;
        return ncclSuccess;
    }
    ncclResult_t result = group.first;
    const ncclResult_t called = shim_said(kolo_group_end());
    struct shim_job *jobs = group.jobs;
    group.depth = 0;
    group.first = ncclSuccess;
    group.jobs = NULL;
    let_go();
    result = result == ncclSuccess ? called : result;
    if (result != ncclSuccess) {
        drop_jobs(jobs, result);
        return result;
    }
    return run_jobs(jobs);
}
SHIM_NAME(ncclGroupEnd)

ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t *simInfo)
{
    (void)simInfo;
    return shim_fail(ncclInvalidUsage,
                     "ncclGroupSimulateEnd is not in kolo (`kolo tune --explain` tells what a call "
                     "is predicted to take); the group is still open");
}
SHIM_NAME(ncclGroupSimulateEnd)
