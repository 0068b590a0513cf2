// SPDX-License-Identifier: Apache-2.0
/* What each step of a walk takes, on links, ports and cores that other steps use, too. */
#include "plan/price_inner.h"

/* Bytes of a slice in one tile; the flat vector's last chunks may be short or empty. */
static double slice_bytes(const struct kolo_pricer *p, struct kolo_slice s)
{
    size_t first = (size_t)s.first * p->chunk_bytes;
    size_t end = ((size_t)s.first + s.count) * p->chunk_bytes;
    if (p->flat && s.buf != KOLO_SCRATCH) {
        first = kolo_min(first, p->bytes);
        end = kolo_min(end, p->bytes);
    }
    return (double)(end - first) / p->tiles;
}

static struct kolo_link_price link_price(const struct kolo_pricer *p, int from, int to)
{
    struct kolo_link_price link = p->machine->link;
    if (p->machine->link_of != NULL) {
        p->machine->link_of(p->machine->ctx, from, to, &link);
    }
    return link;
}

static int moment_of(const struct kolo_pricer *p, int rank, int index, int tile)
{
    return tile * p->order->steps + p->order->base[rank] + index;
}

/* Not before this is free. */
static void wait_for(struct kolo_price_moment *m, double at_us, int cause)
{
    if (at_us > m->end_us) {
        m->end_us = at_us;
        m->cause = cause;
    }
}

static void occupy_until(struct kolo_price_resource *r, double until_us, int by)
{
    r->free_us = until_us;
    r->last = by;
}

static struct kolo_price_resource *core_of(const struct kolo_pricer *p, int rank)
{
    return &p->core[p->machine->cores > 0 ? rank % p->machine->cores : rank];
}

/* Work of a core; steps that cost nothing do not take turns. */
static void add_work(struct kolo_pricer *p, int rank, int self, struct kolo_price_moment *m,
                     double work_us)
{
    if (work_us > 0) {
        struct kolo_price_resource *core = core_of(p, rank);
        wait_for(m, core->free_us, core->last);
        m->end_us += work_us;
        core->work_us += work_us;
        occupy_until(core, m->end_us, self);
    }
}

/* When a transfer that is ready at ready_us begins. */
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

static bool is_sum(const struct kolo_step *s)
{
    return s->op == KOLO_RECV_REDUCE || s->op == KOLO_REDUCE;
}

/* The step that this one may join where lane and lowering allow: the lane's one before it, in this
 * tile. NULL: none. */
static const struct kolo_step *newest_step(const struct kolo_pricer *p, const struct kolo_event *e)
{
    const struct kolo_price_newest *newest = &p->newest[e->rank * p->plan->lanes + e->step->lane];
    const bool there = p->machine->outboxes && newest->step != NULL && newest->tile == e->tile;
    return there ? newest->step : NULL;
}

/* One more source of the pass that the step before began or went on with. */
static bool joins_pass(const struct kolo_pricer *p, const struct kolo_event *e)
{
    const struct kolo_step *last = newest_step(p, e);
    return last != NULL && last->op != KOLO_SEND && is_sum(e->step) &&
           same_slice(last->dst, e->step->dst);
}

/* The message before this one lies in the outbox, and is the same: nothing is left to do. */
static bool is_sent_again(const struct kolo_pricer *p, const struct kolo_event *e)
{
    const struct kolo_step *last = newest_step(p, e);
    return last != NULL && last->op == KOLO_SEND && last->phase == e->step->phase &&
           last->place == e->step->place && same_slice(last->src, e->step->src);
}

/* The step before wrote what is sent: its pass stores into the outbox, too. */
static bool was_written(const struct kolo_pricer *p, const struct kolo_event *e)
{
    const struct kolo_step *last = newest_step(p, e);
    return last != NULL && last->op != KOLO_SEND && same_slice(last->dst, e->step->src);
}

static int port_of(const struct kolo_pricer *p, int rank)
{
    return p->machine->port_of != NULL ? p->machine->port_of(p->machine->ctx, rank) : rank;
}

/* ---- messages between hosts ---- */

