// SPDX-License-Identifier: Apache-2.0
/* Sends and receives: which entry comes next, and where what arrives belongs. See verbs.h.
 *
 * The n-th send of a channel meets its n-th receive, so both sides number them alike and nothing
 * has to be asked. A long message that no READY waits for is announced by a DATA entry without
 * bytes, by which a receiver of another length finds out. */
#include "transports/verbs/verbs.h"

#include <stdlib.h>

enum { WRITES = 16, PIPELINE = 2 * KOLO_VERBS_CHUNK };

static struct kolo_verbs_message *own(struct kolo_message *m)
{
    return (struct kolo_verbs_message *)m;
}

void kolo_verbs_message_drop(struct kolo_link *link, struct kolo_message *m)
{
    struct kolo_verbs_message *v = own(m);
    kolo_verbs_memory_drop(link->dev, v->hold);
    v->of_gpu = false;
    v->place = (struct kolo_verbs_place){0};
    v->hold = NULL;
    v->nagain = 0;
}

static bool is_long(size_t total)
{
    return total >= KOLO_VERBS_LONG;
}

/* Bytes of it that a receiver may have to keep. */
static size_t kept_part(size_t total)
{
    return is_long(total) ? 0 : total;
}

/* ---- bytes of messages ---- */

/* What does not go in place, of memory of a GPU. It is in one piece. */
static void copy_gpu(struct kolo_link *link, void *to, const void *from, size_t len, bool to_gpu)
{
    const struct kolo_env *env = &link->dev->env;
    if (len > 0 && env->copy(env->owner, to, from, len, to_gpu) != KOLO_OK) {
        kolo_verbs_fail(link, "has a message that the GPU does not copy", 0, false);
    }
}

static void read_bytes(struct kolo_link *link, struct kolo_message *m, char *to, size_t len)
{
    if (own(m)->of_gpu) {
        copy_gpu(link, to, (char *)m->req->data.at + m->made, len, false);
    } else {
        kolo_bytes_read(&m->req->data, m->made, to, len);
    }
}

static void write_at(struct kolo_link *link, struct kolo_message *m, size_t at, const char *from,
                     size_t len)
{
    if (own(m)->of_gpu) {
        copy_gpu(link, (char *)m->req->data.at + at, from, len, true);
    } else {
        kolo_bytes_write(&m->req->data, at, from, len);
    }
}

static void note(struct kolo_link *link, const struct kolo_verbs_note *given)
{
    struct kolo_verbs_note *grown =
        kolo_grow(link->note, link->notes, &link->note_cap, sizeof *grown);
    if (grown == NULL) {
        kolo_verbs_fail(link, "no memory for a message to it", 0, false);
        return;
    }
    link->note = grown;
    link->note[link->notes++] = *given;
    kolo_carrier_activate(&link->base);
}

/* ---- sends ---- */

static void end_send(struct kolo_link *link, struct kolo_message *m)
{
    const bool made = m->made == m->total && own(m)->nagain == 0 && !m->failed;
    kolo_message_take_out(made ? &link->base.flying : &link->base.sends, m);
    kolo_carrier_finish(&link->base, m->req, m->failed ? KOLO_ERR_MISMATCH : KOLO_OK);
    kolo_carrier_recycle(&link->base, m);
}

/* READY came. False: it makes no sense. */
static bool make_ready(struct kolo_message *m, uint64_t total, const struct kolo_verbs_place *place)
{
    if (m->ready) {
        return false;
    }
    m->ready = true;
    m->failed = m->total != total;
    own(m)->place = *place;
    return m->failed || place->count == 0 ||
           (place->bytes <= m->total && place->bytes * place->count == m->total);
}

/* READY may have come before its send. False: it makes no sense. */
static bool take_early(struct kolo_verbs_earlies *e, struct kolo_message *m)
{
    for (int i = 0; i < e->count; i++) {
        if (e->at[i].number == m->number) {
            const struct kolo_verbs_early early = e->at[i];
            e->at[i] = e->at[--e->count];
            return !is_long(m->total) || make_ready(m, early.total, &early.place);
        }
    }
    return true;
}

