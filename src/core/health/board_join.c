// SPDX-License-Identifier: Apache-2.0
/* How the members of a host come to their board, and leave it. */
#include "core/setup/join.h"
#include "memory/segment.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int lowest_of_host(const struct kolo_comm *c)
{
    int q = 0;
    while (c->member[q].peer.host != c->member[c->rank].peer.host) {
        q++;
    }
    return q;
}

static void find_seats(struct kolo_comm *c)
{
    int next = 0;
    for (int q = 0; q < c->nranks; q++) {
        const bool here = c->member[q].peer.host == c->member[c->rank].peer.host;
        c->member[q].seat = here ? next++ : -1;
    }
}

static void sit_down(struct kolo_comm *c, struct kolo_board *board)
{
    struct kolo_post *post = &board->post[c->member[c->rank].seat];
    c->board = board;
    c->post = post;
    atomic_store(&post->rank, c->rank);
    atomic_store(&post->pid, (int32_t)getpid());
    atomic_store(&post->device, c->device);
    atomic_store(&post->timeout_ms, c->timeout_ms);
    atomic_store(&post->ticks, kolo_ticks_now());
    atomic_store(&post->ticks_us, (uint64_t)kolo_now_us());
    atomic_store(&post->presence, KOLO_POST_HERE);
}

static void lay_out(const struct kolo_comm *c, struct kolo_board *board, int nposts)
{
    board->version = KOLO_BOARD_VERSION;
    board->nposts = (uint32_t)nposts;
    board->nranks = c->nranks;
    board->comm = c->id;
    (void)snprintf(board->name, sizeof board->name, "%s", c->name);
    board->magic = KOLO_BOARD_MAGIC;
}

/* A board that nobody shares: what this rank does can be read from outside all the same. Where
 * there is no memory for one, it goes without. */
static void sit_alone(struct kolo_comm *c)
{
    if (c->nranks < 2 ||
        (c->own_board == NULL &&
         kolo_segment_create_whole(kolo_board_bytes(1), &c->own_board) != KOLO_OK)) {
        return;
    }
    for (int q = 0; q < c->nranks; q++) {
        c->member[q].seat = q == c->rank ? 0 : -1;
    }
    lay_out(c, kolo_segment_base(c->own_board), 1);
    sit_down(c, kolo_segment_base(c->own_board));
}

kolo_status kolo_board_make(struct kolo_comm *c, struct kolo_ready *out)
{
    struct kolo_mem mem;
    const size_t bytes = kolo_board_bytes(c->local_size);
    find_seats(c);
    if (c->mapper == NULL || c->local_size < 2 || lowest_of_host(c) != c->rank) {
        return KOLO_OK;
    }
    KOLO_TRY(kolo_segment_create_whole(bytes, &c->own_board));
    struct kolo_board *board = kolo_segment_base(c->own_board);
    if (c->mapper->transport->map(c->mapper->device, board, bytes, &mem) != KOLO_OK) {
        return KOLO_OK; /* it maps other memory than this host's */
    }
    lay_out(c, board, c->local_size);
    memcpy(out->board, mem.handle, sizeof out->board);
    out->has_board = 1;
    return KOLO_OK;
}

static void hold(struct kolo_comm *c, const void *board)
{
    uint32_t id = 0;
    uint64_t offset = 0;
    size_t len = 0;
    if (kolo_segment_find(board, 1, &id, &offset)) {
        c->own_board = kolo_segment_hold(id, &len);
    }
}

static kolo_status attach(struct kolo_comm *c, int q, const void *handle, struct kolo_board **out)
{
    void *board = NULL;
    size_t len = 0;
    KOLO_TRY(kolo_comm_connect(c, q));
    KOLO_TRY(c->member[q].transport->attach(c->member[q].link, handle, &board, &len));
    *out = board;
    if (c->member[q].peer.process == c->member[c->rank].peer.process) {
        hold(c, board); /* a link between threads need not */
    }
    return len >= kolo_board_bytes(c->local_size)
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_INTERNAL, "the board of rank %d has %zu bytes", q, len);
}

kolo_status kolo_board_take(struct kolo_comm *c, const struct kolo_ready *all)
{
    const int q = lowest_of_host(c);
    struct kolo_board *board = NULL;
    if (!all[q].has_board || (q != c->rank && !c->member[q].maps)) {
        sit_alone(c);
        return KOLO_OK;
    }
    if (q == c->rank) {
        board = kolo_segment_base(c->own_board);
    } else {
        pthread_mutex_lock(&c->device_lock);
        const kolo_status st = attach(c, q, all[q].board, &board);
        pthread_mutex_unlock(&c->device_lock);
        KOLO_TRY(st);
    }
    sit_down(c, board);
    return KOLO_OK;
}

void kolo_board_leave(struct kolo_comm *c)
{
    if (c->board != NULL) {
        atomic_store(&c->post->presence, KOLO_POST_LEFT);
    }
}
