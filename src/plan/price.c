// SPDX-License-Identifier: Apache-2.0
/* The price of a plan, found along a walk.
 *
 * Each step becomes a moment with an end time and a cause, the moment that it waited for last. The
 * causes from the last end backwards are the critical path. The walk goes round-robin over the
 * lanes, which is close to the order of time. So moments take ports and cores in this order.
 */
#include "price.h"

#include "walk.h"

#include <stdlib.h>
#include <string.h>

enum { TILES = 6, SLOTS = 4 };

struct moment { /* the end of one step of one tile */
    double end_us;
    int cause; /* the moment that it waited for last, or -1 */
};

struct resource { /* a lane or a core: busy until the end of a moment */
    double free_us;
    double work_us; /* of a core */
    int last;
};

struct newest { /* a lane's newest step, kept because the next step may join it */
    const struct kolo_step *step;
    int tile;
    bool waited;   /* it waited, and the lane has sent nothing since */
    double far_us; /* extra time of these waits, because their lines came from far */
};

struct pricer {
    const struct kolo_plan *plan;
    const struct kolo_machine *machine;
    const struct kolo_order *order;
    size_t bytes, chunk_bytes; /* of the whole call, per rank */
    int tiles;
    bool flat;
    struct moment *moment; /* [walked * steps] */
    double *arrival_us; /* [messages]: of the newest tile; by core the first byte, else the last */
    struct resource *lane, *core;
    struct newest *newest;      /* [nranks * lanes] */
    double *out_port, *in_port; /* [nranks]: time from which the port is free */
    double *busy;               /* [2 * nranks]: time in use, out and in */
    double *channel;            /* [channels]: time from which the channel is free */
    double *crossed;            /* [nranks * channels]: a rank's last message through a channel */
    double *there;              /* time at which the next reader beyond it can have that message */
    double *sent;               /* [nranks]: bytes, over all tiles walked */
    double *received;
    double tile_end_us[TILES];
    int last; /* the moment that ends last */
};

/* Bytes of a slice in one tile; the flat vector's last chunks may be short or empty. */
static double slice_bytes(const struct pricer *p, struct kolo_slice s)
{
    size_t first = (size_t)s.first * p->chunk_bytes;
    size_t end = ((size_t)s.first + s.count) * p->chunk_bytes;
    if (p->flat && s.buf != KOLO_SCRATCH) {
        first = kolo_min(first, p->bytes);
        end = kolo_min(end, p->bytes);
    }
    return (double)(end - first) / p->tiles;
}

static struct kolo_link_price link_price(const struct pricer *p, int from, int to)
{
    struct kolo_link_price link = p->machine->link;
    if (p->machine->link_of != NULL) {
        p->machine->link_of(p->machine->ctx, from, to, &link);
    }
    return link;
}

static int moment_of(const struct pricer *p, int rank, int index, int tile)
{
    return tile * p->order->steps + p->order->base[rank] + index;
}

/* Delay the moment until at_us, and note the cause. */
static void wait_for(struct moment *m, double at_us, int cause)
{
    if (at_us > m->end_us) {
        m->end_us = at_us;
        m->cause = cause;
    }
}

static void occupy(struct resource *r, double until_us, int by)
{
    r->free_us = until_us;
    r->last = by;
}

static struct resource *core_of(const struct pricer *p, int rank)
{
    return &p->core[p->machine->cores > 0 ? rank % p->machine->cores : rank];
}

/* Add work of a core. Steps that cost nothing do not take turns. */
static void compute(struct pricer *p, int rank, int self, struct moment *m, double work_us)
{
    if (work_us > 0) {
        struct resource *core = core_of(p, rank);
        wait_for(m, core->free_us, core->last);
        m->end_us += work_us;
        core->work_us += work_us;
        occupy(core, m->end_us, self);
    }
}

/* The time at which a transfer that is ready at ready_us begins. */
static double take_port(double *free_us, double ready_us, double time_us)
{
    const double begin_us = *free_us > ready_us ? *free_us : ready_us;
    *free_us = begin_us + time_us;
    return begin_us;
}

static bool same_slice(struct kolo_slice a, struct kolo_slice b)
{
    return a.buf == b.buf && a.first == b.first && a.count == b.count;
}

static bool adds(const struct kolo_step *s)
{
    return s->op == KOLO_RECV_REDUCE || s->op == KOLO_REDUCE;
}

