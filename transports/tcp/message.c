// SPDX-License-Identifier: Apache-2.0
/* Sends and receives: which frame goes next, and where arriving bytes belong.
 *
 * The n-th send of a channel matches its n-th receive, so both sides number them alike without a
 * handshake. A receive knows its length. If that is longer than the eager part, it sends READY at
 * once. A sender with another length is detected by its first frame. */
#include "transports/tcp/tcp.h"

#include <errno.h>
#include <stdlib.h>

enum { PREDICTED_LEAST = 1024, EARLY_LEAST = 32 << 10 };
enum { CHUNK_LEAST = 256 << 10, LONG_BYTES = 1 << 20 };

/* ---- notes ---- */

static void fail_memory(struct kolo_link *link)
{
    kolo_tcp_fail(link, "cannot be sent to: out of memory for a message", ENOMEM);
}

void kolo_tcp_message_note(struct kolo_link *link, const struct kolo_carrier_note *note)
{
    if (!kolo_carrier_queue_note(&link->base, note)) {
        fail_memory(link);
    }
}

/* ---- posting ---- */

kolo_status kolo_tcp_message_send(struct kolo_link *link, const struct kolo_bytes *src,
                                  struct kolo_req *req)
{
    struct kolo_carrier_message *m = NULL;
    KOLO_TRY(kolo_carrier_send(&link->base, src, req, &m));
    link->has_long = link->has_long || (m != NULL && m->total >= LONG_BYTES);
    return KOLO_OK;
}

/* Count a receive that has its first part: the sender may send one more message. */
static void count_taken(struct kolo_link *link, uint8_t channel, size_t total)
{
    if (!kolo_carrier_take(&link->base, channel, kolo_tcp_eager(link, total))) {
        fail_memory(link);
    }
}

/* Whether the first part may be read straight to its place, before its header is checked. Another
 * frame may come instead, so the receive must be exclusive. */
static bool is_predictable(const struct kolo_carrier_message *m)
{
    const struct kolo_req *req = m->req;
    return req != NULL && req->exclusive != 0 && !m->touched && !m->failed &&
           req->bytes >= PREDICTED_LEAST &&
           (req->data.count == 1 || req->data.stride == req->data.bytes);
}

static void predict_next(struct kolo_link *link)
{
    link->expected = NULL;
    for (int i = 0; i < KOLO_CHANNELS && link->expected == NULL; i++) {
        struct kolo_carrier_message *m = link->base.channel[i].recvs.first;
        link->expected = m != NULL && is_predictable(m) ? m : NULL;
    }
}

static void end_receive(struct kolo_link *link, struct kolo_carrier_message *m)
{
    for (int i = 0; i < link->nsockets; i++) {
        if (link->socket[i].into == m) { /* more than the message has */
            kolo_tcp_fail(link, "sent an invalid message", EBADMSG);
            return;
        }
    }
    const bool expected = link->expected == m;
    kolo_carrier_end_receive(&link->base, m);
    if (expected) {
        predict_next(link);
    }
}

/* The first part of a message is here, and its receive is posted. */
static void take_first(struct kolo_link *link, struct kolo_carrier_message *m)
{
    count_taken(link, m->channel, m->total);
    if (m->failed || m->moved == m->total) {
        end_receive(link, m);
    }
}

/* The receive of a message that came early is posted now. The rest of its bytes come straight to
 * their place. */
static void deliver_early(struct kolo_link *link, struct kolo_carrier_message *m)
{
    if (!m->failed) {
        kolo_bytes_write(&m->req->data, 0, m->kept, m->moved);
    }
    free(m->kept);
    m->kept = NULL;
    if (m->begun) {
        take_first(link, m);
    }
}

static void say_ready(struct kolo_link *link, struct kolo_carrier_message *m)
{
    if (m->req->bytes > kolo_tcp_eager(link, m->req->bytes)) {
        m->ready = true;
        kolo_tcp_message_note(link, &(struct kolo_carrier_note){.kind = KOLO_TCP_READY,
                                                                .channel = m->channel,
                                                                .number = m->number,
                                                                .total = m->req->bytes,
                                                                .call = m->mine});
    }
}

kolo_status kolo_tcp_message_recv(struct kolo_link *link, const struct kolo_bytes *dst,
                                  struct kolo_req *req)
{
    struct kolo_carrier_message *m = NULL;
    KOLO_TRY(kolo_carrier_recv(&link->base, dst, req, &m));
    if (m == NULL) {
        return KOLO_OK;
    }
    link->has_long = link->has_long || req->bytes >= LONG_BYTES;
    say_ready(link, m);
    if (m->kept != NULL) {
        deliver_early(link, m);
    } else if (link->expected == NULL && is_predictable(m)) {
        link->expected = m;
    }
    return KOLO_OK;
}

/* ---- frames out ---- */

