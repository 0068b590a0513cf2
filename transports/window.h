// SPDX-License-Identifier: Apache-2.0
/* The window of a channel: how many messages, and how many of their bytes, may be on their way
 * before the receiver reports that it has taken them. The receiver keeps a message that comes before
 * its receive is posted, so the window bounds its memory.
 *
 * A message may go while fewer than DEPTH messages are untaken, and its bytes with theirs are at
 * most MOST. It may go, too, while fewer than SHORT_DEPTH messages with fewer than SHORT_MOST bytes
 * are untaken: a root that sends many short messages seldom waits for a report.
 *
 * A report is due so early that a sender who waits always gets one. A sender waits with SHORT_DEPTH
 * messages untaken; or with DEPTH messages and SHORT_MOST bytes; or with more than half of MOST,
 * which is more than a message counts for. is_due() asks for half of each.
 *
 * Bytes are counted in blocks, each message's rounded up, so that a report is short on the wire. */
#ifndef KOLO_TRANSPORTS_WINDOW_H
#define KOLO_TRANSPORTS_WINDOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    KOLO_WINDOW_BLOCK = 64, /* bytes */
    KOLO_WINDOW_DEPTH = 64,
    KOLO_WINDOW_MOST = (2 << 20) / KOLO_WINDOW_BLOCK, /* blocks; fewer than 2^16 are untaken */
    KOLO_WINDOW_SHORT_DEPTH = 1024,
    KOLO_WINDOW_SHORT_MOST = (256 << 10) / KOLO_WINDOW_BLOCK,
};

struct kolo_window_count { /* from the first message on, modulo the type's range */
    uint32_t messages;
    uint16_t blocks; /* that the receiver may have to keep of them */
};

struct kolo_window {
    struct kolo_window_count taken, told; /* receives: taken here; those that the peer knows of */
    bool noted;                           /* a note with the count is queued */
    struct kolo_window_count begun, peer_taken; /* sends: begun; taken by the peer */
};

static inline struct kolo_window_count kolo_window_between(struct kolo_window_count later,
                                                           struct kolo_window_count earlier)
{
    later.messages -= earlier.messages;
    later.blocks = (uint16_t)(later.blocks - earlier.blocks);
    return later;
}

static inline void kolo_window_add(struct kolo_window_count *count, size_t bytes)
{
    count->messages++;
    count->blocks = (uint16_t)(count->blocks + (bytes + KOLO_WINDOW_BLOCK - 1) / KOLO_WINDOW_BLOCK);
}

/* Whether the next message has to wait. The peer may have to keep `bytes` of it, at most half of
 * MOST. */
static inline bool kolo_window_is_full(const struct kolo_window *w, size_t bytes)
{
    const struct kolo_window_count untaken = kolo_window_between(w->begun, w->peer_taken);
    struct kolo_window_count with = untaken;
    kolo_window_add(&with, bytes);
    const bool fits = untaken.messages < KOLO_WINDOW_DEPTH && with.blocks <= KOLO_WINDOW_MOST;
    const bool follows =
        untaken.messages < KOLO_WINDOW_SHORT_DEPTH && untaken.blocks < KOLO_WINDOW_SHORT_MOST;
    return !fits && !follows;
}

/* Count one more message as taken here: its sender's first part had `bytes`. True: a note must
 * report the count now. */
static inline bool kolo_window_take(struct kolo_window *w, size_t bytes)
{
    kolo_window_add(&w->taken, bytes);
    const struct kolo_window_count untold = kolo_window_between(w->taken, w->told);
    const bool is_due =
        untold.messages >= KOLO_WINDOW_SHORT_DEPTH / 2 || untold.blocks >= KOLO_WINDOW_MOST / 2 ||
        (untold.messages >= KOLO_WINDOW_DEPTH / 2 && untold.blocks >= KOLO_WINDOW_SHORT_MOST / 2);
    const bool notes = is_due && !w->noted;
    w->noted = w->noted || notes;
    return notes;
}

/* The count of taken messages, for a frame that goes to the peer now. */
static inline struct kolo_window_count kolo_window_tell(struct kolo_window *w)
{
    w->told = w->taken;
    w->noted = false;
    return w->told;
}

/* The peer reports that it has taken `taken`. Reports over several connections may overtake each
 * other: an older one, or one of more messages than were sent, says nothing. */
static inline void kolo_window_hear(struct kolo_window *w, struct kolo_window_count taken)
{
    if (w->begun.messages - taken.messages < w->begun.messages - w->peer_taken.messages) {
        w->peer_taken = taken;
    }
}

#endif