/* The step before this step in its lane and tile, which this step may join if lane and lowering
 * allow it. NULL: none. */
static const struct kolo_step *before(const struct pricer *p, const struct kolo_event *e)
{
    const struct newest *newest = &p->newest[e->rank * p->plan->lanes + e->step->lane];
    const bool there = p->machine->outboxes && newest->step != NULL && newest->tile == e->tile;
    return there ? newest->step : NULL;
}

/* Whether this step is one more source of the pass of the step before. */
static bool joins_pass(const struct pricer *p, const struct kolo_event *e)
{
    const struct kolo_step *last = before(p, e);
    return last != NULL && last->op != KOLO_SEND && adds(e->step) &&
           same_slice(last->dst, e->step->dst);
}

/* Whether the message before this one is the same and already lies in the outbox. Then no work is
 * left. */
static bool is_sent_again(const struct pricer *p, const struct kolo_event *e)
{
    const struct kolo_step *last = before(p, e);
    return last != NULL && last->op == KOLO_SEND && last->phase == e->step->phase &&
           last->place == e->step->place && same_slice(last->src, e->step->src);
}

enum way { BY_OUTBOX, BY_PULL, FROM_IN, BY_PUSH };

/* How a message travels: the rule of exec/lower/emit.c. */
static enum way way_of(const struct pricer *p, const struct kolo_event *e)
{
    const struct kolo_step *s = e->step;
    const int to = s->op == KOLO_SEND ? s->peer : e->rank;
    const int from = s->op == KOLO_SEND ? e->rank : s->peer;
    const bool stable = s->src.buf != KOLO_SCRATCH && (s->flags & KOLO_STEP_STABLE) != 0;
    const struct kolo_step *receive = &p->plan->rank[to].step[p->order->recv[e->message]];
    if (!p->machine->mapped) {
        return BY_OUTBOX;
    }
    if (stable && s->src.buf == KOLO_IN && kolo_plan_fans_out(p->plan, from, to)) {
        return FROM_IN;
    }
    if (receive->op == KOLO_RECV && s->dst.buf == KOLO_OUT && (s->flags & KOLO_STEP_FRESH) != 0) {
        return BY_PUSH;
    }
    if (!stable) {
        return BY_OUTBOX;
    }
    return s->src.buf == KOLO_IN ? FROM_IN : BY_PULL;
}

static int port_of(const struct pricer *p, int rank)
{
    return p->machine->port_of != NULL ? p->machine->port_of(p->machine->ctx, rank) : rank;
}

static void price_send(struct pricer *p, const struct kolo_event *e, int self, struct moment *m)
{
    const int to = e->step->peer;
    const struct kolo_link_price link = link_price(p, e->rank, to);
    const double bytes = slice_bytes(p, e->step->src);
    const enum way way = way_of(p, e);
    if (link.by_core && way == FROM_IN) { /* it is there when the call begins */
        p->arrival_us[e->message] = 0;
        p->sent[e->rank] += bytes;
        p->received[to] += bytes;
        return;
    }
    if (e->other >= 0) { /* the slot's credit comes back */
        const int freed = moment_of(p, to, e->other, e->other_tile);
        wait_for(m, p->moment[freed].end_us + link_price(p, to, e->rank).latency_us, freed);
    }
    if (!link.by_core || way == BY_PUSH || !is_sent_again(p, e)) {
        const bool copies = p->machine->outboxes && link.by_core && way != BY_PULL;
        const double far = way == BY_PUSH ? link.far_us_per_byte : 0;
        const double each = copies ? p->machine->copy_us_per_byte + far : 0;
        compute(p, e->rank, self, m, p->machine->step_us + bytes * each);
    }
    double arrives_us = m->end_us + link.latency_us;
    if (!link.by_core) { /* the lane goes on while the ports work */
        const double time_us = bytes * link.us_per_byte;
        const int out = port_of(p, e->rank), in = port_of(p, to);
        const double leaves_us = take_port(&p->out_port[out], m->end_us, time_us);
        arrives_us = take_port(&p->in_port[in], leaves_us + link.latency_us, time_us) + time_us;
        p->busy[out] += time_us;
        p->busy[p->plan->shape.nranks + in] += time_us;
    }
    p->arrival_us[e->message] = arrives_us;
    p->sent[e->rank] += bytes;
    p->received[to] += bytes;
}

/* Whether the core of `rank` has other ranks too. */
static bool is_crowded(const struct pricer *p, int rank)
{
    const int cores = p->machine->cores;
    return cores > 0 && (rank >= cores || rank + cores < p->plan->shape.nranks);
}

