// SPDX-License-Identifier: Apache-2.0
/* Sends and receives: how they are posted, where arriving entries belong, and when they end.
 *
 * The n-th send of a channel matches its n-th receive, so both sides number them alike without a
 * handshake. A DATA entry without bytes announces a long message that has no READY yet. It lets a
 * receiver with another length detect the mismatch. */
#include "transports/verbs/verbs.h"

#include <stdlib.h>

void kolo_verbs_message_drop(struct kolo_link *link, struct kolo_carrier_message *m)
{
    struct kolo_verbs_message *v = kolo_verbs_message_of(m);
    kolo_verbs_memory_drop(link->ep, v->hold);
    v->of_gpu = false;
    v->place = (struct kolo_verbs_place){0};
    v->hold = NULL;
    v->nagain = 0;
}

/* ---- bytes of messages ---- */

/* Copy bytes of GPU memory that go through slots. The memory is contiguous. */
void kolo_verbs_message_copy_gpu(struct kolo_link *link, void *to, const void *from, size_t len,
                                 bool to_gpu)
{
    const struct kolo_env *env = &link->ep->env;
    if (len > 0 && env->copy(env->owner, to, from, len, to_gpu) != KOLO_OK) {
        kolo_verbs_fail(link, "has a message that the GPU does not copy", 0, false);
    }
}

static void write_at(struct kolo_link *link, struct kolo_carrier_message *m, size_t at,
                     const char *from, size_t len)
{
    if (kolo_verbs_message_of(m)->of_gpu) {
        kolo_verbs_message_copy_gpu(link, (char *)m->req->data.at + at, from, len, true);
    } else {
        kolo_bytes_write(&m->req->data, at, from, len);
    }
}

static void queue_note(struct kolo_link *link, const struct kolo_verbs_note *given)
{
    struct kolo_verbs_note *grown =
        kolo_grow(link->note, link->notes, &link->note_cap, sizeof *grown);
    if (grown == NULL) {
        kolo_verbs_fail(link, "cannot be sent to: out of memory for a message", 0, false);
        return;
    }
    link->note = grown;
    link->note[link->notes++] = *given;
    kolo_carrier_activate(&link->base);
}

/* ---- sends ---- */

void kolo_verbs_message_end_send(struct kolo_link *link, struct kolo_carrier_message *m)
{
    const bool made = m->made == m->total && kolo_verbs_message_of(m)->nagain == 0 && !m->failed;
    kolo_carrier_message_take_out(made ? &link->base.flying : &link->base.sends, m);
    m->req->call = m->failed ? m->call : m->req->call;
    kolo_carrier_finish(&link->base, m->req, m->failed ? KOLO_ERR_MISMATCH : KOLO_OK);
    kolo_carrier_recycle(&link->base, m);
}

/* READY came. False: it is invalid. */
static bool make_ready(struct kolo_carrier_message *m, uint64_t total,
                       const struct kolo_verbs_place *place, const struct kolo_call_sign *call)
{
    if (m->ready) {
        return false;
    }
    m->ready = true;
    m->failed = m->total != total;
    m->call = *call;
    kolo_verbs_message_of(m)->place = *place;
    return m->failed || place->count == 0 ||
           (place->bytes <= m->total && place->bytes * place->count == m->total);
}

/* Take a READY that came before its send, if there is one. False: it is invalid. */
static bool take_early(struct kolo_verbs_earlies *e, struct kolo_carrier_message *m)
{
    for (int i = 0; i < e->count; i++) {
        if (e->at[i].number == m->number) {
            const struct kolo_verbs_early early = e->at[i];
            e->at[i] = e->at[--e->count];
            return !kolo_verbs_is_long(m->total) ||
                   make_ready(m, early.total, &early.place, &early.call);
        }
    }
    return true;
}

