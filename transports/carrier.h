// SPDX-License-Identifier: Apache-2.0
/* The part that tcp and verbs share: links that carry messages to a rank of another process.
 *
 * The n-th send of a channel matches its n-th receive, so both ends number them alike and need no
 * handshake. A send is in `sends` until its last part is made, then in `flying` until all parts
 * have arrived. A receive is in its channel's `recvs`, by number. A message that arrives before its
 * receive is posted is in `recvs` too. A send whose READY arrives before it is posted is in
 * `early`.
 *
 * The window of a channel bounds these early messages (window.h).
 *
 * A transport has a kolo_carriers in its endpoint and a kolo_carrier in its link. It sets `name`,
 * `env`, `taken_kind`, `record_bytes` and `notify`, and `drop` if its records own something. It
 * makes the parts of sends, puts arriving bytes in their place, and ends the requests. */
#ifndef KOLO_TRANSPORTS_CARRIER_H
#define KOLO_TRANSPORTS_CARRIER_H

#include "transports/bytes.h"
#include "transports/fifo.h"
#include "transports/transports.h"
#include "transports/window.h"
#include "util/grow.h"
#include "util/net.h"
#include "util/util.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { KOLO_CARRIER_EARLY = 1 << 16 }; /* sends that are ready and not posted, of a channel */

/* ---- messages ---- */

struct kolo_carrier_message { /* a send or a receive in progress, or a message without a receive */
    struct kolo_carrier_message *next;
    struct kolo_req *req; /* NULL: the message came before its receive was posted */
    uint32_t number;
    uint8_t channel;
    bool begun;                 /* its first part is made, or has arrived whole */
    bool ready;                 /* READY came, or was sent */
    bool touched;               /* receive: some of its bytes have come */
    bool failed;                /* the two ends give different lengths */
    int flying;                 /* parts in flight */
    size_t total;               /* bytes */
    size_t made;                /* send: bytes that are in parts already */
    size_t moved;               /* bytes written, or arrived */
    char *kept;                 /* the bytes that came before the receive */
    struct kolo_call_sign call; /* of the other end, once it is known */
    struct kolo_call_sign mine; /* receive: of this end */
};

struct kolo_carrier_message_list {
    struct kolo_carrier_message *first, *last; /* last: valid only if first is not NULL */
};

static inline void kolo_carrier_message_append(struct kolo_carrier_message_list *list,
                                               struct kolo_carrier_message *m)
{
    m->next = NULL;
    *(list->first == NULL ? &list->first : &list->last->next) = m;
    list->last = m;
}

/* Insert m behind all records of smaller numbers. */
static inline void kolo_carrier_message_insert(struct kolo_carrier_message_list *list,
                                               struct kolo_carrier_message *m)
{
    struct kolo_carrier_message *before = NULL;
    if (list->first == NULL || (int32_t)(m->number - list->last->number) > 0) {
        kolo_carrier_message_append(list, m);
        return;
    }
    for (struct kolo_carrier_message *at = list->first; (int32_t)(m->number - at->number) > 0;
         at = at->next) {
        before = at;
    }
    struct kolo_carrier_message **here = before == NULL ? &list->first : &before->next;
    m->next = *here;
    *here = m;
}

static inline void kolo_carrier_message_take_out(struct kolo_carrier_message_list *list,
                                                 const struct kolo_carrier_message *m)
{
    struct kolo_carrier_message *before = NULL;
    for (struct kolo_carrier_message *at = list->first; at != m; at = at->next) {
        before = at;
    }
    *(before == NULL ? &list->first : &before->next) = m->next;
    list->last = m->next == NULL ? before : list->last;
}

static inline struct kolo_carrier_message *
kolo_carrier_message_find(const struct kolo_carrier_message_list *list, uint32_t channel,
                          uint32_t number)
{
    struct kolo_carrier_message *m = list->first;
    while (m != NULL && (m->number != number || m->channel != channel)) {
        m = m->next;
    }
    return m;
}

