// SPDX-License-Identifier: Apache-2.0
/* Messages between hosts. A message waits for the one before on its connection, and for its turn at
 * the NIC; then it is a flow, which begins while the sender's core still gives its bytes. When both
 * have ended, its last byte has left. */
#include "sim/cost.h"

#include <math.h>
#include <stdlib.h>

enum { NEW, HAS_TURN }; /* a message that leaves: its rank, or the NIC's queue */

/* Links: out and in of each NIC, then up and down of each leaf switch. */
static int nic_of(const struct kolo_sim *s, int rank)
{
    return kolo_sim_nic_of(&s->place, kolo_sim_stand_in(s, rank));
}

static int count_nics(const struct kolo_sim *s)
{
    return (kolo_sim_host_of(&s->place, s->n - 1) + 1) * s->machine->rails;
}

static double nic_us(const struct kolo_sim *s, int nic)
{
    const struct kolo_sim_machine *m = s->machine;
    return s->costs->net.copy_us_per_byte * (nic == m->slow_nic ? m->slow_nic_factor : 1);
}

static int leaf_of(const struct kolo_sim *s, int rank)
{
    return kolo_sim_leaf_of(&s->place, kolo_sim_stand_in(s, rank));
}

static bool is_across(const struct kolo_sim *s, int from, int to)
{
    return kolo_sim_leaf_of(&s->place, from) != kolo_sim_leaf_of(&s->place, to);
}

bool kolo_sim_wire_open(struct kolo_sim *s)
{
    const int nics = count_nics(s), leaves = leaf_of(s, s->n - 1) + 1;
    if (!kolo_sim_flows_open(&s->flows, 2 * (nics + leaves))) {
        return false;
    }
    for (int i = 0; i < s->flows.nlinks; i++) {
        const double us = i < 2 * nics ? nic_us(s, i / 2) : s->machine->uplink_us_per_byte;
        s->flows.link[i].rate = us > 0 ? 1 / us : 0;
    }
    s->unused = -1;
    s->nnics = nics;
    s->nic = calloc((size_t)nics, sizeof *s->nic);
    for (int i = 0; s->nic != NULL && i < nics; i++) {
        s->nic[i].first = s->nic[i].last = -1;
    }
    return s->nic != NULL;
}

double kolo_sim_wire_latency(const struct kolo_sim *s, int from, int to, uint64_t bytes)
{
    const struct kolo_sim_machine *m = s->machine;
    const double part = bytes < m->net_ramp_bytes ? (double)bytes / (double)m->net_ramp_bytes : 1;
    return s->costs->net.latency_us + part * m->net_ramp_us +
           (is_across(s, from, to) ? m->switch_latency_us : 0);
}

double kolo_sim_wire_alone(const struct kolo_sim *s, int from, int to, uint64_t bytes)
{
    const bool across = is_across(s, from, to);
    const double out = nic_us(s, nic_of(s, from)), in = nic_us(s, nic_of(s, to));
    const double nic = out > in ? out : in, up = s->machine->uplink_us_per_byte;
    return (double)bytes * (across && up > nic ? up : nic);
}

double kolo_sim_posted_us(const struct kolo_sim *s, int from, int to, uint64_t bytes)
{
    const double least = s->costs->net_rendezvous_bytes;
    return least > 0 && (double)bytes >= least ? 2 * kolo_sim_wire_latency(s, from, to, bytes) +
                                                     kolo_sim_wire_alone(s, from, to, bytes)
                                               : 0;
}

static int take_message(struct kolo_sim *s)
{
    if (s->unused >= 0) {
        const int number = s->unused;
        s->unused = s->message[number].next;
        return number;
    }
    struct kolo_sim_message *grown =
        kolo_grow(s->message, s->nmessages, &s->message_cap, sizeof *grown);
    if (grown == NULL) {
        s->failed = true;
        return -1;
    }
    s->message = grown;
    return s->nmessages++;
}

void kolo_sim_wire_send(struct kolo_sim *s, int rank, const struct kolo_sim_op *op, uint32_t tile,
                        double first_us, double copied_us)
{
    const int number = take_message(s);
    if (number < 0) {
        return;
    }
    s->message[number] =
        (struct kolo_sim_message){.from = rank,
                                  .to = kolo_sim_partner(s, rank, op->peer),
                                  .request = op->index,
                                  .tile = tile,
                                  .bytes = (double)kolo_sim_op_bytes(s, op, tile),
                                  .copied_us = copied_us,
                                  .connection = s->set.member[rank].peer + (uint32_t)op->peer,
                                  .next = -1,
                                  .behind = -1,
                                  .flow = -1};
    if (!kolo_sim_events_add(&s->events, fmax(first_us, s->now_us), KOLO_SIM_LEAVE, number, NEW)) {
        s->failed = true;
    }
}

