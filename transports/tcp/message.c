// SPDX-License-Identifier: Apache-2.0
/* Sends and receives: which frame comes next, and where what arrives belongs. See tcp.h.
 *
 * The n-th send of a channel meets its n-th receive, so both sides number them alike and nothing
 * has to be asked. A receive knows the length it expects: it says READY at once where that is
 * beyond the eager part, and whoever sends another length is found out by the first frame. */
#include "transports/tcp/tcp.h"

#include <errno.h>
#include <stdlib.h>

enum { PREDICTED_LEAST = 1024 };
enum { EARLY_MOST = 1 << 16, CHUNK_LEAST = 256 << 10, LONG_BYTES = 1 << 20 };

/* ---- records and lists ---- */

static struct kolo_tcp_message *record(struct kolo_link *link, uint8_t channel, uint32_t number,
                                       size_t total)
{
    struct kolo_tcp_message *m = link->spare;
    if (m != NULL) {
        link->spare = m->next;
    } else {
        m = malloc(sizeof *m);
    }
    if (m != NULL) {
        *m = (struct kolo_tcp_message){.number = number, .channel = channel, .total = total};
    }
    return m;
}

static void recycle(struct kolo_link *link, struct kolo_tcp_message *m)
{
    free(m->kept);
    m->kept = NULL;
    m->next = link->spare;
    link->spare = m;
}

static void append(struct kolo_tcp_list *list, struct kolo_tcp_message *m)
{
    m->next = NULL;
    *(list->first == NULL ? &list->first : &list->last->next) = m;
    list->last = m;
}

/* Behind all of smaller numbers. */
static void insert(struct kolo_tcp_list *list, struct kolo_tcp_message *m)
{
    struct kolo_tcp_message *before = NULL;
    if (list->first == NULL || (int32_t)(m->number - list->last->number) > 0) {
        append(list, m);
        return;
    }
    for (struct kolo_tcp_message *at = list->first; (int32_t)(m->number - at->number) > 0;
         at = at->next) {
        before = at;
    }
    struct kolo_tcp_message **here = before == NULL ? &list->first : &before->next;
    m->next = *here;
    *here = m;
}

static void take_out(struct kolo_tcp_list *list, const struct kolo_tcp_message *m)
{
    struct kolo_tcp_message *before = NULL;
    for (struct kolo_tcp_message *at = list->first; at != m; at = at->next) {
        before = at;
    }
    *(before == NULL ? &list->first : &before->next) = m->next;
    list->last = m->next == NULL ? before : list->last;
}

static struct kolo_tcp_message *find(const struct kolo_tcp_list *list, int channel, uint32_t number)
{
    struct kolo_tcp_message *m = list->first;
    while (m != NULL && (m->number != number || m->channel != channel)) {
        m = m->next;
    }
    return m;
}

/* Its owner may use the request again from here on. */
static void finish(struct kolo_link *link, struct kolo_req *req, kolo_status status)
{
    link->pending--;
    link->done++;
    link->receiving -= req->own != NULL;
    req->moved = status == KOLO_OK ? req->bytes : req->moved;
    __atomic_store_n(&req->status, status, __ATOMIC_RELEASE);
}

static size_t eager_part(size_t total)
{
    return kolo_min(total, KOLO_TCP_EAGER);
}

void kolo_tcp_message_note(struct kolo_link *link, enum kolo_tcp_kind kind, uint8_t channel,
                           uint32_t number, uint64_t total)
{
    if (link->notes == link->note_cap) {
        const int cap = link->note_cap == 0 ? 16 : 2 * link->note_cap;
        struct kolo_tcp_note *grown = realloc(link->note, (size_t)cap * sizeof *grown);
        if (grown == NULL) {
            kolo_tcp_fail(link, "no memory for a message to it", 0);
            return;
        }
        link->note = grown;
        link->note_cap = cap;
    }
    link->note[link->notes++] = (struct kolo_tcp_note){(uint8_t)kind, channel, number, total};
    kolo_tcp_activate(link);
}

/* ---- posting ---- */

