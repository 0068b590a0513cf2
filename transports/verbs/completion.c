// SPDX-License-Identifier: Apache-2.0
/* Completions: the work that a device has done, and the entries that it has put into the slots. */
#include "transports/verbs/verbs.h"

#include <arpa/inet.h>
#include <stdio.h>

enum { POLLED = 16 };

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
            kolo_verbs_message_flown(lane->link, f);
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
    const uint32_t more = (value - lane->credited) & KOLO_VERBS_COUNTED;
    if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM || more > lane->sent - lane->credited) {
        return false;
    }
    lane->credited += more;
    return (value & KOLO_VERBS_ALONE) != 0 || take_entry(lane, wc);
}

static void complete_work(struct kolo_verbs_lane *lane, const struct ibv_wc *wc)
{
    struct kolo_link *link = lane->link;
    const bool receive = ((wc->wr_id >> 32) & KOLO_VERBS_RECEIVE) != 0;
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
    const uint32_t id = (uint32_t)(wc->wr_id >> 32) & ~KOLO_VERBS_RECEIVE;
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
