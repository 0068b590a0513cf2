// SPDX-License-Identifier: Apache-2.0
/* A lane: how it comes to life and ends, and its work requests.
 *
 * Work requests form a chain and are posted together. Every SIGNAL_EVERYth request reports its
 * completion, and so does each request that a message waits for. A failure is always reported. */
#include "transports/verbs/verbs.h"

#include <arpa/inet.h>
#include <stdio.h>

enum { SIGNAL_EVERY = 16, SPARE_SENDS = 4 };

static_assert((int)KOLO_VERBS_SLOTS / (int)KOLO_VERBS_CREDITS_DUE <= (int)KOLO_VERBS_NOTES,
              "credits find a receive");
static_assert((int)KOLO_VERBS_SLOTS > (int)SIGNAL_EVERY, "a slot's last write has told of its end");

/* ---- states ---- */

static void log_live(const struct kolo_verbs_lane *lane)
{
    const struct kolo_link *link = lane->link;
    const int rail = (int)(lane->rail - link->ep->rail);
    KOLO_LOG(INFO, NET, "NET/IB/%d : rank %d to %d, lane %d of %d over %s port %u (%s)%s", rail,
             link->ep->env.rank, link->base.peer.rank, lane->index, link->nlanes, lane->rail->name,
             lane->rail->port, lane->rail->self.ethernet ? "RoCE" : "InfiniBand",
             lane->epoch > 0 ? ", again" : "");
}

void kolo_verbs_lane_live(struct kolo_verbs_lane *lane)
{
    lane->state = KOLO_VERBS_LANE_LIVE;
    lane->link->nlive++;
    lane->link->lost_us = 0;
    log_live(lane);
    kolo_verbs_connected(lane->link);
    kolo_carrier_activate(&lane->link->base);
}

void kolo_verbs_lane_break(struct kolo_verbs_lane *lane, const char *what)
{
    struct kolo_link *link = lane->link;
    if (lane->state == KOLO_VERBS_LANE_BROKEN || lane->state == KOLO_VERBS_LANE_DOWN ||
        lane->state == KOLO_VERBS_LANE_NONE) {
        return;
    }
    if (lane->state == KOLO_VERBS_LANE_LIVE && --link->nlive == 0) {
        link->lost_us = kolo_now_us();
    }
    lane->state = KOLO_VERBS_LANE_BROKEN;
    lane->since_us = kolo_now_us();
    lane->nchain = 0;
    kolo_verbs_queue_pair_stop(lane);
    if (what != NULL && !link->base.bye && link->base.failed == KOLO_OK) {
        (void)snprintf(link->lost, sizeof link->lost, "%s port %u: %s", lane->rail->name,
                       lane->rail->port, what);
        KOLO_LOG(WARN, NET, "NET/IB/%d : rank %d to %d, lane %d of %d over %s",
                 (int)(lane->rail - link->ep->rail), link->ep->env.rank, link->base.peer.rank,
                 lane->index, link->nlanes, link->lost);
        lane->rail->asked_us = 0;
    }
    kolo_carrier_activate(&link->base);
}

/* ---- out ---- */

/* Whether an entry and `more` further work requests may go now. */
static bool has_room(const struct kolo_verbs_lane *lane, uint32_t more)
{
    const uint32_t last = lane->slot_posted[lane->sent % KOLO_VERBS_SLOTS];
    return lane->state == KOLO_VERBS_LANE_LIVE && lane->sent - lane->credited < KOLO_VERBS_SLOTS &&
           lane->posted - lane->retired + 1 + more <= KOLO_VERBS_SENDS - SPARE_SENDS &&
           (lane->sent < KOLO_VERBS_SLOTS || (int32_t)(lane->retired - last) >= 0);
}

struct kolo_verbs_lane *kolo_verbs_lane_choose(struct kolo_link *link, uint32_t more)
{
    struct kolo_verbs_lane *best = NULL;
    double least = 0;
    for (int i = 0; i < link->nlanes; i++) {
        struct kolo_verbs_lane *lane = &link->lane[i];
        const double busy = (double)lane->flying_bytes / lane->rail->self.speed_mbps;
        if (has_room(lane, more) && (best == NULL || busy < least)) {
            best = lane;
            least = busy;
        }
    }
    return best;
}

static void post_chain(struct kolo_verbs_lane *lane)
{
    struct ibv_send_wr *bad = NULL;
    char what[64];
    if (lane->nchain == 0) {
        return;
    }
    for (int i = 0; i + 1 < lane->nchain; i++) {
        lane->wr[i].next = &lane->wr[i + 1];
    }
    lane->nchain = 0;
    const int failed = ibv_post_send(lane->qp, &lane->wr[0], &bad);
    if (failed != 0) {
        (void)snprintf(what, sizeof what, "nothing can be posted: %s", kolo_why(failed));
        kolo_verbs_lane_break(lane, what);
    }
}

