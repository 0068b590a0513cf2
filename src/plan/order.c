// SPDX-License-Identifier: Apache-2.0
/* The matching of messages: the links of a whole plan and the two steps of each message (walk.h).
 *
 * One table of nranks * lanes entries finds the links. It serves rank after rank: first for the
 * sends of a rank, then, with the links sorted by receiver, for its receives. So the time is linear
 * in the steps, whatever the number of pairs.
 */
#include "print.h"
#include "util/grow.h"
#include "walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

kolo_status kolo_step_refuse(const struct kolo_plan *plan, int rank, int index, const char *format,
                             ...)
{
    char text[KOLO_STEP_TEXT];
    char why[512];
    const struct kolo_step *step = &plan->rank[rank].step[index];
    kolo_step_print(step, text);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why, sizeof why, format, args);
    va_end(args);
    return kolo_fail(KOLO_ERR_INVALID, "%s, %d ranks, root %d: rank %d lane %d step %d (%s): %s",
                     plan->algo->base.name, plan->shape.nranks, plan->shape.root, rank, step->lane,
                     index, text, why);
}

struct link {
    int from, to, lane;
    int sent, received; /* how many, then cursors */
};

struct matcher {
    struct kolo_order *order;
    const struct kolo_plan *plan;
    struct link *link;
    int cap;
    int *of_step; /* [steps]: link or -1 */
    int *table;   /* [nranks * lanes] */
    int *sorted;  /* links by receiver */
};

static bool is_receive(const struct kolo_step *step)
{
    return step->op == KOLO_RECV || step->op == KOLO_RECV_REDUCE;
}

static kolo_status check_step(const struct kolo_plan *plan, int rank, int index)
{
    const struct kolo_step *s = &plan->rank[rank].step[index];
    if (s->op > KOLO_REDUCE) {
        return kolo_step_refuse(plan, rank, index, "no such operation: %d", s->op);
    }
    if (s->lane >= plan->lanes) {
        return kolo_step_refuse(plan, rank, index, "no such lane: the plan has %d", plan->lanes);
    }
    if (s->dep < -1 || s->dep >= index) {
        return kolo_step_refuse(plan, rank, index, "depends on step %d, which is no earlier one",
                                s->dep);
    }
    if (s->src.count != s->dst.count) {
        return kolo_step_refuse(plan, rank, index, "source and destination differ in size");
    }
    const bool local = s->op == KOLO_COPY || s->op == KOLO_REDUCE;
    if (!local && (s->peer < 0 || s->peer >= plan->shape.nranks || s->peer == rank)) {
        return kolo_step_refuse(plan, rank, index, "no such peer: %d", s->peer);
    }
    return KOLO_OK;
}

static kolo_status check_plan(const struct kolo_plan *plan)
{
    if (plan->only >= 0 || plan->lanes < 1 || plan->lanes > KOLO_LANES) {
        return kolo_fail(KOLO_ERR_INVALID, "%s: not a whole plan (rank %d only, %d lanes)",
                         plan->algo->base.name, plan->only, plan->lanes);
    }
    for (int r = 0; r < plan->shape.nranks; r++) {
        for (int i = 0; i < plan->rank[r].count; i++) {
            KOLO_TRY(check_step(plan, r, i));
        }
    }
    return KOLO_OK;
}

static kolo_status no_memory(const struct kolo_plan *plan)
{
    return kolo_fail(KOLO_ERR_SYSTEM, "%s, %d ranks: out of memory", plan->algo->base.name,
                     plan->shape.nranks);
}

static bool add_link(struct matcher *m, int from, int to, int lane)
{
    struct kolo_order *o = m->order;
    struct link *grown = kolo_grow(m->link, o->links, &m->cap, sizeof *grown);
    if (grown == NULL) {
        return false;
    }
    m->link = grown;
    m->link[o->links++] = (struct link){from, to, lane, 0, 0};
    return true;
}

static kolo_status find_send_links(struct matcher *m)
{
    const struct kolo_plan *plan = m->plan;
    for (int r = 0; r < plan->shape.nranks; r++) {
        const int first = m->order->links;
        const int base = m->order->base[r];
        for (int i = 0; i < plan->rank[r].count; i++) {
            const struct kolo_step *s = &plan->rank[r].step[i];
            m->of_step[base + i] = -1;
            if (s->op != KOLO_SEND) {
                continue;
            }
            int *entry = &m->table[s->peer * plan->lanes + s->lane];
            if (*entry < first) { /* left by an earlier rank */
                *entry = m->order->links;
                if (!add_link(m, r, s->peer, s->lane)) {
                    return no_memory(plan);
                }
            }
            m->of_step[base + i] = *entry;
            m->link[*entry].sent++;
        }
    }
    return KOLO_OK;
}

