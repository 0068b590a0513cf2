// SPDX-License-Identifier: Apache-2.0
/* Sends and receives: which entry comes next, and where what arrives belongs. See verbs.h.
 *
 * The n-th send of a channel meets its n-th receive, so both sides number them alike and nothing
 * has to be asked. A long message that no READY waits for is announced by a DATA entry without
 * bytes, by which a receiver of another length finds out. */
#include "transports/verbs/verbs.h"

#include <stdlib.h>

enum { EARLY_MOST = 1 << 16, WRITES = 16, PIPELINE = 2 * KOLO_VERBS_CHUNK };

/* ---- records and lists ---- */

static struct kolo_verbs_message *record(struct kolo_link *link, uint8_t channel, uint32_t number,
                                         size_t total)
{
    struct kolo_verbs_message *m = link->spare;
    if (m != NULL) {
        link->spare = m->next;
    } else {
        m = malloc(sizeof *m);
    }
    if (m != NULL) { /* most of it are chunks that hardly any message has */
        memset(m, 0, offsetof(struct kolo_verbs_message, again));
        m->number = number;
        m->channel = channel;
        m->total = total;
    }
    return m;
}

static void recycle(struct kolo_link *link, struct kolo_verbs_message *m)
{
    kolo_verbs_memory_drop(link->dev, m->hold);
    free(m->kept);
    m->hold = NULL;
    m->kept = NULL;
    m->next = link->spare;
    link->spare = m;
}

static void append(struct kolo_verbs_list *list, struct kolo_verbs_message *m)
{
    m->next = NULL;
    *(list->first == NULL ? &list->first : &list->last->next) = m;
    list->last = m;
}

/* Behind all of smaller numbers. */
static void insert(struct kolo_verbs_list *list, struct kolo_verbs_message *m)
{
    struct kolo_verbs_message *before = NULL;
    if (list->first == NULL || (int32_t)(m->number - list->last->number) > 0) {
        append(list, m);
        return;
    }
    for (struct kolo_verbs_message *at = list->first; (int32_t)(m->number - at->number) > 0;
         at = at->next) {
        before = at;
    }
    struct kolo_verbs_message **here = before == NULL ? &list->first : &before->next;
    m->next = *here;
    *here = m;
}

static void take_out(struct kolo_verbs_list *list, const struct kolo_verbs_message *m)
{
    struct kolo_verbs_message *before = NULL;
    for (struct kolo_verbs_message *at = list->first; at != m; at = at->next) {
        before = at;
    }
    *(before == NULL ? &list->first : &before->next) = m->next;
    list->last = m->next == NULL ? before : list->last;
}

