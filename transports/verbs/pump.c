// SPDX-License-Identifier: Apache-2.0
/* Outgoing entries: which entry a lane carries next.
 *
 * Entries that a failed lane did not deliver go first, then notes, then messages in the order
 * posted. A short message goes through slots. A long one is written in place, in chunks. Any lane
 * with room takes the next chunk. PIPELINE bytes in flight keep a lane busy. */
#include "transports/verbs/verbs.h"

#include <stdlib.h>

enum { WRITES = 16, PIPELINE = 2 * KOLO_VERBS_CHUNK };

static void read_bytes(struct kolo_link *link, struct kolo_carrier_message *m, char *to, size_t len)
{
    if (kolo_verbs_message_of(m)->of_gpu) {
        kolo_verbs_message_copy_gpu(link, to, (char *)m->req->data.at + m->made, len, false);
    } else {
        kolo_bytes_read(&m->req->data, m->made, to, len);
    }
}

/* ---- outgoing entries ---- */

/* The place of an entry's payload. */
static char *payload_of(const struct kolo_verbs_lane *lane, const struct kolo_verbs_entry *entry)
{
    return kolo_verbs_lane_slot(lane) + kolo_verbs_entry_heads(entry);
}

/* Send an entry whose payload is in its place. */
static void send_entry(struct kolo_link *link, struct kolo_verbs_lane *lane,
                       struct kolo_verbs_entry *entry)
{
    const struct kolo_window_count taken =
        kolo_window_tell(&link->base.channel[entry->channel].window);
    entry->taken = taken.messages;
    entry->taken_blocks = taken.blocks;
    const size_t bytes = kolo_verbs_entry_write(kolo_verbs_lane_slot(lane), entry);
    kolo_verbs_lane_send(lane, (uint32_t)bytes, entry->kind == KOLO_VERBS_PLACED);
}

/* Send an entry that a failed lane did not deliver. */
static bool pull_again(struct kolo_link *link, struct kolo_verbs_lane *lane)
{
    struct kolo_verbs_again *again = link->again;
    if (again == NULL) {
        return false;
    }
    link->again = again->next;
    memcpy(kolo_verbs_lane_slot(lane), again->bytes, again->len);
    kolo_verbs_lane_send(lane, again->len, false);
    free(again);
    return true;
}

/* The place for the message of a READY. A receive that has ended, with a mismatch, has none. */
static struct kolo_verbs_place place_of(const struct kolo_link *link,
                                        const struct kolo_carrier_note *ready)
{
    struct kolo_carrier_message *m = kolo_carrier_message_find(
        &link->base.channel[ready->channel].recvs, ready->channel, ready->number);
    return m != NULL ? kolo_verbs_message_of(m)->place : (struct kolo_verbs_place){0};
}

static bool pull_note(struct kolo_link *link, struct kolo_verbs_lane *lane)
{
    struct kolo_carrier_note note;
    if (!kolo_carrier_pull_note(&link->base, &note)) {
        return false;
    }
    const uint32_t len = note.kind == KOLO_VERBS_READY ? sizeof(struct kolo_verbs_place) : 0;
    struct kolo_verbs_entry entry = {.kind = note.kind,
                                     .channel = note.channel,
                                     .len = (uint16_t)len,
                                     .number = note.number,
                                     .total = note.total,
                                     .call = note.call};
    if (len > 0) {
        const struct kolo_verbs_place place = place_of(link, &note);
        memcpy(payload_of(lane, &entry), &place, len);
    }
    send_entry(link, lane, &entry);
    return true;
}

/* Send the next bytes of a message through a slot. Or `announces`: only tell the peer of it. */
static void send_piece(struct kolo_link *link, struct kolo_verbs_lane *lane,
                       struct kolo_carrier_message *m, bool announces)
{
    const size_t left = announces ? 0 : m->total - m->made;
    struct kolo_verbs_entry entry = {.kind = KOLO_VERBS_DATA,
                                     .channel = m->channel,
                                     .number = m->number,
                                     .offset = m->made,
                                     .total = m->total};
    if (m->made == 0) {
        entry.call = m->req->call;
    }
    entry.len = (uint16_t)kolo_min(left, KOLO_VERBS_PIECE);
    if (left > KOLO_VERBS_PIECE) {
        entry.len = (uint16_t)(KOLO_VERBS_FULL - kolo_verbs_entry_heads(&entry));
    }
    const size_t len = entry.len;
    char *payload = payload_of(lane, &entry);
    read_bytes(link, m, payload, len);
    if (len == m->total && len <= KOLO_VERBS_BRIEF) {
        kolo_verbs_entry_trim(&entry, payload);
    }
    send_entry(link, lane, &entry);
    m->made += len;
}

static uint64_t place_at(const struct kolo_verbs_place *place, size_t at, size_t *room)
{
    const size_t within = at % place->bytes;
    *room = place->bytes - within;
    return place->at + at / place->bytes * place->stride + within;
}

/* Write at most `len` bytes from `at` on, with at most WRITES work requests. Returns the bytes. */
static size_t write_bytes(struct kolo_verbs_lane *lane, struct kolo_carrier_message *m, size_t at,
                          size_t len)
{
    struct kolo_verbs_message *v = kolo_verbs_message_of(m);
    const uint32_t lkey = kolo_verbs_memory_lkey(v->hold, lane->link->ep, lane->rail);
    const uint32_t rkey = v->place.rkey[lane->peer_rail];
    size_t done = 0;
    for (int i = 0; i < WRITES && done < len; i++) {
        size_t here = 0, there = 0;
        const char *from = kolo_bytes_at(&m->req->data, at + done, &here);
        const uint64_t to = place_at(&v->place, at + done, &there);
        const size_t part =
            kolo_min(kolo_min(here, there), kolo_min(len - done, lane->rail->max_message));
        kolo_verbs_lane_write(lane, from, (uint32_t)part, lkey, to, rkey);
        done += part;
    }
    return done;
}