/* The step of the same lane and tile that is `ahead` steps further on. NULL: the tile ends. */
static const struct kolo_step *step_ahead(const struct kolo_pricer *p, const struct kolo_event *e,
                                          int ahead, int *index)
{
    const struct kolo_order *o = p->order;
    const int *first = &o->lane_first[e->rank * p->plan->lanes + e->step->lane];
    const int at = first[0] + o->turn[e->number] + ahead;
    if (at >= first[1]) {
        return NULL;
    }
    *index = o->lane_step[at];
    return &p->plan->rank[e->rank].step[*index];
}

/* A message is sent from its slice if this is one chunk that nobody changes. Else a core copies it
 * to where it can wait. */
static double send_work_us(const struct kolo_pricer *p, const struct kolo_step *s,
                           const struct kolo_link_price *link)
{
    const bool staged = (s->flags & KOLO_STEP_STABLE) == 0 || s->src.count != 1;
    return p->machine->step_us + link->message_us +
           (staged ? slice_bytes(p, s->src) * p->machine->stage_us_per_byte : 0);
}

/* The messages that a lane sends with nothing in between share its port: the first is not there
 * long before the last. Find when each has left, if the first is sent at ready_us. A network
 * interface works on so many at a time. Returns their number. */
static int plan_sends(struct kolo_pricer *p, const struct kolo_event *e, double ready_us)
{
    enum { MOST = 16 };
    struct kolo_price_flow flow[MOST];
    int step[MOST];
    int count = 0;
    double *free_us = &p->out_port[port_of(p, e->rank)];
    double begin_us = ready_us;
    while (count < MOST) {
        const struct kolo_step *s = step_ahead(p, e, count, &step[count]);
        if (s == NULL || s->op != KOLO_SEND) {
            break;
        }
        const struct kolo_link_price link = link_price(p, e->rank, s->peer);
        if (link.by_core) {
            break;
        }
        const double bytes = slice_bytes(p, s->src);
        begin_us += count > 0 ? send_work_us(p, s, &link) : 0;
        flow[count++] = (struct kolo_price_flow){begin_us, bytes * link.us_per_byte, -1};
        begin_us += bytes * link.copy_us_per_byte;
    }
    double busy_us = 0;
    for (int i = 0; i < count; i++) {
        busy_us += flow[i].left_us;
    }
    kolo_price_share_port(flow, count, *free_us);
    for (int i = 0; i < count; i++) {
        p->moment[moment_of(p, e->rank, step[i], e->tile)].arrives_us = flow[i].end_us;
    }
    (void)take_port(free_us, ready_us, busy_us); /* others may have the gaps in between */
    return count;
}

/* The lane goes on while the ports work. What a core copies travels meanwhile. */
static void send_message(struct kolo_pricer *p, const struct kolo_event *e, int self,
                         const struct kolo_link_price *link, struct kolo_price_moment *m)
{
    struct kolo_price_newest *newest = &p->newest[e->rank * p->plan->lanes + e->step->lane];
    const double bytes = slice_bytes(p, e->step->src), time_us = bytes * link->us_per_byte;
    const int out = port_of(p, e->rank), in = port_of(p, e->step->peer);
    add_work(p, e->rank, self, m, send_work_us(p, e->step, link));
    if (newest->planned == 0) {
        newest->planned = plan_sends(p, e, m->end_us);
    }
    newest->planned--;
    const double ready_us = m->end_us;
    add_work(p, e->rank, self, m, bytes * link->copy_us_per_byte);
    double left_us = p->moment[self].arrives_us;
    left_us = left_us > ready_us + time_us ? left_us : ready_us + time_us;
    left_us = left_us > m->end_us ? left_us : m->end_us;
    const double enters_us = take_port(&p->in_port[in], ready_us + link->latency_us, time_us);
    m->arrives_us = enters_us + time_us > left_us + link->latency_us ? enters_us + time_us
                                                                     : left_us + link->latency_us;
    p->busy[out] += time_us;
    p->busy[p->plan->shape.nranks + in] += time_us;
}

