// SPDX-License-Identifier: Apache-2.0
/* Messages. Their ends match in order. The bytes may leave and arrive at any time between. */
#include "exec/proof/proof.h"

static struct kolo_proof_message *message_at(const struct kolo_proof *p, int32_t i)
{
    return (struct kolo_proof_message *)p->messages.at + i;
}

static int32_t *request(const struct kolo_turn *t, uint32_t index)
{
    const struct kolo_proof *p = t->proof;
    return &p->runner[t->rank].request[t->tile % KOLO_TILE_COPIES * p->max_reqs + index];
}

/* The message that this end belongs to: the oldest message with only the other end, or a new
 * one. */
static struct kolo_proof_message *post_end(const struct kolo_turn *t, const struct kolo_uop *op,
                                           bool sends)
{
    struct kolo_proof *p = t->proof;
    const int from = sends ? t->rank : op->peer, to = sends ? op->peer : t->rank;
    const size_t fifo = (size_t)(from * p->n + to) * KOLO_PLAN_CHANNELS + op->channel;
    struct kolo_proof_fifo *other = sends ? &p->recvs[fifo] : &p->sends[fifo];
    struct kolo_proof_fifo *mine = sends ? &p->sends[fifo] : &p->recvs[fifo];
    int32_t *const req = request(t, op->index);
    if (other->first >= 0) {
        *req = other->first;
        other->first = message_at(p, *req)->next;
        return message_at(p, *req);
    }
    struct kolo_proof_message *m = kolo_proof_append(&p->messages, sizeof *m);
    if (m == NULL) {
        return NULL;
    }
    *m = (struct kolo_proof_message){.from = from,
                                     .to = to,
                                     .count = op->count,
                                     .length = kolo_proof_length(t, op, 0),
                                     .next = -1};
    *req = (int32_t)p->messages.count - 1;
    if (mine->first < 0) {
        mine->first = *req;
    } else {
        message_at(p, mine->last)->next = *req;
    }
    mine->last = *req;
    return m;
}

static kolo_status check_post(const struct kolo_turn *t, const struct kolo_uop *op)
{
    const struct kolo_proof *p = t->proof;
    if (op->peer < 0 || op->peer >= p->n || op->peer == t->rank) {
        return kolo_proof_fail(t, "a message with rank %d", op->peer);
    }
    if (op->channel >= KOLO_PLAN_CHANNELS || op->index >= t->prog->nreqs ||
        (uint32_t)op->nsrc + op->ndst != 1) {
        return kolo_proof_fail(t, "channel %u, request %u, %u operands", op->channel, op->index,
                               op->nsrc + op->ndst);
    }
    if (kolo_proof_request_open(p, t->rank, *request(t, op->index))) {
        return kolo_proof_fail(t, "request %u is still open", op->index);
    }
    const unsigned space = kolo_proof_operand(t, 0)->space;
    if (op->count > 0 &&
        (space == KOLO_AT_OUTBOX || space == KOLO_AT_PEER_IN || space == KOLO_AT_PEER_OUT)) {
        return kolo_proof_fail(t, "a message in memory that is not the rank's own");
    }
    return KOLO_OK;
}

/* Check that the two ends of a message agree. */
static kolo_status check_ends(const struct kolo_turn *t, const struct kolo_uop *op,
                              const struct kolo_proof_message *m)
{
    const int32_t length = kolo_proof_length(t, op, 0);
    if (m->count != op->count || (op->count == 1 && m->length != length)) {
        return kolo_proof_fail(t,
                               "%u chunks (length of %d) where the other end, rank %d, has %u (%d)",
                               op->count, length, op->peer, m->count, m->length);
    }
    return KOLO_OK;
}

static kolo_status leave_from(const struct kolo_turn *t, uint32_t j, int32_t number)
{
    struct kolo_proof *p = t->proof;
    const struct kolo_uop *op = &t->prog->op[t->op];
    struct kolo_value value;
    uint32_t cell = 0;
    KOLO_TRY(kolo_proof_resolve(t, kolo_proof_operand(t, 0), j, false, &cell));
    KOLO_TRY(kolo_proof_load(t, cell, &value));
    KOLO_TRY(kolo_proof_fits(t, value.length, op->count == 1 ? kolo_proof_length(t, op, 0) : -1));
    struct kolo_value *copy = kolo_proof_append(&p->values, sizeof *copy);
    struct kolo_list_node *node = kolo_proof_append(&p->nodes, sizeof *node);
    if (copy == NULL || node == NULL) {
        return kolo_proof_no_memory();
    }
    *copy = value;
    *node = (struct kolo_list_node){number, p->cell[cell].leaving};
    p->cell[cell].leaving = (int32_t)p->nodes.count - 1;
    return KOLO_OK;
}