kolo_status kolo_verbs_message_send(struct kolo_link *link, const struct kolo_bytes *src,
                                    struct kolo_req *req)
{
    struct kolo_message *m = NULL;
    KOLO_TRY(kolo_carrier_send(&link->base, src, req, &m));
    if (m == NULL) {
        return KOLO_OK;
    }
    own(m)->of_gpu = kolo_verbs_memory_is_gpu(link->dev, src->at, m->total);
    if (!take_early(&link->early[m->channel], m)) {
        kolo_verbs_fail(link, "sent what is no message", 0, false);
    }
    if (link->nlive > 0 && link->base.sends.first == m) { /* else others come first */
        (void)kolo_verbs_message_pump(link);
    }
    return KOLO_OK;
}

/* ---- receives ---- */

/* Its memory is to be written in place: where that is. */
static bool find_place(struct kolo_link *link, struct kolo_message *m, struct kolo_verbs_place *out)
{
    const struct kolo_bytes *data = &m->req->data;
    const bool flat = data->count == 1 || data->stride == data->bytes;
    if (!flat &&
        (data->bytes < KOLO_VERBS_RUN || data->stride < data->bytes || data->count > UINT32_MAX)) {
        return false;
    }
    const size_t span = flat ? m->total : (data->count - 1) * data->stride + data->bytes;
    own(m)->hold = kolo_verbs_memory_hold(link->dev, data->at, span, true);
    if (own(m)->hold == NULL) {
        return false;
    }
    *out = (struct kolo_verbs_place){.at = (uintptr_t)data->at,
                                     .bytes = flat ? m->total : data->bytes,
                                     .stride = flat ? m->total : data->stride,
                                     .count = flat ? 1 : (uint32_t)data->count};
    for (int i = 0; i < link->dev->nrails; i++) {
        out->rkey[i] = kolo_verbs_memory_rkey(own(m)->hold, i);
    }
    return true;
}

static void say_ready(struct kolo_link *link, struct kolo_message *m)
{
    struct kolo_verbs_note ready = {.kind = KOLO_VERBS_READY,
                                    .channel = m->channel,
                                    .number = m->number,
                                    .total = m->req->bytes};
    m->ready = true;
    if (!m->failed) {
        (void)find_place(link, m, &ready.place);
    }
    note(link, &ready);
}

/* From now on the sender may send one more. */
static void taken(struct kolo_link *link, const struct kolo_message *m)
{
    if (kolo_channel_take(&link->base.channel[m->channel], kept_part(m->total))) {
        note(link, &(struct kolo_verbs_note){.kind = KOLO_VERBS_TAKEN, .channel = m->channel});
    }
}

static void end_receive(struct kolo_link *link, struct kolo_message *m)
{
    taken(link, m);
    kolo_message_take_out(&link->base.channel[m->channel].recvs, m);
    kolo_carrier_finish(&link->base, m->req, m->failed ? KOLO_ERR_MISMATCH : KOLO_OK);
    kolo_carrier_recycle(&link->base, m);
}

/* It is all there, or there is no more to come of what does not fit. */
static void end_if_whole(struct kolo_link *link, struct kolo_message *m)
{
    if (m->req == NULL || (m->moved < m->total && !(m->failed && is_long(m->total)))) {
        return;
    }
    if (m->kept != NULL && !m->failed) {
        write_at(link, m, 0, m->kept, m->total);
    }
    end_receive(link, m);
}

kolo_status kolo_verbs_message_recv(struct kolo_link *link, const struct kolo_bytes *dst,
                                    struct kolo_req *req)
{
    struct kolo_message *m = NULL;
    KOLO_TRY(kolo_carrier_recv(&link->base, dst, req, &m));
    if (m == NULL) {
        return KOLO_OK;
    }
    own(m)->of_gpu = kolo_verbs_memory_is_gpu(link->dev, dst->at, req->bytes);
    if (is_long(req->bytes) || is_long(m->total)) { /* where only one is, it finds out */
        say_ready(link, m);
    }
    if (m->touched) {
        end_if_whole(link, m);
    }
    if (link->notes > 0 && link->nlive > 0) {
        (void)kolo_verbs_message_pump(link);
    }
    return KOLO_OK;
}

/* ---- entries out ---- */

static struct kolo_verbs_entry *make_entry(struct kolo_link *link, struct kolo_verbs_lane *lane,
                                           const struct kolo_verbs_entry *given)
{
    struct kolo_verbs_entry *entry = kolo_verbs_lane_entry(lane);
    *entry = *given;
    entry->magic = KOLO_VERBS_ENTRY_MAGIC;
    entry->taken = kolo_channel_tell(&link->base.channel[given->channel]);
    return entry;
}

