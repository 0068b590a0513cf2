// SPDX-License-Identifier: Apache-2.0
/* Sends and receives: how they are posted, where arriving entries belong, and when they end.
 *
 * The n-th send of a channel matches its n-th receive, so both sides number them alike without a
 * handshake. A DATA entry without bytes announces a long message that has no READY yet. It lets a
 * receiver with another length detect the mismatch. */
#include "transports/verbs/verbs.h"

#include <stdio.h>
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

static void fail_memory(struct kolo_link *link)
{
    kolo_verbs_fail(link, "cannot be sent to: out of memory for a message", 0, false);
}

/* ---- sends ---- */

void kolo_verbs_message_end_send(struct kolo_link *link, struct kolo_carrier_message *m)
{
    const bool made = m->made == m->total && kolo_verbs_message_of(m)->nagain == 0 && !m->failed;
    kolo_carrier_end_send(&link->base, m, made ? &link->base.flying : &link->base.sends);
}

/* Whether the place that came with READY fits a send. */
static bool has_sensible_place(struct kolo_carrier_message *m)
{
    const struct kolo_verbs_place *place = &kolo_verbs_message_of(m)->place;
    return m->failed || place->count == 0 ||
           (place->bytes <= m->total && place->bytes * place->count == m->total);
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
    if (!kolo_verbs_is_long(m->total)) { /* it needs no READY: the receiver detects a mismatch */
        m->ready = m->failed = false;
    } else if (m->ready && !has_sensible_place(m)) {
        const struct kolo_verbs_place *place = &kolo_verbs_message_of(m)->place;
        char what[160];
        (void)snprintf(
            what, sizeof what,
            "sent an invalid message (READY of channel %u, number %u: a place of %u runs "
            "of %llu bytes for %zu)",
            m->channel, m->number, place->count, (unsigned long long)place->bytes, m->total);
        kolo_verbs_fail(link, what, 0, false);
    }
    return KOLO_OK;
}

/* ---- receives ---- */

/* Find the place for a receive that is written in place. Some memory cannot be: the receive has no
 * place then. */
static void find_place(struct kolo_link *link, struct kolo_carrier_message *m)
{
    struct kolo_verbs_message *v = kolo_verbs_message_of(m);
    const struct kolo_bytes *data = &m->req->data;
    const bool flat = data->count == 1 || data->stride == data->bytes;
    if (!flat &&
        (data->bytes < KOLO_VERBS_RUN || data->stride < data->bytes || data->count > UINT32_MAX)) {
        return;
    }
    const size_t span = flat ? m->total : (data->count - 1) * data->stride + data->bytes;
    v->hold = kolo_verbs_memory_hold(link->ep, data->at, span, true);
    if (v->hold == NULL) {
        return;
    }
    v->place = (struct kolo_verbs_place){.at = (uintptr_t)data->at,
                                         .bytes = flat ? m->total : data->bytes,
                                         .stride = flat ? m->total : data->stride,
                                         .count = flat ? 1 : (uint32_t)data->count};
    for (int i = 0; i < link->ep->nrails; i++) {
        v->place.rkey[i] = kolo_verbs_memory_rkey(v->hold, i);
    }
}

static void say_ready(struct kolo_link *link, struct kolo_carrier_message *m)
{
    const struct kolo_carrier_note ready = {.kind = KOLO_VERBS_READY,
                                            .channel = m->channel,
                                            .number = m->number,
                                            .total = m->req->bytes,
                                            .call = m->mine};
    m->ready = true;
    if (!m->failed) {
        find_place(link, m);
    }
    if (!kolo_carrier_queue_note(&link->base, &ready)) {
        fail_memory(link);
    }
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
    if (!kolo_carrier_take(&link->base, m->channel, kolo_verbs_kept_bytes(m->total))) {
        fail_memory(link);
    }
    kolo_carrier_end_receive(&link->base, m);
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
    const struct kolo_carrier_note ready = {.channel = entry->channel,
                                            .number = entry->number,
                                            .total = entry->total,
                                            .call = entry->call};
    struct kolo_carrier_message *m = NULL;
    if (entry->len != sizeof(struct kolo_verbs_place) ||
        !kolo_carrier_hear_ready(&link->base, &ready, &m)) {
        return false;
    }
    if (m == NULL || (m->req != NULL && !kolo_verbs_is_long(m->total))) {
        return true;
    }
    if (m->req != NULL && m->ready) {
        return false;
    }
    memcpy(&kolo_verbs_message_of(m)->place, payload, sizeof(struct kolo_verbs_place));
    if (m->req == NULL) {
        return true;
    }
    m->ready = true;
    m->failed = m->total != entry->total;
    m->call = entry->call;
    if (m->failed && m->begun) {
        kolo_verbs_message_end_send(link, m);
        return true;
    }
    return has_sensible_place(m);
}

static bool data_came(struct kolo_link *link, const struct kolo_verbs_entry *entry,
                      const char *payload)
{
    struct kolo_channel *c = &link->base.channel[entry->channel];
    struct kolo_carrier_message *m =
        kolo_carrier_message_find_ordered(&c->recvs, entry->channel, entry->number);
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
        kolo_carrier_message_find_ordered(&c->recvs, entry->channel, entry->number);
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
    if (entry->channel >= KOLO_CHANNELS) {
        return false;
    }
    kolo_window_hear(&link->base.channel[entry->channel].window,
                     (struct kolo_window_count){entry->taken, entry->taken_blocks});
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
}
