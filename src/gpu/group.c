// SPDX-License-Identifier: Apache-2.0
/* The calls of a group on GPU memory. They wait for the end of the group, because one kernel may
 * serve all ranks of a thread. */
#include "gpu/inner.h"

#include <stdlib.h>

/* ---- collecting ---- */

struct pending { /* a call of a group */
    struct pending *next;
    struct kolo_gpu_path *path;
    struct kolo_counts v; /* owned */
    struct kolo_gpu_call call;
};
static _Thread_local struct pending *pending;

kolo_status kolo_gpu_group_add(struct kolo_gpu_path *p, struct kolo_call *call,
                               const struct kolo_gpu_call *gpu_call)
{
    struct pending *kept = malloc(sizeof *kept);
    struct pending **at = &pending;
    if (kept == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a call");
    }
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *kept = (struct pending){.path = p, .v = call->args.v, .call = *gpu_call};
    call->args.v.all = NULL;
    *at = kept;
    return KOLO_OK;
}

struct posted { /* a message of a group */
    struct posted *next;
    struct kolo_gpu_path *path;
    struct kolo_message message;
    kolo_stream stream;
};
static _Thread_local struct posted *posted;

kolo_status kolo_gpu_group_add_message(struct kolo_gpu_path *p, const struct kolo_message *m,
                                       kolo_stream stream)
{
    struct posted *made = malloc(sizeof *made);
    struct posted **at = &posted;
    if (made == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a message");
    }
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *made = (struct posted){.path = p, .message = *m, .stream = stream};
    *at = made;
    return KOLO_OK;
}

/* ---- messages ---- */

/* Whether a message is enqueued together with the first one: both are of one communicator, or of
 * ranks of one fused path. */
static bool goes_with(const struct posted *first, const struct posted *p)
{
    return p->path == first->path ||
           (p->path->fused != NULL && p->path->fused == first->path->fused);
}

/* Take off the list all messages that go together with the first one. */
static struct posted *take_together(int *n_out)
{
    struct posted *taken = NULL, **end = &taken, *first = posted;
    for (struct posted **at = &posted; *at != NULL;) {
        struct posted *p = *at;
        if (!goes_with(first, p)) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        *end = p;
        end = &p->next;
        (*n_out)++;
    }
    *end = NULL;
    return taken;
}

static kolo_status check_posted(const struct posted *all)
{
    for (const struct posted *p = all; p != NULL; p = p->next) {
        KOLO_TRY(kolo_comm_usable(p->path->comm));
        for (const struct posted *q = all; q != p; q = q->next) {
            if (q->path == p->path && q->stream != p->stream) {
                return kolo_fail(KOLO_ERR_UNSUPPORTED, "the messages of a group are of GPU memory "
                                                       "and on several streams; they must be on "
                                                       "one");
            }
        }
    }
    return KOLO_OK;
}

static kolo_status enqueue_posted(const struct posted *all, int n)
{
    struct kolo_gpu_path *path = all->path;
    struct kolo_gpu_message *message = calloc((size_t)n, sizeof *message);
    struct kolo_message *on_host = malloc((size_t)n * sizeof *on_host);
    kolo_status st = message != NULL && on_host != NULL
                         ? KOLO_OK
                         : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d messages", n);
    for (int i = 0; i < n && st == KOLO_OK; all = all->next, i++) {
        on_host[i] = all->message;
        message[i] = (struct kolo_gpu_message){
            .rank = all->path->comm->ranks.rank, .m = all->message, .stream = all->stream};
    }
    if (st == KOLO_OK) {
        st = path->fused != NULL
                 ? kolo_fused_path_enqueue_messages(path->fused, message, (size_t)n,
                                                    path->comm->options.timeout_ms)
                 : kolo_gpu_path_enqueue_messages(path, on_host, n, message[0].stream);
    }
    free(message);
    free(on_host);
    return st;
}

static kolo_status issue_messages(void)
{
    int n = 0;
    struct posted *all = take_together(&n);
    kolo_status st = check_posted(all);
    st = st == KOLO_OK ? enqueue_posted(all, n) : st;
    while (all != NULL) {
        struct posted *p = all;
        all = p->next;
        (void)kolo_gpu_path_ended(p->path->comm, st);
        free(p);
    }
    return st;
}

/* ---- the end of a group ---- */