/* What a lane that failed did not deliver. */
static bool pull_again(struct kolo_link *link, struct kolo_verbs_lane *lane)
{
    struct kolo_verbs_again *again = link->again;
    if (again == NULL) {
        return false;
    }
    link->again = again->next;
    memcpy(kolo_verbs_lane_entry(lane), again->bytes, again->len);
    kolo_verbs_lane_send(lane, again->len - (uint32_t)sizeof(struct kolo_verbs_entry));
    free(again);
    return true;
}

static bool pull_note(struct kolo_link *link, struct kolo_verbs_lane *lane)
{
    int used = 0;
    bool found = false;
    while (!found && used < link->notes) {
        const struct kolo_verbs_note *n = &link->note[used++];
        const struct kolo_channel *c = &link->base.channel[n->channel];
        if (n->kind == KOLO_VERBS_READY || c->taken != c->told) { /* else another entry said it */
            const uint32_t len = n->kind == KOLO_VERBS_READY ? sizeof n->place : 0;
            const struct kolo_verbs_entry head = {.kind = n->kind,
                                                  .channel = n->channel,
                                                  .len = len,
                                                  .number = n->number,
                                                  .total = n->total};
            struct kolo_verbs_entry *entry = make_entry(link, lane, &head);
            memcpy(entry + 1, &n->place, len);
            kolo_verbs_lane_send(lane, len);
            found = true;
        }
    }
    link->notes -= used;
    memmove(link->note, link->note + used, (size_t)link->notes * sizeof link->note[0]);
    return found;
}

/* Bytes [m->made, + len) through a slot; len 0: the message is empty, or only announced. */
static void send_piece(struct kolo_link *link, struct kolo_verbs_lane *lane, struct kolo_message *m,
                       size_t len)
{
    const struct kolo_verbs_entry head = {.kind = KOLO_VERBS_DATA,
                                          .channel = m->channel,
                                          .len = (uint32_t)len,
                                          .number = m->number,
                                          .offset = m->made,
                                          .total = m->total};
    struct kolo_verbs_entry *entry = make_entry(link, lane, &head);
    read_bytes(link, m, (char *)(entry + 1), len);
    kolo_verbs_lane_send(lane, (uint32_t)len);
    m->made += len;
}

static uint64_t place_at(const struct kolo_verbs_place *place, size_t at, size_t *room)
{
    const size_t within = at % place->bytes;
    *room = place->bytes - within;
    return place->at + at / place->bytes * place->stride + within;
}