kolo_status kolo_verbs_message_send(struct kolo_link *link, const struct kolo_bytes *src,
                                    struct kolo_req *req)
{
    struct kolo_carrier_message *m = NULL;
    KOLO_TRY(kolo_carrier_send(&link->base, src, req, &m));
    if (m == NULL) {
        return KOLO_OK;
    }
    kolo_verbs_message_of(m)->of_gpu = kolo_verbs_memory_is_gpu(link->ep, src->at, m->total);
    if (!take_early(&link->early[m->channel], m)) {
        kolo_verbs_fail(link, "sent an invalid message", 0, false);
    }
    return KOLO_OK;
}

/* ---- receives ---- */

/* The place for a receive that is written in place. False: its memory cannot be. */
static bool find_place(struct kolo_link *link, struct kolo_carrier_message *m,
                       struct kolo_verbs_place *out)
{
    const struct kolo_bytes *data = &m->req->data;
    const bool flat = data->count == 1 || data->stride == data->bytes;
    if (!flat &&
        (data->bytes < KOLO_VERBS_RUN || data->stride < data->bytes || data->count > UINT32_MAX)) {
        return false;
    }
    const size_t span = flat ? m->total : (data->count - 1) * data->stride + data->bytes;
    kolo_verbs_message_of(m)->hold = kolo_verbs_memory_hold(link->ep, data->at, span, true);
    if (kolo_verbs_message_of(m)->hold == NULL) {
        return false;
    }
    *out = (struct kolo_verbs_place){.at = (uintptr_t)data->at,
                                     .bytes = flat ? m->total : data->bytes,
                                     .stride = flat ? m->total : data->stride,
                                     .count = flat ? 1 : (uint32_t)data->count};
    for (int i = 0; i < link->ep->nrails; i++) {
        out->rkey[i] = kolo_verbs_memory_rkey(kolo_verbs_message_of(m)->hold, i);
    }
    return true;
}

static void say_ready(struct kolo_link *link, struct kolo_carrier_message *m)
{
    struct kolo_verbs_note ready = {.kind = KOLO_VERBS_READY,
                                    .channel = m->channel,
                                    .number = m->number,
                                    .total = m->req->bytes,
                                    .call = m->mine};
    m->ready = true;
    if (!m->failed) {
        (void)find_place(link, m, &ready.place);
    }
    queue_note(link, &ready);
}

/* Count a receive as taken: the sender may send one more message. */
static void count_taken(struct kolo_link *link, const struct kolo_carrier_message *m)
{
    if (kolo_channel_take(&link->base.channel[m->channel], kolo_verbs_kept_bytes(m->total))) {
        queue_note(link,
                   &(struct kolo_verbs_note){.kind = KOLO_VERBS_TAKEN, .channel = m->channel});
    }
}

static void end_receive(struct kolo_link *link, struct kolo_carrier_message *m)
{
    count_taken(link, m);
    kolo_carrier_message_take_out(&link->base.channel[m->channel].recvs, m);
    kolo_carrier_finish(&link->base, m->req, m->failed ? KOLO_ERR_MISMATCH : KOLO_OK);
    kolo_carrier_recycle(&link->base, m);
}

/* End a receive that has all its bytes. A long message that does not fit ends, too: no more of its
 * bytes will come. */