/* Counting sort; begin[to] ends as the first of rank `to`. */
static bool sort_links(struct matcher *m, int *begin)
{
    const int n = m->plan->shape.nranks;
    m->sorted = malloc(((size_t)m->order->links + 1) * sizeof *m->sorted);
    if (m->sorted == NULL) {
        return false;
    }
    for (int i = 0; i < m->order->links; i++) {
        begin[m->link[i].to]++;
    }
    for (int r = 1; r <= n; r++) {
        begin[r] += begin[r - 1];
    }
    for (int i = m->order->links - 1; i >= 0; i--) {
        m->sorted[--begin[m->link[i].to]] = i;
    }
    return true;
}

static kolo_status find_receive_links(struct matcher *m, const int *begin)
{
    const struct kolo_plan *plan = m->plan;
    const int lanes = plan->lanes;
    for (int r = 0; r < plan->shape.nranks; r++) {
        for (int i = begin[r]; i < begin[r + 1]; i++) {
            const struct link *link = &m->link[m->sorted[i]];
            m->table[link->from * lanes + link->lane] = m->sorted[i];
        }
        for (int i = 0; i < plan->rank[r].count; i++) {
            const struct kolo_step *s = &plan->rank[r].step[i];
            if (!is_receive(s)) {
                continue;
            }
            const int at = m->table[s->peer * lanes + s->lane];
            if (at < 0 || m->link == NULL || m->link[at].to != r || m->link[at].from != s->peer) {
                return kolo_step_refuse(plan, r, i, "rank %d never sends to rank %d on lane %d",
                                        s->peer, r, s->lane);
            }
            m->of_step[m->order->base[r] + i] = at;
            m->link[at].received++;
        }
    }
    return KOLO_OK;
}

/* Fail because one end of a link lacks messages. The text names the first one. */
static kolo_status refuse_unmatched(const struct matcher *m, int at)
{
    const struct link *link = &m->link[at];
    const bool lost = link->sent > link->received;
    const int rank = lost ? link->from : link->to;
    int matched = lost ? link->received : link->sent;
    for (int i = 0; i < m->plan->rank[rank].count; i++) {
        const bool send = m->plan->rank[rank].step[i].op == KOLO_SEND;
        if (m->of_step[m->order->base[rank] + i] == at && send == lost && matched-- == 0) {
            return kolo_step_refuse(m->plan, rank, i,
                                    "unmatched: rank %d sends %d messages to rank %d on lane %d, "
                                    "which receives %d",
                                    link->from, link->sent, link->to, link->lane, link->received);
        }
    }
    return KOLO_OK;
}

static kolo_status count_links(struct matcher *m)
{
    for (int i = 0; i < m->order->links; i++) {
        if (m->link[i].sent != m->link[i].received) {
            return refuse_unmatched(m, i);
        }
        m->order->messages += m->link[i].sent;
    }
    return KOLO_OK;
}

static bool same_slice(struct kolo_slice a, struct kolo_slice b)
{
    return a.buf == b.buf && a.count == b.count && a.first == b.first;
}

static kolo_status check_ends(const struct kolo_order *o, int from, int message)
{
    const struct kolo_plan *plan = o->plan;
    const struct kolo_step *send = &plan->rank[from].step[o->send[message]];
    const struct kolo_step *recv = &plan->rank[send->peer].step[o->recv[message]];
    const int both = KOLO_STEP_STABLE | KOLO_STEP_FRESH;
    char text[KOLO_STEP_TEXT];
    const char *what = NULL;
    if (!same_slice(send->src, recv->src) || !same_slice(send->dst, recv->dst)) {
        what = "slices";
    } else if ((send->flags & both) != (recv->flags & both)) {
        what = "flags";
    } else if (send->phase != recv->phase || send->place != recv->place) {
        what = "phase or place";
    } else {
        return KOLO_OK;
    }
    kolo_step_print(recv, text);
    return kolo_step_refuse(plan, from, o->send[message],
                            "the two ends disagree in %s: rank %d step %d is %s", what, send->peer,
                            o->recv[message], text);
}