/* Write bytes from `at` on, at most `len`, with at most WRITES work requests; how many it were. */
static size_t write_bytes(struct kolo_verbs_lane *lane, struct kolo_message *m, size_t at,
                          size_t len)
{
    struct kolo_verbs_message *v = own(m);
    const uint32_t lkey = kolo_verbs_memory_lkey(v->hold, lane->link->dev, lane->rail);
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

/* Write a chunk in place, and tell of it. */
static void send_chunk(struct kolo_link *link, struct kolo_verbs_lane *lane, struct kolo_message *m)
{
    struct kolo_verbs_message *v = own(m);
    const bool again = v->nagain > 0;
    const struct kolo_verbs_piece piece =
        again ? v->again[v->nagain - 1] : (struct kolo_verbs_piece){m->made, m->total - m->made};
    const size_t share = kolo_round_up(m->total / (size_t)link->nlive, 4096);
    const size_t most = kolo_min(kolo_max(share, KOLO_VERBS_LONG), KOLO_VERBS_CHUNK);
    const size_t len = write_bytes(lane, m, piece.at, kolo_min(piece.len, most));
    const struct kolo_verbs_entry head = {.kind = KOLO_VERBS_PLACED,
                                          .channel = m->channel,
                                          .number = m->number,
                                          .offset = len,
                                          .total = m->total};
    (void)make_entry(link, lane, &head);
    struct kolo_verbs_flight *f = &lane->flight[lane->next_flight++ % KOLO_VERBS_SENDS];
    *f = (struct kolo_verbs_flight){.message = m, .entry = lane->sent, .at = piece.at, .len = len};
    kolo_verbs_lane_send(lane, 0);
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

/* What the message may do now. */
enum turn { WAIT, PIECE, CHUNK };

static enum turn turn_of(struct kolo_link *link, struct kolo_message *m)
{
    struct kolo_verbs_message *v = own(m);
    if (!m->begun &&
        kolo_channel_is_full(&link->base.channel[m->channel], m, kept_part(m->total))) {
        return WAIT;
    }
    if (!is_long(m->total)) {
        return PIECE;
    }
    if (!m->ready || m->failed) {
        return m->begun && !m->failed ? WAIT : PIECE; /* PIECE: it is announced */
    }
    const struct kolo_bytes *data = &m->req->data;
    const bool flat = data->count == 1 || data->stride == data->bytes;
    if (v->place.count > 0 && v->hold == NULL && m->made == 0 &&
        (flat || data->bytes >= KOLO_VERBS_RUN)) {
        const size_t span = flat ? m->total : (data->count - 1) * data->stride + data->bytes;
        v->hold = kolo_verbs_memory_hold(link->dev, data->at, span, false);
    }
    return v->hold != NULL ? CHUNK : PIECE;
}

/* One entry of the message, or one chunk. */
enum gone { STUCK /* no lane takes it */, MORE, MADE /* it is not among the sends any more */ };

static enum gone go_on(struct kolo_link *link, struct kolo_message *m, enum turn turn)
{
    struct kolo_verbs_lane *lane = kolo_verbs_lane_choose(link, turn == CHUNK ? WRITES : 0);
    if (lane == NULL || (turn == CHUNK && lane->flying_bytes >= PIPELINE)) {
        return STUCK;
    }
    const bool announces = turn == PIECE && is_long(m->total) && (!m->ready || m->failed);
    if (!m->begun) {
        kolo_channel_begin(&link->base.channel[m->channel], m, kept_part(m->total));
    }
    if (turn == CHUNK) {
        send_chunk(link, lane, m);
    } else {
        send_piece(link, lane, m, announces ? 0 : kolo_min(m->total - m->made, KOLO_VERBS_PIECE));
    }
    if (m->failed) {
        end_send(link, m);
        return MADE;
    }
    if (announces || m->made < m->total || own(m)->nagain > 0) {
        return MORE;
    }
    kolo_message_take_out(&link->base.sends, m);
    kolo_message_append(&link->base.flying, m);
    if (m->flying == 0) {
        end_send(link, m);
    }
    return MADE;
}

static bool pull_sends(struct kolo_link *link)
{
    bool pulled = false;
    for (struct kolo_message *m = link->base.sends.first, *next = NULL; m != NULL; m = next) {
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

bool kolo_verbs_message_pump(struct kolo_link *link)
{
    bool pulled = false;
    while (link->again != NULL || link->notes > 0) {
        struct kolo_verbs_lane *lane = kolo_verbs_lane_choose(link, 0);
        if (lane == NULL) {
            break;
        }
        pulled = pull_again(link, lane) || pull_note(link, lane) || pulled;
    }
    pulled = (link->again == NULL && link->base.sends.first != NULL && pull_sends(link)) || pulled;
    for (int i = 0; i < link->nlanes; i++) {
        kolo_verbs_lane_flush(&link->lane[i]);
    }
    return pulled;
}

/* ---- chunks that are out ---- */

void kolo_verbs_message_flown(struct kolo_link *link, const struct kolo_verbs_flight *flight)
{
    struct kolo_message *m = flight->message;
    m->flying--;
    m->moved += flight->len;
    if (m->flying == 0 && own(m)->nagain == 0 && m->made == m->total) {
        end_send(link, m);
    }
}

void kolo_verbs_message_again(struct kolo_link *link, const struct kolo_verbs_flight *flight)
{
    struct kolo_message *m = flight->message;
    struct kolo_verbs_message *v = own(m);
    if (m->made == m->total && v->nagain == 0) {
        kolo_message_take_out(&link->base.flying, m);
        kolo_message_append(&link->base.sends, m);
    }
    m->flying--;
    if (v->nagain > 0 && v->again[v->nagain - 1].at + v->again[v->nagain - 1].len == flight->at) {
        v->again[v->nagain - 1].len += flight->len;
    } else if (v->nagain < KOLO_VERBS_AGAIN) {
        v->again[v->nagain++] = (struct kolo_verbs_piece){flight->at, flight->len};
    } else {
        kolo_verbs_fail(link, "too much to send again", 0, false);
    }
}

/* ---- entries in ---- */

static bool ready_came(struct kolo_link *link, const struct kolo_verbs_entry *entry,
                       const char *payload)
{
    struct kolo_verbs_earlies *e = &link->early[entry->channel];
    struct kolo_verbs_place place;
    if (entry->len != sizeof place) {
        return false;
    }
    memcpy(&place, payload, sizeof place);
    struct kolo_message *m = kolo_message_find(&link->base.sends, entry->channel, entry->number);
    if (m != NULL) {
        const bool sensible = !is_long(m->total) || make_ready(m, entry->total, &place);
        if (sensible && m->failed && m->begun) {
            end_send(link, m);
        }
        return sensible;
    }
    if ((int32_t)(entry->number - link->base.channel[entry->channel].sent) < 0) {
        return true; /* a short one, which needed none: the receiver finds out */
    }
    struct kolo_verbs_early *early =
        e->count < KOLO_CARRIER_EARLY ? kolo_grow(e->at, e->count, &e->cap, sizeof *early) : NULL;
    if (early == NULL) {
        return false;
    }
    e->at = early;
    e->at[e->count++] = (struct kolo_verbs_early){entry->number, entry->total, place};
    return true;
}

static bool data_came(struct kolo_link *link, const struct kolo_verbs_entry *entry,
                      const char *payload)
{
    struct kolo_channel *c = &link->base.channel[entry->channel];
    struct kolo_message *m = kolo_message_find(&c->recvs, entry->channel, entry->number);
    if (entry->len > entry->total || entry->offset > entry->total - entry->len) {
        return false;
    }
    if (m == NULL && entry->len == 0 && is_long(entry->total) &&
        (int32_t)(entry->number - c->received) < 0) {
        return true; /* announced by a slower lane than those that wrote all of it */
    }
    if (m == NULL) {
        m = kolo_carrier_keep(&link->base, entry->channel, entry->number, entry->total,
                              is_long(entry->total) ? 0 : entry->total + 1);
    }
    if (m == NULL) {
        return false;
    }
    if (m->req != NULL && m->total != entry->total && m->moved == 0) { /* as the sender has it */
        m->failed = true;
        m->total = entry->total;
        if (is_long(m->total) && !m->ready) { /* the sender waits to be told */
            say_ready(link, m);
        }
    }
    if (m->total != entry->total || m->moved + entry->len > m->total ||
        (m->req == NULL && is_long(m->total) && entry->len > 0)) {
        return false;
    }
    if (m->kept != NULL) {
        memcpy(m->kept + entry->offset, payload, entry->len);
    } else if (m->req != NULL && !m->failed) {
        write_at(link, m, entry->offset, payload, entry->len);
    }
    m->moved += entry->len;
    end_if_whole(link, m);
    return true;
}

static bool placed_came(struct kolo_link *link, const struct kolo_verbs_entry *entry)
{
    struct kolo_channel *c = &link->base.channel[entry->channel];
    struct kolo_message *m = kolo_message_find(&c->recvs, entry->channel, entry->number);
    if (m == NULL || m->req == NULL || own(m)->hold == NULL || entry->total != m->total ||
        entry->offset > m->total - m->moved || entry->len > 0) {
        return false;
    }
    m->moved += entry->offset;
    end_if_whole(link, m);
    return true;
}

bool kolo_verbs_message_arrives(struct kolo_link *link, const struct kolo_verbs_entry *entry,
                                const char *payload)
{
    if (entry->magic != KOLO_VERBS_ENTRY_MAGIC || entry->channel >= KOLO_CHANNELS) {
        return false;
    }
    kolo_channel_hear(&link->base.channel[entry->channel], entry->taken);
    switch (entry->kind) {
    case KOLO_VERBS_DATA:
        return data_came(link, entry, payload);
    case KOLO_VERBS_READY:
        return ready_came(link, entry, payload);
    case KOLO_VERBS_PLACED:
        return placed_came(link, entry);
    case KOLO_VERBS_TAKEN:
        return true;
    default:
        return false;
    }
}

/* ---- the end ---- */

void kolo_verbs_message_end(struct kolo_link *link, kolo_status why)
{
    for (int i = 0; i < link->nlanes; i++) { /* nobody reads or writes their memory from here */
        link->lane[i].first_flight = link->lane[i].next_flight = 0;
    }
    kolo_carrier_end(&link->base, why);
    for (struct kolo_verbs_again *again; (again = link->again) != NULL;) {
        link->again = again->next;
        free(again);
    }
    link->notes = 0;
}

void kolo_verbs_message_free(struct kolo_link *link)
{
    for (int i = 0; i < KOLO_CHANNELS; i++) {
        free(link->early[i].at);
    }
    free(link->note);
    free(link->word);
}
