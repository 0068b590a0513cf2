// SPDX-License-Identifier: Apache-2.0
/* Which receive gets which message.
 *
 * Receives wait in the queue of their source, or in one queue for any source. Kept messages wait in
 * the queue of their source. Both carry a number in the order of arrival, so that the earliest wins
 * across queues. A search compares tags one by one. But it looks only at one or two queues, which
 * are short in most programs. */
#include "core/p2p/inner.h"

#include <stdlib.h>

/* ---- queues ---- */

void kolo_p2p_push(struct kolo_p2p_fifo *fifo, struct kolo_p2p_op *op)
{
    op->next = NULL;
    *(fifo->first == NULL ? &fifo->first : &fifo->last->next) = op;
    fifo->last = op;
}

void kolo_p2p_remove(struct kolo_p2p_fifo *fifo, struct kolo_p2p_op *op)
{
    struct kolo_p2p_op *before = NULL;
    struct kolo_p2p_op *at = fifo->first;
    for (; at != op; at = at->next) {
        before = at;
    }
    *(before != NULL ? &before->next : &fifo->first) = op->next;
    fifo->last = fifo->last == op ? before : fifo->last;
}

/* The count goes down first. A thread that sees the status may close the communicator, once it gets
 * the lock that this thread holds. */
void kolo_p2p_finish(struct kolo_p2p *p2p, struct kolo_p2p_op *op, kolo_status status)
{
    atomic_fetch_sub_explicit(&p2p->active, 1, memory_order_relaxed);
    atomic_store_explicit(&op->status, (int)status, memory_order_release);
}

/* ---- matching ---- */

static bool fits(int wanted, int tag)
{
    return wanted == tag || (wanted == KOLO_ANY_TAG && tag >= 0);
}

static struct kolo_p2p_op *first_posted(const struct kolo_p2p_fifo *fifo, int tag)
{
    struct kolo_p2p_op *op = fifo->first;
    while (op != NULL && !fits(op->tag, tag)) {
        op = op->next;
    }
    return op;
}

struct kolo_p2p_op *kolo_p2p_take_posted(struct kolo_p2p *p2p, struct kolo_p2p_peer *from, int tag)
{
    struct kolo_p2p_op *own = first_posted(&from->posted, tag);
    struct kolo_p2p_op *any = first_posted(&p2p->any, tag);
    if (own != NULL && (any == NULL || own->order < any->order)) {
        kolo_p2p_remove(&from->posted, own);
        return own;
    }
    if (any != NULL) {
        kolo_p2p_remove(&p2p->any, any);
    }
    return any;
}

/* The peer's first kept message that fits, or NULL. *before gets the message before it. */
static struct kolo_p2p_kept *first_kept(const struct kolo_p2p_peer *peer, int tag,
                                        struct kolo_p2p_kept **before)
{
    struct kolo_p2p_kept *at = peer->kept;
    *before = NULL;
    while (at != NULL && !fits(tag, at->tag)) {
        *before = at;
        at = at->next;
    }
    return at;
}

struct kolo_p2p_kept *kolo_p2p_take_kept(struct kolo_p2p *p2p, const struct kolo_p2p_op *op)
{
    const bool any = op->peer == KOLO_ANY_SOURCE;
    const int end = any ? p2p->comm->ranks.nranks : op->peer + 1;
    struct kolo_p2p_peer *source = NULL;
    struct kolo_p2p_kept *best = NULL;
    struct kolo_p2p_kept *best_before = NULL;
    for (int q = any ? 0 : op->peer; q < end; q++) {
        struct kolo_p2p_kept *before = NULL;
        struct kolo_p2p_kept *at =
            p2p->peer[q] != NULL ? first_kept(p2p->peer[q], op->tag, &before) : NULL;
        if (at != NULL && (best == NULL || at->order < best->order)) {
            best = at;
            best_before = before;
            source = p2p->peer[q];
        }
    }
    if (best != NULL) {
        *(best_before != NULL ? &best_before->next : &source->kept) = best->next;
        source->kept_last = source->kept_last == best ? best_before : source->kept_last;
    }
    return best;
}

/* ---- kept messages ---- */

struct kolo_p2p_kept *kolo_p2p_kept_create(int source, int tag, size_t bytes, size_t room)
{
    struct kolo_p2p_kept *kept = malloc(sizeof *kept + room);
    if (kept != NULL) {
        *kept = (struct kolo_p2p_kept){.source = source, .tag = tag, .bytes = bytes};
    } else {
        (void)kolo_fail(KOLO_ERR_SYSTEM, "no memory for a message of %zu bytes from rank %d", bytes,
                        source);
    }
    return kept;
}

void kolo_p2p_keep(struct kolo_p2p *p2p, struct kolo_p2p_peer *from, struct kolo_p2p_kept *kept)
{
    kept->next = NULL;
    kept->order = p2p->clock++;
    *(from->kept == NULL ? &from->kept : &from->kept_last->next) = kept;
    from->kept_last = kept;
}

bool kolo_p2p_describe(struct kolo_p2p_op *op, int source, int tag, size_t bytes)
{
    op->info.source = source;
    op->info.tag = tag;
    op->info.bytes = bytes;
    return bytes <= op->bytes;
}

void kolo_p2p_forget(struct kolo_p2p *p2p)
{
    for (int q = 0; q < p2p->comm->ranks.nranks; q++) {
        struct kolo_p2p_peer *peer = p2p->peer[q];
        while (peer != NULL && peer->kept != NULL) {
            struct kolo_p2p_kept *next = peer->kept->next;
            free(peer->kept);
            peer->kept = next;
        }
    }
}
