// SPDX-License-Identifier: Apache-2.0
/* Messages to another process: how they are posted, end and fail, and how a rank reaches itself. */
#include "transports/carrier.h"

#include <errno.h>
#include <stdio.h>

/* ---- posting ---- */

kolo_status kolo_carrier_refuse(const struct kolo_carrier *c)
{
    const kolo_status why = (kolo_status)atomic_load(&c->why);
    if (why == KOLO_OK && c->failed != KOLO_OK) {
        return kolo_fail(c->failed, "%s", c->text);
    }
    return kolo_fail(why != KOLO_OK ? why : KOLO_ERR_INVALID, "%s: %s", c->all->name,
                     why != KOLO_OK ? "aborted" : "there is no such channel");
}

/* Whether all of the message came before its sender left. */
static bool is_whole(const struct kolo_carrier *c, const struct kolo_carrier_message *m)
{
    return c->bye && m->req == NULL && m->moved == m->total;
}

bool kolo_carrier_holds(const struct kolo_carrier *c, const struct kolo_req *req)
{
    if (c->failed != KOLO_ERR_LINK || req->channel >= KOLO_CHANNELS) {
        return false;
    }
    const struct kolo_channel *channel = &c->channel[req->channel];
    const struct kolo_carrier_message *m =
        kolo_carrier_message_find_ordered(&channel->recvs, req->channel, channel->received);
    return m != NULL && is_whole(c, m);
}

kolo_status kolo_carrier_post_self(struct kolo_carrier *c, bool sends,
                                   const struct kolo_bytes *data, struct kolo_req *req)
{
    kolo_carrier_begin(c, !sends, data, req);
    struct kolo_req *match =
        kolo_req_fifo_take(sends ? &c->self_recvs : &c->self_sends, req->channel);
    if (match == NULL) {
        kolo_req_fifo_push(sends ? &c->self_sends : &c->self_recvs, req);
        return KOLO_OK;
    }
    const bool equal = req->bytes == match->bytes;
    if (equal) {
        kolo_bytes_copy(sends ? &match->data : &req->data, sends ? &req->data : &match->data);
    }
    *(sends ? &match->call : &req->call) = sends ? req->call : match->call;
    kolo_carrier_finish(c, match, equal ? KOLO_OK : KOLO_ERR_MISMATCH);
    kolo_carrier_finish(c, req, equal ? KOLO_OK : KOLO_ERR_MISMATCH);
    return KOLO_OK;
}

kolo_status kolo_carrier_no_memory(const struct kolo_carrier *c)
{
    return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory for a message", c->all->name);
}

struct kolo_carrier_message *kolo_carrier_keep(struct kolo_carrier *c, uint8_t channel,
                                               uint32_t number, size_t total, size_t room)
{
    struct kolo_channel *of = &c->channel[channel];
    if (number - of->received >= KOLO_WINDOW_SHORT_DEPTH) {
        return NULL;
    }
    struct kolo_carrier_message *m = kolo_carrier_record(c, channel, number);
    char *kept = room > 0 ? malloc(room) : NULL;
    if (m == NULL || (kept == NULL && room > 0)) {
        free(m);
        free(kept);
        return NULL;
    }
    m->total = total;
    m->kept = kept;
    m->touched = true;
    kolo_carrier_message_insert(&of->recvs, m);
    return m;
}

bool kolo_carrier_hear_ready(struct kolo_carrier *c, const struct kolo_carrier_note *ready,
                             struct kolo_carrier_message **out)
{
    struct kolo_channel *of = &c->channel[ready->channel];
    struct kolo_carrier_message *m =
        kolo_carrier_message_find(&c->sends, ready->channel, ready->number);
    *out = m;
    if (m != NULL || (int32_t)(ready->number - of->sent) < 0) {
        return true;
    }
    m = of->early_count < KOLO_CARRIER_EARLY ? kolo_carrier_record(c, ready->channel, ready->number)
                                             : NULL;
    if (m == NULL) {
        return false;
    }
    m->ready = true;
    m->total = ready->total;
    m->call = ready->call;
    kolo_carrier_message_insert(&of->early, m);
    of->early_count++;
    *out = m;
    return true;
}

/* ---- notes ---- */

bool kolo_carrier_queue_note(struct kolo_carrier *c, const struct kolo_carrier_note *note)
{
    struct kolo_carrier_note *grown = kolo_grow(c->note, c->notes, &c->note_cap, sizeof *grown);
    if (grown == NULL) {
        return false;
    }
    c->note = grown;
    c->note[c->notes++] = *note;
    kolo_carrier_activate(c);
    return true;
}

