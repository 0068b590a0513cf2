// SPDX-License-Identifier: Apache-2.0
/* Text and pictures of plans. In the picture a step stands at the time at which it is done. A walk
 * finds the times: a message takes one unit, and any other step a quarter. */
#include "print.h"

#include "walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ---- */

static const char *const op_names[] = {"send", "recv", "recv_reduce", "copy", "reduce"};

/* "out[3]", "in[0..3]", "scratch[]"; room for KOLO_SLICE_TEXT. */
static void print_slice(struct kolo_slice slice, char *out)
{
    static const char *const names[] = {"in", "out", "scratch", "?"};
    const char *name = names[slice.buf < KOLO_BUFS ? slice.buf : KOLO_BUFS];
    const size_t len = KOLO_SLICE_TEXT;
    if (slice.count == 0) {
        (void)snprintf(out, len, "nothing");
    } else if (slice.count == 1) {
        (void)snprintf(out, len, "%s[%u]", name, slice.first);
    } else {
        (void)snprintf(out, len, "%s[%u..%u]", name, slice.first, slice.first + slice.count - 1);
    }
}

void kolo_step_print(const struct kolo_step *step, char *out)
{
    char src[KOLO_SLICE_TEXT];
    char dst[KOLO_SLICE_TEXT];
    char peer[24] = "";
    char dep[24] = "";
    print_slice(step->src, src);
    print_slice(step->dst, dst);
    if (step->op <= KOLO_RECV_REDUCE) {
        (void)snprintf(peer, sizeof peer, " %s %d", step->op == KOLO_SEND ? "to" : "from",
                       step->peer);
    }
    if (step->dep >= 0) {
        (void)snprintf(dep, sizeof dep, " after %d", step->dep);
    }
    (void)snprintf(out, KOLO_STEP_TEXT, "%s%s %s -> %s%s%s%s%s%s",
                   step->op <= KOLO_REDUCE ? op_names[step->op] : "?", peer, src, dst,
                   step->flags & KOLO_STEP_LEFT ? " left" : "",
                   step->flags & KOLO_STEP_LAST ? " last" : "",
                   step->flags & KOLO_STEP_STABLE ? " stable" : "",
                   step->flags & KOLO_STEP_FRESH ? " fresh" : "", dep);
}

void kolo_plan_summary(const struct kolo_plan *plan, struct kolo_text *out)
{
    int steps = 0;
    int messages = 0;
    int phases = 0;
    for (int r = 0; r < plan->shape.nranks; r++) {
        const struct kolo_rank_plan *mine = &plan->rank[r];
        steps += mine->count;
        phases = mine->phases > phases ? mine->phases : phases;
        for (int i = 0; i < mine->count; i++) {
            messages += mine->step[i].op == KOLO_SEND;
        }
    }
    kolo_text_add(out, "%s, %d ranks", plan->algo->base.name, plan->shape.nranks);
    if (kolo_coll_rooted(plan->shape.coll)) {
        kolo_text_add(out, ", root %d", plan->shape.root);
    }
    if (plan->only >= 0) {
        kolo_text_add(out, ", rank %d only", plan->only);
    }
    kolo_text_add(out, ": ");
    const struct {
        int count;
        const char *one, *many;
    } facts[] = {{steps, "step", "steps"},
                 {messages, "message", "messages"},
                 {plan->lanes, "lane", "lanes"},
                 {plan->chunks, "chunk", "chunks"},
                 {plan->scratch_chunks, "scratch chunk", "scratch chunks"},
                 {phases, "phase a rank", "phases a rank"},
                 {plan->max_places, "place", "places"}};
    for (size_t i = 0; i < KOLO_LENGTH(facts); i++) {
        kolo_text_add(out, "%s%d %s", i > 0 ? ", " : "", facts[i].count,
                      facts[i].count == 1 ? facts[i].one : facts[i].many);
    }
}

void kolo_plan_text(const struct kolo_plan *plan, struct kolo_text *out)
{
    char text[KOLO_STEP_TEXT];
    kolo_plan_summary(plan, out);
    kolo_text_add(out, "\n");
    for (int r = 0; r < plan->shape.nranks; r++) {
        for (int i = 0; i < plan->rank[r].count; i++) {
            const struct kolo_step *s = &plan->rank[r].step[i];
            kolo_step_print(s, text);
            kolo_text_add(out, "rank %d lane %d: %d %s", r, s->lane, i, text);
            if (s->op <= KOLO_RECV_REDUCE) {
                kolo_text_add(out, " (phase %d place %d)", s->phase, s->place);
            }
            kolo_text_add(out, "\n");
        }
    }
}