static struct ibv_send_wr *next_request(struct kolo_verbs_lane *lane, bool tells)
{
    if (lane->nchain == KOLO_VERBS_CHAIN) {
        post_chain(lane);
    }
    struct ibv_send_wr *wr = &lane->wr[lane->nchain];
    lane->posted++;
    tells = tells || lane->posted - lane->signaled >= SIGNAL_EVERY;
    lane->signaled = tells ? lane->posted : lane->signaled;
    *wr = (struct ibv_send_wr){.wr_id = (uint64_t)lane->id << 32 | lane->posted,
                               .sg_list = &lane->sge[lane->nchain],
                               .num_sge = 1,
                               .send_flags = tells ? IBV_SEND_SIGNALED : 0};
    lane->nchain++;
    return wr;
}

static uint32_t make_value(struct kolo_verbs_lane *lane)
{
    const uint32_t before = lane->sent & KOLO_VERBS_COUNTED;
    lane->told = lane->taken;
    return (lane->taken & KOLO_VERBS_COUNTED) | before << KOLO_VERBS_BEFORE;
}

char *kolo_verbs_lane_slot(const struct kolo_verbs_lane *lane)
{
    return lane->out + (size_t)(lane->sent % KOLO_VERBS_SLOTS) * KOLO_VERBS_SLOT;
}

void kolo_verbs_lane_send(struct kolo_verbs_lane *lane, uint32_t bytes, bool tells)
{
    const uint32_t slot = lane->sent % KOLO_VERBS_SLOTS;
    struct ibv_send_wr *wr = next_request(lane, tells);
    *wr->sg_list = (struct ibv_sge){(uintptr_t)kolo_verbs_lane_slot(lane), bytes, lane->ring->lkey};
    wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr->send_flags |= bytes <= lane->max_inline ? IBV_SEND_INLINE : 0;
    wr->imm_data = htonl(make_value(lane));
    wr->wr.rdma.remote_addr = lane->offer.ring + (uint64_t)slot * KOLO_VERBS_SLOT;
    wr->wr.rdma.rkey = lane->offer.rkey;
    lane->slot_posted[slot] = lane->posted;
    lane->sent++;
}

void kolo_verbs_lane_write(struct kolo_verbs_lane *lane, const void *from, uint32_t len,
                           uint32_t lkey, uint64_t to, uint32_t rkey)
{
    struct ibv_send_wr *wr = next_request(lane, false);
    *wr->sg_list = (struct ibv_sge){(uintptr_t)from, len, lkey};
    wr->opcode = IBV_WR_RDMA_WRITE;
    wr->wr.rdma.remote_addr = to;
    wr->wr.rdma.rkey = rkey;
}

static void send_credits(struct kolo_verbs_lane *lane, bool tells)
{
    struct ibv_send_wr *wr = next_request(lane, tells);
    wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr->num_sge = 0;
    wr->imm_data = htonl(KOLO_VERBS_ALONE | make_value(lane));
    wr->wr.rdma.remote_addr = lane->offer.ring;
    wr->wr.rdma.rkey = lane->offer.rkey;
}

void kolo_verbs_lane_try(struct kolo_verbs_lane *lane)
{
    send_credits(lane, true);
    post_chain(lane);
}

bool kolo_verbs_lane_fill(struct kolo_verbs_lane *lane)
{
    struct ibv_recv_wr wr[KOLO_VERBS_RECVS], *bad = NULL;
    const int missing = KOLO_VERBS_RECVS - lane->recvs;
    if (missing < KOLO_VERBS_BATCH) {
        return true;
    }
    for (int i = 0; i < missing; i++) {
        wr[i] = (struct ibv_recv_wr){.wr_id = (uint64_t)(lane->id | KOLO_VERBS_RECEIVE) << 32,
                                     .next = i + 1 < missing ? &wr[i + 1] : NULL};
    }
    lane->recvs = KOLO_VERBS_RECVS;
    return ibv_post_recv(lane->qp, wr, &bad) == 0;
}

void kolo_verbs_lane_flush(struct kolo_verbs_lane *lane)
{
    if (lane->state == KOLO_VERBS_LANE_LIVE && lane->taken - lane->told >= KOLO_VERBS_CREDITS_DUE &&
        lane->posted - lane->retired < KOLO_VERBS_SENDS) {
        send_credits(lane, false);
    }
    post_chain(lane);
    if (lane->state == KOLO_VERBS_LANE_LIVE && !kolo_verbs_lane_fill(lane)) {
        kolo_verbs_lane_break(lane, "no receive can be posted");
    }
}

bool kolo_verbs_lane_is_quiet(struct kolo_verbs_lane *lane)
{
    if (lane->state != KOLO_VERBS_LANE_LIVE || lane->retired == lane->posted) {
        return true;
    }
    if (lane->signaled != lane->posted && lane->posted - lane->retired < KOLO_VERBS_SENDS) {
        send_credits(lane, true);
        post_chain(lane);
    }
    return false;
}