/* In a channel's list, which is in the order of the numbers: a post among thousands looks at the last
 * one only. */
static inline struct kolo_carrier_message *
kolo_carrier_message_find_ordered(const struct kolo_carrier_message_list *list, uint32_t channel,
                                  uint32_t number)
{
    const bool newer = list->first != NULL && (int32_t)(number - list->last->number) > 0;
    return newer ? NULL : kolo_carrier_message_find(list, channel, number);
}

/* ---- channels ---- */

struct kolo_channel {
    uint32_t sent, received; /* messages posted: the next one's number */
    struct kolo_window window;
    struct kolo_carrier_message_list recvs; /* posted, or come early; by number */
    struct kolo_carrier_message_list early; /* sends that are ready, but not posted; by number */
    int early_count;                        /* of `early` */
};

/* Whether a send must wait, of which the peer may have to keep `bytes`. Sends begin in order. */
static inline bool kolo_channel_holds_back(const struct kolo_channel *c,
                                           const struct kolo_carrier_message *m, size_t bytes)
{
    return m->number != c->window.begun.messages || kolo_window_is_full(&c->window, bytes);
}

/* Count the send as begun: its first part is made. */
static inline void kolo_channel_begin(struct kolo_channel *c, struct kolo_carrier_message *m,
                                      size_t bytes)
{
    kolo_window_add(&c->window.begun, bytes);
    m->begun = true;
}

/* ---- notes ---- */

struct kolo_carrier_note { /* a frame without data that waits for its turn, or has come */
    uint8_t kind;          /* the transport's */
    uint8_t channel;
    uint32_t number;
    uint64_t total;
    struct kolo_call_sign call;
};

/* ---- links ---- */

struct kolo_carriers { /* of an endpoint */
    const char *name;  /* of the transport */
    const struct kolo_env *env;
    uint8_t taken_kind;  /* of the note with the count of taken messages */
    size_t record_bytes; /* a kolo_carrier_message, and the transport's members behind it: zeros
                            at first */
    /* The record is free: release the transport's members behind the kolo_carrier_message, and zero
     * them. */
    void (*drop)(struct kolo_link *link, struct kolo_carrier_message *m);
    /* Send the peer the word that another thread gave to notify(). */
    void (*notify)(struct kolo_link *link, uint64_t word);
    struct kolo_carrier *first;  /* all */
    struct kolo_carrier *active; /* carriers with work to do */
    int nactive;
    const struct kolo_carrier *told; /* the one whose peer has reported a failure */
    atomic_int calls;                /* of abort() and notify(); any thread */
    int calls_seen;
};

struct kolo_carrier { /* of a link */
    struct kolo_carriers *all;
    struct kolo_link *link; /* the link that it is a part of */
    struct kolo_peer peer;  /* its address is no longer valid */
    struct kolo_carrier *next, *next_active, *prev_active;
    bool active, self;
    int pending;   /* requests in progress */
    int receiving; /* receives among them */
    int done;      /* requests finished since the last progress() */
    struct kolo_channel channel[KOLO_CHANNELS];
    struct kolo_carrier_message_list sends;  /* sends with parts to be made, in the order posted */
    struct kolo_carrier_message_list flying; /* sends of which all parts are made */
    struct kolo_carrier_message *free_messages; /* free records */
    struct kolo_carrier_note *note;             /* the oldest first */
    int notes, note_cap;
    struct kolo_req_fifo self_sends, self_recvs;
    bool bye;           /* the peer has sent BYE */
    kolo_status failed; /* with text */
    char text[320];
    char reason[KOLO_REASON_TEXT]; /* why the peer ended the communicator, as far as it has come */
    atomic_int why;                /* abort()'s status, or 0; any thread */
    _Atomic uint64_t word;         /* notify()'s, or 0; any thread */
};