/* ---- picture ---- */

enum { LEFT_PX = 70, TOP_PX = 46, ROW_PX = 64, UNIT_PX = 92 };

struct drawing {
    const struct kolo_plan *plan;
    const struct kolo_order *order;
    double *lane_at; /* [nranks * lanes]: time of each lane */
    double *at;      /* [steps]: when a step is done */
    double *sender;  /* [nranks]: a rank sends one message after another */
    double end;
};

/* Small gaps keep the arrows that leave one rank apart. */
static kolo_status time_step(void *ctx, const struct kolo_event *e)
{
    static const double gap = 0.3;
    static const double work = 0.2;
    struct drawing *d = ctx;
    const int lane = e->rank * d->plan->lanes + e->step->lane;
    double at = d->lane_at[lane];
    if (e->step->dep >= 0) {
        const double dep = d->at[d->order->base[e->rank] + e->step->dep];
        at = dep > at ? dep : at;
    }
    if (e->step->op == KOLO_SEND) {
        at = d->sender[e->rank] > at ? d->sender[e->rank] : at;
        d->sender[e->rank] = at + gap;
    } else if (e->message >= 0) {
        const double sent = d->at[d->order->base[e->step->peer] + e->other] + 1.0;
        at = sent > at ? sent : at + gap;
    } else if (e->step->dst.count > 0) {
        at += work;
    }
    d->at[e->number] = d->lane_at[lane] = at;
    d->end = at > d->end ? at : d->end;
    return KOLO_OK;
}

static int x_of(double at)
{
    return LEFT_PX + 24 + (int)(at * UNIT_PX);
}

/* A rank's lanes lie close together. */
static int y_of(const struct drawing *d, int rank, int lane)
{
    return TOP_PX + rank * (ROW_PX + 12 * (d->plan->lanes - 1)) + 12 * lane;
}

static void draw_frame(const struct drawing *d, int width, int height, struct kolo_text *out)
{
    struct kolo_text title = {0};
    kolo_plan_summary(d->plan, &title);
    kolo_text_add(out,
                  "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' "
                  "viewBox='0 0 %d %d' font-family='sans-serif' font-size='11'>\n"
                  "<defs><marker id='tip' markerWidth='8' markerHeight='6' refX='8' refY='3' "
                  "orient='auto'><path d='M0,0 L8,3 L0,6 z' fill='#1f5fa8'/></marker>\n"
                  "<marker id='sum' markerWidth='8' markerHeight='6' refX='8' refY='3' "
                  "orient='auto'><path d='M0,0 L8,3 L0,6 z' fill='#c2410c'/></marker></defs>\n"
                  "<rect width='100%%' height='100%%' fill='white'/>\n"
                  "<text x='10' y='18' font-size='12'>%s</text>\n",
                  width, height, width, height, title.chars != NULL ? title.chars : "");
    kolo_text_free(&title);
    for (int r = 0; r < d->plan->shape.nranks; r++) {
        kolo_text_add(out, "<text x='10' y='%d'>rank %d</text>\n", y_of(d, r, 0) + 4, r);
        for (int lane = 0; lane < d->plan->lanes; lane++) {
            const int y = y_of(d, r, lane);
            kolo_text_add(out, "<line x1='%d' y1='%d' x2='%d' y2='%d' stroke='#999'/>\n", LEFT_PX,
                          y, width - 10, y);
        }
    }
}

/* "3" for out[3], "i3" for in[3], "s0-2" for scratch[0..2]: short, as many stand side by side. */
static void label(struct kolo_slice slice, char *out, size_t len)
{
    const char *buf = slice.buf == KOLO_IN ? "i" : slice.buf == KOLO_SCRATCH ? "s" : "";
    if (slice.count > 1) {
        (void)snprintf(out, len, "%s%u-%u", buf, slice.first, slice.first + slice.count - 1);
    } else {
        (void)snprintf(out, len, "%s%u", buf, slice.first);
    }
}