/* Write a chunk in place, and send the entry that tells the peer about it. */
static void send_chunk(struct kolo_link *link, struct kolo_verbs_lane *lane,
                       struct kolo_carrier_message *m)
{
    struct kolo_verbs_message *v = kolo_verbs_message_of(m);
    const bool again = v->nagain > 0;
    const struct kolo_verbs_piece piece =
        again ? v->again[v->nagain - 1] : (struct kolo_verbs_piece){m->made, m->total - m->made};
    const size_t share = kolo_round_up(m->total / (size_t)link->nlive, 4096);
    const size_t most = kolo_min(kolo_max(share, KOLO_VERBS_LONG), KOLO_VERBS_CHUNK);
    const size_t len = write_bytes(lane, m, piece.at, kolo_min(piece.len, most));
    struct kolo_verbs_entry entry = {.kind = KOLO_VERBS_PLACED,
                                     .channel = m->channel,
                                     .number = m->number,
                                     .offset = len,
                                     .total = m->total,
                                     .call = m->req->call};
    struct kolo_verbs_flight *f = &lane->flight[lane->next_flight++ % KOLO_VERBS_SENDS];
    *f = (struct kolo_verbs_flight){.message = m, .entry = lane->sent, .at = piece.at, .len = len};
    send_entry(link, lane, &entry);
    f->posted = lane->posted;
    lane->flying_bytes += len;
    m->flying++;
    if (!again) {
        m->made += len;
    } else if (len == piece.len) {
        v->nagain--;
    } else {
        v->again[v->nagain - 1] = (struct kolo_verbs_piece){piece.at + len, piece.len - len};
    }
}

/* The next step of a message. */
enum turn { WAIT, PIECE, CHUNK };

static enum turn turn_of(struct kolo_link *link, struct kolo_carrier_message *m)
{
    struct kolo_verbs_message *v = kolo_verbs_message_of(m);
    if (!m->begun && kolo_channel_holds_back(&link->base.channel[m->channel], m,
                                             kolo_verbs_kept_bytes(m->total))) {
        return WAIT;
    }
    if (!kolo_verbs_is_long(m->total)) {
        return PIECE;
    }
    if (!m->ready || m->failed) {
        return m->begun && !m->failed ? WAIT : PIECE; /* PIECE: an announcement */
    }
    const struct kolo_bytes *data = &m->req->data;
    const bool flat = data->count == 1 || data->stride == data->bytes;
    if (v->place.count > 0 && v->hold == NULL && m->made == 0 &&
        (flat || data->bytes >= KOLO_VERBS_RUN)) {
        const size_t span = flat ? m->total : (data->count - 1) * data->stride + data->bytes;
        v->hold = kolo_verbs_memory_hold(link->ep, data->at, span, false);
    }
    return v->hold != NULL ? CHUNK : PIECE;
}

/* The result of sending one entry or one chunk of a message. */
enum gone { STUCK /* no lane takes it */, MORE, MADE /* the message left the list of sends */ };

static enum gone go_on(struct kolo_link *link, struct kolo_carrier_message *m, enum turn turn)
{
    struct kolo_verbs_lane *lane = kolo_verbs_lane_choose(link, turn == CHUNK ? WRITES : 0);
    if (lane == NULL || (turn == CHUNK && lane->flying_bytes >= PIPELINE)) {
        return STUCK;
    }
    const bool announces =
        turn == PIECE && kolo_verbs_is_long(m->total) && (!m->ready || m->failed);
    if (!m->begun) {
        kolo_channel_begin(&link->base.channel[m->channel], m, kolo_verbs_kept_bytes(m->total));
    }
    if (turn == CHUNK) {
        send_chunk(link, lane, m);
    } else {
        send_piece(link, lane, m, announces);
    }
    if (m->failed) {
        kolo_verbs_message_end_send(link, m);
        return MADE;
    }
    if (announces || m->made < m->total || kolo_verbs_message_of(m)->nagain > 0) {
        return MORE;
    }
    kolo_carrier_message_take_out(&link->base.sends, m);
    kolo_carrier_message_append(&link->base.flying, m);
    if (m->flying == 0) {
        kolo_verbs_message_end_send(link, m);
    }
    return MADE;
}

static bool pull_sends(struct kolo_link *link)
{
    bool pulled = false;
    for (struct kolo_carrier_message *m = link->base.sends.first, *next = NULL; m != NULL;
         m = next) {
        enum turn turn = WAIT;
        enum gone gone = MORE;
        next = m->next;
        while (gone == MORE && (turn = turn_of(link, m)) != WAIT) {
            gone = go_on(link, m, turn);
            if (gone == STUCK) {
                return pulled;
            }
            pulled = true;
        }
    }
    return pulled;
}

bool kolo_verbs_pump(struct kolo_link *link)
{
    bool pulled = false;
    while (link->again != NULL || link->base.notes > 0) {
        struct kolo_verbs_lane *lane = kolo_verbs_lane_choose(link, 0);
        if (lane == NULL) {
            break;
        }
        pulled = pull_again(link, lane) || pull_note(link, lane) || pulled;
    }
    pulled = (link->again == NULL && link->base.sends.first != NULL && pull_sends(link)) || pulled;
    for (int i = 0; i < link->nlanes; i++) {
        if (kolo_verbs_lane_is_due(&link->lane[i])) {
            kolo_verbs_lane_flush(&link->lane[i]);
        }
    }
    return pulled;
}
