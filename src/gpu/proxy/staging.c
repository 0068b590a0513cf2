// SPDX-License-Identifier: Apache-2.0
/* Staging: the rounds of a call, and the calls on the host between them. */
#include "gpu/proxy/staging.h"

#include "core/call/parts.h"

#include <stdlib.h>
#include <string.h>

enum { ROOM = KOLO_STAGING_SLOTS * KOLO_STAGING_TILE };

/* ---- opening and closing ---- */

kolo_status kolo_staging_open(struct kolo_staging *s)
{
    const size_t bytes[KOLO_GPU_WAYS] = {ROOM, ROOM};
    struct kolo_rounds_plan first;
    KOLO_TRY(kolo_rounds_take_room(&s->rounds, bytes, &first));
    kolo_gdr_open(&s->gdr, s->host, s->gpu, s->gpu->pool->stream[KOLO_GPU_TO]);
    return KOLO_OK;
}

void kolo_staging_close(struct kolo_staging *s)
{
    kolo_gdr_close(&s->gdr);
}

static char *room_of(const struct kolo_staging *s, bool in)
{
    return s->rounds.plan.room[in ? KOLO_GPU_FROM : KOLO_GPU_TO]->host;
}

/* ---- blocks ---- */

struct block {
    size_t at, len; /* elements */
};

static bool one_block(const struct kolo_call *call, bool in)
{
    return kolo_coll_flat(call->args.coll) || kolo_coll_is_one_block(call->args.coll, in);
}

static int blocks_of(const struct kolo_call *call, bool in)
{
    const bool has = in ? call->extent.has_in : call->extent.has_out;
    return !has ? 0 : one_block(call, in) ? 1 : call->base.comm->ranks.nranks;
}

static struct block block_of(const struct kolo_call *call, bool in, int q)
{
    const size_t n = (size_t)call->base.comm->ranks.nranks, *all = call->args.v.all;
    if (all == NULL) {
        return (struct block){(size_t)q * call->args.count, call->args.count};
    }
    if (one_block(call, in)) {
        return (struct block){0, all[call->base.comm->ranks.rank]};
    }
    const size_t *own = call->args.coll == KOLO_COLL_ALL_TO_ALL && !in ? all + 2 * n : all;
    return (struct block){own[n + (size_t)q], own[q]};
}

/* ---- tiles ---- */

struct tiles {
    struct kolo_staging *s;
    const struct kolo_call *call;
    size_t elem;  /* bytes of an element */
    size_t most;  /* elements of a block in a tile; the same on all ranks */
    size_t count; /* tiles */
};

static size_t part_of(const struct tiles *t, size_t len, size_t tile)
{
    const size_t first = tile * t->most;
    return len > first ? kolo_min(t->most, len - first) : 0;
}

static char *slot_of(const struct tiles *t, bool in, size_t tile)
{
    return room_of(t->s, in) + tile % KOLO_STAGING_SLOTS * KOLO_STAGING_TILE;
}

/* Copy a tile's part of all blocks of a side. They are one after the other in the slot. */
static kolo_status copy_tile(const struct tiles *t, bool in, size_t tile)
{
    const char *user = in ? t->call->args.in : t->call->args.out;
    char *at = slot_of(t, in, tile);
    for (int q = 0; q < blocks_of(t->call, in); q++) {
        const struct block b = block_of(t->call, in, q);
        const size_t user_at = (b.at + tile * t->most) * t->elem;
        const size_t bytes = part_of(t, b.len, tile) * t->elem;
        KOLO_TRY(kolo_rounds_copy(&t->s->rounds, in ? KOLO_GPU_FROM : KOLO_GPU_TO, user + user_at,
                                  at, bytes));
        at += bytes;
    }
    return KOLO_OK;
}

/* The counts and displacements of a tile, whose blocks are one after the other. */
static kolo_status cut_counts(const struct tiles *t, size_t tile, struct kolo_counts *out)
{
    const size_t n = (size_t)t->call->base.comm->ranks.nranks;
    size_t *all = calloc(4 * n, sizeof *all);
    if (all == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for counts");
    }
    *out = (struct kolo_counts){.all = all};
    for (size_t q = 0; q < n; q++) {
        all[q] = part_of(t, t->call->args.v.all[q], tile);
        all[n + q] = q == 0 ? 0 : all[n + q - 1] + all[q - 1];
        out->full = kolo_max(out->full, all[q]);
    }
    return KOLO_OK;
}