/* Add the carrier to `all`, for a link to `peer`. */
void kolo_carrier_join(struct kolo_carrier *c, struct kolo_carriers *all, struct kolo_link *link,
                       const struct kolo_peer *peer);
/* Free the carrier's memory. All requests have ended. */
void kolo_carrier_leave(struct kolo_carrier *c);
/* The link to a rank, or NULL. */
struct kolo_link *kolo_carriers_find(const struct kolo_carriers *all, int rank);

/* Enter the carrier in the list of carriers with work to do, or take it out. */
static inline void kolo_carrier_activate(struct kolo_carrier *c)
{
    struct kolo_carriers *all = c->all;
    if (c->active) {
        return;
    }
    c->active = true;
    c->prev_active = NULL;
    c->next_active = all->active;
    if (all->active != NULL) {
        all->active->prev_active = c;
    }
    all->active = c;
    all->nactive++;
}

static inline void kolo_carrier_rest(struct kolo_carrier *c)
{
    struct kolo_carriers *all = c->all;
    if (!c->active) {
        return;
    }
    *(c->prev_active != NULL ? &c->prev_active->next_active : &all->active) = c->next_active;
    if (c->next_active != NULL) {
        c->next_active->prev_active = c->prev_active;
    }
    c->active = false;
    all->nactive--;
}

/* End a request. Its owner may use it again from here on. */
static inline void kolo_carrier_finish(struct kolo_carrier *c, struct kolo_req *req,
                                       kolo_status status)
{
    c->pending--;
    c->done++;
    c->receiving -= req->own != NULL;
    req->moved = status == KOLO_OK ? req->bytes : req->moved;
    __atomic_store_n(&req->status, status, __ATOMIC_RELEASE);
}

static inline void kolo_carrier_recycle(struct kolo_carrier *c, struct kolo_carrier_message *m)
{
    if (c->all->drop != NULL) {
        c->all->drop(c->link, m);
    }
    free(m->kept);
    m->next = c->free_messages;
    c->free_messages = m;
}

/* End a send of `list`: all its bytes have gone, or it has failed. */
static inline void kolo_carrier_end_send(struct kolo_carrier *c, struct kolo_carrier_message *m,
                                         struct kolo_carrier_message_list *list)
{
    kolo_carrier_message_take_out(list, m);
    m->req->call = m->failed ? m->call : m->req->call;
    kolo_carrier_finish(c, m->req, m->failed ? KOLO_ERR_MISMATCH : KOLO_OK);
    kolo_carrier_recycle(c, m);
}

static inline void kolo_carrier_end_receive(struct kolo_carrier *c, struct kolo_carrier_message *m)
{
    kolo_carrier_message_take_out(&c->channel[m->channel].recvs, m);
    kolo_carrier_finish(c, m->req, m->failed ? KOLO_ERR_MISMATCH : KOLO_OK);
    kolo_carrier_recycle(c, m);
}

/* ---- posting ---- */

/* Refuse a post: the status, with its text. */
KOLO_CHECK kolo_status kolo_carrier_refuse(const struct kolo_carrier *c);
KOLO_CHECK kolo_status kolo_carrier_no_memory(const struct kolo_carrier *c);
/* Whether the peer has left but its message for this receive is here. */
bool kolo_carrier_holds(const struct kolo_carrier *c, const struct kolo_req *req);
/* Post a message of a rank to itself. The second of send and receive copies the bytes. */
KOLO_CHECK kolo_status kolo_carrier_post_self(struct kolo_carrier *c, bool sends,
                                              const struct kolo_bytes *data, struct kolo_req *req);

static inline struct kolo_carrier_message *kolo_carrier_record(struct kolo_carrier *c,
                                                               uint32_t channel, uint32_t number)
{
    struct kolo_carrier_message *m = c->free_messages;
    if (m != NULL) {
        c->free_messages = m->next;
    } else {
        m = calloc(1, c->all->record_bytes);
    }
    if (m != NULL) {
        *m = (struct kolo_carrier_message){.number = number, .channel = (uint8_t)channel};
    }
    return m;
}