/* Both ends are posted. The message may arrive from now on, and not earlier. */
static kolo_status begin_arrival(struct kolo_proof *p, int32_t number)
{
    const struct kolo_proof_message *m = message_at(p, number);
    struct kolo_turn t = m->receiver;
    t.clock = p->joined;
    for (uint32_t i = 0; i < p->components; i++) {
        p->joined[i] = 0;
    }
    kolo_proof_join(p, p->joined, m->sent_clock);
    kolo_proof_join(p, p->joined, m->received_clock);
    for (uint32_t j = 0; j < m->count && !m->lent; j++) {
        KOLO_TRY(kolo_proof_claim(&t, m->target + j));
        p->cell[m->target + j].arriving = number;
    }
    return KOLO_OK;
}

kolo_status kolo_proof_send(const struct kolo_turn *t, const struct kolo_uop *op)
{
    struct kolo_proof *p = t->proof;
    KOLO_TRY(check_post(t, op));
    struct kolo_proof_message *m = post_end(t, op, true);
    if (m == NULL) {
        return kolo_proof_no_memory();
    }
    KOLO_TRY(check_ends(t, op, m));
    m->sent = true;
    m->value = p->values.count;
    m->sent_clock = kolo_proof_snapshot(p, t->clock);
    if (m->sent_clock == 0) {
        return kolo_proof_no_memory();
    }
    const int32_t number = *request(t, op->index);
    for (uint32_t j = 0; j < op->count; j++) {
        KOLO_TRY(leave_from(t, j, number));
    }
    return m->received != 0 ? begin_arrival(p, number) : KOLO_OK;
}

kolo_status kolo_proof_receive(const struct kolo_turn *t, const struct kolo_uop *op)
{
    struct kolo_proof *p = t->proof;
    KOLO_TRY(check_post(t, op));
    struct kolo_proof_message *m = post_end(t, op, false);
    if (m == NULL) {
        return kolo_proof_no_memory();
    }
    KOLO_TRY(check_ends(t, op, m));
    m->received = t->epoch + 1;
    m->receiver = *t;
    m->received_clock = kolo_proof_snapshot(p, t->clock);
    if (m->received_clock == 0) {
        return kolo_proof_no_memory();
    }
    for (uint32_t j = 0; j < op->count; j++) {
        uint32_t cell = 0;
        KOLO_TRY(kolo_proof_resolve(t, kolo_proof_operand(t, 0), j, true, &cell));
        m->target = j == 0 ? cell : m->target;
        if (op->lent) {
            KOLO_TRY(kolo_proof_claim(t, cell));
            p->cell[cell].arriving = *request(t, op->index);
        }
    }
    m->lent = op->lent;
    return m->sent ? begin_arrival(p, *request(t, op->index)) : KOLO_OK;
}

kolo_status kolo_proof_taken(const struct kolo_turn *t, const struct kolo_uop *op)
{
    struct kolo_proof *p = t->proof;
    for (uint32_t i = 0; i < op->nsrc; i++) {
        const uint32_t index = kolo_proof_operand(t, i)->index;
        const int32_t req = index < t->prog->nreqs ? *request(t, index) : -1;
        if (req < 0 || message_at(p, req)->to != t->rank ||
            message_at(p, req)->received != t->epoch + 1) {
            return kolo_proof_fail(t, "request %u is no receive of this tile", index);
        }
        if (!message_at(p, req)->sent) {
            return kolo_proof_must_wait(t, "a message", message_at(p, req)->from, index);
        }
    }
    for (uint32_t i = 0; i < op->nsrc; i++) {
        struct kolo_proof_message *m = message_at(p, *request(t, kolo_proof_operand(t, i)->index));
        if (m->taken.time != 0) {
            continue;
        }
        kolo_proof_join(p, t->clock, m->sent_clock);
        m->taken = kolo_proof_moment(t);
        for (uint32_t j = 0; j < m->count; j++) {
            kolo_proof_store(t, m->target + j, ((struct kolo_value *)p->values.at)[m->value + j]);
        }
    }
    return KOLO_OK;
}

/* Whether all sends of this lane in this tile are complete. `note`: the rank knows it now. */
kolo_status kolo_proof_sent(const struct kolo_turn *t, bool note)
{
    struct kolo_proof *p = t->proof;
    const struct kolo_lane_ops *ops = &t->prog->lane[t->lane];
    for (uint32_t i = ops->begin; t->prog->nreqs > 0 && i < ops->end; i++) {
        const struct kolo_uop *op = &t->prog->op[i];
        const int32_t req = op->code == KOLO_DO_SEND ? *request(t, op->index) : -1;
        if (!kolo_proof_request_open(p, t->rank, req)) {
            continue;
        }
        struct kolo_proof_message *m = message_at(p, req);
        if (m->received == 0) {
            return kolo_proof_must_wait(t, "a receive", m->to, op->index);
        }
        m->done = note ? kolo_proof_moment(t) : m->done;
    }
    return KOLO_OK;
}