static kolo_status refuse(struct kolo_link *link, const struct kolo_req *req)
{
    const struct kolo_env *env = &link->dev->env;
    const kolo_status why = (kolo_status)atomic_load(&link->why);
    if (why != KOLO_OK) {
        return env->fail(why, "tcp: aborted");
    }
    if (link->failed != KOLO_OK) {
        return env->fail(link->failed, link->text);
    }
    return req->channel < KOLO_CHANNELS
               ? KOLO_OK
               : env->fail(KOLO_ERR_INVALID, "tcp: there is no such channel");
}

/* All of it came before its sender said good-bye. */
static bool is_whole(const struct kolo_link *link, const struct kolo_tcp_message *m)
{
    return link->bye && m->req == NULL && m->begun && m->total <= KOLO_TCP_EAGER;
}

/* The peer has left, and what it sent for this receive is here. */
static bool is_held(const struct kolo_link *link, const struct kolo_req *req)
{
    if (link->failed != KOLO_ERR_LINK || req->channel >= KOLO_CHANNELS) {
        return false;
    }
    const struct kolo_tcp_channel *c = &link->channel[req->channel];
    const struct kolo_tcp_message *m = find(&c->recvs, (int)req->channel, c->received);
    return m != NULL && is_whole(link, m);
}

static void begin(struct kolo_link *link, bool receives, const struct kolo_bytes *data,
                  struct kolo_req *req)
{
    link->pending++;
    link->receiving += receives;
    req->own = receives ? link : NULL;
    req->status = KOLO_INPROGRESS;
    req->bytes = kolo_bytes_total(data);
    req->moved = 0;
    req->data = *data;
    link->has_long = link->has_long || req->bytes >= LONG_BYTES;
    kolo_tcp_activate(link);
}

/* A rank's message to itself: whoever comes second copies. */
static void post_self(struct kolo_link *link, bool sends, struct kolo_req *req)
{
    struct kolo_req *match =
        kolo_fifo_take(sends ? &link->self_recvs : &link->self_sends, req->channel);
    if (match == NULL) {
        kolo_fifo_push(sends ? &link->self_sends : &link->self_recvs, req);
        return;
    }
    const bool equal = req->bytes == match->bytes;
    if (equal) {
        kolo_bytes_copy(sends ? &match->data : &req->data, sends ? &req->data : &match->data);
    }
    finish(link, match, equal ? KOLO_OK : KOLO_ERR_MISMATCH);
    finish(link, req, equal ? KOLO_OK : KOLO_ERR_MISMATCH);
}

/* READY that came before its send. */
static bool was_early(struct kolo_tcp_channel *c, uint32_t number, uint64_t *total)
{
    for (int i = 0; i < c->nearly; i++) {
        if (c->early[i].number == number) {
            *total = c->early[i].total;
            c->early[i] = c->early[--c->nearly];
            return true;
        }
    }
    return false;
}

/* A send whose receive is of another length: no more than its first part goes out, which tells the
 * receiver. */
static void mismatch(struct kolo_link *link, struct kolo_tcp_message *m)
{
    m->failed = true;
    if (m->begun && m->flying == 0) {
        take_out(&link->sends, m);
        finish(link, m->req, KOLO_ERR_MISMATCH);
        recycle(link, m);
    }
}

kolo_status kolo_tcp_message_send(struct kolo_link *link, const struct kolo_bytes *src,
                                  struct kolo_req *req)
{
    KOLO_TRY(refuse(link, req));
    begin(link, false, src, req);
    if (link->self) {
        post_self(link, true, req);
        return KOLO_OK;
    }
    struct kolo_tcp_channel *c = &link->channel[req->channel];
    struct kolo_tcp_message *m = record(link, (uint8_t)req->channel, c->sent, req->bytes);
    uint64_t total = 0;
    if (m == NULL) {
        link->pending--;
        return link->dev->env.fail(KOLO_ERR_SYSTEM, "tcp: no memory for a message");
    }
    c->sent++;
    m->req = req;
    append(&link->sends, m);
    if (was_early(c, m->number, &total)) {
        m->ready = true;
        if (total != m->total) {
            mismatch(link, m);
        }
    }
    return KOLO_OK;
}