static bool pull_note(struct kolo_link *link, struct kolo_tcp_out *out)
{
    struct kolo_carrier_note note;
    if (!kolo_carrier_pull_note(&link->base, &note)) {
        return false;
    }
    out->frame = (struct kolo_tcp_frame){.kind = note.kind,
                                         .channel = note.channel,
                                         .number = note.number,
                                         .total = note.total,
                                         .call = note.call};
    return true;
}

/* Bytes of the next frame of a send; SIZE_MAX: the send must wait. */
static size_t next_part(const struct kolo_link *link, const struct kolo_carrier_message *m)
{
    const struct kolo_channel *c = &link->base.channel[m->channel];
    const size_t left = m->total - m->made;
    if (!m->begun && kolo_channel_holds_back(c, m, kolo_tcp_eager(link, m->total))) {
        return SIZE_MAX;
    }
    if (m->ready && !m->failed && m->total > kolo_tcp_eager(link, m->total)) {
        const size_t share = kolo_round_up(m->total / (size_t)link->nsockets, 4096);
        const size_t most = link->nsockets > 1 ? KOLO_TCP_CHUNK : KOLO_TCP_EAGER;
        return kolo_min(left, kolo_min(kolo_max(share, CHUNK_LEAST), most));
    }
    return m->begun ? SIZE_MAX : kolo_tcp_eager(link, left);
}

static bool pull_data(struct kolo_link *link, struct kolo_tcp_out *out)
{
    struct kolo_carrier_message *m = link->base.sends.first;
    size_t part = SIZE_MAX;
    while (m != NULL && (part = next_part(link, m)) == SIZE_MAX) {
        m = m->next;
    }
    if (m == NULL) {
        return false;
    }
    out->frame = (struct kolo_tcp_frame){.kind = KOLO_TCP_DATA,
                                         .channel = m->channel,
                                         .len = (uint32_t)part,
                                         .number = m->number,
                                         .offset = m->made,
                                         .total = m->total,
                                         .call = m->req->call};
    out->message = m;
    out->bytes = (uint32_t)part;
    if (!m->begun) {
        kolo_channel_begin(&link->base.channel[m->channel], m, kolo_tcp_eager(link, m->total));
    }
    m->made += part;
    m->flying++;
    if (m->made == m->total) {
        kolo_carrier_message_take_out(&link->base.sends, m);
        kolo_carrier_message_append(&link->base.flying, m);
    }
    return true;
}

bool kolo_tcp_message_pull(struct kolo_link *link, struct kolo_tcp_out *out)
{
    if (link->base.notes == 0 && link->base.sends.first == NULL) {
        return false;
    }
    *out = (struct kolo_tcp_out){0};
    if (!(link->base.notes > 0 && pull_note(link, out)) && !pull_data(link, out)) {
        return false;
    }
    out->frame.magic = KOLO_TCP_FRAME_MAGIC;
    const struct kolo_window_count taken =
        kolo_window_tell(&link->base.channel[out->frame.channel].window);
    out->frame.taken = taken.messages;
    out->frame.taken_blocks = taken.blocks;
    return true;
}

void kolo_tcp_message_sent(struct kolo_link *link, const struct kolo_tcp_out *out)
{
    struct kolo_carrier_message *m = out->message;
    if (m == NULL) {
        return;
    }
    m->flying--;
    m->moved += out->bytes;
    if (m->flying > 0 || (m->moved < m->total && !m->failed)) {
        return;
    }
    kolo_carrier_end_send(&link->base, m,
                          m->made == m->total ? &link->base.flying : &link->base.sends);
}

/* ---- frames in ---- */

bool kolo_tcp_message_listens(const struct kolo_link *link)
{
    return link->base.receiving > 0 || link->base.sends.first != NULL;
}

bool kolo_tcp_message_is_early(const struct kolo_tcp_socket *s)
{
    return s->into != NULL && s->into->req == NULL && s->left >= EARLY_LEAST && s->patience > 0;
}

bool kolo_tcp_message_expects(const struct kolo_link *link, struct iovec *out)
{
    const struct kolo_carrier_message *m = link->expected;
    if (m == NULL) {
        return false;
    }
    *out = (struct iovec){m->req->data.at, kolo_tcp_eager(link, m->total)};
    return true;
}

bool kolo_tcp_message_is_expected(const struct kolo_link *link, const struct kolo_tcp_frame *frame)
{
    const struct kolo_carrier_message *m = link->expected;
    return frame->kind == KOLO_TCP_DATA && frame->channel == m->channel &&
           frame->number == m->number && frame->offset == 0 && frame->total == m->total &&
           frame->len >= kolo_tcp_eager(link, m->total);
}

/* A send whose receive has another length fails. Only its first part goes out, which informs the
 * receiver. */