/* Whether a rank gives up a shared core to wait. With outboxes its sends are visible at once. The
 * model assumes that the answer to them is never there yet, because the core's other ranks must run
 * first. */
static bool gives_way(const struct pricer *p, const struct kolo_event *e, bool late)
{
    if (!p->machine->outboxes) {
        return late && p->machine->cores > 0 && p->machine->cores < p->plan->shape.nranks;
    }
    const struct newest *newest = &p->newest[e->rank * p->plan->lanes + e->step->lane];
    return is_crowded(p, e->rank) && !(newest->waited && newest->tile == e->tile);
}

/* The least time from ready_us on in which a message passes its channel. */
static double channel_us(struct pricer *p, const struct kolo_event *e,
                         const struct kolo_link_price *link, double bytes, double ready_us)
{
    if (link->channel <= 0) {
        return 0;
    }
    const int channel = link->channel - 1;
    const struct kolo_step *s = e->step;
    const double what = (e->tile * 65536.0 + s->phase) * 65536.0 + s->place + 1;
    const int line = s->peer * p->machine->channels + channel;
    if (p->machine->outboxes && way_of(p, e) != BY_PUSH && p->crossed[line] == what) {
        return take_port(&p->there[line], ready_us, link->turn_us) + link->turn_us - ready_us;
    }
    const double time_us = bytes * link->channel_us_per_byte;
    const double there_us = take_port(&p->channel[channel], ready_us, time_us) + time_us;
    p->crossed[line] = what;
    p->there[line] = there_us;
    return there_us - ready_us;
}

/* The extra time of far lines. Lines that a rank waits for together come together, so the farthest
 * line counts. */
static double far_step_us(struct pricer *p, const struct kolo_event *e, double step_us)
{
    struct newest *newest = &p->newest[e->rank * p->plan->lanes + e->step->lane];
    const double before_us = newest->waited && newest->tile == e->tile ? newest->far_us : 0;
    newest->far_us = step_us > before_us ? step_us : before_us;
    return newest->far_us - before_us;
}

static void price_receive(struct pricer *p, const struct kolo_event *e, int self, struct moment *m)
{
    const struct kolo_machine *machine = p->machine;
    const struct kolo_link_price link = link_price(p, e->step->peer, e->rank);
    const double bytes = slice_bytes(p, e->step->src);
    const int sent = moment_of(p, e->step->peer, e->other, e->tile);
    double work_us = machine->step_us;
    const double arrives_us = p->arrival_us[e->message];
    const bool waits = way_of(p, e) != FROM_IN;
    work_us += waits && gives_way(p, e, arrives_us > m->end_us) ? machine->switch_us : 0;
    work_us += e->step->op == KOLO_RECV_REDUCE ? bytes * machine->reduce_us_per_byte : 0;
    work_us +=
        link.by_core && way_of(p, e) != BY_PUSH && !joins_pass(p, e) ? bytes * link.us_per_byte : 0;
    work_us += far_step_us(p, e, link.far_step_us);
    work_us += way_of(p, e) != BY_PUSH ? bytes * link.far_us_per_byte : 0;
    wait_for(m, arrives_us, sent);
    const double passes_us = channel_us(p, e, &link, bytes, m->end_us);
    compute(p, e->rank, self, m, passes_us > work_us ? passes_us : work_us);
}

/* Whether this step copies the result of the pass before out of SCRATCH. The pass then writes the
 * destination itself. */
static bool copies_pass(const struct pricer *p, const struct kolo_event *e)
{
    const struct kolo_step *last = before(p, e);
    return last != NULL && adds(last) && e->step->op == KOLO_COPY &&
           e->step->src.buf == KOLO_SCRATCH && same_slice(last->dst, e->step->src);
}

static void price_local(struct pricer *p, const struct kolo_event *e, int self, struct moment *m)
{
    const struct kolo_machine *machine = p->machine;
    const double bytes = slice_bytes(p, e->step->dst);
    double each = 0;
    if (e->step->op == KOLO_REDUCE) {
        const bool alone = machine->outboxes && !joins_pass(p, e);
        each = machine->reduce_us_per_byte + (alone ? machine->copy_us_per_byte : 0);
    } else if (!copies_pass(p, e)) {
        each = machine->copy_us_per_byte;
    }
    compute(p, e->rank, self, m, machine->step_us + bytes * each);
}