/* The receive has its first part: from now on the sender may send one more. */
static void taken(struct kolo_link *link, uint8_t channel, size_t total)
{
    struct kolo_tcp_channel *c = &link->channel[channel];
    c->taken++;
    c->untold += eager_part(total);
    const bool due = c->taken - c->told >= KOLO_TCP_DEPTH / 2 || c->untold >= KOLO_TCP_WINDOW / 2;
    if (due && !c->noted) { /* late enough to be rare, early enough that nobody waits for it */
        c->noted = true;
        kolo_tcp_message_note(link, KOLO_TCP_TAKEN, channel, 0, 0);
    }
}

/* Receives whose first part is read straight to its place, before its header is looked at: what
 * comes may be another frame, so the place must be ours until then. */
static bool is_predictable(const struct kolo_tcp_message *m)
{
    const struct kolo_req *req = m->req;
    return req != NULL && req->lent != 0 && !m->touched && !m->failed &&
           req->bytes >= PREDICTED_LEAST &&
           (req->data.count == 1 || req->data.stride == req->data.bytes);
}

static void predict_next(struct kolo_link *link)
{
    link->expected = NULL;
    for (int i = 0; i < KOLO_CHANNELS && link->expected == NULL; i++) {
        struct kolo_tcp_message *m = link->channel[i].recvs.first;
        link->expected = m != NULL && is_predictable(m) ? m : NULL;
    }
}

static void end_receive(struct kolo_link *link, struct kolo_tcp_message *m, kolo_status status)
{
    for (int i = 0; i < link->nsockets; i++) {
        if (link->socket[i].into == m) { /* more than the message has */
            kolo_tcp_fail(link, "sent what is no message", EBADMSG);
            return;
        }
    }
    take_out(&link->channel[m->channel].recvs, m);
    finish(link, m->req, status);
    if (link->expected == m) {
        predict_next(link);
    }
    recycle(link, m);
}

/* What came early has its receive, and is there whole. */
static void deliver(struct kolo_link *link, struct kolo_tcp_message *m)
{
    if (!m->failed) {
        kolo_bytes_write(&m->req->data, 0, m->kept, eager_part(m->total));
    }
    free(m->kept);
    m->kept = NULL;
    taken(link, m->channel, m->total);
    if (m->failed || m->moved == m->total) {
        end_receive(link, m, m->failed ? KOLO_ERR_MISMATCH : KOLO_OK);
    }
}

static void say_ready(struct kolo_link *link, struct kolo_tcp_message *m)
{
    if (m->req->bytes > KOLO_TCP_EAGER) {
        m->ready = true;
        kolo_tcp_message_note(link, KOLO_TCP_READY, m->channel, m->number, m->req->bytes);
    }
}

kolo_status kolo_tcp_message_recv(struct kolo_link *link, const struct kolo_bytes *dst,
                                  struct kolo_req *req)
{
    if (!is_held(link, req)) {
        KOLO_TRY(refuse(link, req));
    }
    begin(link, true, dst, req);
    if (link->self) {
        post_self(link, false, req);
        return KOLO_OK;
    }
    struct kolo_tcp_channel *c = &link->channel[req->channel];
    struct kolo_tcp_message *m = find(&c->recvs, (int)req->channel, c->received);
    const bool came = m != NULL;
    if (!came) {
        m = record(link, (uint8_t)req->channel, c->received, req->bytes);
    }
    if (m == NULL) {
        link->pending--;
        link->receiving--;
        return link->dev->env.fail(KOLO_ERR_SYSTEM, "tcp: no memory for a message");
    }
    c->received++;
    m->req = req;
    m->failed = m->total != req->bytes;
    say_ready(link, m);
    if (!came) {
        insert(&c->recvs, m);
        link->expected = link->expected == NULL && is_predictable(m) ? m : link->expected;
    } else if (m->begun) {
        deliver(link, m);
    }
    return KOLO_OK;
}

