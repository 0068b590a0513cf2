// SPDX-License-Identifier: Apache-2.0
/* How the members of a host come to their board, and leave it. */
#include "core/link/board_join.h"

#include "core/link/links.h"
#include "memory/segment.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int kolo_board_maker(const struct kolo_comm *c)
{
    int q = 0;
    while (c->member[q].peer.host != c->member[c->ranks.rank].peer.host) {
        q++;
    }
    return q;
}

static void number_slots(struct kolo_comm *c)
{
    int next = 0;
    for (int q = 0; q < c->ranks.nranks; q++) {
        const bool here = c->member[q].peer.host == c->member[c->ranks.rank].peer.host;
        c->member[q].slot = here ? next++ : -1;
    }
}

static void take_slot(struct kolo_comm *c, struct kolo_board *board)
{
    struct kolo_board_slot *slot = &board->slot[c->member[c->ranks.rank].slot];
    c->health.board = board;
    c->health.slot = slot;
    atomic_store(&slot->rank, c->ranks.rank);
    atomic_store(&slot->pid, (int32_t)getpid());
    atomic_store(&slot->pid_space, kolo_pid_space());
    atomic_store(&slot->device, c->options.cuda_ordinal);
    atomic_store(&slot->timeout_ms, c->options.timeout_ms);
    double now_us = 0;
    atomic_store(&slot->ticks, kolo_ticks_moment(&now_us));
    atomic_store(&slot->ticks_us, (uint64_t)now_us);
    atomic_store(&slot->presence, KOLO_PRESENCE_HERE);
}

/* Store kinds are chosen on a board of several ranks: one of them measures for all. */
static void take_choices(struct kolo_comm *c, struct kolo_board *board)
{
    struct kolo_exec_env *env = &c->links.exec_env;
    env->store_choices = &board->stores;
    env->board_low = c->ranks.nranks;
    for (int q = 0; q < c->ranks.nranks; q++) {
        if (c->member[q].slot >= 0) {
            env->board_low = q < env->board_low ? q : env->board_low;
            env->board_high = q;
        }
    }
}

static void lay_out(const struct kolo_comm *c, struct kolo_board *board, int nslots)
{
    board->version = KOLO_BOARD_VERSION;
    board->nslots = (uint32_t)nslots;
    for (int i = 0; i < nslots; i++) {
        board->slot[i].records_at =
            kolo_board_records_at(nslots, i) - ((size_t)((char *)&board->slot[i] - (char *)board));
    }
    board->nranks = c->ranks.nranks;
    board->comm = c->ranks.id;
    (void)snprintf(board->name, sizeof board->name, "%s", c->ranks.name);
    board->magic = KOLO_BOARD_MAGIC;
}

/* A board that nobody shares: what this rank does can be read from outside all the same. Where
 * there is no memory for one, it goes without. */
static void use_own_board(struct kolo_comm *c)
{
    if (c->ranks.nranks < 2 ||
        (c->health.own_board == NULL &&
         kolo_segment_create_whole(kolo_board_bytes(1), &c->health.own_board) != KOLO_OK)) {
        return;
    }
    for (int q = 0; q < c->ranks.nranks; q++) {
        c->member[q].slot = q == c->ranks.rank ? 0 : -1;
    }
    lay_out(c, kolo_segment_base(c->health.own_board), 1);
    take_slot(c, kolo_segment_base(c->health.own_board));
}

kolo_status kolo_board_make(struct kolo_comm *c, struct kolo_board_offer *out)
{
    struct kolo_mem mem;
    const size_t bytes = kolo_board_bytes(c->ranks.local_size);
    number_slots(c);
    if (c->links.mapper == NULL || c->ranks.local_size < 2 ||
        kolo_board_maker(c) != c->ranks.rank) {
        return KOLO_OK;
    }
    KOLO_TRY(kolo_segment_create_whole(bytes, &c->health.own_board));
    struct kolo_board *board = kolo_segment_base(c->health.own_board);
    if (c->links.mapper->transport->map(c->links.mapper->endpoint, board, bytes, &mem) != KOLO_OK) {
        return KOLO_OK; /* it maps other memory than this host's */
    }
    lay_out(c, board, c->ranks.local_size);
    memcpy(out->handle, mem.handle, sizeof out->handle);
    out->has_board = 1;
    return KOLO_OK;
}

static void hold_board(struct kolo_comm *c, const void *board)
{
    uint32_t id = 0;
    uint64_t offset = 0;
    size_t len = 0;
    if (kolo_segment_find(board, 1, &id, &offset)) {
        c->health.own_board = kolo_segment_hold(id, &len);
    }
}

static kolo_status attach_board(struct kolo_comm *c, int q, const void *handle,
                                struct kolo_board **out)
{
    void *board = NULL;
    size_t len = 0;
    KOLO_TRY(kolo_links_connect(c, q));
    KOLO_TRY(c->member[q].transport->attach(c->member[q].link, handle, &board, &len));
    *out = board;
    if (c->member[q].peer.process == c->member[c->ranks.rank].peer.process) {
        hold_board(c, board); /* a link between threads need not */
    }
    return len >= kolo_board_bytes(c->ranks.local_size)
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_INTERNAL, "the board of rank %d has %zu bytes", q, len);
}

kolo_status kolo_board_take(struct kolo_comm *c, const struct kolo_board_offer *offer)
{
    const int q = kolo_board_maker(c);
    struct kolo_board *board = NULL;
    if (!offer->has_board || (q != c->ranks.rank && !c->member[q].maps)) {
        use_own_board(c);
        return KOLO_OK;
    }
    if (q == c->ranks.rank) {
        board = kolo_segment_base(c->health.own_board);
    } else {
        pthread_mutex_lock(&c->links.lock);
        const kolo_status st = attach_board(c, q, offer->handle, &board);
        pthread_mutex_unlock(&c->links.lock);
        KOLO_TRY(st);
    }
    take_slot(c, board);
    take_choices(c, board);
    return KOLO_OK;
}

void kolo_board_leave(struct kolo_comm *c)
{
    if (c->health.board != NULL) {
        atomic_store(&c->health.slot->presence, KOLO_PRESENCE_LEFT);
        atomic_fetch_add(&c->health.board->leaves, 1);
    }
}