static void remember(struct pricer *p, const struct kolo_event *e)
{
    struct newest *newest = &p->newest[e->rank * p->plan->lanes + e->step->lane];
    const bool receives = e->message >= 0 && e->step->op != KOLO_SEND && way_of(p, e) != FROM_IN;
    const bool waited = newest->waited && newest->tile == e->tile && e->step->op != KOLO_SEND;
    *newest = (struct newest){e->step, e->tile, receives || waited, newest->far_us};
}

static kolo_status price_step(void *ctx, const struct kolo_event *e)
{
    struct pricer *p = ctx;
    struct resource *lane = &p->lane[e->rank * p->plan->lanes + e->step->lane];
    const int self = e->tile * p->order->steps + e->number;
    struct moment m = {lane->free_us, lane->last};
    if (e->step->dep >= 0) {
        const int dep = moment_of(p, e->rank, e->step->dep, e->tile);
        wait_for(&m, p->moment[dep].end_us, dep);
    }
    if (e->step->op == KOLO_SEND) {
        price_send(p, e, self, &m);
    } else if (e->message >= 0) {
        price_receive(p, e, self, &m);
    } else {
        price_local(p, e, self, &m);
    }
    p->moment[self] = m;
    remember(p, e);
    occupy(lane, m.end_us, self);
    if (m.end_us >= p->tile_end_us[e->tile]) {
        p->tile_end_us[e->tile] = m.end_us;
    }
    if (p->last < 0 || m.end_us >= p->moment[p->last].end_us) {
        p->last = self;
    }
    return KOLO_OK;
}

/* ---- the result ---- */

static int rank_of(const struct kolo_order *o, int number)
{
    int low = 0;
    int high = o->plan->shape.nranks;
    while (high - low > 1) { /* base[low] <= number < base[high] */
        const int middle = (low + high) / 2;
        *(o->base[middle] <= number ? &low : &high) = middle;
    }
    return low;
}

/* Follow the causes from the last moment backwards. The first pass counts the hops, the second
 * writes them. */
static void follow_path(const struct pricer *p, struct kolo_price *out)
{
    const struct kolo_order *o = p->order;
    int left = out->hops;
    int rank_after = -1;
    for (int at = p->last; at >= 0; at = p->moment[at].cause) {
        const int number = at % o->steps;
        const int rank = rank_of(o, number);
        if (out->hop != NULL) {
            out->hop[--left] = (struct kolo_hop){rank, number - o->base[rank], at / o->steps,
                                                 p->moment[at].end_us};
            continue;
        }
        out->hops++;
        out->messages += rank_after >= 0 && rank_after != rank &&
                         p->plan->rank[rank].step[number - o->base[rank]].op == KOLO_SEND;
        rank_after = rank;
    }
}

static double busiest_us(const struct pricer *p)
{
    double most = 0;
    for (int i = 0; i < 2 * p->plan->shape.nranks; i++) {
        most = p->busy[i] > most ? p->busy[i] : most;
    }
    return most;
}

static kolo_status summarise(const struct pricer *p, int walked, bool path, struct kolo_price *out)
{
    double most = 0;
    assert(p->sent != NULL && p->received != NULL);
    for (int r = 0; r < p->plan->shape.nranks; r++) {
        most = p->sent[r] > most ? p->sent[r] : most;
        most = p->received[r] > most ? p->received[r] : most;
    }
    *out = (struct kolo_price){.tiles = p->tiles,
                               .bytes_moved = (size_t)(most / walked * p->tiles + 0.5),
                               .piece_bytes =
                                   (p->chunk_bytes + (size_t)p->tiles - 1) / (size_t)p->tiles};
    if (p->last < 0) { /* no steps: one rank may have nothing to do */
        return KOLO_OK;
    }
    out->total_us = p->moment[p->last].end_us;
    if (walked > 1) { /* slots come round every SLOTS tiles, SCRATCH and drift every two */
        const int back = walked - 1 < SLOTS ? walked - 1 : SLOTS;
        out->tile_us = (p->tile_end_us[walked - 1] - p->tile_end_us[walked - 1 - back]) / back;
        /* Ranks that share a port may run ahead by the tiles walked, but not for long. */
        const double port_us = busiest_us(p) / walked;
        out->tile_us = port_us > out->tile_us ? port_us : out->tile_us;
        out->total_us += out->tile_us * (p->tiles - walked);
    }
    for (int r = 0; r < p->plan->shape.nranks; r++) {
        const double work_us = p->core[r].work_us / walked * p->tiles;
        out->work_us = work_us > out->work_us ? work_us : out->work_us;
    }
    follow_path(p, out);
    if (path) {
        out->hop = malloc((size_t)out->hops * sizeof *out->hop);
        if (out->hop == NULL) {
            return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", p->plan->algo->base.name);
        }
        follow_path(p, out);
    }
    out->hops = path ? out->hops : 0;
    return KOLO_OK;
}

