// SPDX-License-Identifier: Apache-2.0
/* Work requests of a lane: posting, completions and credits.
 *
 * Work requests form a chain and are posted together. Every SIGNAL_EVERYth request reports its
 * completion, and so does each request that a message waits for. A failure is always reported.
 *
 * An immediate value is the number of entries taken from the other direction, modulo 2^31. Its
 * highest bit says that no entry comes with it. */
#include "transports/verbs/verbs.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIGNAL_EVERY = 16, POLLED = 16, SPARE_SENDS = 4, CREDITS_DUE = KOLO_VERBS_SLOTS / 4 };
#define ALONE   (UINT32_C(1) << 31)
#define COUNTED (ALONE - 1)
#define RECEIVE (UINT32_C(1) << 31) /* in the upper half of wr_id */

static_assert((int)KOLO_VERBS_SLOTS / (int)CREDITS_DUE <= (int)KOLO_VERBS_NOTES,
              "credits find a receive");
static_assert((int)KOLO_VERBS_SLOTS > (int)SIGNAL_EVERY, "a slot's last write has told of its end");

/* ---- out ---- */

bool kolo_verbs_lane_has_room(const struct kolo_verbs_lane *lane, uint32_t more)
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
        if (kolo_verbs_lane_has_room(lane, more) && (best == NULL || busy < least)) {
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

static uint32_t take_credits(struct kolo_verbs_lane *lane)
{
    lane->told = lane->taken;
    return lane->taken & COUNTED;
}

struct kolo_verbs_entry *kolo_verbs_lane_entry(struct kolo_verbs_lane *lane)
{
    void *slot = lane->out + (size_t)(lane->sent % KOLO_VERBS_SLOTS) * KOLO_VERBS_SLOT;
    return slot;
}

void kolo_verbs_lane_send(struct kolo_verbs_lane *lane, uint32_t len)
{
    const struct kolo_verbs_entry *entry = kolo_verbs_lane_entry(lane);
    const uint32_t bytes = (uint32_t)sizeof *entry + len, slot = lane->sent % KOLO_VERBS_SLOTS;
    struct ibv_send_wr *wr = next_request(lane, entry->kind == KOLO_VERBS_PLACED);
    *wr->sg_list = (struct ibv_sge){(uintptr_t)entry, bytes, lane->ring->lkey};
    wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    wr->send_flags |= bytes <= lane->max_inline ? IBV_SEND_INLINE : 0;
    wr->imm_data = htonl(take_credits(lane));
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
    wr->imm_data = htonl(ALONE | take_credits(lane));
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
        wr[i] = (struct ibv_recv_wr){.wr_id = (uint64_t)(lane->id | RECEIVE) << 32,
                                     .next = i + 1 < missing ? &wr[i + 1] : NULL};
    }
    lane->recvs = KOLO_VERBS_RECVS;
    return ibv_post_recv(lane->qp, wr, &bad) == 0;
}

void kolo_verbs_lane_flush(struct kolo_verbs_lane *lane)
{
    if (lane->state == KOLO_VERBS_LANE_LIVE && lane->taken - lane->told >= CREDITS_DUE &&
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

/* ---- completions ---- */

static void retire_work(struct kolo_verbs_lane *lane, uint32_t upto)
{
    lane->retired = upto;
    while (lane->first_flight != lane->next_flight) {
        struct kolo_verbs_flight *f = &lane->flight[lane->first_flight % KOLO_VERBS_SENDS];
        if ((int32_t)(upto - f->posted) < 0) {
            break;
        }
        lane->first_flight++;
        lane->flying_bytes -= f->len;
        if (f->message != NULL) {
            kolo_verbs_pump_flown(lane->link, f);
        }
    }
}

/* False: the entry is invalid. */
static bool take_entry(struct kolo_verbs_lane *lane, const struct ibv_wc *wc)
{
    const char *slot = lane->in + (size_t)(lane->taken % KOLO_VERBS_SLOTS) * KOLO_VERBS_SLOT;
    struct kolo_verbs_entry entry; /* a copy: the peer can write to the slot at any time */
    memcpy(&entry, slot, sizeof entry);
    lane->taken++;
    return wc->byte_len >= sizeof entry && entry.len == wc->byte_len - sizeof entry &&
           entry.len <= KOLO_VERBS_PIECE &&
           kolo_verbs_message_arrives(lane->link, &entry, slot + sizeof entry);
}

static bool take_value(struct kolo_verbs_lane *lane, const struct ibv_wc *wc)
{
    const uint32_t value = ntohl(wc->imm_data);
    const uint32_t more = (value - lane->credited) & COUNTED;
    if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM || more > lane->sent - lane->credited) {
        return false;
    }
    lane->credited += more;
    return (value & ALONE) != 0 || take_entry(lane, wc);
}

static void complete_work(struct kolo_verbs_lane *lane, const struct ibv_wc *wc)
{
    struct kolo_link *link = lane->link;
    const bool receive = ((wc->wr_id >> 32) & RECEIVE) != 0;
    lane->recvs -= receive;
    if (wc->status != IBV_WC_SUCCESS) {
        if (lane->state != KOLO_VERBS_LANE_BROKEN) {
            char what[160];
            (void)snprintf(what, sizeof what, "%s (status %d, vendor's %#x)",
                           link->ep->lib->wc_status_str(wc->status), (int)wc->status,
                           wc->vendor_err);
            kolo_verbs_lane_break(lane, what);
        }
    } else if (!receive) {
        retire_work(lane, (uint32_t)wc->wr_id);
        if (lane->state == KOLO_VERBS_LANE_TRIED) {
            kolo_verbs_lane_live(lane);
        }
    } else if (lane->state == KOLO_VERBS_LANE_DOWN) { /* our DOWN did not count this entry */
        return;
    } else if (link->base.failed == KOLO_OK && !take_value(lane, wc)) {
        kolo_verbs_fail(link, "sent an invalid message", 0, false);
    }
    kolo_carrier_activate(&link->base);
}

/* The lane of a completion. NULL: its queue pair is gone. */
static struct kolo_verbs_lane *lane_of(const struct kolo_endpoint *ep, const struct ibv_wc *wc)
{
    const uint32_t id = (uint32_t)(wc->wr_id >> 32) & ~RECEIVE;
    const int index = (int)(id & 0xffff);
    struct kolo_verbs_lane *lane = index < ep->nlane ? ep->lane[index] : NULL;
    return lane != NULL && lane->id == id && lane->qp != NULL ? lane : NULL;
}

void kolo_verbs_lanes_wake(struct kolo_verbs_rail *rail)
{
    struct ibv_cq *cq = NULL;
    void *own = NULL;
    if (rail->lib->get_cq_event(rail->channel, &cq, &own) == 0) {
        rail->lib->ack_cq_events(cq, 1);
        rail->armed = false;
    }
}

int kolo_verbs_lanes_poll(struct kolo_endpoint *ep)
{
    struct ibv_wc wc[POLLED];
    int all = 0;
    for (int r = 0; r < ep->nrails; r++) {
        struct kolo_verbs_rail *rail = &ep->rail[r];
        const int n = ibv_poll_cq(rail->cq, POLLED, wc);
        for (int i = 0; i < n; i++) {
            struct kolo_verbs_lane *lane = lane_of(ep, &wc[i]);
            if (lane != NULL) {
                complete_work(lane, &wc[i]);
            }
        }
        if (rail->armed && n > 0) {
            kolo_verbs_lanes_wake(rail);
        }
        all += n > 0 ? n : 0;
    }
    return all;
}
