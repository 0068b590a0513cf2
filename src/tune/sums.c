// SPDX-License-Identifier: Apache-2.0
/* Find out by a walk over a plan's steps whether it stores partial sums, and how often it encodes.
 *
 * Every chunk has a bit that says whether the chunk holds a partial sum. Consecutive additions of a
 * lane into one slice are one pass, which exec joins into one move. A pass rounds once, at its end.
 * If anything but the pass that makes it reads a partial sum, that sum was stored.
 *
 * Every chunk also has the number of encodings on the longest way to it, for runs on the units of a
 * codec: one for each input, and one more behind each pass. Sends and copies keep the codes.
 */
#include "sums.h"

#include "plan/walk.h"

#include <stdlib.h>
#include <string.h>

/* The most sources of a pass: as many as a lowered move may have. */

struct pass { /* the newest slice that a lane wrote */
    struct kolo_slice dst;
    int sources;   /* 0: none */
    int encodings; /* the most of its sources */
};

struct content { /* of a chunk, or a message */
    bool partial;
    int encodings;
};

struct sums_walk {
    const struct kolo_plan *plan;
    size_t *base;            /* [nranks * KOLO_BUFS]: the buffer's first chunk */
    struct content *chunk;   /* [chunks of all buffers of all ranks] */
    struct content *message; /* [messages] */
    struct pass *pass;       /* [nranks * lanes] */
    struct kolo_plan_sums found;
};

static struct content *chunks_of(struct sums_walk *w, int rank, struct kolo_slice s)
{
    return &w->chunk[w->base[rank * KOLO_BUFS + s.buf] + s.first];
}

/* What the slice holds, as one chunk. */
static struct content content_of(struct sums_walk *w, int rank, struct kolo_slice s)
{
    const struct content *chunk = chunks_of(w, rank, s);
    struct content all = {0};
    for (int i = 0; i < s.count; i++) {
        all.partial = all.partial || chunk[i].partial;
        all.encodings = chunk[i].encodings > all.encodings ? chunk[i].encodings : all.encodings;
    }
    return all;
}

static void set_content(struct sums_walk *w, int rank, struct kolo_slice s, struct content content)
{
    struct content *chunk = chunks_of(w, rank, s);
    for (int i = 0; i < s.count; i++) {
        chunk[i] = content;
    }
    if (s.buf == KOLO_OUT && content.encodings > w->found.encodings) {
        w->found.encodings = content.encodings;
    }
}

static bool is_continued(const struct pass *pass, struct kolo_slice dst)
{
    return pass->sources > 0 && pass->sources < KOLO_PASS_SOURCES && pass->dst.buf == dst.buf &&
           pass->dst.first == dst.first && pass->dst.count == dst.count;
}

/* Note dst = dst op src. If dst held a partial sum that this pass did not make, that sum was
 * stored. */
static void add_slice(struct sums_walk *w, const struct kolo_event *e, struct content src)
{
    const struct kolo_slice slice = e->step->dst;
    struct pass *pass = &w->pass[e->rank * w->plan->lanes + e->step->lane];
    const struct content dst = content_of(w, e->rank, slice);
    const bool joins = is_continued(pass, slice);
    const bool last = (e->step->flags & KOLO_STEP_LAST) != 0;
    const bool own = joins && pass->sources > 1; /* this pass made the sum in dst */
    const int before = own ? pass->encodings : dst.encodings;
    const int most = src.encodings > before ? src.encodings : before;
    w->found.stored = w->found.stored || src.partial || (!own && dst.partial);
    *pass = (struct pass){slice, joins ? pass->sources + 1 : 2, most};
    set_content(w, e->rank, slice, (struct content){!last, most + 1});
}

static void replace_slice(struct sums_walk *w, const struct kolo_event *e, struct content src)
{
    w->pass[e->rank * w->plan->lanes + e->step->lane] =
        (struct pass){e->step->dst, 1, src.encodings};
    set_content(w, e->rank, e->step->dst, src);
}

static kolo_status see_step(void *ctx, const struct kolo_event *e)
{
    struct sums_walk *w = ctx;
    const struct kolo_step *s = e->step;
    switch ((enum kolo_meaning)s->op) {
    case KOLO_SEND:
        w->message[e->message] = content_of(w, e->rank, s->src);
        w->found.stored = w->found.stored || w->message[e->message].partial;
        w->pass[e->rank * w->plan->lanes + s->lane].sources = 0;
        break;
    case KOLO_RECV:
        replace_slice(w, e, w->message[e->message]);
        break;
    case KOLO_RECV_REDUCE:
        add_slice(w, e, w->message[e->message]);
        break;
    case KOLO_COPY:
        replace_slice(w, e, content_of(w, e->rank, s->src));
        break;
    case KOLO_REDUCE:
        add_slice(w, e, content_of(w, e->rank, s->src));
        break;
    }
    return KOLO_OK;
}

/* Number the chunks of all buffers. Returns their count. */
static size_t number_chunks(const struct kolo_plan *plan, size_t *base)
{
    size_t next = 0;
    for (int rank = 0; rank < plan->shape.nranks; rank++) {
        for (int buf = 0; buf < KOLO_BUFS; buf++) {
            base[rank * KOLO_BUFS + buf] = next;
            next += (size_t)kolo_plan_buf_chunks(plan, rank, (enum kolo_buf)buf);
        }
    }
    return next;
}

/* Each input was encoded once. Outputs start like that, too, for the calls in place. */
static struct content *new_chunks(size_t count)
{
    struct content *chunk = calloc(count + 1, sizeof *chunk);
    for (size_t i = 0; chunk != NULL && i < count; i++) {
        chunk[i].encodings = 1;
    }
    return chunk;
}

kolo_status kolo_sums_of_plan(const struct kolo_plan *plan, struct kolo_plan_sums *out)
{
    static const struct kolo_visitor visitor = {see_step};
    const size_t n = (size_t)plan->shape.nranks;
    struct kolo_order order;
    struct sums_walk w = {.plan = plan};
    KOLO_TRY(kolo_order_create(plan, &order));
    kolo_status st = KOLO_OK;
    w.base = calloc(n * KOLO_BUFS, sizeof *w.base);
    w.message = calloc((size_t)order.messages + 1, sizeof *w.message);
    w.pass = calloc(n * (size_t)plan->lanes, sizeof *w.pass);
    w.chunk = w.base != NULL ? new_chunks(number_chunks(plan, w.base)) : NULL;
    if (w.message == NULL || w.pass == NULL || w.chunk == NULL) {
        st = kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", plan->algo->base.name);
    } else {
        st = kolo_order_walk(&order, 1, 1, &visitor, &w);
    }
    free(w.base);
    free(w.message);
    free(w.pass);
    free(w.chunk);
    kolo_order_destroy(&order);
    if (st == KOLO_OK) {
        *out = w.found;
    }
    return st;
}