/* ---- binding and running ---- */

static void bind_bytes(struct pricer *p, size_t tile_bytes)
{
    const struct kolo_plan *plan = p->plan;
    size_t chunks = 1;
    for (int b = KOLO_IN; b <= KOLO_OUT; b++) { /* the root has the largest buffers */
        const int here = kolo_plan_buf_chunks(plan, plan->shape.root, (enum kolo_buf)b);
        chunks = kolo_max(chunks, (size_t)here);
    }
    p->flat = kolo_coll_flat(plan->shape.coll);
    p->chunk_bytes = p->bytes;
    if (p->flat) {
        p->chunk_bytes = kolo_round_up((p->bytes + chunks - 1) / chunks, 64);
    }
    const size_t piece = kolo_max(tile_bytes / chunks / 64 * 64, 64);
    p->tiles = (int)kolo_max((p->chunk_bytes + piece - 1) / piece, 1);
}

static bool pricer_alloc(struct pricer *p, int walked, void **moments, void **rest)
{
    const size_t n = (size_t)p->plan->shape.nranks;
    const size_t lanes = n * (size_t)p->plan->lanes;
    const size_t resources = lanes + n;
    const size_t channels = (size_t)p->machine->channels;
    const size_t fixed = 6 * n + channels + 2 * n * channels;
    const size_t doubles = (size_t)p->order->messages + fixed;
    p->moment = malloc(((size_t)walked * (size_t)p->order->steps + 1) * sizeof *p->moment);
    p->lane =
        malloc(resources * sizeof *p->lane + lanes * sizeof *p->newest + doubles * sizeof(double));
    *moments = p->moment;
    *rest = p->lane;
    if (p->moment == NULL || p->lane == NULL) {
        return false;
    }
    p->core = p->lane + lanes;
    p->newest = (struct newest *)(p->core + n);
    p->sent = (double *)(p->newest + lanes);
    p->received = p->sent + n;
    p->out_port = p->received + n;
    p->in_port = p->out_port + n;
    p->busy = p->in_port + n;
    p->channel = p->busy + 2 * n;
    p->crossed = p->channel + channels;
    p->there = p->crossed + n * channels;
    p->arrival_us = p->there + n * channels;
    for (size_t i = 0; i < resources; i++) {
        p->lane[i] = (struct resource){0, 0, -1};
    }
    memset(p->newest, 0, lanes * sizeof *p->newest);
    memset(p->sent, 0, fixed * sizeof *p->sent);
    return true;
}

kolo_status kolo_price_plan(const struct kolo_plan *plan, size_t bytes, size_t tile_bytes,
                            const struct kolo_machine *machine, bool path, struct kolo_price *out)
{
    static const struct kolo_visitor visitor = {price_step};
    struct kolo_order order;
    struct pricer p = {
        .plan = plan, .machine = machine, .order = &order, .bytes = bytes, .last = -1};
    void *moments = NULL;
    void *rest = NULL;
    KOLO_TRY(kolo_order_create(plan, &order));
    bind_bytes(&p, tile_bytes > 0 ? tile_bytes : KOLO_TILE_BYTES);
    const int walked = p.tiles < TILES ? p.tiles : TILES;
    kolo_status status = KOLO_OK;
    struct kolo_price price = {0};
    if (!pricer_alloc(&p, walked, &moments, &rest)) {
        status = kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", plan->algo->base.name);
    } else {
        status = kolo_order_walk(&order, walked, SLOTS, &visitor, &p);
    }
    if (status == KOLO_OK) {
        status = summarise(&p, walked, path, &price);
    }
    free(moments);
    free(rest);
    kolo_order_destroy(&order);
    if (status == KOLO_OK) {
        *out = price;
    }
    return status;
}

void kolo_price_free(struct kolo_price *price)
{
    if (price != NULL) {
        free(price->hop);
        price->hop = NULL;
        price->hops = 0;
    }
}
