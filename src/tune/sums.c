// SPDX-License-Identifier: Apache-2.0
/* Find out whether a plan stores partial sums, by a walk over its steps.
 *
 * Every chunk has a bit that says whether the chunk holds a partial sum. Consecutive additions of a
 * lane into one slice are one pass, which exec joins into one move. A pass rounds once, at its end.
 * If anything but the pass that makes it reads a partial sum, that sum was stored.
 */
#include "sums.h"

#include "plan/walk.h"

#include <stdlib.h>
#include <string.h>

/* The most sources of a pass: as many as a lowered move may have. */
enum { PASS_SOURCES = 500 };

struct pass { /* the newest slice that a lane wrote */
    struct kolo_slice dst;
    int sources; /* 0: none */
};

struct sums_walk {
    const struct kolo_plan *plan;
    size_t *base;      /* [nranks * KOLO_BUFS]: the bit of the buffer's first chunk */
    bool *partial;     /* [chunks of all buffers of all ranks] */
    bool *message;     /* [messages]: a partial sum travels */
    struct pass *pass; /* [nranks * lanes] */
    bool stored;
};

static bool *bits_of(struct sums_walk *w, int rank, struct kolo_slice s)
{
    return &w->partial[w->base[rank * KOLO_BUFS + s.buf] + s.first];
}

static bool has_any(const bool *bits, int count)
{
    bool found = false;
    for (int i = 0; i < count; i++) {
        found = found || bits[i];
    }
    return found;
}

static bool is_continued(const struct pass *pass, struct kolo_slice dst)
{
    return pass->sources > 0 && pass->sources < PASS_SOURCES && pass->dst.buf == dst.buf &&
           pass->dst.first == dst.first && pass->dst.count == dst.count;
}

/* Note dst = dst op src. If dst held a partial sum that this pass did not make, that sum was
 * stored. */
static void add_slice(struct sums_walk *w, const struct kolo_event *e, bool adds_partial)
{
    const struct kolo_slice dst = e->step->dst;
    struct pass *pass = &w->pass[e->rank * w->plan->lanes + e->step->lane];
    bool *bits = bits_of(w, e->rank, dst);
    const bool joins = is_continued(pass, dst);
    const bool last = (e->step->flags & KOLO_STEP_LAST) != 0;
    const bool own = joins && pass->sources > 1; /* this pass made the sum in dst */
    w->stored = w->stored || adds_partial || (!own && has_any(bits, dst.count));
    *pass = (struct pass){dst, joins ? pass->sources + 1 : 2};
    memset(bits, !last, dst.count);
}

static void replace_slice(struct sums_walk *w, const struct kolo_event *e, bool by_partial)
{
    const struct kolo_slice dst = e->step->dst;
    w->pass[e->rank * w->plan->lanes + e->step->lane] = (struct pass){dst, 1};
    memset(bits_of(w, e->rank, dst), by_partial, dst.count);
}

static kolo_status see_step(void *ctx, const struct kolo_event *e)
{
    struct sums_walk *w = ctx;
    const struct kolo_step *s = e->step;
    switch ((enum kolo_meaning)s->op) {
    case KOLO_SEND:
        w->message[e->message] = has_any(bits_of(w, e->rank, s->src), s->src.count);
        w->stored = w->stored || w->message[e->message];
        w->pass[e->rank * w->plan->lanes + s->lane].sources = 0;
        break;
    case KOLO_RECV:
        replace_slice(w, e, w->message[e->message]);
        break;
    case KOLO_RECV_REDUCE:
        add_slice(w, e, w->message[e->message]);
        break;
    case KOLO_COPY:
        replace_slice(w, e, has_any(bits_of(w, e->rank, s->src), s->src.count));
        break;
    case KOLO_REDUCE:
        add_slice(w, e, has_any(bits_of(w, e->rank, s->src), s->src.count));
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

kolo_status kolo_sums_are_stored(const struct kolo_plan *plan, bool *out)
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
    w.partial = w.base != NULL ? calloc(number_chunks(plan, w.base) + 1, sizeof(bool)) : NULL;
    if (w.message == NULL || w.pass == NULL || w.partial == NULL) {
        st = kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", plan->algo->base.name);
    } else {
        st = kolo_order_walk(&order, 1, 1, &visitor, &w);
    }
    free(w.base);
    free(w.message);
    free(w.pass);
    free(w.partial);
    kolo_order_destroy(&order);
    if (st == KOLO_OK) {
        *out = w.stored;
    }
    return st;
}