static void end_if_whole(struct kolo_link *link, struct kolo_carrier_message *m)
{
    if (m->req == NULL || (m->moved < m->total && !(m->failed && kolo_verbs_is_long(m->total)))) {
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
    struct kolo_carrier_message *m = NULL;
    KOLO_TRY(kolo_carrier_recv(&link->base, dst, req, &m));
    if (m == NULL) {
        return KOLO_OK;
    }
    kolo_verbs_message_of(m)->of_gpu = kolo_verbs_memory_is_gpu(link->ep, dst->at, req->bytes);
    if (kolo_verbs_is_long(req->bytes) ||
        kolo_verbs_is_long(m->total)) { /* only one is: READY shows the mismatch */
        say_ready(link, m);
    }
    if (m->touched) {
        end_if_whole(link, m);
    }
    return KOLO_OK;
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
    struct kolo_carrier_message *m =
        kolo_carrier_message_find(&link->base.sends, entry->channel, entry->number);
    if (m != NULL) {
        const bool sensible =
            !kolo_verbs_is_long(m->total) || make_ready(m, entry->total, &place, &entry->call);
        if (sensible && m->failed && m->begun) {
            kolo_verbs_message_end_send(link, m);
        }
        return sensible;
    }
    if ((int32_t)(entry->number - link->base.channel[entry->channel].sent) < 0) {
        return true; /* a short message, which needs no READY: the receiver detects it */
    }
    struct kolo_verbs_early *early =
        e->count < KOLO_CARRIER_EARLY ? kolo_grow(e->at, e->count, &e->cap, sizeof *early) : NULL;
    if (early == NULL) {
        return false;
    }
    e->at = early;
    e->at[e->count++] = (struct kolo_verbs_early){entry->number, entry->total, entry->call, place};
    return true;
}

static bool data_came(struct kolo_link *link, const struct kolo_verbs_entry *entry,
                      const char *payload)
{
    struct kolo_channel *c = &link->base.channel[entry->channel];
    struct kolo_carrier_message *m =
        kolo_carrier_message_find(&c->recvs, entry->channel, entry->number);
    if (entry->len > entry->total || entry->offset > entry->total - entry->len) {
        return false;
    }
    if (m == NULL && entry->len == 0 && kolo_verbs_is_long(entry->total) &&
        (int32_t)(entry->number - c->received) < 0) {
        return true; /* the announcement came over a slower lane, after the whole message */
    }
    if (m == NULL) {
        m = kolo_carrier_keep(&link->base, entry->channel, entry->number, entry->total,
                              kolo_verbs_is_long(entry->total) ? 0 : entry->total + 1);
    }
    if (m == NULL) {
        return false;
    }
    if (entry->offset == 0) {
        kolo_carrier_note_call(&link->base, m, &entry->call);
    }
    if (m->req != NULL && m->total != entry->total && m->moved == 0) { /* a mismatch */
        m->failed = true;
        m->total = entry->total;
        if (kolo_verbs_is_long(m->total) && !m->ready) { /* the sender waits for READY */
            say_ready(link, m);
        }
    }
    if (m->total != entry->total || m->moved + entry->len > m->total ||
        (m->req == NULL && kolo_verbs_is_long(m->total) && entry->len > 0)) {
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
    struct kolo_carrier_message *m =
        kolo_carrier_message_find(&c->recvs, entry->channel, entry->number);
    if (m == NULL || m->req == NULL || kolo_verbs_message_of(m)->hold == NULL ||
        entry->total != m->total || entry->offset > m->total - m->moved || entry->len > 0) {
        return false;
    }
    kolo_carrier_note_call(&link->base, m, &entry->call);
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

/* ---- chunks in flight ---- */

void kolo_verbs_message_flown(struct kolo_link *link, const struct kolo_verbs_flight *flight)
{
    struct kolo_carrier_message *m = flight->message;
    m->flying--;
    m->moved += flight->len;
    if (m->flying == 0 && kolo_verbs_message_of(m)->nagain == 0 && m->made == m->total) {
        kolo_verbs_message_end_send(link, m);
    }
}

void kolo_verbs_message_again(struct kolo_link *link, const struct kolo_verbs_flight *flight)
{
    struct kolo_carrier_message *m = flight->message;
    struct kolo_verbs_message *v = kolo_verbs_message_of(m);
    if (m->made == m->total && v->nagain == 0) {
        kolo_carrier_message_take_out(&link->base.flying, m);
        kolo_carrier_message_append(&link->base.sends, m);
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

/* ---- the end ---- */

void kolo_verbs_message_end(struct kolo_link *link, kolo_status why)
{
    for (int i = 0; i < link->nlanes; i++) { /* the lanes no longer use the requests' memory */
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