static void price_send(struct kolo_pricer *p, const struct kolo_event *e, int self,
                       struct kolo_price_moment *m)
{
    const int to = e->step->peer;
    const struct kolo_link_price link = link_price(p, e->rank, to);
    const double bytes = slice_bytes(p, e->step->src);
    p->sent[e->rank] += bytes;
    p->received[to] += bytes;
    if (!link.by_core) {
        send_message(p, e, self, &link, m);
        return;
    }
    const enum kolo_price_way way = kolo_price_way(p, e);
    if (way == KOLO_FROM_IN) { /* it is there when the call begins */
        m->arrives_us = 0;
        return;
    }
    if (e->other >= 0) { /* the slot's credit comes back */
        const int freed = moment_of(p, to, e->other, e->other_tile);
        wait_for(m, p->moment[freed].end_us + link_price(p, to, e->rank).latency_us, freed);
    }
    if (way == KOLO_BY_PUSH || !is_sent_again(p, e)) {
        const bool copies = p->machine->outboxes && way != KOLO_BY_PULL;
        const double far = way == KOLO_BY_PUSH ? link.far_us_per_byte : 0;
        const double copy =
            was_written(p, e) ? p->machine->joined_us_per_byte : p->machine->copy_us_per_byte;
        const double each = copies ? copy + far : 0;
        add_work(p, e->rank, self, m, p->machine->step_us + bytes * each);
    }
    m->arrives_us = m->end_us + link.latency_us;
}

/* Whether the core of `rank` has other ranks too. */
static bool is_crowded(const struct kolo_pricer *p, int rank)
{
    const int cores = p->machine->cores;
    return cores > 0 && (rank >= cores || rank + cores < p->plan->shape.nranks);
}

/* A rank gives up a shared core to wait. With outboxes what it sent so far became visible at once,
 * so it is assumed that the answer to what was sent is never there yet: the others of the core must
 * run first. */
static bool gives_way(const struct kolo_pricer *p, const struct kolo_event *e, bool late)
{
    if (!p->machine->outboxes) {
        return late && p->machine->cores > 0 && p->machine->cores < p->plan->shape.nranks;
    }
    const struct kolo_price_newest *newest = &p->newest[e->rank * p->plan->lanes + e->step->lane];
    return is_crowded(p, e->rank) && !(newest->waited && newest->tile == e->tile);
}

/* The least time from ready_us on in which a message passes its channel. */
static double channel_us(struct kolo_pricer *p, const struct kolo_event *e,
                         const struct kolo_link_price *link, double bytes, double ready_us)
{
    if (link->channel <= 0) {
        return 0;
    }
    const int channel = link->channel - 1;
    const struct kolo_step *s = e->step;
    const double what = (e->tile * 65536.0 + s->phase) * 65536.0 + s->place + 1;
    const int line = s->peer * p->machine->channels + channel;
    if (p->machine->outboxes && kolo_price_way(p, e) != KOLO_BY_PUSH && p->crossed[line] == what) {
        return take_port(&p->there[line], ready_us, link->turn_us) + link->turn_us - ready_us;
    }
    const double time_us = bytes * link->channel_us_per_byte;
    const double there_us = take_port(&p->channel[channel], ready_us, time_us) + time_us;
    p->crossed[line] = what;
    p->there[line] = there_us;
    return there_us - ready_us;
}

/* What is waited for together comes together: of several far lines the farthest counts. */
static double far_step_us(struct kolo_pricer *p, const struct kolo_event *e, double step_us)
{
    struct kolo_price_newest *newest = &p->newest[e->rank * p->plan->lanes + e->step->lane];
    const double before_us = newest->waited && newest->tile == e->tile ? newest->far_us : 0;
    newest->far_us = step_us > before_us ? step_us : before_us;
    return newest->far_us - before_us;
}

/* Whether the lane's next step adds one more source to the same pass. */
static bool goes_on(const struct kolo_pricer *p, const struct kolo_event *e)
{
    int index = 0;
    const struct kolo_step *next = step_ahead(p, e, 1, &index);
    return p->machine->whole_passes && next != NULL && is_sum(next) && next->dep < 0 &&
           (next->flags & KOLO_STEP_LEFT) == 0 && same_slice(next->dst, e->step->dst);
}

/* A core's time for the bytes that came. A message of several chunks does not go straight to its
 * slice. */
