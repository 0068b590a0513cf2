// SPDX-License-Identifier: Apache-2.0
/* How lanes come up, fail, and come back.
 *
 * Each end creates its queue pair, fills its receive queue and sends OFFER. The peer's offer makes
 * the queue pair ready, and the end sends UP. After UP of both ends an immediate value goes alone.
 * After its arrival entries go.
 *
 * A lane that fails at one end is ended at both. Each end stops its queue pair, handles the entries
 * that had come, destroys the queue pair, and sends DOWN with the count of entries that it has taken.
 * The entries that the peer did not take go again over other lanes, with the same bytes. Chunks are
 * written in place again, which changes nothing if they had come. So a message is seen once, and
 * never before its bytes. No write of the old queue pair comes later: a device may still be at one
 * when it stops a queue pair, but not when it has destroyed it. The lane starts anew when its port is
 * active. */
#include "transports/verbs/verbs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { DRAIN_US = 100 * 1000, BACK_MOST_US = 1000 * 1000, LOST_MS = 20 * 1000 };
enum { RING_BYTES = KOLO_VERBS_SLOTS * KOLO_VERBS_SLOT };
enum { CQ_EACH = KOLO_VERBS_SENDS + KOLO_VERBS_RECVS };

/* ---- names in wr_id ---- */

static kolo_status give_id(struct kolo_verbs_lane *lane)
{
    struct kolo_endpoint *ep = lane->link->ep;
    int index = 0;
    while (index < ep->nlane && ep->lane[index] != NULL) {
        index++;
    }
    if (index == ep->lane_cap) {
        const int cap = ep->lane_cap == 0 ? 16 : 2 * ep->lane_cap;
        struct kolo_verbs_lane **grown = realloc(ep->lane, (size_t)cap * sizeof *grown);
        ep->lane = grown != NULL ? grown : ep->lane;
        uint32_t *use = grown != NULL ? realloc(ep->lane_use, (size_t)cap * sizeof *use) : NULL;
        ep->lane_use = use != NULL ? use : ep->lane_use;
        if (use == NULL || cap > 1 << 16) {
            return kolo_fail(KOLO_ERR_SYSTEM, "verbs: out of memory for %d lanes", cap);
        }
        memset(use + ep->lane_cap, 0, (size_t)(cap - ep->lane_cap) * sizeof *use);
        ep->lane_cap = cap;
    }
    ep->nlane = index == ep->nlane ? index + 1 : ep->nlane;
    ep->lane[index] = lane;
    lane->id = (++ep->lane_use[index] & 0x7fff) << 16 | (uint32_t)index;
    return KOLO_OK;
}

/* Give the lane a new id, so that completions of the old queue pair are ignored. */
static void change_id(struct kolo_verbs_lane *lane)
{
    const uint32_t index = lane->id & 0xffff;
    lane->id = (++lane->link->ep->lane_use[index] & 0x7fff) << 16 | index;
}

/* ---- opening ---- */

static void send_offer(struct kolo_verbs_lane *lane)
{
    const struct kolo_verbs_word word = {.kind = KOLO_VERBS_OFFER,
                                         .lane = (uint8_t)lane->index,
                                         .rail = (uint8_t)(lane->rail - lane->link->ep->rail),
                                         .mtu = lane->rail->self.mtu,
                                         .epoch = lane->epoch,
                                         .qpn = lane->qp->qp_num,
                                         .psn = lane->psn,
                                         .ring = (uintptr_t)lane->in,
                                         .rkey = lane->ring->rkey};
    kolo_verbs_control_say(lane->link, &word);
}

static void meet_offer(struct kolo_verbs_lane *lane);

/* Start the lane with a new queue pair and all counts at zero. */
static kolo_status start_lane(struct kolo_verbs_lane *lane)
{
    uint32_t psn = 0;
    KOLO_TRY(kolo_verbs_queue_pair_create(lane));
    KOLO_TRY(kolo_random(&psn, sizeof psn));
    lane->psn = psn & 0xffffff;
    lane->posted = lane->retired = lane->signaled = lane->sent = lane->credited = 0;
    lane->taken = lane->told = 0;
    lane->recvs = lane->nchain = 0;
    lane->peer_up = lane->peer_down = false;
    lane->state = KOLO_VERBS_LANE_OFFERED;
    if (!kolo_verbs_lane_fill(lane)) {
        return kolo_fail(KOLO_ERR_SYSTEM, "verbs: %s port %u takes no receive", lane->rail->name,
                         lane->rail->port);
    }
    send_offer(lane);
    meet_offer(lane);
    return KOLO_OK;
}