/* ---- frames out ---- */

static bool pull_note(struct kolo_link *link, struct kolo_tcp_out *out)
{
    int used = 0;
    bool found = false;
    while (!found && used < link->notes) {
        const struct kolo_tcp_note *note = &link->note[used++];
        const struct kolo_tcp_channel *c = &link->channel[note->channel];
        if (note->kind != KOLO_TCP_TAKEN || c->taken != c->told) { /* else another frame said it */
            out->frame = (struct kolo_tcp_frame){.kind = note->kind,
                                                 .channel = note->channel,
                                                 .number = note->number,
                                                 .total = note->total};
            found = true;
        }
    }
    link->notes -= used;
    memmove(link->note, link->note + used, (size_t)link->notes * sizeof *link->note);
    return found;
}

/* Bytes of the next frame of a send; SIZE_MAX: it has to wait. */
static size_t next_part(const struct kolo_link *link, const struct kolo_tcp_message *m)
{
    const struct kolo_tcp_channel *c = &link->channel[m->channel];
    const size_t left = m->total - m->made;
    if (!m->begun && (m->number != c->begun || m->number - c->peer_taken >= KOLO_TCP_DEPTH ||
                      c->untaken + eager_part(m->total) > KOLO_TCP_WINDOW)) {
        return SIZE_MAX;
    }
    if (m->ready && !m->failed && m->total > KOLO_TCP_EAGER) {
        const size_t share = kolo_round_up(m->total / (size_t)link->nsockets, 4096);
        return kolo_min(left, kolo_min(kolo_max(share, CHUNK_LEAST), KOLO_TCP_CHUNK));
    }
    return m->begun ? SIZE_MAX : eager_part(left);
}

static bool pull_data(struct kolo_link *link, struct kolo_tcp_out *out)
{
    struct kolo_tcp_message *m = link->sends.first;
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
                                         .total = m->total};
    out->message = m;
    if (!m->begun) {
        struct kolo_tcp_channel *c = &link->channel[m->channel];
        c->first[m->number % KOLO_TCP_DEPTH] = (uint32_t)eager_part(m->total);
        c->untaken += eager_part(m->total);
        c->begun++;
        m->begun = true;
    }
    m->made += part;
    m->flying++;
    if (m->made == m->total) {
        take_out(&link->sends, m);
        append(&link->flying, m);
    }
    return true;
}

bool kolo_tcp_message_pull(struct kolo_link *link, struct kolo_tcp_out *out)
{
    *out = (struct kolo_tcp_out){0};
    if (!(link->notes > 0 && pull_note(link, out)) && !pull_data(link, out)) {
        return false;
    }
    struct kolo_tcp_channel *c = &link->channel[out->frame.channel];
    out->frame.magic = KOLO_TCP_FRAME_MAGIC;
    out->frame.taken = c->told = c->taken;
    c->untold = 0;
    c->noted = false;
    if (link->sums) {
        kolo_tcp_stream_sum(&out->frame, out->message);
    }
    return true;
}

void kolo_tcp_message_sent(struct kolo_link *link, const struct kolo_tcp_out *out)
{
    struct kolo_tcp_message *m = out->message;
    if (m == NULL) {
        return;
    }
    m->flying--;
    m->moved += out->frame.len;
    if (m->flying > 0 || (m->moved < m->total && !m->failed)) {
        return;
    }
    take_out(m->made == m->total ? &link->flying : &link->sends, m);
    finish(link, m->req, m->failed ? KOLO_ERR_MISMATCH : KOLO_OK);
    recycle(link, m);
}

/* ---- frames in ---- */

bool kolo_tcp_message_listens(const struct kolo_link *link)
{
    return link->receiving > 0 || link->sends.first != NULL;
}

bool kolo_tcp_message_expects(const struct kolo_link *link, struct iovec *out)
{
    const struct kolo_tcp_message *m = link->expected;
    if (m == NULL) {
        return false;
    }
    *out = (struct iovec){m->req->data.at, eager_part(m->total)};
    return true;
}