/* The label stands close to the sender, where arrows have not crossed yet. */
static void draw_message(const struct drawing *d, int from, int message, struct kolo_text *out)
{
    const struct kolo_order *o = d->order;
    const struct kolo_step *send = &d->plan->rank[from].step[o->send[message]];
    const struct kolo_step *recv = &d->plan->rank[send->peer].step[o->recv[message]];
    const bool sums = recv->op == KOLO_RECV_REDUCE;
    const char *colour = sums ? "#c2410c" : "#1f5fa8";
    const int x1 = x_of(d->at[o->base[from] + o->send[message]]);
    const int x2 = x_of(d->at[o->base[send->peer] + o->recv[message]]);
    const int y1 = y_of(d, from, send->lane);
    const int y2 = y_of(d, send->peer, recv->lane);
    kolo_text_add(out,
                  "<line x1='%d' y1='%d' x2='%d' y2='%d' stroke='%s' marker-end='url(#%s)'/>\n", x1,
                  y1, x2, y2, colour, sums ? "sum" : "tip");
    if (send->src.count > 0) {
        char text[KOLO_SLICE_TEXT];
        const int down = y2 > y1 ? 15 : -15;
        label(send->src, text, sizeof text);
        kolo_text_add(out,
                      "<text x='%d' y='%d' fill='%s' font-size='9' stroke='white' "
                      "stroke-width='2.5' paint-order='stroke'>%s</text>\n",
                      x1 + (x2 - x1) * down / (y2 - y1) + 1, y1 + down + 3, colour, text);
    }
}

static void draw_local(const struct drawing *d, int rank, int index, struct kolo_text *out)
{
    const struct kolo_step *s = &d->plan->rank[rank].step[index];
    const int x = x_of(d->at[d->order->base[rank] + index]);
    const int y = y_of(d, rank, s->lane);
    char src[KOLO_SLICE_TEXT];
    char dst[KOLO_SLICE_TEXT];
    print_slice(s->src, src);
    print_slice(s->dst, dst);
    kolo_text_add(out,
                  "<rect x='%d' y='%d' width='8' height='8' fill='%s'><title>%s to %s</title>"
                  "</rect>\n",
                  x - 4, y - 4, s->op == KOLO_REDUCE ? "#c2410c" : "#555", src, dst);
}

static void draw(const struct drawing *d, struct kolo_text *out)
{
    const struct kolo_plan *plan = d->plan;
    const int width = x_of(d->end) + 60;
    const int height = y_of(d, plan->shape.nranks, 0) + 6;
    draw_frame(d, width > 900 ? width : 900, height, out);
    for (int r = 0; r < plan->shape.nranks; r++) {
        for (int i = 0; i < plan->rank[r].count; i++) {
            const struct kolo_step *s = &plan->rank[r].step[i];
            if (s->op == KOLO_SEND) {
                draw_message(d, r, d->order->message[d->order->base[r] + i], out);
            } else if (s->peer < 0 && s->dst.count > 0) {
                draw_local(d, r, i, out);
            }
        }
    }
    kolo_text_add(out,
                  "<text x='10' y='%d'><tspan fill='#c2410c'>orange: added on arrival</tspan>, "
                  "<tspan fill='#1f5fa8'>blue: moved</tspan>; what is sent: chunk of out, i: in, "
                  "s: scratch; squares: local copies and sums</text>\n</svg>\n",
                  height - 8);
}

kolo_status kolo_plan_svg(const struct kolo_plan *plan, struct kolo_text *out)
{
    static const struct kolo_visitor visitor = {time_step};
    struct kolo_order order;
    KOLO_TRY(kolo_order_create(plan, &order));
    const size_t n = (size_t)plan->shape.nranks;
    const size_t lanes = n * (size_t)plan->lanes;
    double *times = calloc((size_t)order.steps + lanes + n, sizeof *times);
    kolo_status status = KOLO_OK;
    if (times == NULL) {
        status = kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", plan->algo->base.name);
    } else {
        struct drawing d = {.plan = plan,
                            .order = &order,
                            .lane_at = times,
                            .at = times + lanes,
                            .sender = times + lanes + order.steps};
        status = kolo_order_walk(&order, 1, 1, &visitor, &d);
        if (status == KOLO_OK) {
            draw(&d, out);
        }
    }
    free(times);
    kolo_order_destroy(&order);
    return status;
}