static struct kolo_verbs_message *find(const struct kolo_verbs_list *list, int channel,
                                       uint32_t number)
{
    struct kolo_verbs_message *m = list->first;
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

static void read_bytes(struct kolo_link *link, const struct kolo_verbs_message *m, char *to,
                       size_t len)
{
    if (m->of_gpu) {
        copy_gpu(link, to, (char *)m->req->data.at + m->made, len, false);
    } else {
        kolo_bytes_read(&m->req->data, m->made, to, len);
    }
}

static void write_at(struct kolo_link *link, const struct kolo_verbs_message *m, size_t at,
                     const char *from, size_t len)
{
    if (m->of_gpu) {
        copy_gpu(link, (char *)m->req->data.at + at, from, len, true);
    } else {
        kolo_bytes_write(&m->req->data, at, from, len);
    }
}

static void note(struct kolo_link *link, const struct kolo_verbs_note *given)
{
    if (link->notes == link->note_cap) {
        const int cap = link->note_cap == 0 ? 16 : 2 * link->note_cap;
        struct kolo_verbs_note *grown = realloc(link->note, (size_t)cap * sizeof *grown);
        if (grown == NULL) {
            kolo_verbs_fail(link, "no memory for a message to it", 0, false);
            return;
        }
        link->note = grown;
        link->note_cap = cap;
    }
    link->note[link->notes++] = *given;
    kolo_verbs_activate(link);
}

/* ---- posting ---- */

static kolo_status refuse(struct kolo_link *link, const struct kolo_req *req)
{
    const struct kolo_env *env = &link->dev->env;
    const kolo_status why = (kolo_status)atomic_load(&link->why);
    if (why != KOLO_OK) {
        return env->fail(why, "verbs: aborted");
    }
    if (link->failed != KOLO_OK) {
        return env->fail(link->failed, link->text);
    }
    return req->channel < KOLO_CHANNELS
               ? KOLO_OK
               : env->fail(KOLO_ERR_INVALID, "verbs: there is no such channel");
}

/* All of it came before its sender said good-bye. */
static bool is_whole(const struct kolo_link *link, const struct kolo_verbs_message *m)
{
    return link->bye && m->req == NULL && !is_long(m->total) && m->moved == m->total;
}

/* The peer has left, and what it sent for this receive is here. */
static bool is_held(const struct kolo_link *link, const struct kolo_req *req)
{
    if (link->failed != KOLO_ERR_LINK || req->channel >= KOLO_CHANNELS) {
        return false;
    }
    const struct kolo_verbs_channel *c = &link->channel[req->channel];
    const struct kolo_verbs_message *m = find(&c->recvs, (int)req->channel, c->received);
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
    kolo_verbs_activate(link);
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

/* ---- sends ---- */

static void end_send(struct kolo_link *link, struct kolo_verbs_message *m)
{
    const bool made = m->made == m->total && m->nagain == 0 && !m->failed;
    take_out(made ? &link->flying : &link->sends, m);
    finish(link, m->req, m->failed ? KOLO_ERR_MISMATCH : KOLO_OK);
    recycle(link, m);
}

/* READY came. False: it makes no sense. */
static bool make_ready(struct kolo_verbs_message *m, uint64_t total,
                       const struct kolo_verbs_place *place)
{
    if (m->ready) {
        return false;
    }
    m->ready = true;
    m->failed = m->total != total;
    m->place = *place;
    return m->failed || place->count == 0 ||
           (place->bytes <= m->total && place->bytes * place->count == m->total);
}

static bool was_early(struct kolo_verbs_channel *c, struct kolo_verbs_message *m, bool *sensible)
{
    for (int i = 0; i < c->nearly; i++) {
        if (c->early[i].number == m->number) {
            const struct kolo_verbs_early early = c->early[i];
            c->early[i] = c->early[--c->nearly];
            *sensible = !is_long(m->total) || make_ready(m, early.total, &early.place);
            return true;
        }
    }
    return false;
}

kolo_status kolo_verbs_message_send(struct kolo_link *link, const struct kolo_bytes *src,
                                    struct kolo_req *req)
{
    bool sensible = true;
    KOLO_TRY(refuse(link, req));
    begin(link, false, src, req);
    if (link->self) {
        post_self(link, true, req);
        return KOLO_OK;
    }
    struct kolo_verbs_channel *c = &link->channel[req->channel];
    struct kolo_verbs_message *m = record(link, (uint8_t)req->channel, c->sent, req->bytes);
    if (m == NULL) {
        link->pending--;
        return link->dev->env.fail(KOLO_ERR_SYSTEM, "verbs: no memory for a message");
    }
    c->sent++;
    m->req = req;
    m->of_gpu = kolo_verbs_memory_is_gpu(link->dev, src->at, req->bytes);
    append(&link->sends, m);
    if (c->nearly > 0 && was_early(c, m, &sensible) && !sensible) {
        kolo_verbs_fail(link, "sent what is no message", 0, false);
    }
    if (link->nlive > 0 && link->sends.first == m) { /* else others come first */
        (void)kolo_verbs_message_pump(link);
    }
    return KOLO_OK;
}

/* ---- receives ---- */

/* Its memory is to be written in place: where that is. */
static bool find_place(struct kolo_link *link, struct kolo_verbs_message *m,
                       struct kolo_verbs_place *out)
{
    const struct kolo_bytes *data = &m->req->data;
    const bool flat = data->count == 1 || data->stride == data->bytes;
    if (!flat &&
        (data->bytes < KOLO_VERBS_RUN || data->stride < data->bytes || data->count > UINT32_MAX)) {
        return false;
    }
    const size_t span = flat ? m->total : (data->count - 1) * data->stride + data->bytes;
    m->hold = kolo_verbs_memory_hold(link->dev, data->at, span, true);
    if (m->hold == NULL) {
        return false;
    }
    *out = (struct kolo_verbs_place){.at = (uintptr_t)data->at,
                                     .bytes = flat ? m->total : data->bytes,
                                     .stride = flat ? m->total : data->stride,
                                     .count = flat ? 1 : (uint32_t)data->count};
    for (int i = 0; i < link->dev->nrails; i++) {
        out->rkey[i] = kolo_verbs_memory_rkey(m->hold, i);
    }
    return true;
}

static void say_ready(struct kolo_link *link, struct kolo_verbs_message *m)
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
static void taken(struct kolo_link *link, const struct kolo_verbs_message *m)
{
    struct kolo_verbs_channel *c = &link->channel[m->channel];
    c->taken++;
    c->untold += kept_part(m->total);
    if (!c->noted &&
        (c->taken - c->told >= KOLO_VERBS_DEPTH / 2 || c->untold >= KOLO_VERBS_WINDOW / 2)) {
        const struct kolo_verbs_note told = {.kind = KOLO_VERBS_TAKEN, .channel = m->channel};
        c->noted = true;
        note(link, &told);
    }
}

static void end_receive(struct kolo_link *link, struct kolo_verbs_message *m)
{
    taken(link, m);
    take_out(&link->channel[m->channel].recvs, m);
    finish(link, m->req, m->failed ? KOLO_ERR_MISMATCH : KOLO_OK);
    recycle(link, m);
}

/* It is all there, or there is no more to come of what does not fit. */
static void end_if_whole(struct kolo_link *link, struct kolo_verbs_message *m)
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
    if (!is_held(link, req)) {
        KOLO_TRY(refuse(link, req));
    }
    begin(link, true, dst, req);
    if (link->self) {
        post_self(link, false, req);
        return KOLO_OK;
    }
    struct kolo_verbs_channel *c = &link->channel[req->channel];
    struct kolo_verbs_message *m = find(&c->recvs, (int)req->channel, c->received);
    const bool came = m != NULL;
    if (!came) {
        m = record(link, (uint8_t)req->channel, c->received, req->bytes);
    }
    if (m == NULL) {
        link->pending--;
        link->receiving--;
        return link->dev->env.fail(KOLO_ERR_SYSTEM, "verbs: no memory for a message");
    }
    c->received++;
    m->req = req;
    m->of_gpu = kolo_verbs_memory_is_gpu(link->dev, dst->at, req->bytes);
    m->failed = m->total != req->bytes;
    if (is_long(req->bytes) || is_long(m->total)) { /* where only one is, it finds out */
        say_ready(link, m);
    }
    if (!came) {
        insert(&c->recvs, m);
    } else {
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
    struct kolo_verbs_channel *c = &link->channel[given->channel];
    struct kolo_verbs_entry *entry = kolo_verbs_lane_entry(lane);
    *entry = *given;
    entry->magic = KOLO_VERBS_ENTRY_MAGIC;
    entry->taken = c->told = c->taken;
    c->untold = 0;
    c->noted = false;
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
        const struct kolo_verbs_channel *c = &link->channel[n->channel];
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
static void send_piece(struct kolo_link *link, struct kolo_verbs_lane *lane,
                       struct kolo_verbs_message *m, size_t len)
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
static size_t write_bytes(struct kolo_verbs_lane *lane, struct kolo_verbs_message *m, size_t at,
                          size_t len)
{
    const uint32_t lkey = kolo_verbs_memory_lkey(m->hold, lane->link->dev, lane->rail);
    const uint32_t rkey = m->place.rkey[lane->peer_rail];
    size_t done = 0;
    for (int i = 0; i < WRITES && done < len; i++) {
        size_t here = 0, there = 0;
        const char *from = kolo_bytes_at(&m->req->data, at + done, &here);
        const uint64_t to = place_at(&m->place, at + done, &there);
        const size_t part =
            kolo_min(kolo_min(here, there), kolo_min(len - done, lane->rail->max_message));
        kolo_verbs_lane_write(lane, from, (uint32_t)part, lkey, to, rkey);
        done += part;
    }
    return done;
}

/* Write a chunk in place, and tell of it. */
static void send_chunk(struct kolo_link *link, struct kolo_verbs_lane *lane,
                       struct kolo_verbs_message *m)
{
    const bool again = m->nagain > 0;
    const struct kolo_verbs_piece piece =
        again ? m->again[m->nagain - 1] : (struct kolo_verbs_piece){m->made, m->total - m->made};
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
        m->nagain--;
    } else {
        m->again[m->nagain - 1] = (struct kolo_verbs_piece){piece.at + len, piece.len - len};
    }
}

/* What the message may do now. */
enum turn { WAIT, PIECE, CHUNK };

static enum turn turn_of(struct kolo_link *link, struct kolo_verbs_message *m)
{
    const struct kolo_verbs_channel *c = &link->channel[m->channel];
    if (!m->begun && (m->number != c->begun || m->number - c->peer_taken >= KOLO_VERBS_DEPTH ||
                      c->untaken + kept_part(m->total) > KOLO_VERBS_WINDOW)) {
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
    if (m->place.count > 0 && m->hold == NULL && m->made == 0 &&
        (flat || data->bytes >= KOLO_VERBS_RUN)) {
        const size_t span = flat ? m->total : (data->count - 1) * data->stride + data->bytes;
        m->hold = kolo_verbs_memory_hold(link->dev, data->at, span, false);
    }
    return m->hold != NULL ? CHUNK : PIECE;
}

static void count_begun(struct kolo_link *link, struct kolo_verbs_message *m)
{
    struct kolo_verbs_channel *c = &link->channel[m->channel];
    if (!m->begun) {
        c->bytes[m->number % KOLO_VERBS_DEPTH] = (uint32_t)kept_part(m->total);
        c->untaken += kept_part(m->total);
        c->begun++;
        m->begun = true;
    }
}

/* One entry of the message, or one chunk. */
enum gone { STUCK /* no lane takes it */, MORE, MADE /* it is not among the sends any more */ };

static enum gone go_on(struct kolo_link *link, struct kolo_verbs_message *m, enum turn turn)
{
    struct kolo_verbs_lane *lane = kolo_verbs_lane_choose(link, turn == CHUNK ? WRITES : 0);
    if (lane == NULL || (turn == CHUNK && lane->flying_bytes >= PIPELINE)) {
        return STUCK;
    }
    const bool announces = turn == PIECE && is_long(m->total) && (!m->ready || m->failed);
    count_begun(link, m);
    if (turn == CHUNK) {
        send_chunk(link, lane, m);
    } else {
        send_piece(link, lane, m, announces ? 0 : kolo_min(m->total - m->made, KOLO_VERBS_PIECE));
    }
    if (m->failed) {
        end_send(link, m);
        return MADE;
    }
    if (announces || m->made < m->total || m->nagain > 0) {
        return MORE;
    }
    take_out(&link->sends, m);
    append(&link->flying, m);
    if (m->flying == 0) {
        end_send(link, m);
    }
    return MADE;
}

static bool pull_sends(struct kolo_link *link)
{
    bool pulled = false;
    for (struct kolo_verbs_message *m = link->sends.first, *next = NULL; m != NULL; m = next) {
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
    pulled = (link->again == NULL && link->sends.first != NULL && pull_sends(link)) || pulled;
    for (int i = 0; i < link->nlanes; i++) {
        kolo_verbs_lane_flush(&link->lane[i]);
    }
    return pulled;
}

/* ---- chunks that are out ---- */

void kolo_verbs_message_flown(struct kolo_link *link, const struct kolo_verbs_flight *flight)
{
    struct kolo_verbs_message *m = flight->message;
    m->flying--;
    m->moved += flight->len;
    if (m->flying == 0 && m->nagain == 0 && m->made == m->total) {
        end_send(link, m);
    }
}

void kolo_verbs_message_again(struct kolo_link *link, const struct kolo_verbs_flight *flight)
{
    struct kolo_verbs_message *m = flight->message;
    if (m->made == m->total && m->nagain == 0) {
        take_out(&link->flying, m);
        append(&link->sends, m);
    }
    m->flying--;
    if (m->nagain > 0 && m->again[m->nagain - 1].at + m->again[m->nagain - 1].len == flight->at) {
        m->again[m->nagain - 1].len += flight->len;
    } else if (m->nagain < KOLO_VERBS_AGAIN) {
        m->again[m->nagain++] = (struct kolo_verbs_piece){flight->at, flight->len};
    } else {
        kolo_verbs_fail(link, "too much to send again", 0, false);
    }
}

/* ---- entries in ---- */

static bool ready_came(struct kolo_link *link, const struct kolo_verbs_entry *entry,
                       const char *payload)
{
    struct kolo_verbs_channel *c = &link->channel[entry->channel];
    struct kolo_verbs_place place;
    if (entry->len != sizeof place) {
        return false;
    }
    memcpy(&place, payload, sizeof place);
    struct kolo_verbs_message *m = find(&link->sends, entry->channel, entry->number);
    if (m != NULL) {
        const bool sensible = !is_long(m->total) || make_ready(m, entry->total, &place);
        if (sensible && m->failed && m->begun) {
            end_send(link, m);
        }
        return sensible;
    }
    if ((int32_t)(entry->number - c->sent) < 0) {
        return true; /* a short one, which needed none: the receiver finds out */
    }
    if (c->nearly == c->early_cap) {
        const int cap = c->early_cap == 0 ? 16 : 2 * c->early_cap;
        struct kolo_verbs_early *grown =
            cap <= EARLY_MOST ? realloc(c->early, (size_t)cap * sizeof *grown) : NULL;
        if (grown == NULL) {
            return false;
        }
        c->early = grown;
        c->early_cap = cap;
    }
    c->early[c->nearly++] = (struct kolo_verbs_early){entry->number, entry->total, place};
    return true;
}

/* The first entry of a message whose receive is not posted: it is kept. */
static struct kolo_verbs_message *keep(struct kolo_link *link, const struct kolo_verbs_entry *entry)
{
    struct kolo_verbs_channel *c = &link->channel[entry->channel];
    if (entry->number - c->received >= KOLO_VERBS_DEPTH) {
        return NULL;
    }
    struct kolo_verbs_message *m = record(link, entry->channel, entry->number, entry->total);
    char *kept = is_long(entry->total) ? NULL : malloc(entry->total + 1);
    if (m == NULL || (kept == NULL && !is_long(entry->total))) {
        free(m);
        free(kept);
        return NULL;
    }
    m->kept = kept;
    insert(&c->recvs, m);
    return m;
}

static bool data_came(struct kolo_link *link, const struct kolo_verbs_entry *entry,
                      const char *payload)
{
    struct kolo_verbs_channel *c = &link->channel[entry->channel];
    struct kolo_verbs_message *m = find(&c->recvs, entry->channel, entry->number);
    if (entry->len > entry->total || entry->offset > entry->total - entry->len) {
        return false;
    }
    if (m == NULL && entry->len == 0 && is_long(entry->total) &&
        (int32_t)(entry->number - c->received) < 0) {
        return true; /* announced by a slower lane than those that wrote all of it */
    }
    m = m != NULL ? m : keep(link, entry);
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
    struct kolo_verbs_channel *c = &link->channel[entry->channel];
    struct kolo_verbs_message *m = find(&c->recvs, entry->channel, entry->number);
    if (m == NULL || m->req == NULL || m->hold == NULL || entry->total != m->total ||
        entry->offset > m->total - m->moved || entry->len > 0) {
        return false;
    }
    m->moved += entry->offset;
    end_if_whole(link, m);
    return true;
}

/* The oldest are taken to be those taken: where lanes overtake each other that is near enough. */
static void hear_taken(struct kolo_verbs_channel *c, uint32_t now)
{
    if (c->begun - now > c->begun - c->peer_taken) {
        return; /* older news, or more than there were */
    }
    while (c->peer_taken != now) {
        c->untaken -= c->bytes[c->peer_taken % KOLO_VERBS_DEPTH];
        c->bytes[c->peer_taken++ % KOLO_VERBS_DEPTH] = 0;
    }
}

bool kolo_verbs_message_arrives(struct kolo_link *link, const struct kolo_verbs_entry *entry,
                                const char *payload)
{
    if (entry->magic != KOLO_VERBS_ENTRY_MAGIC || entry->channel >= KOLO_CHANNELS) {
        return false;
    }
    hear_taken(&link->channel[entry->channel], entry->taken);
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

static int end_list(struct kolo_link *link, struct kolo_verbs_list *list, kolo_status why)
{
    int count = 0;
    while (list->first != NULL) {
        struct kolo_verbs_message *m = list->first;
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
static int end_receives(struct kolo_link *link, struct kolo_verbs_list *list, kolo_status why)
{
    struct kolo_verbs_list all = *list;
    int count = 0;
    *list = (struct kolo_verbs_list){0};
    for (struct kolo_verbs_message *m = all.first, *next = NULL; m != NULL; m = next) {
        next = m->next;
        struct kolo_verbs_list one = {m, m};
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

int kolo_verbs_message_end(struct kolo_link *link, kolo_status why)
{
    int count = end_fifo(link, &link->self_sends, why) + end_fifo(link, &link->self_recvs, why);
    for (int i = 0; i < link->nlanes; i++) { /* nobody reads or writes their memory from here */
        link->lane[i].first_flight = link->lane[i].next_flight = 0;
    }
    count += end_list(link, &link->sends, why) + end_list(link, &link->flying, why);
    for (int i = 0; i < KOLO_CHANNELS; i++) {
        count += end_receives(link, &link->channel[i].recvs, why);
    }
    for (struct kolo_verbs_again *again; (again = link->again) != NULL;) {
        link->again = again->next;
        free(again);
    }
    link->notes = 0;
    return count;
}

void kolo_verbs_message_free(struct kolo_link *link)
{
    while (link->spare != NULL) {
        struct kolo_verbs_message *next = link->spare->next;
        free(link->spare);
        link->spare = next;
    }
    for (int i = 0; i < KOLO_CHANNELS; i++) {
        free(link->channel[i].early);
    }
    free(link->note);
    free(link->word);
}