static inline bool kolo_carrier_takes(const struct kolo_carrier *c, const struct kolo_req *req)
{
    return atomic_load(&c->why) == KOLO_OK && c->failed == KOLO_OK && req->channel < KOLO_CHANNELS;
}

static inline void kolo_carrier_begin(struct kolo_carrier *c, bool receives,
                                      const struct kolo_bytes *data, struct kolo_req *req)
{
    c->pending++;
    c->receiving += receives;
    req->own = receives ? c : NULL;
    req->status = KOLO_INPROGRESS;
    req->bytes = kolo_bytes_total(data);
    req->moved = 0;
    req->data = *data;
    kolo_carrier_activate(c);
}

/* Post a send or a receive. *out is its record among the sends or receives. The record of a send
 * may be `ready` already, and the record of a receive `touched`. *out is NULL for a message to this
 * rank itself, which needs nothing more. */
KOLO_CHECK static inline kolo_status kolo_carrier_send(struct kolo_carrier *c,
                                                       const struct kolo_bytes *src,
                                                       struct kolo_req *req,
                                                       struct kolo_carrier_message **out)
{
    *out = NULL;
    if (!kolo_carrier_takes(c, req)) {
        return kolo_carrier_refuse(c);
    }
    if (c->self) {
        return kolo_carrier_post_self(c, true, src, req);
    }
    struct kolo_channel *channel = &c->channel[req->channel];
    struct kolo_carrier_message *m =
        kolo_carrier_message_find(&channel->early, req->channel, channel->sent);
    const bool early = m != NULL;
    if (!early && (m = kolo_carrier_record(c, req->channel, channel->sent)) == NULL) {
        return kolo_carrier_no_memory(c);
    }
    kolo_carrier_begin(c, false, src, req);
    channel->sent++;
    m->req = req;
    if (early) {
        kolo_carrier_message_take_out(&channel->early, m);
        channel->early_count--;
        m->failed = m->total != req->bytes;
    }
    m->total = req->bytes;
    kolo_carrier_message_append(&c->sends, m);
    *out = m;
    return KOLO_OK;
}

KOLO_CHECK static inline kolo_status kolo_carrier_recv(struct kolo_carrier *c,
                                                       const struct kolo_bytes *dst,
                                                       struct kolo_req *req,
                                                       struct kolo_carrier_message **out)
{
    *out = NULL;
    if (!kolo_carrier_takes(c, req) && !kolo_carrier_holds(c, req)) {
        return kolo_carrier_refuse(c);
    }
    if (c->self) {
        return kolo_carrier_post_self(c, false, dst, req);
    }
    struct kolo_channel *channel = &c->channel[req->channel];
    struct kolo_carrier_message *m =
        kolo_carrier_message_find_ordered(&channel->recvs, req->channel, channel->received);
    const bool came = m != NULL;
    if (!came && (m = kolo_carrier_record(c, req->channel, channel->received)) == NULL) {
        return kolo_carrier_no_memory(c);
    }
    kolo_carrier_begin(c, true, dst, req);
    channel->received++;
    m->req = req;
    m->mine = req->call;
    if (came) {
        req->call = m->call;
        m->failed = m->total != req->bytes;
    } else {
        m->total = req->bytes;
        kolo_carrier_message_insert(&channel->recvs, m);
    }
    *out = m;
    return KOLO_OK;
}

/* Make a record for a message that came before its receive, with `room` bytes to keep (0: none).
 * NULL: the window is exceeded, or memory is out. */
struct kolo_carrier_message *kolo_carrier_keep(struct kolo_carrier *c, uint8_t channel,
                                               uint32_t number, size_t total, size_t room);
/* READY came. *out is its send, or the record that the post of the send will take. NULL: the send
 * was short, and is over. False: memory is out, or too many came early. */