static kolo_status run_tile(const struct tiles *t, size_t tile)
{
    struct kolo_call part = *t->call;
    part.args.in = slot_of(t, true, tile);
    part.args.out = slot_of(t, false, tile);
    part.args.count = part_of(t, t->call->args.count, tile);
    if (t->call->args.v.all != NULL) {
        KOLO_TRY(cut_counts(t, tile, &part.args.v));
    }
    return kolo_call_run(&part, NULL);
}

/* Rounds from the one that brings a tile to the one that takes it back. */
static size_t lag_of(const struct tiles *t)
{
    return kolo_min(t->count, KOLO_STAGING_SLOTS);
}

/* When the round that brought a tile is over, so are those that took away what was in its slots. */
static kolo_status run_tiles(const struct tiles *t)
{
    const size_t lag = lag_of(t);
    for (size_t i = 0; i < t->count + lag; i++) {
        if (i >= lag) {
            KOLO_TRY(kolo_rounds_wait(&t->s->rounds, (int)(i - lag) + 1));
            KOLO_TRY(run_tile(t, i - lag));
        }
        KOLO_TRY(i < t->count ? copy_tile(t, true, i) : KOLO_OK);
        KOLO_TRY(i >= lag ? copy_tile(t, false, i - lag) : KOLO_OK);
        KOLO_TRY(kolo_rounds_go(&t->s->rounds));
    }
    return KOLO_OK;
}

/* Bytes of a block in a tile: a multiple of the largest element, because ranks may move the same
 * bytes as different types. */
static size_t part_bytes(size_t bytes, size_t blocks)
{
    enum { LARGEST = 16 };
    const size_t tile =
        kolo_min(KOLO_STAGING_TILE, kolo_max(KOLO_STAGING_SHORT, bytes / KOLO_STAGING_TILES));
    return kolo_max(1, tile / blocks / LARGEST) * LARGEST;
}

/* Cut a call whose counts all ranks know. */
static struct tiles cut_tiles(struct kolo_staging *s, const struct kolo_call *call)
{
    const size_t n = (size_t)call->base.comm->ranks.nranks,
                 blocks = kolo_coll_flat(call->args.coll) ? 1 : n;
    struct tiles t = {.s = s, .call = call, .elem = kolo_type_bytes(call->args.type)};
    size_t longest = call->args.count;
    for (size_t q = 0; q < n && call->args.v.all != NULL; q++) {
        longest = kolo_max(longest, call->args.v.all[q]);
    }
    t.most = part_bytes(longest * blocks * t.elem, blocks) / t.elem;
    t.count = (longest + t.most - 1) / t.most;
    return t;
}

/* ---- calls of which each rank knows only its own counts: in one piece ---- */

/* Copy a side's blocks. They have the same offsets on the host as in the user's buffer. */
static kolo_status copy_blocks(struct kolo_staging *s, const struct kolo_call *call, bool in)
{
    const size_t elem = kolo_type_bytes(call->args.type);
    const char *user = in ? call->args.in : call->args.out;
    for (int q = 0; q < blocks_of(call, in); q++) {
        const struct block b = block_of(call, in, q);
        KOLO_TRY(kolo_rounds_copy(&s->rounds, in ? KOLO_GPU_FROM : KOLO_GPU_TO, user + b.at * elem,
                                  room_of(s, in) + b.at * elem, b.len * elem));
    }
    return kolo_rounds_go(&s->rounds);
}

static kolo_status run_whole(const struct kolo_call *call, const char *in, char *out)
{
    const size_t words = 4 * (size_t)call->base.comm->ranks.nranks;
    struct kolo_call whole = *call;
    whole.args.in = in;
    whole.args.out = out;
    whole.args.v.all = malloc(words * sizeof *whole.args.v.all); /* kolo_call_run() frees it */
    if (whole.args.v.all == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for counts");
    }
    memcpy(whole.args.v.all, call->args.v.all, words * sizeof *whole.args.v.all);
    return kolo_call_run(&whole, NULL);
}

static kolo_status stage_whole(struct kolo_staging *s, const struct kolo_call *call)
{
    KOLO_TRY(copy_blocks(s, call, true));
    KOLO_TRY(kolo_rounds_wait(&s->rounds, 1));
    KOLO_TRY(run_whole(call, room_of(s, true), room_of(s, false)));
    return copy_blocks(s, call, false);
}

/* ---- planning and running a call ---- */

static struct kolo_call call_of(const struct kolo_staging *s, const struct kolo_gpu_call *gpu_call,
                                const struct kolo_counts *v)
{
    struct kolo_call call = {.base.comm = s->host, .args = gpu_call->args};
    call.args.v = *v;
    call.extent = kolo_coll_extent_of(&call.args, s->host->ranks.rank, s->host->ranks.nranks);
    return call;
}