bool kolo_carrier_pull_note(struct kolo_carrier *c, struct kolo_carrier_note *out)
{
    int used = 0;
    bool found = false;
    while (!found && used < c->notes) {
        *out = c->note[used++];
        const struct kolo_window *of = &c->channel[out->channel].window;
        found = out->kind != c->all->taken_kind ||
                of->taken.messages != of->told.messages; /* else another frame has said it */
    }
    c->notes -= used;
    memmove(c->note, c->note + used, (size_t)c->notes * sizeof *c->note);
    return found;
}

/* ---- calls ---- */

static void hear_call(const struct kolo_carrier *c, const struct kolo_call_sign *call)
{
    const struct kolo_env *env = c->all->env;
    if (call->number != 0 && env->on_call != NULL) {
        env->on_call(env->owner, c->peer.rank, call);
    }
}

void kolo_carrier_note_call(const struct kolo_carrier *c, struct kolo_carrier_message *m,
                            const struct kolo_call_sign *call)
{
    m->call = *call;
    if (m->req != NULL) {
        m->req->call = *call;
    } else {
        hear_call(c, call);
    }
}

void kolo_carrier_hear_word(const struct kolo_carrier *c, uint64_t word,
                            const struct kolo_call_sign *call)
{
    const struct kolo_env *env = c->all->env;
    hear_call(c, call);
    if (env->on_notify != NULL) {
        env->on_notify(env->owner, c->peer.rank, word);
    }
}

struct kolo_call_sign kolo_carriers_call(const struct kolo_carriers *all)
{
    struct kolo_call_sign call = {0};
    if (all->env->last_call != NULL) {
        all->env->last_call(all->env->owner, &call);
    }
    return call;
}

/* ---- the end ---- */

static void end_list(struct kolo_carrier *c, struct kolo_carrier_message_list *list,
                     kolo_status why)
{
    struct kolo_carrier_message_list all = *list;
    *list = (struct kolo_carrier_message_list){0};
    for (struct kolo_carrier_message *m = all.first, *next = NULL; m != NULL; m = next) {
        next = m->next;
        if (why == KOLO_ERR_LINK && is_whole(c, m)) {
            kolo_carrier_message_append(list, m);
            continue;
        }
        if (m->req != NULL) {
            kolo_carrier_finish(c, m->req, why);
        }
        kolo_carrier_recycle(c, m);
    }
}

static void end_fifo(struct kolo_carrier *c, struct kolo_req_fifo *fifo, kolo_status why)
{
    for (struct kolo_req *req; (req = kolo_req_fifo_pop(fifo)) != NULL;) {
        kolo_carrier_finish(c, req, why);
    }
}

void kolo_carrier_end(struct kolo_carrier *c, kolo_status why)
{
    end_fifo(c, &c->self_sends, why);
    end_fifo(c, &c->self_recvs, why);
    end_list(c, &c->sends, why);
    end_list(c, &c->flying, why);
    for (int i = 0; i < KOLO_CHANNELS; i++) {
        end_list(c, &c->channel[i].recvs, why);
        end_list(c, &c->channel[i].early, why);
        c->channel[i].early_count = 0;
    }
    c->notes = 0;
}

/* ---- links ---- */

void kolo_carrier_join(struct kolo_carrier *c, struct kolo_carriers *all, struct kolo_link *link,
                       const struct kolo_peer *peer)
{
    c->all = all;
    c->link = link;
    c->peer = *peer;
    c->self = peer->rank == all->env->rank;
    c->next = all->first;
    all->first = c;
}

void kolo_carrier_leave(struct kolo_carrier *c)
{
    struct kolo_carrier **at = &c->all->first;
    kolo_carrier_rest(c);
    c->all->told = c->all->told == c ? NULL : c->all->told;
    while (*at != c) {
        at = &(*at)->next;
    }
    *at = c->next;
    for (struct kolo_carrier_message *m; (m = c->free_messages) != NULL;) {
        c->free_messages = m->next;
        free(m);
    }
    free(c->note);
}

struct kolo_link *kolo_carriers_find(const struct kolo_carriers *all, int rank)
{
    const struct kolo_carrier *c = all->first;
    while (c != NULL && (c->peer.rank != rank || c->self)) {
        c = c->next;
    }
    return c != NULL ? c->link : NULL;
}