bool kolo_tcp_message_is_expected(const struct kolo_link *link, const struct kolo_tcp_frame *frame)
{
    const struct kolo_tcp_message *m = link->expected;
    return frame->kind == KOLO_TCP_DATA && frame->channel == m->channel &&
           frame->number == m->number && frame->offset == 0 && frame->total == m->total &&
           frame->len >= eager_part(m->total);
}

static bool ready_came(struct kolo_link *link, const struct kolo_tcp_frame *frame)
{
    struct kolo_tcp_channel *c = &link->channel[frame->channel];
    struct kolo_tcp_message *m = find(&link->sends, frame->channel, frame->number);
    if (m != NULL) {
        m->ready = true;
        if (m->total != frame->total) {
            mismatch(link, m);
        }
        return true;
    }
    if ((int32_t)(frame->number - c->sent) < 0) {
        return true; /* a short one, which needed none: the receiver finds out */
    }
    if (c->nearly == c->early_cap) {
        const int cap = c->early_cap == 0 ? 16 : 2 * c->early_cap;
        struct kolo_tcp_early *grown =
            cap <= EARLY_MOST ? realloc(c->early, (size_t)cap * sizeof *grown) : NULL;
        if (grown == NULL) {
            return false;
        }
        c->early = grown;
        c->early_cap = cap;
    }
    c->early[c->nearly++] = (struct kolo_tcp_early){frame->number, frame->total};
    return true;
}

/* The first frame of a message whose receive is not posted: it is kept. */
static struct kolo_tcp_message *keep(struct kolo_link *link, const struct kolo_tcp_frame *frame)
{
    struct kolo_tcp_channel *c = &link->channel[frame->channel];
    if (frame->number - c->received >= KOLO_TCP_DEPTH || frame->offset != 0 ||
        frame->len != eager_part(frame->total)) {
        return NULL;
    }
    struct kolo_tcp_message *m = record(link, frame->channel, frame->number, frame->total);
    char *kept = malloc(frame->len + (size_t)1);
    if (m == NULL || kept == NULL) {
        free(m);
        free(kept);
        return NULL;
    }
    m->kept = kept;
    m->touched = true; /* what is to come goes behind it, once it has its receive */
    insert(&c->recvs, m);
    return m;
}

static struct kolo_tcp_message *data_came(struct kolo_link *link,
                                          const struct kolo_tcp_frame *frame)
{
    struct kolo_tcp_channel *c = &link->channel[frame->channel];
    struct kolo_tcp_message *m = find(&c->recvs, frame->channel, frame->number);
    if (frame->len > frame->total || frame->offset > frame->total - frame->len) {
        return NULL;
    }
    if (m == NULL) {
        return keep(link, frame);
    }
    if (m->req == NULL || (m->begun && frame->offset == 0) ||
        m->moved + frame->len > frame->total) {
        return NULL; /* the same part again, or a later one that nobody asked for */
    }
    m->failed = m->failed || frame->total != m->total;
    m->touched = true; /* from here on no socket may read ahead into it */
    if (link->expected == m) {
        predict_next(link);
    }
    return m;
}

/* The oldest are taken to be those taken: where sockets overtake each other that is near enough. */
static void hear_taken(struct kolo_tcp_channel *c, uint32_t taken)
{
    if (c->sent - taken > c->sent - c->peer_taken || taken - c->peer_taken > KOLO_TCP_DEPTH) {
        return; /* older news, or more than were sent */
    }
    while (c->peer_taken != taken) {
        c->untaken -= c->first[c->peer_taken % KOLO_TCP_DEPTH];
        c->first[c->peer_taken++ % KOLO_TCP_DEPTH] = 0;
    }
}

