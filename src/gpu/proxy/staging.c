// SPDX-License-Identifier: Apache-2.0
/* Staging: the copies between a GPU and pinned memory, and the calls on the host between them. */
#include "gpu/proxy/staging.h"

#include "core/call/parts.h"

#include <stdlib.h>
#include <string.h>

enum { ROOM = KOLO_STAGING_SLOTS * KOLO_STAGING_TILE };

/* ---- opening and closing ---- */

static kolo_status open_side(struct kolo_staging *s, struct kolo_staging_side *side,
                             enum kolo_gpu_way way)
{
    KOLO_TRY(kolo_gpu_pool_take(s->gpu->pool, KOLO_GPU_PINNED, ROOM, &side->block));
    side->pinned = side->block->host;
    side->stream = s->gpu->pool->stream[way];
    for (int i = 0; i < KOLO_STAGING_SLOTS; i++) {
        KOLO_TRY(KOLO_CUDA(s->gpu, "cuEventCreate",
                           event_create(&side->event[i], KOLO_CUDA_DISABLE_TIMING)));
    }
    return KOLO_OK;
}

kolo_status kolo_staging_open(struct kolo_staging *s)
{
    KOLO_TRY(open_side(s, &s->in, KOLO_GPU_FROM));
    KOLO_TRY(open_side(s, &s->out, KOLO_GPU_TO));
    kolo_gdr_open(&s->gdr, s->host, s->gpu, s->out.stream);
    return KOLO_OK;
}

static void close_side(const struct kolo_gpu *gpu, struct kolo_staging_side *side)
{
    for (int i = 0; i < KOLO_STAGING_SLOTS; i++) {
        if (side->event[i] != NULL) {
            (void)gpu->cuda->event_destroy(side->event[i]);
        }
    }
    kolo_gpu_pool_give(gpu->pool, side->block);
}

void kolo_staging_close(struct kolo_staging *s)
{
    kolo_gdr_close(&s->gdr);
    close_side(s->gpu, &s->in);
    close_side(s->gpu, &s->out);
}

/* ---- copies ---- */

static kolo_status from_gpu(struct kolo_staging *s, void *to, const void *from, size_t bytes)
{
    return bytes == 0 ? KOLO_OK
                      : KOLO_CUDA(s->gpu, "cuMemcpyDtoHAsync",
                                  memcpy_dtoh_async(to, (uintptr_t)from, bytes, s->in.stream));
}

static kolo_status to_gpu(struct kolo_staging *s, void *to, const void *from, size_t bytes)
{
    return bytes == 0 ? KOLO_OK
                      : KOLO_CUDA(s->gpu, "cuMemcpyHtoDAsync",
                                  memcpy_htod_async((uintptr_t)to, from, bytes, s->out.stream));
}

static kolo_status finish_side(struct kolo_staging *s, const struct kolo_staging_side *side)
{
    return KOLO_CUDA(s->gpu, "cuStreamSynchronize", stream_synchronize(side->stream));
}