static double bytes_us(const struct kolo_pricer *p, const struct kolo_event *e,
                       const struct kolo_link_price *link)
{
    const struct kolo_step *s = e->step;
    const bool adds = s->op == KOLO_RECV_REDUCE;
    const bool by_push = kolo_price_way(p, e) == KOLO_BY_PUSH;
    double each = adds ? p->machine->reduce_us_per_byte + link->sum_us_per_byte : 0;
    each += link->by_core && !by_push && !joins_pass(p, e) ? link->us_per_byte : 0;
    each += !by_push ? link->far_us_per_byte : 0;
    each += !link->by_core && !adds && s->dst.count != 1 ? p->machine->stage_us_per_byte : 0;
    return slice_bytes(p, s->src) * each;
}

/* One more source of a pass. True: others will follow, and nothing is to be done before. */
static bool joins_later(struct kolo_pricer *p, const struct kolo_event *e, int sent, double work_us,
                        double pass_us)
{
    struct kolo_price_pass *pass = &p->newest[e->rank * p->plan->lanes + e->step->lane].pass;
    const double arrives_us = p->moment[sent].arrives_us;
    if (pass->count++ == 0) {
        *pass = (struct kolo_price_pass){.count = 1, .first_us = arrives_us, .last = sent};
    }
    pass->first_us = arrives_us < pass->first_us ? arrives_us : pass->first_us;
    pass->last = arrives_us >= p->moment[pass->last].arrives_us ? sent : pass->last;
    pass->wait_us += work_us;
    pass->us += pass_us;
    pass->newest_us = work_us;
    return goes_on(p, e);
}

/* A core that waits takes its sources as they come, and begins the pass when it has the last. */
static void do_pass(struct kolo_pricer *p, const struct kolo_event *e, int self,
                    struct kolo_price_moment *m)
{
    struct kolo_price_pass *pass = &p->newest[e->rank * p->plan->lanes + e->step->lane].pass;
    wait_for(m, pass->first_us, pass->last);
    add_work(p, e->rank, self, m, pass->wait_us);
    wait_for(m, p->moment[pass->last].arrives_us + pass->newest_us, pass->last);
    add_work(p, e->rank, self, m, pass->us);
    pass->count = 0;
}

/* A long message leaves when its sender knows that the receive is posted. The lane posts it when
 * its tile begins, or comes so far if others use its place before (exec/lower/posts.c). */
static void wait_for_post(struct kolo_pricer *p, const struct kolo_event *e,
                          const struct kolo_link_price *link, double now_us, int sent)
{
    const struct kolo_step *s = e->step;
    const double bytes = slice_bytes(p, s->src);
    const bool early = s->op == KOLO_RECV_REDUCE || (s->flags & KOLO_STEP_FRESH) != 0;
    const double posted_us =
        early ? p->newest[e->rank * p->plan->lanes + s->lane].begun_us : now_us;
    const double there_us = posted_us + 2 * link->latency_us + bytes * link->us_per_byte;
    if (!link->by_core && link->rendezvous_bytes > 0 && bytes >= link->rendezvous_bytes &&
        there_us > p->moment[sent].arrives_us) {
        p->moment[sent].arrives_us = there_us;
    }
}

/* A core's time to copy a message that came, and in *early_us how much of it goes by while the message
 * arrives. */
static double copy_us(const struct kolo_link_price *link, double bytes, double *early_us)
{
    const double copy_us = link->by_core ? 0 : bytes * link->copy_us_per_byte;
    const double time_us = bytes * link->us_per_byte;
    *early_us = copy_us < time_us ? copy_us : time_us;
    return copy_us;
}

