// SPDX-License-Identifier: Apache-2.0
/* Enqueueing the steps of calls.
 *
 * If the ranks of a group are threads that share a GPU, they meet on the host for each step inside
 * the group, and the last one enqueues it for all. So no stream waits for a call of another thread
 * of the process: that call might not get past a call of the driver that waits for the GPU, such as
 * cuMemFree. A step between groups waits on the GPU for the proxy, whose thread needs no driver.
 *
 * A thread that makes the calls of several ranks in a group takes them in turn: the k-th meeting of
 * all its groups, in the order of the groups, then meeting k + 1. All threads have this order, so
 * the thread that waits for the first of all open meetings waits only for threads that still come
 * to it. In graphs nobody meets. */
#include "gpu/context/stream_order.h"
#include "gpu/hier/inner.h"

#include <stdlib.h>

/* ---- the steps of a run ---- */

kolo_status kolo_hier_run_add(struct kolo_hier_run *run, const struct kolo_hier_step *step)
{
    enum { LEAST = 8 };
    if (run->nsteps == run->room) {
        const int room = run->room > 0 ? 2 * run->room : LEAST;
        struct kolo_hier_step *grown = realloc(run->step, (size_t)room * sizeof *grown);
        if (grown == NULL) {
            free(step->v.all);
            return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d steps of a call", room);
        }
        run->step = grown;
        run->room = room;
    }
    run->step[run->nsteps++] = *step;
    return KOLO_OK;
}

static void free_steps(struct kolo_hier_run *run)
{
    for (int i = 0; i < run->nsteps; i++) {
        free(run->step[i].v.all);
    }
    free(run->step);
}

/* ---- steps without a meeting ---- */

static kolo_status pack_blocks(const struct kolo_hier_run *run, const struct kolo_hier_step *s)
{
    const struct kolo_hier_path *l = run->path;
    const struct kolo_gpu_call *call = run->call;
    const size_t elem = kolo_type_bytes(call->args.type);
    KOLO_TRY(kolo_gpu_enter(l->gpu));
    kolo_status st = KOLO_OK;
    for (int i = 0; i < kolo_hier_size(l) && st == KOLO_OK; i++) {
        const size_t at = (size_t)kolo_hier_rank_at(l, s->group, i) * call->args.count + s->at;
        st = KOLO_CUDA(l->gpu, "cuMemcpyDtoDAsync",
                       memcpy_dtod_async(l->scratch + (size_t)i * s->count * elem,
                                         (uintptr_t)call->args.in + at * elem, s->count * elem,
                                         (kolo_cuda_stream)call->stream));
    }
    kolo_gpu_leave(l->gpu);
    return st;
}

/* The next step if the threads of the group meet for it. NULL: there is none. */
static const struct kolo_hier_step *meeting_of(const struct kolo_hier_run *run)
{
    const struct kolo_hier_step *s = run->next < run->nsteps ? &run->step[run->next] : NULL;
    return s != NULL && run->meets && s->layer == run->path->intra ? s : NULL;
}

/* Enqueue steps until one comes for which the threads meet. */
static kolo_status go_on(struct kolo_hier_run *run)
{
    while (run->next < run->nsteps && meeting_of(run) == NULL) {
        struct kolo_hier_step *s = &run->step[run->next++];
        KOLO_TRY(s->layer == NULL ? pack_blocks(run, s)
                                  : run->path->calls->enqueue(s->layer, &s->call, &s->v));
    }
    return KOLO_OK;
}

/* ---- meetings ---- */

static int group_of(const struct kolo_hier_run *run)
{
    return run->path->group_of[run->path->comm->ranks.rank];
}

/* Meet for the next step of the runs that are in a group. */
static kolo_status meet_in_group(struct kolo_hier_run *run, int n, int group)
{
    struct kolo_comm *layer[KOLO_FUSED_RANKS];
    const struct kolo_gpu_call *call[KOLO_FUSED_RANKS];
    int here = 0;
    for (int i = 0; i < n; i++) {
        const struct kolo_hier_step *s = meeting_of(&run[i]);
        if (group_of(&run[i]) == group && s != NULL) {
            layer[here] = s->layer;
            call[here++] = &s->call;
            run[i].next++;
        }
    }
    return here > 0 ? run->path->calls->meet(layer, call, here) : KOLO_OK;
}

static kolo_status enqueue_steps(struct kolo_hier_run *run, int n)
{
    for (bool meets = true; meets;) {
        meets = false;
        for (int i = 0; i < n; i++) {
            KOLO_TRY(go_on(&run[i]));
            meets = meets || meeting_of(&run[i]) != NULL;
        }
        for (int group = 0; group < kolo_hier_groups(run->path) && meets; group++) {
            KOLO_TRY(meet_in_group(run, n, group));
        }
    }
    return KOLO_OK;
}

/* ---- calls ---- */

static kolo_status plan_run(struct kolo_hier_run *run)
{
    const struct kolo_hier_path *l = run->path;
    bool captured = false;
    if (l->calls->way(l->intra) == KOLO_HIER_FUSED) {
        KOLO_TRY(kolo_gpu_enter(l->gpu));
        const kolo_status st = kolo_gpu_is_capturing(l->gpu, run->call->stream, &captured);
        kolo_gpu_leave(l->gpu);
        KOLO_TRY(st);
        run->meets = !captured;
    }
    return kolo_hier_run_plan(run);
}

/* The proxy keeps the order of a communicator's calls. */
static kolo_status enqueue_locked(struct kolo_hier_run *run, int n)
{
    for (int i = 0; i < n; i++) {
        KOLO_TRY(plan_run(&run[i]));
        KOLO_TRY(kolo_proxy_follow(run[i].path->proxy, run[i].call->stream));
    }
    KOLO_TRY(enqueue_steps(run, n));
    for (int i = 0; i < n; i++) {
        KOLO_TRY(kolo_proxy_note(run[i].path->proxy, run[i].call->stream));
    }
    return KOLO_OK;
}

static int by_rank(const void *a, const void *b)
{
    const struct kolo_hier_run *x = a, *y = b;
    return x->path->comm->ranks.rank - y->path->comm->ranks.rank;
}

kolo_status kolo_hier_path_enqueue(const struct kolo_hier_part *part, int n)
{
    struct kolo_hier_run one = {.path = NULL}, *run = &one;
    if (n > 1 && (run = calloc((size_t)n, sizeof *run)) == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for calls of %d ranks", n);
    }
    for (int i = 0; i < n; i++) {
        run[i] = (struct kolo_hier_run){.path = part[i].path, .call = part[i].call};
    }
    qsort(run, (size_t)n, sizeof *run, by_rank);
    for (int i = 0; i < n; i++) { /* in one order */
        pthread_mutex_lock(&run[i].path->order);
    }
    const kolo_status st = enqueue_locked(run, n);
    for (int i = 0; i < n; i++) {
        pthread_mutex_unlock(&run[i].path->order);
        free_steps(&run[i]);
    }
    if (run != &one) {
        free(run);
    }
    return st;
}