bool kolo_tcp_message_arrives(struct kolo_link *link, const struct kolo_tcp_frame *frame,
                              struct kolo_tcp_message **into)
{
    *into = NULL;
    if (frame->magic != KOLO_TCP_FRAME_MAGIC || frame->channel >= KOLO_CHANNELS ||
        (frame->kind != KOLO_TCP_DATA && frame->len > 0)) {
        return false;
    }
    hear_taken(&link->channel[frame->channel], frame->taken);
    switch (frame->kind) {
    case KOLO_TCP_DATA:
        *into = data_came(link, frame);
        return *into != NULL;
    case KOLO_TCP_READY:
        return ready_came(link, frame);
    case KOLO_TCP_TAKEN:
        return true;
    case KOLO_TCP_BYE:
        link->bye = true;
        return true;
    case KOLO_TCP_ABORT:
        kolo_tcp_aborted(link, (int32_t)frame->number);
        return true;
    case KOLO_TCP_WORD:
        link->words = true;
        if (link->dev->env.said != NULL) {
            link->dev->env.said(link->dev->env.owner, link->peer.rank, frame->total);
        }
        return true;
    default:
        return false;
    }
}

int kolo_tcp_message_room(const struct kolo_tcp_message *into, size_t at, size_t left,
                          struct iovec *out, int count)
{
    int used = 0;
    if (into->kept != NULL && left > 0 && at < KOLO_TCP_EAGER) {
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
                           struct kolo_tcp_message *into, size_t len, bool whole)
{
    into->moved += len;
    if (whole && frame->offset == 0) {
        into->begun = true;
        if (into->kept != NULL) {
            if (into->req != NULL) {
                deliver(link, into);
            }
            return;
        }
        taken(link, into->channel, into->total);
    }
    if (whole && (into->failed || (into->begun && into->moved == into->total))) {
        end_receive(link, into, into->failed ? KOLO_ERR_MISMATCH : KOLO_OK);
    }
}

/* ---- the end ---- */

static int end_list(struct kolo_link *link, struct kolo_tcp_list *list, kolo_status why)
{
    int count = 0;
    while (list->first != NULL) {
        struct kolo_tcp_message *m = list->first;
        list->first = m->next;
        if (m->req != NULL) {
            finish(link, m->req, why);
            count++;
        }
        recycle(link, m);
    }
    return count;
}

/* Where the peer left, what it had sent stays for the receives that will be posted. */
static int end_receives(struct kolo_link *link, struct kolo_tcp_list *list, kolo_status why)
{
    struct kolo_tcp_list all = *list;
    int count = 0;
    *list = (struct kolo_tcp_list){0};
    for (struct kolo_tcp_message *m = all.first, *next = NULL; m != NULL; m = next) {
        next = m->next;
        struct kolo_tcp_list one = {m, m};
        m->next = NULL;
        if (why == KOLO_ERR_LINK && is_whole(link, m)) {
            append(list, m);
        } else {
            count += end_list(link, &one, why);
        }
    }
    return count;
}

static int end_fifo(struct kolo_link *link, struct kolo_fifo *fifo, kolo_status why)
{
    int count = 0;
    for (struct kolo_req *req; (req = kolo_fifo_pop(fifo)) != NULL; count++) {
        finish(link, req, why);
    }
    return count;
}

int kolo_tcp_message_end(struct kolo_link *link, kolo_status why)
{
    int count = end_fifo(link, &link->self_sends, why) + end_fifo(link, &link->self_recvs, why);
    for (int i = 0; i < link->nsockets; i++) { /* nobody reads or writes their memory from here */
        link->socket[i].into = NULL;
        link->socket[i].left = 0;
        link->socket[i].count = 0;
    }
    count += end_list(link, &link->sends, why) + end_list(link, &link->flying, why);
    for (int i = 0; i < KOLO_CHANNELS; i++) {
        count += end_receives(link, &link->channel[i].recvs, why);
    }
    link->notes = 0;
    link->expected = NULL;
    return count;
}

void kolo_tcp_message_free(struct kolo_link *link)
{
    while (link->spare != NULL) {
        struct kolo_tcp_message *next = link->spare->next;
        free(link->spare);
        link->spare = next;
    }
    for (int i = 0; i < KOLO_CHANNELS; i++) {
        free(link->channel[i].early);
    }
    free(link->note);
}