/* Find the first call that the group has of each rank of this call's fused path. NULL: the call of
 * a rank comes from another thread. */
static void find_ranks(struct pending *head, struct pending *of[KOLO_FUSED_RANKS])
{
    for (struct pending *p = head; p != NULL; p = p->next) {
        const int rank = p->path->comm->ranks.rank;
        if (p->path->fused == head->path->fused && of[rank] == NULL) {
            of[rank] = p;
        }
    }
}

/* Take a call off the list, which was enqueued with status `st`. */
static void end_pending(struct pending *done, kolo_status st)
{
    struct pending **at = &pending;
    while (*at != done) {
        at = &(*at)->next;
    }
    *at = done->next;
    (void)kolo_gpu_path_ended(done->path->comm, st);
    free(done->v.all);
    free(done);
}

static bool takes_steps(const struct pending *p)
{
    return p->path->fused == NULL && p->path->hier != NULL &&
           kolo_hier_path_take(p->path->hier, &p->call);
}

/* Whether this is the first call that the group has of its rank. */
static bool is_first(const struct pending *p)
{
    const struct pending *q = pending;
    while (q->path != p->path) {
        q = q->next;
    }
    return q == p;
}

/* Find the first calls that the group has of the ranks of a communicator, if they take steps of the
 * hierarchical way: the threads meet for them, so a thread enqueues those of all its ranks
 * together. `of` has room for all calls of the group. */
static int find_steps(struct pending *head, struct pending **of)
{
    int n = 0;
    for (struct pending *p = head; p != NULL; p = p->next) {
        if (p->path->comm->ranks.id == head->path->comm->ranks.id && is_first(p) &&
            takes_steps(p)) {
            of[n++] = p;
        }
    }
    return n;
}

static kolo_status issue_steps(struct pending *head)
{
    int n = 0;
    for (const struct pending *p = head; p != NULL; p = p->next) {
        n++;
    }
    struct pending **of = calloc((size_t)n, sizeof(struct pending *));
    struct kolo_hier_part *part = calloc((size_t)n, sizeof *part);
    kolo_status st = of != NULL && part != NULL
                         ? KOLO_OK
                         : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d calls", n);
    if (st == KOLO_OK) {
        n = find_steps(head, of);
        for (int i = 0; i < n; i++) {
            part[i] = (struct kolo_hier_part){of[i]->path->hier, &of[i]->call};
        }
        st = kolo_hier_path_enqueue(part, n);
        for (int i = 0; i < n; i++) {
            end_pending(of[i], st);
        }
    } else {
        end_pending(head, st);
    }
    free(part);
    free(of);
    return st;
}

/* Enqueue the first call of the list, together with those of other ranks that need the same. */
static kolo_status issue_first(void)
{
    struct pending *head = pending, *of[KOLO_FUSED_RANKS] = {NULL};
    const struct kolo_gpu_call *call[KOLO_FUSED_RANKS] = {NULL};
    const struct kolo_comm *c = head->path->comm;
    if (takes_steps(head)) {
        return issue_steps(head);
    }
    if (head->path->fused == NULL) {
        const kolo_status st = kolo_gpu_path_enqueue(head->path, &head->call, &head->v);
        end_pending(head, st);
        return st;
    }
    find_ranks(head, of);
    for (int r = 0; r < c->ranks.nranks; r++) {
        call[r] = of[r] != NULL ? &of[r]->call : NULL;
    }
    const kolo_status st = kolo_fused_path_meet(head->path->fused, call, c->options.timeout_ms);
    for (int r = 0; r < c->ranks.nranks; r++) {
        if (of[r] != NULL) {
            end_pending(of[r], st);
        }
    }
    return st;
}

kolo_status kolo_gpu_group_end(void)
{
    kolo_status first = KOLO_OK;
    while (pending != NULL) {
        const kolo_status usable = kolo_comm_usable(pending->path->comm);
        if (usable != KOLO_OK) { /* drop it */
            struct pending *dropped = pending;
            pending = dropped->next;
            free(dropped->v.all);
            free(dropped);
        }
        const kolo_status st = usable == KOLO_OK ? issue_first() : usable;
        first = first == KOLO_OK ? st : first;
    }
    while (posted != NULL) { /* after the collectives, in the same order on every rank */
        const kolo_status st = issue_messages();
        first = first == KOLO_OK ? st : first;
    }
    return first;
}