kolo_status kolo_staging_plan(struct kolo_staging *s, const struct kolo_gpu_call *gpu_call,
                              const struct kolo_counts *v, bool may_fuse,
                              struct kolo_rounds_plan *out)
{
    const struct kolo_call call = call_of(s, gpu_call, v);
    const struct tiles t = cut_tiles(s, &call);
    size_t bytes[KOLO_GPU_WAYS] = {ROOM, ROOM};
    int rounds = (int)(t.count + lag_of(&t));
    if (call.extent.by_messages) {
        bytes[KOLO_GPU_FROM] = kolo_max(ROOM, kolo_coll_in_bytes(&call.args, &call.extent));
        bytes[KOLO_GPU_TO] = kolo_max(ROOM, kolo_coll_out_bytes(&call.args, &call.extent));
        rounds = 2;
    }
    out->rounds = s->gpu->copies == NULL || may_fuse ? 0 : rounds;
    return kolo_rounds_take_room(&s->rounds, bytes, out);
}

static kolo_status stage(struct kolo_staging *s, const struct kolo_call *call)
{
    const struct tiles t = cut_tiles(s, call);
    return call->extent.by_messages ? stage_whole(s, call) : run_tiles(&t);
}

kolo_status kolo_staging_run(struct kolo_staging *s, const struct kolo_gpu_call *gpu_call,
                             const struct kolo_counts *v, const struct kolo_rounds_plan *plan)
{
    struct kolo_call call = call_of(s, gpu_call, v);
    const bool scales = call.extent.reduces && call.args.op >= KOLO_OPS;
    if (scales) {
        KOLO_TRY(kolo_op_create_premulsum(&gpu_call->args.factor, call.args.type, s->host,
                                          &call.args.op));
    }
    kolo_rounds_begin(&s->rounds, plan);
    const kolo_status st = kolo_rounds_finish(&s->rounds, stage(s, &call));
    if (scales) {
        kolo_op_destroy(call.args.op, s->host);
    }
    return st;
}

/* ---- messages ---- */

struct carried {     /* a message on the host */
    void *buf, *own; /* own: freed at the end, or NULL */
    struct kolo_recv_info info;
    struct kolo_p2p_gdr gdr; /* at not NULL: its GPU memory is registered as `mem` */
    struct kolo_mem mem;
};

static size_t bytes_of(const struct kolo_message *m)
{
    return m->count * kolo_type_bytes(m->type);
}

static bool may_use_gdr(const struct kolo_staging *s, const struct kolo_message *m)
{
    const bool may = m->peer == KOLO_ANY_SOURCE
                         ? s->gdr.endpoint != NULL
                         : kolo_links_take_memory(s->host, m->peer, bytes_of(m));
    return may && bytes_of(m) >= KOLO_GDR_LEAST;
}

static int rounds_for(const struct kolo_staging *s, int copies)
{
    return (copies + s->rounds.most - 1) / s->rounds.most;
}

kolo_status kolo_staging_plan_exchange(struct kolo_staging *s, const struct kolo_message *message,
                                       int n, struct kolo_rounds_plan *out)
{
    size_t bytes[KOLO_GPU_WAYS] = {0, 0};
    bool by_driver = s->gpu->copies == NULL;
    int sends = 0;
    for (int i = 0; i < n; i++) {
        bytes[message[i].is_send ? KOLO_GPU_FROM : KOLO_GPU_TO] += bytes_of(&message[i]);
        sends += message[i].is_send;
        by_driver = by_driver || may_use_gdr(s, &message[i]);
    }
    for (int way = 0; way < KOLO_GPU_WAYS; way++) {
        bytes[way] = by_driver ? ROOM : kolo_max(ROOM, bytes[way]);
    }
    out->rounds = by_driver ? 0 : rounds_for(s, sends) + rounds_for(s, n - sends);
    return kolo_rounds_take_room(&s->rounds, bytes, out);
}

/* Find host memory for a message: pinned memory while there is room, which there always is for
 * messages in rounds. A receive with GDR will hardly use it, and leaves the room to others. */
static kolo_status find_room(const struct kolo_gpu_block *room, size_t bytes, size_t *used,
                             struct carried *c)
{
    if (bytes <= room->bytes - *used && c->gdr.at == NULL) {
        c->buf = (char *)room->host + *used;
        *used += bytes;
        return KOLO_OK;
    }
    c->buf = c->own = malloc(bytes);
    return c->own != NULL
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %zu bytes of a GPU", bytes);
}