static void price_receive(struct kolo_pricer *p, const struct kolo_event *e, int self,
                          struct kolo_price_moment *m)
{
    const struct kolo_machine *machine = p->machine;
    const struct kolo_link_price link = link_price(p, e->step->peer, e->rank);
    const double bytes = slice_bytes(p, e->step->src);
    const int sent = moment_of(p, e->step->peer, e->other, e->tile);
    p->newest[e->rank * p->plan->lanes + e->step->lane].sum_us_per_byte = link.sum_us_per_byte;
    double early_us = 0;
    double work_us = machine->step_us + link.message_us + copy_us(&link, bytes, &early_us);
    wait_for_post(p, e, &link, m->end_us, sent);
    const double arrives_us = p->moment[sent].arrives_us;
    const bool waits = kolo_price_way(p, e) != KOLO_FROM_IN;
    work_us += waits && gives_way(p, e, arrives_us > m->end_us) ? machine->switch_us : 0;
    work_us += far_step_us(p, e, link.far_step_us);
    const double pass_us = bytes_us(p, e, &link);
    struct kolo_price_pass *pass = &p->newest[e->rank * p->plan->lanes + e->step->lane].pass;
    const bool joined = joins_later(p, e, sent, work_us, pass_us);
    pass->newest_us -= early_us;
    if (joined) {
        return;
    }
    if (pass->count > 1) {
        do_pass(p, e, self, m);
    } else {
        wait_for(m, arrives_us - early_us, sent);
        const double passes_us = channel_us(p, e, &link, bytes, m->end_us);
        add_work(p, e->rank, self, m,
                 passes_us > work_us + pass_us ? passes_us : work_us + pass_us);
    }
    pass->count = 0;
}

/* A copy of what the pass before wrote, out of SCRATCH: the pass writes it there right away. */
static bool copies_pass(const struct kolo_pricer *p, const struct kolo_event *e)
{
    const struct kolo_step *last = newest_step(p, e);
    return last != NULL && is_sum(last) && e->step->op == KOLO_COPY &&
           e->step->src.buf == KOLO_SCRATCH && same_slice(last->dst, e->step->src);
}

/* A broadcast to one rank is priced in place, as most programs make it. */
static bool is_in_place(const struct kolo_pricer *p, const struct kolo_step *s)
{
    return p->machine->mapped && s->src.buf == KOLO_IN && kolo_plan_halves(p->plan);
}

static void price_local(struct kolo_pricer *p, const struct kolo_event *e, int self,
                        struct kolo_price_moment *m)
{
    const struct kolo_machine *machine = p->machine;
    const double bytes = slice_bytes(p, e->step->dst);
    double each = 0;
    if (e->step->op == KOLO_REDUCE) {
        const bool alone = machine->outboxes && !joins_pass(p, e);
        each = machine->reduce_us_per_byte + (alone ? machine->copy_us_per_byte : 0) +
               p->newest[e->rank * p->plan->lanes + e->step->lane].sum_us_per_byte;
    } else if (!copies_pass(p, e) && !is_in_place(p, e->step)) {
        each = machine->copy_us_per_byte;
    }
    const double work_us = machine->local_step_us + bytes * each;
    struct kolo_price_pass *pass = &p->newest[e->rank * p->plan->lanes + e->step->lane].pass;
    if (pass->count == 0) {
        add_work(p, e->rank, self, m, work_us);
        return;
    }
    pass->us += work_us;
    if (!goes_on(p, e)) {
        do_pass(p, e, self, m);
    }
}

static void remember_step(struct kolo_pricer *p, const struct kolo_event *e)
{
    struct kolo_price_newest *newest = &p->newest[e->rank * p->plan->lanes + e->step->lane];
    const bool receives =
        e->message >= 0 && e->step->op != KOLO_SEND && kolo_price_way(p, e) != KOLO_FROM_IN;
    const bool waited = newest->waited && newest->tile == e->tile && e->step->op != KOLO_SEND;
    newest->step = e->step;
    newest->tile = e->tile;
    newest->waited = receives || waited;
}

kolo_status kolo_price_step(void *ctx, const struct kolo_event *e)
{
    struct kolo_pricer *p = ctx;
    struct kolo_price_resource *lane = &p->lane[e->rank * p->plan->lanes + e->step->lane];
    const int self = e->tile * p->order->steps + e->number;
    struct kolo_price_newest *newest = &p->newest[e->rank * p->plan->lanes + e->step->lane];
    struct kolo_price_moment m = {.end_us = lane->free_us, .cause = lane->last};
    if (newest->step == NULL || newest->tile != e->tile) {
        newest->begun_us = lane->free_us;
    }
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
    remember_step(p, e);
    occupy_until(lane, m.end_us, self);
    if (m.end_us >= p->tile_end_us[e->tile]) {
        p->tile_end_us[e->tile] = m.end_us;
    }
    if (p->last < 0 || m.end_us >= p->moment[p->last].end_us) {
        p->last = self;
    }
    return KOLO_OK;
}