static bool ready_came(struct kolo_link *link, const struct kolo_tcp_frame *frame)
{
    const struct kolo_carrier_note ready = {.channel = frame->channel,
                                            .number = frame->number,
                                            .total = frame->total,
                                            .call = frame->call};
    struct kolo_carrier_message *m = NULL;
    if (!kolo_carrier_hear_ready(&link->base, &ready, &m)) {
        return false;
    }
    if (m == NULL || m->req == NULL) {
        return true;
    }
    m->ready = true;
    if (m->total != frame->total) {
        m->failed = true;
        m->call = frame->call;
        if (m->begun && m->flying == 0) {
            kolo_carrier_end_send(&link->base, m, &link->base.sends);
        }
    }
    return true;
}

static struct kolo_carrier_message *data_came(struct kolo_link *link,
                                              const struct kolo_tcp_frame *frame)
{
    struct kolo_channel *c = &link->base.channel[frame->channel];
    struct kolo_carrier_message *m =
        kolo_carrier_message_find_ordered(&c->recvs, frame->channel, frame->number);
    if (frame->len > frame->total || frame->offset > frame->total - frame->len) {
        return NULL;
    }
    if (m == NULL) { /* only the first part may come before its receive */
        m = frame->offset == 0 && frame->len == kolo_tcp_eager(link, frame->total)
                ? kolo_carrier_keep(&link->base, frame->channel, frame->number, frame->total,
                                    frame->len + (size_t)1)
                : NULL;
        if (m != NULL) {
            kolo_carrier_note_call(&link->base, m, &frame->call);
        }
        return m;
    }
    const bool first_came = m->begun || m->kept != NULL;
    const size_t first = kolo_tcp_eager(link, frame->total);
    if (m->req == NULL || (frame->offset == 0 ? first_came : frame->offset < first) ||
        m->moved + frame->len > frame->total) {
        return NULL; /* the same part again, or a later one before READY */
    }
    if (frame->offset == 0) {
        kolo_carrier_note_call(&link->base, m, &frame->call);
    }
    m->failed = m->failed || frame->total != m->total;
    m->touched = true; /* from here on no socket may read ahead into it */
    if (link->expected == m) {
        predict_next(link);
    }
    return m;
}

bool kolo_tcp_message_arrives(struct kolo_link *link, const struct kolo_tcp_frame *frame,
                              struct kolo_carrier_message **into)
{
    *into = NULL;
    if (frame->magic != KOLO_TCP_FRAME_MAGIC || frame->channel >= KOLO_CHANNELS ||
        (frame->kind != KOLO_TCP_DATA && frame->len > 0)) {
        return false;
    }
    kolo_window_hear(&link->base.channel[frame->channel].window,
                     (struct kolo_window_count){frame->taken, frame->taken_blocks});
    switch (frame->kind) {
    case KOLO_TCP_DATA:
        *into = data_came(link, frame);
        return *into != NULL;
    case KOLO_TCP_READY:
        return ready_came(link, frame);
    case KOLO_TCP_TAKEN:
        return true;
    case KOLO_TCP_BYE:
        link->base.bye = true;
        return true;
    case KOLO_TCP_ABORT:
        kolo_carrier_aborted(&link->base, (int32_t)frame->number);
        return true;
    case KOLO_TCP_TEXT:
        kolo_carrier_hear_reason(&link->base, (size_t)frame->number * KOLO_TCP_TEXT_PART,
                                 (const char *)frame + offsetof(struct kolo_tcp_frame, offset),
                                 KOLO_TCP_TEXT_PART);
        return true;
    case KOLO_TCP_WORD:
        link->words = true;
        kolo_carrier_hear_word(&link->base, frame->total, &frame->call);
        return true;
    default:
        return false;
    }
}

int kolo_tcp_message_room(const struct kolo_carrier_message *into, size_t at, size_t left,
                          struct iovec *out, int count)
{
    int used = 0;
    if (into->kept != NULL && left > 0) {
        out[0] = (struct iovec){into->kept + at, left};
        return 1;
    }
    while (!into->failed && left > 0 && used < count) {
        size_t room = 0;
        char *to = kolo_bytes_at(&into->req->data, at, &room);
        room = kolo_min(room, left);
        out[used++] = (struct iovec){to, room};
        at += room;
        left -= room;
    }
    return used;
}

void kolo_tcp_message_came(struct kolo_link *link, const struct kolo_tcp_frame *frame,
                           struct kolo_carrier_message *into, size_t len, bool whole)
{
    into->moved += len;
    if (whole && frame->offset == 0) {
        into->begun = true;
        if (into->req == NULL) {
            return;
        }
        count_taken(link, into->channel, frame->total);
    }
    if (whole && (into->failed || (into->begun && into->moved == into->total))) {
        end_receive(link, into);
    }
}

/* ---- the end ---- */

void kolo_tcp_message_end(struct kolo_link *link, kolo_status why)
{
    for (int i = 0; i < link->nsockets; i++) { /* sockets no longer use the requests' memory */
        link->socket[i].into = NULL;
        link->socket[i].left = 0;
        link->socket[i].decodes = false;
        link->socket[i].count = 0;
    }
    kolo_carrier_end(&link->base, why);
    link->expected = NULL;
}
