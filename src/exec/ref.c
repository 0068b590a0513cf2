// SPDX-License-Identifier: Apache-2.0
/* The reference executor. Every message is a copy on its receiver's list. A rank runs until it must wait for a
 * message. Ranks take turns. */
#include "ref.h"

#include <stdlib.h>
#include <string.h>

struct message {
    struct message *next;
    int from, lane;
    unsigned char bytes[];
};

struct inbox { /* messages to a rank, the oldest first */
    struct message *first, *last;
};

struct ref {
    const struct kolo_plan *plan;
    size_t chunk;
    const void *const *in;
    void *const *out;
    unsigned char **scratch;
    kolo_ref_fn *reduce;
    void *arg;
    struct inbox *inbox; /* [nranks] */
    int *pc;             /* [nranks * lanes]: next step */
    bool *done;          /* per rank and step, one rank after another */
    size_t *first_step;
    bool failed;
};

static unsigned char *bytes_of(const struct ref *f, int rank, struct kolo_slice s)
{
    const size_t off = s.first * f->chunk;
    switch (s.buf) {
    case KOLO_IN:
        return (unsigned char *)(uintptr_t)f->in[rank] + off;
    case KOLO_OUT:
        return (unsigned char *)f->out[rank] + off;
    default:
        return f->scratch[rank] + off;
    }
}

static void send(struct ref *f, int rank, const struct kolo_step *s)
{
    const size_t bytes = s->src.count * f->chunk;
    struct message *m = malloc(sizeof *m + bytes + 1);
    struct inbox *inbox = &f->inbox[s->peer];
    if (m == NULL) {
        f->failed = true;
        return;
    }
    *m = (struct message){.from = rank, .lane = s->lane};
    if (bytes > 0) {
        memcpy(m->bytes, bytes_of(f, rank, s->src), bytes);
    }
    if (inbox->first == NULL) {
        inbox->first = m;
    } else {
        inbox->last->next = m;
    }
    inbox->last = m;
}

static void apply_step(struct ref *f, int rank, const struct kolo_step *s,
                       const unsigned char *data)
{
    const size_t bytes = s->dst.count * f->chunk;
    if (bytes == 0) {
        return;
    }
    unsigned char *dst = bytes_of(f, rank, s->dst);
    if (s->op == KOLO_RECV || s->op == KOLO_COPY) {
        memmove(dst, data, bytes);
    } else if (s->flags & KOLO_STEP_LEFT) {
        f->reduce(f->arg, dst, data, dst, bytes, (s->flags & KOLO_STEP_LAST) != 0);
    } else {
        f->reduce(f->arg, dst, dst, data, bytes, (s->flags & KOLO_STEP_LAST) != 0);
    }
}

static bool receive(struct ref *f, int rank, const struct kolo_step *s)
{
    struct inbox *inbox = &f->inbox[rank];
    struct message *before = NULL;
    for (struct message *found = inbox->first; found != NULL; before = found, found = found->next) {
        if (found->from == s->peer && found->lane == s->lane) {
            *(before != NULL ? &before->next : &inbox->first) = found->next;
            inbox->last = found->next != NULL ? inbox->last : before;
            apply_step(f, rank, s, found->bytes);
            free(found);
            return true;
        }
    }
    return false;
}

static bool run_step(struct ref *f, int rank, const struct kolo_step *s)
{
    switch (s->op) {
    case KOLO_SEND:
        send(f, rank, s);
        return true;
    case KOLO_RECV:
    case KOLO_RECV_REDUCE:
        return receive(f, rank, s);
    default:
        apply_step(f, rank, s, s->src.count > 0 ? bytes_of(f, rank, s->src) : NULL);
        return true;
    }
}

/* Run a lane of a rank until it waits; true if it did anything. */
static bool run_lane(struct ref *f, int rank, int lane)
{
    const struct kolo_rank_plan *mine = &f->plan->rank[rank];
    int *pc = &f->pc[rank * f->plan->lanes + lane];
    bool moved = false;
    for (; *pc < mine->count; ++*pc) {
        const struct kolo_step *s = &mine->step[*pc];
        if (s->lane != lane) {
            continue;
        }
        if (s->dep >= 0 && !f->done[f->first_step[rank] + (size_t)s->dep]) {
            break;
        }
        if (!run_step(f, rank, s)) {
            break;
        }
        f->done[f->first_step[rank] + (size_t)*pc] = true;
        moved = true;
    }
    return moved;
}

static kolo_status run_all(struct ref *f)
{
    const int n = f->plan->shape.nranks;
    for (bool moved = true; moved && !f->failed;) {
        moved = false;
        for (int i = 0; i < n * f->plan->lanes; i++) {
            moved = run_lane(f, i % n, i / n) || moved;
        }
    }
    if (f->failed) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for messages");
    }
    for (int r = 0; r < n; r++) {
        for (int lane = 0; lane < f->plan->lanes; lane++) {
            const int pc = f->pc[r * f->plan->lanes + lane];
            if (pc < f->plan->rank[r].count) {
                return kolo_fail(KOLO_ERR_INVALID, "%s: rank %d waits for ever in step %d",
                                 f->plan->algo->base.name, r, pc);
            }
        }
    }
    return KOLO_OK;
}

static bool open_ref(struct ref *f)
{
    const size_t n = (size_t)f->plan->shape.nranks;
    size_t steps = 0;
    f->scratch = calloc(n, sizeof *f->scratch);
    f->inbox = calloc(n, sizeof *f->inbox);
    f->pc = calloc(n * (size_t)f->plan->lanes, sizeof *f->pc);
    f->first_step = calloc(n, sizeof *f->first_step);
    if (f->scratch == NULL || f->inbox == NULL || f->pc == NULL || f->first_step == NULL) {
        return false;
    }
    for (size_t r = 0; r < n; r++) {
        f->first_step[r] = steps;
        steps += (size_t)f->plan->rank[r].count;
        f->scratch[r] = calloc((size_t)f->plan->scratch_chunks * f->chunk + 1, 1);
        if (f->scratch[r] == NULL) {
            return false;
        }
    }
    f->done = calloc(steps + 1, sizeof *f->done);
    return f->done != NULL;
}

static void close_ref(struct ref *f)
{
    for (int r = 0; f->inbox != NULL && r < f->plan->shape.nranks; r++) {
        for (struct message *m = f->inbox[r].first, *next = NULL; m != NULL; m = next) {
            next = m->next;
            free(m);
        }
    }
    for (int r = 0; f->scratch != NULL && r < f->plan->shape.nranks; r++) {
        free(f->scratch[r]);
    }
    free(f->scratch);
    free(f->inbox);
    free(f->pc);
    free(f->first_step);
    free(f->done);
}

kolo_status kolo_ref_run(const struct kolo_plan *plan, size_t chunk_bytes, const void *const *in,
                         void *const *out, kolo_ref_fn *reduce, void *arg)
{
    struct ref f = {
        .plan = plan, .chunk = chunk_bytes, .in = in, .out = out, .reduce = reduce, .arg = arg};
    if (plan->only >= 0) {
        return kolo_fail(KOLO_ERR_INVALID, "the reference needs all ranks' steps");
    }
    const kolo_status st = open_ref(&f) ? run_all(&f) : kolo_fail(KOLO_ERR_SYSTEM, "out of memory");
    close_ref(&f);
    return st;
}