/* Make room in the completion queue for all completions of the lane. */
static kolo_status reserve_cq(struct kolo_verbs_rail *rail)
{
    const int need = rail->cq_used + CQ_EACH;
    if (need > rail->cq_size) {
        const int size = need > 2 * rail->cq_size ? need : 2 * rail->cq_size;
        const int failed = rail->lib->resize_cq(rail->cq, size);
        if (failed != 0) {
            return kolo_fail(KOLO_ERR_SYSTEM,
                             "verbs: %s port %u gives no completion queue of %d entries: %s",
                             rail->name, rail->port, size, kolo_why(failed));
        }
        rail->cq_size = size;
    }
    rail->cq_used = need;
    return KOLO_OK;
}

/* The ring is shared memory: after a fork, a private page would be copied, and the device would
 * keep the old one. */
static kolo_status make_ring(struct kolo_verbs_lane *lane)
{
    const struct kolo_verbs_rail *rail = lane->rail;
    void *ring = mmap(NULL, 2 * (size_t)RING_BYTES, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (ring == MAP_FAILED) {
        return kolo_fail(KOLO_ERR_SYSTEM, "verbs: a ring of %d bytes: %s", 2 * RING_BYTES,
                         kolo_why(errno));
    }
    lane->in = ring;
    lane->out = lane->in + RING_BYTES;
    errno = 0;
    lane->ring = rail->lib->reg_mr(rail->pd, ring, 2 * (size_t)RING_BYTES,
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    return lane->ring != NULL ? KOLO_OK
                              : kolo_verbs_memory_refused(rail, 2 * (size_t)RING_BYTES, errno);
}

static kolo_status open_lane(struct kolo_verbs_lane *lane)
{
    KOLO_TRY(give_id(lane));
    KOLO_TRY(reserve_cq(lane->rail));
    lane->cq_entries = CQ_EACH;
    KOLO_TRY(make_ring(lane));
    return start_lane(lane);
}

kolo_status kolo_verbs_lanes_open(struct kolo_link *link, int pair[KOLO_VERBS_LANES][2], int count)
{
    struct kolo_endpoint *ep = link->ep;
    link->lane = calloc((size_t)count, sizeof *link->lane);
    if (link->lane == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "verbs: out of memory for lanes to rank %d",
                         link->base.peer.rank);
    }
    link->nlanes = count;
    for (int i = 0; i < count; i++) {
        struct kolo_verbs_lane *lane = &link->lane[i];
        lane->link = link;
        lane->index = i;
        lane->rail = &ep->rail[pair[i][0]];
        lane->peer_rail = pair[i][1];
        KOLO_TRY(open_lane(lane));
    }
    return KOLO_OK;
}

/* ---- connecting ---- */

static void send_word(struct kolo_verbs_lane *lane, enum kolo_verbs_word_kind kind, uint64_t value)
{
    const struct kolo_verbs_word word = {
        .kind = (uint8_t)kind, .lane = (uint8_t)lane->index, .epoch = lane->epoch, .value = value};
    kolo_verbs_control_say(lane->link, &word);
}

/* Try the lane: both ends are ready, but the two ports may still not reach each other. */
static void try_out(struct kolo_verbs_lane *lane)
{
    if (lane->state == KOLO_VERBS_LANE_READY && lane->peer_up) {
        lane->state = KOLO_VERBS_LANE_TRIED;
        kolo_verbs_lane_try(lane);
    }
}

/* Connect the lane once both offers are there. */
static void meet_offer(struct kolo_verbs_lane *lane)
{
    if (lane->state != KOLO_VERBS_LANE_OFFERED || !lane->offered) {
        return;
    }
    if (kolo_verbs_queue_pair_connect(lane) != KOLO_OK) {
        lane->state = KOLO_VERBS_LANE_READY;
        kolo_verbs_lane_break(lane, kolo_error_text());
        return;
    }
    lane->state = KOLO_VERBS_LANE_READY;
    send_word(lane, KOLO_VERBS_UP, 0);
    try_out(lane);
}

static void settle_entries(struct kolo_verbs_lane *lane);

bool kolo_verbs_lane_hear(struct kolo_link *link, const struct kolo_verbs_word *word)
{
    if (word->lane >= link->nlanes) {
        return false;
    }
    struct kolo_verbs_lane *lane = &link->lane[word->lane];
    if (word->epoch != lane->epoch) {
        return false;
    }
    switch (word->kind) {
    case KOLO_VERBS_OFFER:
        if (lane->offered || word->rail != lane->peer_rail || word->qpn > 0xffffff ||
            word->psn > 0xffffff || word->mtu < IBV_MTU_256 || word->mtu > IBV_MTU_4096) {
            return false;
        }
        lane->offered = true;
        lane->offer = *word;
        meet_offer(lane);
        return true;
    case KOLO_VERBS_UP:
        lane->peer_up = true;
        try_out(lane);
        return true;
    case KOLO_VERBS_DOWN:
        if (lane->peer_down ||
            (uint32_t)word->value - lane->credited > lane->sent - lane->credited) {
            return false;
        }
        lane->peer_down = true;
        lane->peer_taken = (uint32_t)word->value;
        kolo_verbs_lane_break(lane, NULL);
        if (lane->state == KOLO_VERBS_LANE_DOWN) {
            settle_entries(lane);
        }
        return true;
    case KOLO_VERBS_SENT:
        lane->ended = true;
        lane->last = (uint32_t)word->value;
        return true;
    default:
        return false;
    }
}

/* ---- failure and recovery ---- */

/* Keep an entry that the peer did not take, to send it again. */
static bool keep_entry(struct kolo_link *link, const char *slot)
{
    const uint32_t len = (uint32_t)kolo_verbs_entry_bytes(slot);
    struct kolo_verbs_again *again = malloc(sizeof *again + len);
    if (again == NULL) {
        return false;
    }
    again->next = NULL;
    again->len = len;
    memcpy(again->bytes, slot, len);
    *(link->again == NULL ? &link->again : &link->again_last->next) = again;
    link->again_last = again;
    return true;
}

/* Take the flight of the lane's n-th entry, if the entry's chunk is not known to be written. Flights
 * are in the order of their entries. */
static struct kolo_verbs_flight *take_flight(struct kolo_verbs_lane *lane, uint32_t n)
{
    struct kolo_verbs_flight *f = &lane->flight[lane->first_flight % KOLO_VERBS_SENDS];
    if (lane->first_flight == lane->next_flight || f->entry != n) {
        return NULL;
    }
    lane->first_flight++;
    return f;
}

/* Both ends know how many entries the other has taken. The entries that were not taken go again. A
 * PLACED entry whose chunk may not have been written goes with the chunk. Any other PLACED entry
 * goes alone, because its bytes have arrived: its chunk was written over this lane, or over one that
 * failed before, and this entry went again already. */
static void settle_entries(struct kolo_verbs_lane *lane)
{
    struct kolo_link *link = lane->link;
    while (lane->first_flight != lane->next_flight) {
        const struct kolo_verbs_flight *f = &lane->flight[lane->first_flight % KOLO_VERBS_SENDS];
        if ((int32_t)(f->entry - lane->peer_taken) >= 0) {
            break;
        }
        lane->first_flight++;
        kolo_verbs_message_flown(link, f);
    }
    for (uint32_t n = lane->peer_taken; n != lane->sent; n++) {
        const char *slot = lane->out + (size_t)(n % KOLO_VERBS_SLOTS) * KOLO_VERBS_SLOT;
        const struct kolo_verbs_flight *f = take_flight(lane, n);
        if (f != NULL) {
            kolo_verbs_message_again(link, f);
        } else if (!keep_entry(link, slot)) {
            kolo_verbs_fail(link, "cannot be sent to again: out of memory for an entry", 0, false);
        }
    }
    lane->flying_bytes = 0;
    lane->first_flight = lane->next_flight = 0;
    lane->offered = false;
    lane->epoch++;
    lane->state = KOLO_VERBS_LANE_NONE;
    lane->since_us = kolo_now_us();
}

/* Destroy the queue pair: the device neither reads nor writes for it any more. */
static void end_queue_pair(struct kolo_verbs_lane *lane)
{
    (void)lane->link->ep->lib->destroy_qp(lane->qp);
    lane->qp = NULL;
    change_id(lane);
}

/* The pause before a lane comes back: the time-out of a packet, doubled for each failure. */
static double pause_us(const struct kolo_verbs_lane *lane)
{
    const uint32_t doublings = lane->epoch < 6 ? lane->epoch : 6;
    const double us = 4.096 * (double)(UINT64_C(1) << (lane->link->ep->timeout + doublings - 1));
    return us < BACK_MOST_US ? us : BACK_MOST_US;
}

static void step_lane(struct kolo_verbs_lane *lane)
{
    struct kolo_link *link = lane->link;
    const double since = kolo_now_us() - lane->since_us;
    if (lane->state == KOLO_VERBS_LANE_BROKEN && (lane->recvs == 0 || since > DRAIN_US)) {
        end_queue_pair(lane);
        lane->state = KOLO_VERBS_LANE_DOWN;
        send_word(lane, KOLO_VERBS_DOWN, lane->taken);
    }
    if (lane->state == KOLO_VERBS_LANE_DOWN && lane->peer_down) {
        settle_entries(lane);
    } else if (lane->state == KOLO_VERBS_LANE_NONE && lane->epoch > 0 && since > pause_us(lane)) {
        lane->since_us = kolo_now_us();
        if (kolo_verbs_rail_is_active(lane->rail) && start_lane(lane) != KOLO_OK) {
            kolo_verbs_lane_break(lane, kolo_error_text());
            kolo_verbs_fail(link, "has lost a lane that cannot be made again", 0, false);
        }
    }
}

/* Whether all entries that the peer sent before it left are here. */
static bool is_all_here(const struct kolo_link *link)
{
    for (int i = 0; i < link->nlanes; i++) {
        const struct kolo_verbs_lane *lane = &link->lane[i];
        if (lane->ended && lane->taken != lane->last && lane->qp != NULL && lane->recvs > 0) {
            return false;
        }
    }
    return true;
}

void kolo_verbs_lanes_step(struct kolo_link *link)
{
    if (link->base.bye) {
        if (is_all_here(link)) {
            kolo_carrier_left(&link->base);
        }
        return;
    }
    for (int i = 0; i < link->nlanes && link->base.failed == KOLO_OK; i++) {
        if (link->lane[i].state < KOLO_VERBS_LANE_OFFERED ||
            link->lane[i].state > KOLO_VERBS_LANE_LIVE) {
            step_lane(&link->lane[i]);
        }
    }
    const double patience_ms = link->ep->env.timeout_ms > 0 && link->ep->env.timeout_ms < LOST_MS
                                   ? link->ep->env.timeout_ms
                                   : LOST_MS;
    if (link->base.failed == KOLO_OK && link->lost_us > 0 &&
        kolo_now_us() - link->lost_us > patience_ms * 1e3) {
        char what[240];
        (void)snprintf(what, sizeof what, "lives, but no rail reaches it: %s", link->lost);
        kolo_verbs_fail(link, what, 0, false);
    }
}

/* ---- the end ---- */

void kolo_verbs_lanes_stop(struct kolo_link *link)
{
    for (int i = 0; i < link->nlanes; i++) {
        struct kolo_verbs_lane *lane = &link->lane[i];
        if (lane->state >= KOLO_VERBS_LANE_OFFERED && lane->state <= KOLO_VERBS_LANE_LIVE) {
            kolo_verbs_queue_pair_stop(lane);
            lane->state = KOLO_VERBS_LANE_BROKEN;
        }
        lane->nchain = 0;
    }
    link->nlive = 0;
}

void kolo_verbs_lanes_close(struct kolo_link *link)
{
    struct kolo_endpoint *ep = link->ep;
    for (int i = 0; i < link->nlanes; i++) {
        struct kolo_verbs_lane *lane = &link->lane[i];
        if (lane->link == NULL) {
            continue; /* the lane was not opened */
        }
        if (lane->qp != NULL) {
            (void)ep->lib->destroy_qp(lane->qp);
        }
        if (lane->ring != NULL) {
            (void)ep->lib->dereg_mr(lane->ring);
        }
        if (lane->in != NULL) {
            (void)munmap(lane->in, 2 * (size_t)RING_BYTES);
        }
        if (lane->id != 0) {
            ep->lane[lane->id & 0xffff] = NULL;
        }
        lane->rail->cq_used -= lane->cq_entries;
    }
    free(link->lane);
    link->lane = NULL;
    link->nlanes = 0;
}