/* End all copies, also after an error. */
static kolo_status finish_both(struct kolo_staging *s, kolo_status st)
{
    const kolo_status in = finish_side(s, &s->in), out = finish_side(s, &s->out);
    return st != KOLO_OK ? st : in != KOLO_OK ? in : out;
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

static char *slot_of(const struct kolo_staging_side *side, size_t tile)
{
    return side->pinned + tile % KOLO_STAGING_SLOTS * KOLO_STAGING_TILE;
}

static kolo_cuda_event event_of(const struct kolo_staging_side *side, size_t tile)
{
    return side->event[tile % KOLO_STAGING_SLOTS];
}

/* Copy a tile's part of all blocks of a side. They are one after the other in the slot. */
static kolo_status copy_tile(const struct tiles *t, bool in, size_t tile)
{
    const struct kolo_staging_side *side = in ? &t->s->in : &t->s->out;
    char *at = slot_of(side, tile);
    for (int q = 0; q < blocks_of(t->call, in); q++) {
        const struct block b = block_of(t->call, in, q);
        const size_t user_at = (b.at + tile * t->most) * t->elem;
        const size_t bytes = part_of(t, b.len, tile) * t->elem;
        KOLO_TRY(in ? from_gpu(t->s, at, (const char *)t->call->args.in + user_at, bytes)
                    : to_gpu(t->s, (char *)t->call->args.out + user_at, at, bytes));
        at += bytes;
    }
    return KOLO_CUDA(t->s->gpu, "cuEventRecord", event_record(event_of(side, tile), side->stream));
}

/* Wait for the copy of a tile, or of the tile that had its slot before. */
static kolo_status wait_tile(const struct tiles *t, const struct kolo_staging_side *side,
                             size_t tile)
{
    return KOLO_CUDA(t->s->gpu, "cuEventSynchronize", event_synchronize(event_of(side, tile)));
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
    part.args.in = slot_of(&t->s->in, tile);
    part.args.out = slot_of(&t->s->out, tile);
    part.args.count = part_of(t, t->call->args.count, tile);
    if (t->call->args.v.all != NULL) {
        KOLO_TRY(cut_counts(t, tile, &part.args.v));
    }
    return kolo_call_run(&part, NULL);
}

static kolo_status run_tiles(const struct tiles *t)
{
    KOLO_TRY(copy_tile(t, true, 0));
    for (size_t i = 0; i < t->count; i++) {
        KOLO_TRY(i + 1 < t->count ? copy_tile(t, true, i + 1) : KOLO_OK);
        KOLO_TRY(wait_tile(t, &t->s->in, i));
        KOLO_TRY(i >= KOLO_STAGING_SLOTS ? wait_tile(t, &t->s->out, i) : KOLO_OK);
        KOLO_TRY(run_tile(t, i));
        KOLO_TRY(copy_tile(t, false, i));
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

/* Stage a call whose counts all ranks know. */
static kolo_status stage_tiles(struct kolo_staging *s, const struct kolo_call *call)
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
    return t.count == 0 ? KOLO_OK : finish_both(s, run_tiles(&t));
}

/* ---- calls of which each rank knows only its own counts: in one piece ---- */

/* Find host memory for a side's buffer. It is pinned unless the buffer is long. */
static kolo_status span_side(const struct kolo_call *call, bool in, char **at, void **own_out)
{
    const bool has = blocks_of(call, in) > 0;
    const size_t bytes = has ? (in ? call->extent.in_elems : call->extent.out_elems) *
                                   kolo_type_bytes(call->args.type)
                             : 0;
    if (bytes <= ROOM) {
        return KOLO_OK;
    }
    *own_out = malloc(bytes);
    *at = *own_out;
    return *at != NULL ? KOLO_OK
                       : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %zu bytes of a GPU", bytes);
}

/* Copy a side's blocks. They have the same offsets on the host as in the user's buffer. */
static kolo_status copy_blocks(struct kolo_staging *s, const struct kolo_call *call, bool in,
                               char *host)
{
    const size_t elem = kolo_type_bytes(call->args.type);
    for (int q = 0; q < blocks_of(call, in); q++) {
        const struct block b = block_of(call, in, q);
        const size_t at = b.at * elem, bytes = b.len * elem;
        KOLO_TRY(in ? from_gpu(s, host + at, (const char *)call->args.in + at, bytes)
                    : to_gpu(s, (char *)call->args.out + at, host + at, bytes));
    }
    return finish_side(s, in ? &s->in : &s->out);
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
    char *in = s->in.pinned, *out = s->out.pinned;
    void *own[2] = {NULL, NULL};
    kolo_status st = span_side(call, true, &in, &own[0]);
    st = st == KOLO_OK ? span_side(call, false, &out, &own[1]) : st;
    st = st == KOLO_OK ? copy_blocks(s, call, true, in) : st;
    st = st == KOLO_OK ? run_whole(call, in, out) : st;
    st = st == KOLO_OK ? copy_blocks(s, call, false, out) : st;
    st = finish_both(s, st);
    free(own[0]);
    free(own[1]);
    return st;
}

kolo_status kolo_staging_run(struct kolo_staging *s, const struct kolo_gpu_call *gpu_call,
                             const struct kolo_counts *v)
{
    struct kolo_call call = {.base.comm = s->host, .args = gpu_call->args};
    call.args.v = *v;
    call.extent = kolo_coll_extent_of(&call.args, s->host->ranks.rank, s->host->ranks.nranks);
    const bool scales = call.extent.reduces && call.args.op >= KOLO_OPS;
    if (scales) {
        KOLO_TRY(kolo_op_create_premulsum(&gpu_call->args.factor, call.args.type, s->host,
                                          &call.args.op));
    }
    const kolo_status st = call.extent.by_messages ? stage_whole(s, &call) : stage_tiles(s, &call);
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

static void try_gdr(struct kolo_staging *s, const struct kolo_message *m, struct carried *c)
{
    const bool any = m->peer == KOLO_ANY_SOURCE;
    const bool may =
        any ? s->gdr.endpoint != NULL : kolo_links_take_memory(s->host, m->peer, bytes_of(m));
    if (may && bytes_of(m) >= KOLO_GDR_LEAST &&
        kolo_gdr_map(&s->gdr, m->buf, bytes_of(m), &c->mem)) {
        c->gdr.at = m->buf;
    }
}

/* Find host memory for a message: pinned memory while there is room. A receive with GDR will hardly
 * use it, and leaves the room to other messages. */
static kolo_status find_room(const struct kolo_staging_side *side, size_t bytes, size_t *used,
                             struct carried *c)
{
    if (bytes <= ROOM - *used && c->gdr.at == NULL) {
        c->buf = side->pinned + *used;
        *used += bytes;
        return KOLO_OK;
    }
    c->buf = c->own = malloc(bytes);
    return c->own != NULL
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %zu bytes of a GPU", bytes);
}

static kolo_status load_messages(struct kolo_staging *s, const struct kolo_message *message, int n,
                                 struct carried *on_host)
{
    size_t used[2] = {0, 0};
    for (int i = 0; i < n; i++) {
        const struct kolo_message *m = &message[i];
        struct carried *c = &on_host[i];
        c->info.size = sizeof c->info;
        try_gdr(s, m, c);
        if (m->is_send && c->gdr.at != NULL) {
            c->buf = m->buf; /* the transport uses only the address */
            continue;
        }
        KOLO_TRY(find_room(m->is_send ? &s->in : &s->out, bytes_of(m), &used[m->is_send], c));
        KOLO_TRY(m->is_send ? from_gpu(s, c->buf, m->buf, bytes_of(m)) : KOLO_OK);
    }
    return finish_side(s, &s->in);
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
    for (int i = 0; i < n; i++) {
        const struct kolo_message *m = &message[i];
        const struct kolo_recv_info *info = &on_host[i].info;
        if (m->is_send) {
            continue;
        }
        if (on_host[i].gdr.used) {
            written = true;
        } else {
            KOLO_TRY(to_gpu(s, m->buf, on_host[i].buf, info->bytes));
        }
        if (m->info != NULL) {
            m->info->source = info->source;
            m->info->tag = info->tag;
            m->info->bytes = info->bytes;
        }
    }
    return written ? kolo_gdr_flush(&s->gdr) : KOLO_OK;
}

kolo_status kolo_staging_exchange(struct kolo_staging *s, const struct kolo_message *message, int n)
{
    struct carried *on_host = calloc((size_t)n, sizeof *on_host);
    if (on_host == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d messages", n);
    }
    kolo_status st = load_messages(s, message, n, on_host);
    st = st == KOLO_OK ? exchange_messages(s, message, n, on_host) : st;
    st = st == KOLO_OK ? store_messages(s, message, n, on_host) : st;
    st = finish_both(s, st);
    for (int i = 0; i < n; i++) {
        if (on_host[i].gdr.at != NULL) {
            kolo_gdr_unmap(&s->gdr, &on_host[i].mem);
        }
        free(on_host[i].own);
    }
    free(on_host);
    return st;
}