bool kolo_carrier_hear_ready(struct kolo_carrier *c, const struct kolo_carrier_note *ready,
                             struct kolo_carrier_message **out);
/* Queue a note. False: memory is out. */
bool kolo_carrier_queue_note(struct kolo_carrier *c, const struct kolo_carrier_note *note);
/* Take the oldest note that still tells the peer something. False: there is none. */
bool kolo_carrier_pull_note(struct kolo_carrier *c, struct kolo_carrier_note *out);
/* Count a message as taken: the peer may send one more. `bytes`: how much of it may have had to be
 * kept here, as its sender counts. False: memory is out. */
static inline bool kolo_carrier_take(struct kolo_carrier *c, uint8_t channel, size_t bytes)
{
    return !kolo_window_take(&c->channel[channel].window, bytes) ||
           kolo_carrier_queue_note(
               c, &(struct kolo_carrier_note){.kind = c->all->taken_kind, .channel = channel});
}
/* The first part of a message came: `call` is its sender's. */
void kolo_carrier_note_call(const struct kolo_carrier *c, struct kolo_carrier_message *m,
                            const struct kolo_call_sign *call);
/* The word came that the peer's notify() was given. The peer is in `call`, or none is told. */
void kolo_carrier_hear_word(const struct kolo_carrier *c, uint64_t word,
                            const struct kolo_call_sign *call);
/* This rank's last call, for a frame that notify() makes. */
struct kolo_call_sign kolo_carriers_call(const struct kolo_carriers *all);
/* End all pending requests with `why`. If the peer has left, its messages stay for the receives
 * that will be posted. */
void kolo_carrier_end(struct kolo_carrier *c, kolo_status why);

/* ---- other threads, failures, the end ---- */

/* Serve the calls of other threads, also for links without work. */
void kolo_carriers_hear_calls(struct kolo_carriers *all);
static inline void kolo_carriers_hear(struct kolo_carriers *all)
{
    if (atomic_load_explicit(&all->calls, memory_order_acquire) != all->calls_seen) {
        kolo_carriers_hear_calls(all);
    }
}
/* The slots of the transport. Any thread may call them. */
void kolo_carrier_abort(struct kolo_carrier *c, kolo_status why);
void kolo_carrier_notify(struct kolo_carrier *c, uint64_t word);

/* Fail the link: its requests end with LINK at the next turn. `error`: errno, or 0. False: the link
 * had failed already. */
bool kolo_carrier_fail(struct kolo_carrier *c, const struct kolo_inet *place, const char *what,
                       int error);
/* Bytes of the reason's text came, from byte `at` on. */
void kolo_carrier_hear_reason(struct kolo_carrier *c, size_t at, const void *bytes, size_t len);
/* The peer has ended the communicator, and sent the reason. */
void kolo_carrier_aborted(struct kolo_carrier *c, int32_t reason);
/* The peer has left, and all its messages are here. */
void kolo_carrier_left(struct kolo_carrier *c);
/* This side ends the link, with `why`. */
void kolo_carrier_give_up(struct kolo_carrier *c, kolo_status why);
/* Whether the communicator has failed; and the reason to send to the peers (or `why`). */
bool kolo_carriers_have_failed(const struct kolo_carriers *all);
int32_t kolo_carriers_reason(const struct kolo_carriers *all, kolo_status why);
/* Its text, zeros behind it. Returns its length; 0: none. */
size_t kolo_carriers_reason_text(const struct kolo_carriers *all, char out[KOLO_REASON_TEXT]);
/* The result of progress(): `moved`, or the failure that a peer reported while no request waits. */
static inline int kolo_carriers_result(const struct kolo_carriers *all, bool idle, int moved)
{
    const struct kolo_carrier *told = all->told;
    return idle && told != NULL && !kolo_carriers_have_failed(all)
               ? (int)kolo_fail(told->failed, "%s", told->text)
               : moved;
}

#endif