/* Number the messages, link by link, and note both ends' steps. */
static void number_messages(struct matcher *m)
{
    struct kolo_order *o = m->order;
    int first = 0;
    for (int i = 0; i < o->links; i++) {
        o->link_first[i] = first;
        first += m->link[i].sent;
        m->link[i].sent = m->link[i].received = o->link_first[i];
    }
    o->link_first[o->links] = first;
    for (int r = 0; r < m->plan->shape.nranks; r++) {
        for (int i = 0; i < m->plan->rank[r].count; i++) {
            const int at = m->of_step[o->base[r] + i];
            if (at < 0) {
                o->message[o->base[r] + i] = -1;
                continue;
            }
            assert(m->link != NULL);
            const bool send = m->plan->rank[r].step[i].op == KOLO_SEND;
            const int message = send ? m->link[at].sent++ : m->link[at].received++;
            o->message[o->base[r] + i] = message;
            o->link[message] = at;
            *(send ? &o->send[message] : &o->recv[message]) = i;
        }
    }
}

static void list_lanes(struct kolo_order *o)
{
    const struct kolo_plan *plan = o->plan;
    int at = 0;
    int number = 0;
    for (int r = 0; r < plan->shape.nranks; r++) {
        for (int lane = 0; lane < plan->lanes; lane++) {
            const int first = o->lane_first[number++] = at;
            for (int i = 0; i < plan->rank[r].count; i++) {
                if (plan->rank[r].step[i].lane == lane) {
                    o->turn[o->base[r] + i] = at - first;
                    o->lane_step[at++] = i;
                }
            }
        }
    }
    o->lane_first[number] = at;
}

static bool order_alloc(struct kolo_order *o)
{
    const size_t lanes = (size_t)o->plan->shape.nranks * (size_t)o->plan->lanes;
    const size_t steps = (size_t)o->steps;
    const size_t messages = (size_t)o->messages;
    int *at = malloc((3 * steps + 3 * messages + (size_t)o->links + lanes + 2) * sizeof *at);
    o->block = at;
    if (at == NULL) {
        return false;
    }
    o->message = at;
    o->turn = o->message + steps;
    o->lane_step = o->turn + steps;
    o->link = o->lane_step + steps;
    o->send = o->link + messages;
    o->recv = o->send + messages;
    o->link_first = o->recv + messages;
    o->lane_first = o->link_first + o->links + 1;
    return true;
}

static kolo_status match_messages(struct matcher *m, int *begin)
{
    KOLO_TRY(find_send_links(m));
    if (!sort_links(m, begin)) {
        return no_memory(m->plan);
    }
    memset(m->table, 0xff,
           (size_t)m->plan->shape.nranks * (size_t)m->plan->lanes * sizeof *m->table);
    KOLO_TRY(find_receive_links(m, begin));
    KOLO_TRY(count_links(m));
    if (!order_alloc(m->order)) {
        return no_memory(m->plan);
    }
    number_messages(m);
    list_lanes(m->order);
    for (int i = 0; i < m->order->messages; i++) {
        KOLO_TRY(check_ends(m->order, m->link[m->order->link[i]].from, i));
    }
    return KOLO_OK;
}

kolo_status kolo_order_create(const struct kolo_plan *plan, struct kolo_order *out)
{
    KOLO_TRY(check_plan(plan));
    const size_t n = (size_t)plan->shape.nranks;
    struct kolo_order order = {.plan = plan};
    struct matcher m = {.order = &order, .plan = plan};
    order.base = malloc((n + 1) * sizeof *order.base);
    int *begin = calloc(n + 1, sizeof *begin);
    m.table = malloc(n * (size_t)plan->lanes * sizeof *m.table);
    kolo_status status = KOLO_OK;
    if (order.base != NULL) {
        for (int r = 0; r < plan->shape.nranks; r++) {
            order.base[r] = order.steps;
            order.steps += plan->rank[r].count;
        }
        order.base[n] = order.steps;
    }
    m.of_step = calloc((size_t)order.steps + 1, sizeof *m.of_step);
    if (order.base == NULL || begin == NULL || m.table == NULL || m.of_step == NULL) {
        status = no_memory(plan);
    } else {
        memset(m.table, 0xff, n * (size_t)plan->lanes * sizeof *m.table);
        status = match_messages(&m, begin);
    }
    free(begin);
    free(m.link);
    free(m.table);
    free(m.of_step);
    free(m.sorted);
    if (status != KOLO_OK) {
        kolo_order_destroy(&order);
        return status;
    }
    *out = order;
    return KOLO_OK;
}

void kolo_order_destroy(struct kolo_order *order)
{
    if (order != NULL) {
        free(order->block);
        free(order->base);
        order->block = order->base = NULL;
    }
}