/* Before copy `i` of messages in one direction: the round is full. */
static kolo_status next_round(struct kolo_staging *s, int i)
{
    return i > 0 && i % s->rounds.most == 0 ? kolo_rounds_go(&s->rounds) : KOLO_OK;
}

static kolo_status load_messages(struct kolo_staging *s, const struct kolo_message *message, int n,
                                 struct carried *on_host)
{
    struct kolo_gpu_block *const *room = s->rounds.plan.room;
    const bool by_driver = s->rounds.plan.rounds == 0;
    size_t used[KOLO_GPU_WAYS] = {0, 0};
    int sends = 0;
    for (int i = 0; i < n; i++) {
        const struct kolo_message *m = &message[i];
        const enum kolo_gpu_way way = m->is_send ? KOLO_GPU_FROM : KOLO_GPU_TO;
        struct carried *c = &on_host[i];
        c->info.size = sizeof c->info;
        if (by_driver && may_use_gdr(s, m) && kolo_gdr_map(&s->gdr, m->buf, bytes_of(m), &c->mem)) {
            c->gdr.at = m->buf;
        }
        if (m->is_send && c->gdr.at != NULL) {
            c->buf = m->buf; /* the transport uses only the address */
            continue;
        }
        KOLO_TRY(find_room(room[way], bytes_of(m), &used[way], c));
        if (m->is_send) {
            KOLO_TRY(next_round(s, sends++));
            KOLO_TRY(kolo_rounds_copy(&s->rounds, way, m->buf, c->buf, bytes_of(m)));
        }
    }
    if (sends == 0) {
        return KOLO_OK;
    }
    KOLO_TRY(kolo_rounds_go(&s->rounds));
    return kolo_rounds_wait(&s->rounds, s->rounds.gone);
}

static kolo_status exchange_messages(struct kolo_staging *s, const struct kolo_message *message,
                                     int n, struct carried *on_host)
{
    KOLO_TRY(kolo_group_begin());
    kolo_status st = KOLO_OK;
    for (int i = 0; i < n && st == KOLO_OK; i++) {
        struct kolo_message m = message[i];
        m.buf = on_host[i].buf;
        m.count = bytes_of(&message[i]);
        m.type = KOLO_UINT8;
        m.info = m.is_send ? NULL : &on_host[i].info;
        m.gdr = &on_host[i].gdr;
        st = kolo_message_run(&m, s->host, NULL);
    }
    const kolo_status ended = kolo_group_end();
    return st == KOLO_OK ? ended : st;
}

static kolo_status store_messages(struct kolo_staging *s, const struct kolo_message *message, int n,
                                  const struct carried *on_host)
{
    bool written = false;
    int received = 0;
    for (int i = 0; i < n; i++) {
        const struct kolo_message *m = &message[i];
        const struct kolo_recv_info *info = &on_host[i].info;
        if (m->is_send) {
            continue;
        }
        KOLO_TRY(next_round(s, received++));
        if (on_host[i].gdr.used) {
            written = true;
        } else {
            KOLO_TRY(
                kolo_rounds_copy(&s->rounds, KOLO_GPU_TO, m->buf, on_host[i].buf, info->bytes));
        }
        if (m->info != NULL) {
            m->info->source = info->source;
            m->info->tag = info->tag;
            m->info->bytes = info->bytes;
        }
    }
    KOLO_TRY(received > 0 ? kolo_rounds_go(&s->rounds) : KOLO_OK);
    return written ? kolo_gdr_flush(&s->gdr) : KOLO_OK;
}

kolo_status kolo_staging_exchange(struct kolo_staging *s, const struct kolo_message *message, int n,
                                  const struct kolo_rounds_plan *plan)
{
    struct carried *on_host = calloc((size_t)n, sizeof *on_host);
    if (on_host == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d messages", n);
    }
    kolo_rounds_begin(&s->rounds, plan);
    kolo_status st = load_messages(s, message, n, on_host);
    st = st == KOLO_OK ? exchange_messages(s, message, n, on_host) : st;
    st = st == KOLO_OK ? store_messages(s, message, n, on_host) : st;
    st = kolo_rounds_finish(&s->rounds, st);
    for (int i = 0; i < n; i++) {
        if (on_host[i].gdr.at != NULL) {
            kolo_gdr_unmap(&s->gdr, &on_host[i].mem);
        }
        free(on_host[i].own);
    }
    free(on_host);
    return st;
}