static void begin_flow(struct kolo_sim *s, int number)
{
    struct kolo_sim_message *m = &s->message[number];
    const int out = nic_of(s, m->from), in = nic_of(s, m->to);
    const int up = leaf_of(s, m->from), down = leaf_of(s, m->to);
    const int leaves = 2 * s->nnics;
    const bool across = is_across(s, m->from, m->to);
    const int link[KOLO_SIM_FLOW_LINKS] = {2 * out, 2 * in + 1, across ? leaves + 2 * up : -1,
                                           across ? leaves + 2 * down + 1 : -1};
    m->flow = kolo_sim_flow_begin(&s->flows, link, m->bytes, s->now_us);
    if (m->flow >= 0) {
        s->flows.flow[m->flow].message = number;
    }
    s->failed = s->failed || m->flow < 0;
}

/* The NIC takes a message up: not before its gap after the last. */
static void take_up(struct kolo_sim *s, struct kolo_sim_nic *nic, int number)
{
    const double turn_us = nic->free_us > s->now_us ? nic->free_us : s->now_us;
    nic->working++;
    nic->free_us = turn_us + s->machine->net_gap_us;
    if (turn_us <= s->now_us) {
        begin_flow(s, number);
    } else if (!kolo_sim_events_add(&s->events, turn_us, KOLO_SIM_LEAVE, number, HAS_TURN)) {
        s->failed = true;
    }
}

static void enter_nic(struct kolo_sim *s, int number)
{
    struct kolo_sim_nic *nic = &s->nic[nic_of(s, s->message[number].from)];
    if (nic->working < KOLO_SIM_NIC_MESSAGES) {
        take_up(s, nic, number);
        return;
    }
    if (nic->first < 0) {
        nic->first = number;
    } else {
        s->message[nic->last].behind = number;
    }
    nic->last = number;
}

static void leave_nic(struct kolo_sim *s, int rank)
{
    struct kolo_sim_nic *nic = &s->nic[nic_of(s, rank)];
    const int number = nic->first;
    nic->working--;
    if (number >= 0) {
        nic->first = s->message[number].behind;
        take_up(s, nic, number);
    }
}

void kolo_sim_wire_leave(struct kolo_sim *s, const struct kolo_sim_event *event)
{
    const int message = event->number;
    if (event->version == HAS_TURN) {
        begin_flow(s, message);
        return;
    }
    int *newest = &s->connection[s->message[message].connection];
    const int before = *newest;
    *newest = message;
    if (before >= 0) {
        s->message[before].next = message;
    } else {
        enter_nic(s, message);
    }
}

void kolo_sim_wire_end(struct kolo_sim *s, const struct kolo_sim_event *event)
{
    const struct kolo_sim_flow *f = &s->flows.flow[event->number];
    if (f->version != event->version) {
        return; /* its rate changed since */
    }
    const int number = f->message;
    const struct kolo_sim_message m = s->message[number];
    kolo_sim_flow_end(&s->flows, event->number);
    leave_nic(s, m.from);
    s->message[number].next = s->unused;
    s->unused = number;
    if (m.next >= 0) {
        enter_nic(s, m.next);
    } else {
        s->connection[m.connection] = -1;
    }
    const size_t fact = kolo_sim_sent_fact(s, m.from, m.tile, m.request);
    kolo_sim_tell(s, m.from, fact, fmax(event->us, m.copied_us), s->by != NULL ? s->by[fact] : -1);
}

static void add_end(void *ctx, int flow)
{
    struct kolo_sim *s = ctx;
    const struct kolo_sim_flow *f = &s->flows.flow[flow];
    if (!kolo_sim_events_add(&s->events, f->end_us, KOLO_SIM_END, flow, f->version)) {
        s->failed = true;
    }
}

void kolo_sim_wire_settle(struct kolo_sim *s)
{
    kolo_sim_flows_settle(&s->flows, s->now_us, add_end, s);
    s->failed = s->failed || s->flows.failed;
}
