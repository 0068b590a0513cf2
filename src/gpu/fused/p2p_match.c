// SPDX-License-Identifier: Apache-2.0
#include "gpu/fused/p2p_match.h"

#include <stdlib.h>

size_t kolo_gpu_message_bytes(const struct kolo_gpu_message *message)
{
    return message->m.count * kolo_type_bytes(message->m.type);
}

static bool fits(const struct kolo_gpu_message *recv, const struct kolo_gpu_message *send)
{
    const bool tag =
        recv->m.tag == send->m.tag || (recv->m.tag == KOLO_ANY_TAG && send->m.tag >= 0);
    return tag && send->m.peer == recv->rank &&
           (recv->m.peer == send->rank || recv->m.peer == KOLO_ANY_SOURCE);
}

static struct kolo_gpu_p2p_post **find_match(struct kolo_gpu_p2p *p2p,
                                             const struct kolo_gpu_message *message)
{
    struct kolo_gpu_p2p_post **at = &p2p->first;
    for (; *at != NULL; at = &(*at)->next) {
        const struct kolo_gpu_message *end = &(*at)->end;
        if (end->m.is_send != message->m.is_send &&
            fits(message->m.is_send ? end : message, message->m.is_send ? message : end)) {
            break;
        }
    }
    return at;
}

void kolo_gpu_post_insert(struct kolo_gpu_p2p *p2p, struct kolo_gpu_p2p_post *post)
{
    struct kolo_gpu_p2p_post **at = &p2p->first;
    while (*at != NULL && (*at)->number < post->number) {
        at = &(*at)->next;
    }
    post->next = *at;
    *at = post;
}

void kolo_gpu_post_drop(struct kolo_gpu_p2p *p2p, const struct kolo_gpu_p2p_post *post)
{
    for (struct kolo_gpu_p2p_post **at = &p2p->first; *at != NULL; at = &(*at)->next) {
        if (*at == post) {
            *at = post->next;
            return;
        }
    }
}

/* Take flags that no graph has. False: there are none. */
static bool take_flags(struct kolo_gpu_p2p *p2p, struct kolo_gpu_message *message)
{
    size_t i = 0;
    while (i < KOLO_GPU_P2P_GRAPHS && p2p->uses[i] > 0) {
        i++;
    }
    if (i == KOLO_GPU_P2P_GRAPHS) {
        return false;
    }
    p2p->uses[i] = 1;
    p2p->top = i >= p2p->top ? i + 1 : p2p->top;
    p2p->host[i] =
        (struct kolo_gpu_p2p_flags){0, 0}; /* a graph may have ended between two launches */
    message->flags = i;
    return true;
}

static kolo_status add_post(struct kolo_gpu_p2p *p2p, struct kolo_gpu_message *message)
{
    struct kolo_gpu_p2p_post *made = malloc(sizeof *made);
    if (made == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a message");
    }
    if (message->captured && !take_flags(p2p, message)) {
        free(made);
        return kolo_fail(KOLO_ERR_UNSUPPORTED,
                         "the graphs of this communicator already hold %d messages, the maximum",
                         KOLO_GPU_P2P_GRAPHS);
    }
    message->part = KOLO_GPU_MESSAGE_WAITS;
    message->apart = true;
    message->post = message->captured ? NULL : made;
    *made = (struct kolo_gpu_p2p_post){.number = ++p2p->posts, .end = *message, .matched = message};
    kolo_gpu_post_insert(p2p, made);
    return KOLO_OK;
}

static kolo_status check_pair(const struct kolo_gpu_message *message,
                              const struct kolo_gpu_message *other)
{
    const struct kolo_gpu_message *send = message->m.is_send ? message : other;
    const struct kolo_gpu_message *recv = message->m.is_send ? other : message;
    const size_t bytes = kolo_gpu_message_bytes(send), room = kolo_gpu_message_bytes(recv);
    if (message->captured != other->captured) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "a graph holds one end of a message from rank %d to rank %d and not the "
                         "other; both or none must be captured",
                         send->rank, recv->rank);
    }
    if (bytes > room || (send->m.tag == KOLO_GPU_P2P_BLOCK && bytes != room)) {
        return kolo_fail(message == recv && send->m.tag != KOLO_GPU_P2P_BLOCK ? KOLO_ERR_INVALID
                                                                              : KOLO_ERR_MISMATCH,
                         "rank %d sends %zu bytes to rank %d, which has room for %zu", send->rank,
                         bytes, recv->rank, room);
    }
    return KOLO_OK;
}