/* ---- other threads ---- */

void kolo_carriers_hear_calls(struct kolo_carriers *all)
{
    all->calls_seen = atomic_load_explicit(&all->calls, memory_order_acquire);
    for (struct kolo_carrier *c = all->first; c != NULL; c = c->next) {
        const uint64_t word = c->failed == KOLO_OK ? atomic_exchange(&c->word, 0) : 0;
        if (word != 0) {
            all->notify(c->link, word);
        }
        if (atomic_load(&c->why) != KOLO_OK && c->failed == KOLO_OK) {
            kolo_carrier_activate(c);
        }
    }
}

void kolo_carrier_abort(struct kolo_carrier *c, kolo_status why)
{
    int none = 0;
    (void)atomic_compare_exchange_strong(&c->why, &none, (int)why); /* the first reason stays */
    atomic_fetch_add(&c->all->calls, 1);
}

void kolo_carrier_notify(struct kolo_carrier *c, uint64_t word)
{
    atomic_store(&c->word, word);
    atomic_fetch_add(&c->all->calls, 1);
}

/* ---- failures ---- */

bool kolo_carrier_fail(struct kolo_carrier *c, const struct kolo_inet *place, const char *what,
                       int error)
{
    char name[KOLO_INET_TEXT];
    if (c->failed != KOLO_OK) {
        return false;
    }
    (void)snprintf(c->text, sizeof c->text, "rank %d (pid %d, %s) %s%s%s", c->peer.rank,
                   c->peer.pid, kolo_inet_name(place, name), what, error != 0 ? ": " : "",
                   error != 0 ? kolo_why(error) : "");
    c->failed = KOLO_ERR_LINK;
    kolo_carrier_activate(c);
    return true;
}

void kolo_carrier_hear_reason(struct kolo_carrier *c, size_t at, const void *bytes, size_t len)
{
    if (at < sizeof c->reason - 1) {
        memcpy(c->reason + at, bytes, kolo_min(len, sizeof c->reason - 1 - at));
    }
}

void kolo_carrier_aborted(struct kolo_carrier *c, int32_t reason)
{
    const struct kolo_env *env = c->all->env;
    if (c->failed == KOLO_OK) {
        (void)snprintf(c->text, sizeof c->text, "rank %d ended this communicator", c->peer.rank);
        if (c->reason[0] != '\0' && env->on_failure_text != NULL) {
            env->on_failure_text(env->owner, c->peer.rank, c->reason);
        }
        if (env->on_peer_failed != NULL) {
            env->on_peer_failed(env->owner, c->peer.rank, reason);
        }
        c->failed = KOLO_ERR_ABORTED;
        c->all->told = c;
        kolo_carrier_activate(c);
    }
}

void kolo_carrier_left(struct kolo_carrier *c)
{
    if (c->failed == KOLO_OK) {
        (void)snprintf(c->text, sizeof c->text, "rank %d has closed its end", c->peer.rank);
        c->failed = KOLO_ERR_LINK;
        if (c->all->env->on_peer_lost != NULL) {
            c->all->env->on_peer_lost(c->all->env->owner, c->peer.rank, "left", ESHUTDOWN);
        }
        kolo_carrier_activate(c);
    }
}

void kolo_carrier_give_up(struct kolo_carrier *c, kolo_status why)
{
    c->failed = why;
    (void)snprintf(c->text, sizeof c->text, "%s: aborted", c->all->name);
}

bool kolo_carriers_have_failed(const struct kolo_carriers *all)
{
    const int *aborted = all->env->aborted;
    return aborted != NULL && __atomic_load_n(aborted, __ATOMIC_ACQUIRE) != 0;
}

int32_t kolo_carriers_reason(const struct kolo_carriers *all, kolo_status why)
{
    const struct kolo_env *env = all->env;
    return env->failure_reason != NULL ? env->failure_reason(env->owner) : (int32_t)why;
}

size_t kolo_carriers_reason_text(const struct kolo_carriers *all, char out[KOLO_REASON_TEXT])
{
    const struct kolo_env *env = all->env;
    memset(out, 0, KOLO_REASON_TEXT);
    if (kolo_carriers_have_failed(all) && env->failure_text != NULL) {
        env->failure_text(env->owner, out, KOLO_REASON_TEXT);
        out[KOLO_REASON_TEXT - 1] = '\0';
    }
    return strlen(out);
}
