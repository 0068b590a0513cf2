// SPDX-License-Identifier: Apache-2.0
/* Completions: the work that a device has done, and the entries that it has put into the slots. */
#include "transports/verbs/verbs.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

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
        kolo_verbs_message_flown(lane->link, f);
    }
}

/* False: the entry is invalid. */
static bool take_entry(struct kolo_verbs_lane *lane, const struct ibv_wc *wc)
{
    const char *slot = lane->in + (size_t)(lane->taken % KOLO_VERBS_SLOTS) * KOLO_VERBS_SLOT;
    struct kolo_verbs_entry entry;
    char brief[KOLO_VERBS_BRIEF];
    const char *payload = kolo_verbs_entry_read(slot, wc->byte_len, &entry);
    lane->taken++;
    if (payload != NULL && entry.zeros > 0) {
        memcpy(brief, payload, entry.len);
        memset(brief + entry.len, 0, entry.zeros);
        entry.len = (uint16_t)(entry.len + entry.zeros);
        payload = brief;
    }
    return payload != NULL && kolo_verbs_message_arrives(lane->link, &entry, payload);
}

/* An entry that cannot be: a fault of kolo, or of a device. The text has what there is. */
static void fail_invalid(struct kolo_verbs_lane *lane, const struct ibv_wc *wc)
{
    const uint32_t n = lane->taken - 1, value = ntohl(wc->imm_data);
    const char *slot = lane->in + (size_t)(n % KOLO_VERBS_SLOTS) * KOLO_VERBS_SLOT;
    struct kolo_verbs_head head;
    struct kolo_verbs_entry e;
    char what[300];
    memcpy(&head, slot, sizeof head);
    (void)kolo_verbs_entry_read(slot, wc->byte_len, &e);
    (void)snprintf(
        what, sizeof what,
        "sent an invalid message over %s port %u (lane %d, epoch %u, entry %u, %u bytes, "
        "value %#x, %u of %u sent taken: kind %#x of channel %u, number %u, offset %llu, "
        "%u bytes and %u zeros of %llu)",
        lane->rail->name, lane->rail->port, lane->index, lane->epoch, n, wc->byte_len, value,
        lane->credited, lane->sent, head.kind, e.channel, e.number, (unsigned long long)e.offset,
        e.len, e.zeros, (unsigned long long)e.total);
    kolo_verbs_fail(lane->link, what, 0, false);
}

/* The device has repeated a value, or lost one. Nothing that it says of this queue pair can be
 * relied on: the lane starts anew, and the peer sends again what was not taken. */
static void break_order(struct kolo_verbs_lane *lane, uint32_t value)
{
    char what[160];
    (void)snprintf(what, sizeof what,
                   "the device repeats or skips entries (entry %u is due, value %#x came, %u of %u "
                   "sent are taken)",
                   lane->taken, value, lane->credited, lane->sent);
    kolo_verbs_lane_break(lane, what);
}

static void take_value(struct kolo_verbs_lane *lane, const struct ibv_wc *wc)
{
    const uint32_t value = ntohl(wc->imm_data);
    const uint32_t more = (value - lane->credited) & KOLO_VERBS_COUNTED;
    const uint32_t ahead = ((value >> KOLO_VERBS_BEFORE) - lane->taken) & KOLO_VERBS_COUNTED;
    if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM || ahead != 0 ||
        more > lane->sent - lane->credited) {
        break_order(lane, value);
        return;
    }
    lane->credited += more;
    if ((value & KOLO_VERBS_ALONE) == 0 && !take_entry(lane, wc)) {
        fail_invalid(lane, wc);
    }
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
    } else if (link->base.failed == KOLO_OK) {
        take_value(lane, wc);
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