static kolo_status match_message(struct kolo_gpu_p2p *p2p, struct kolo_gpu_message *message)
{
    struct kolo_gpu_p2p_post **at = find_match(p2p, message), *other = *at;
    if (other == NULL) {
        return add_post(p2p, message);
    }
    const bool same_stream = other->end.stream == message->stream;
    KOLO_TRY(check_pair(message, &other->end));
    if (same_stream && message->captured && other->matched == NULL) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "stream %p waits for this message of rank %d already; ranks need streams "
                         "of their own, or both ends in one group",
                         message->stream, other->end.rank);
    }
    *at = other->next;
    message->part = KOLO_GPU_MESSAGE_COPIES;
    message->other = other;
    message->apart = !same_stream || other->matched == NULL;
    message->flags = other->end.flags;
    other->state = KOLO_GPU_POST_TAKEN;
    if (message->captured) {
        p2p->uses[message->flags]++;
    }
    if (same_stream && other->matched != NULL) {
        other->matched->part = KOLO_GPU_MESSAGE_NONE;
    }
    return KOLO_OK;
}

/* A thread must not wait for a message that only it could end. */
static kolo_status check_waits(const struct kolo_gpu_message *message, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct kolo_gpu_message *l = &message[i];
        if (l->post != NULL && l->post->state == KOLO_GPU_POST_LISTED && l->m.peer == l->rank) {
            return kolo_fail(KOLO_ERR_INVALID,
                             "rank %d waits for a message with itself; both ends go into one group",
                             l->rank);
        }
    }
    return KOLO_OK;
}

static void undo_matches(struct kolo_gpu_p2p *p2p, struct kolo_gpu_message *message, size_t n)
{
    /* Put back the posts of other ranks, and drop the group's own. */
    for (size_t i = 0; i < n; i++) {
        if (message[i].other != NULL) {
            message[i].other->state = KOLO_GPU_POST_LISTED;
            kolo_gpu_post_insert(p2p, message[i].other);
            message[i].other = NULL;
            p2p->uses[message[i].flags] -= message[i].captured;
        }
        message[i].post = NULL;
    }
    for (struct kolo_gpu_p2p_post **at = &p2p->first; *at != NULL;) {
        struct kolo_gpu_p2p_post *p = *at;
        if (p->matched == NULL) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        p2p->uses[p->end.flags] -= p->end.captured;
        free(p);
    }
}

static void fill_info(const struct kolo_gpu_message *send, const struct kolo_gpu_message *recv)
{
    if (recv->m.info != NULL) {
        recv->m.info->source = send->rank;
        recv->m.info->tag = send->m.tag;
        recv->m.info->bytes = kolo_gpu_message_bytes(send);
    }
}

kolo_status kolo_gpu_p2p_match(struct kolo_gpu_p2p *p2p, struct kolo_gpu_message *message, size_t n)
{
    kolo_status st = KOLO_OK;
    for (size_t i = 0; i < n && st == KOLO_OK; i++) {
        st = match_message(p2p, &message[i]);
    }
    st = st == KOLO_OK ? check_waits(message, n) : st;
    if (st != KOLO_OK) {
        undo_matches(p2p, message, n);
        return st;
    }
    for (size_t i = 0; i < n; i++) {
        if (message[i].other != NULL) {
            struct kolo_gpu_p2p_post *other = message[i].other;
            fill_info(message[i].m.is_send ? &message[i] : &other->end,
                      message[i].m.is_send ? &other->end : &message[i]);
            other->matched = NULL;
        }
    }
    for (struct kolo_gpu_p2p_post *p = p2p->first; p != NULL; p = p->next) {
        p->matched = NULL;
    }
    return KOLO_OK;
}
