// SPDX-License-Identifier: Apache-2.0
/* Which calls the hierarchical path takes, and the steps of each of them. */
#include "gpu/hier/inner.h"

#include <stdlib.h>

/* ---- which calls ---- */

/* Whether the result depends on the order of additions or multiplications. */
static bool depends_on_order(const struct kolo_gpu_call *call)
{
    const bool adds = call->args.op == KOLO_SUM || call->args.op == KOLO_PROD ||
                      call->args.op == KOLO_AVG || call->args.op == KOLO_OPS;
    return adds && call->args.type >= KOLO_FLOAT16 && call->args.type <= KOLO_FLOAT8_E5M2;
}

static size_t bytes_of(const struct kolo_gpu_call *call, int nranks)
{
    const size_t blocks = kolo_coll_flat(call->args.coll) ? 1 : (size_t)nranks;
    return call->args.count * blocks * kolo_type_bytes(call->args.type);
}

/* An integer average must be rounded once, and two layers round twice. A barrier saves nothing. */
static bool may_reduce(const struct kolo_hier_path *l, const struct kolo_gpu_call *call)
{
    return depends_on_order(call) ? l->comm->options.deterministic == 0 : call->args.op != KOLO_AVG;
}

bool kolo_hier_path_take(const struct kolo_hier_path *l, const struct kolo_gpu_call *call)
{
    if (call->args.v.all != NULL || bytes_of(call, l->comm->ranks.nranks) < l->least_bytes) {
        return false;
    }
    return call->args.coll == KOLO_COLL_ALL_GATHER || call->args.coll == KOLO_COLL_BROADCAST ||
           (kolo_coll_reduces(call->args.coll) && may_reduce(l, call));
}

/* ---- steps ---- */

struct step { /* a call of one layer; `in` and `out` may be one buffer */
    enum kolo_coll coll;
    const char *in;
    char *out;
    size_t count;
    int root;
};

static kolo_status take_step(const struct kolo_hier_path *l, struct kolo_comm *layer,
                             const struct kolo_gpu_call *call, const struct step *s)
{
    struct kolo_gpu_call part = *call;
    struct kolo_counts none = {NULL, 0};
    part.args.coll = s->coll;
    part.args.in = s->in;
    part.args.out = s->out;
    part.args.count = s->count;
    part.args.root = s->root;
    return s->count > 0 ? l->calls->enqueue(layer, &part, &none) : KOLO_OK;
}

#define INTRA(l, call, ...) take_step(l, (l)->intra, call, &(struct step){__VA_ARGS__})

/* A call of the inter layer. The intra layer has applied PREMULSUM's factor, so this step only
 * adds. */
static kolo_status take_inter(struct kolo_hier_path *l, const struct kolo_gpu_call *call,
                              const struct step *s)
{
    struct kolo_gpu_call part = *call;
    part.args.op = call->args.op == KOLO_OPS ? KOLO_SUM : call->args.op;
    return take_step(l, l->inter, &part, s);
}

/* An all-gather of `count` elements of each rank; rank q's elements go to displs[q] * count. */
static kolo_status gather_blocks(const struct kolo_hier_path *l, struct kolo_comm *layer,
                                 const struct kolo_gpu_call *call, const struct step *s,
                                 const int *at, int stride)
{
    const size_t n = (size_t)layer->ranks.nranks;
    struct kolo_counts v = {calloc(4 * n, sizeof *v.all), s->count};
    struct kolo_gpu_call part = *call;
    if (v.all == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for counts");
    }
    for (size_t q = 0; q < n; q++) {
        v.all[q] = s->count;
        v.all[n + q] = (size_t)at[q * (size_t)stride] * s->count;
    }
    part.args.in = s->in;
    part.args.out = s->out;
    part.args.count = 0;
    part.args.v = v;
    const kolo_status st = l->calls->enqueue(layer, &part, &v);
    free(v.all);
    return st;
}

/* ---- flat calls ---- */

struct cut { /* of a vector that each rank has */
    size_t elem, shard, rest;
    char *own, *tail; /* this rank's shard; the `rest` elements behind the last shard */
    size_t inter;     /* elements that this rank sends to other groups */
};

/* A shard is a multiple of 16 bytes, which kernels move best. */
static struct cut cut_vector(const struct kolo_hier_path *l, const struct kolo_gpu_call *call,
                             size_t count)
{
    enum { PIECE_BYTES = 16 };
    const size_t size = (size_t)kolo_hier_size(l), place = (size_t)l->intra->ranks.rank;
    struct cut c = {.elem = kolo_type_bytes(call->args.type)};
    const size_t piece = kolo_max(1, PIECE_BYTES / c.elem);
    c.shard = count / size / piece * piece;
    c.rest = count - size * c.shard;
    c.inter = c.shard + (place + 1 == size ? c.rest : 0);
    return c;
}

static struct cut cut_in(const struct kolo_hier_path *l, const struct kolo_gpu_call *call,
                         char *all, size_t count)
{
    struct cut c = cut_vector(l, call, count);
    c.own = all + (size_t)l->intra->ranks.rank * c.shard * c.elem;
    c.tail = all + (size_t)kolo_hier_size(l) * c.shard * c.elem;
    return c;
}

/* Each rank has its shard in place, and the last rank the tail, too. Afterwards all ranks have all
 * of the vector. */
static kolo_status gather_shards(struct kolo_hier_path *l, const struct kolo_gpu_call *call,
                                 const struct cut *c)
{
    KOLO_TRY(INTRA(l, call, KOLO_COLL_ALL_GATHER, c->own, call->args.out, c->shard, 0));
    return INTRA(l, call, KOLO_COLL_BROADCAST, c->tail, c->tail, c->rest, kolo_hier_size(l) - 1);
}

static kolo_status all_reduce(struct kolo_hier_path *l, const struct kolo_gpu_call *call)
{
    const struct cut c = cut_in(l, call, call->args.out, call->args.count);
    const char *in = call->args.in, *tail = in + (c.tail - (char *)call->args.out);
    KOLO_TRY(INTRA(l, call, KOLO_COLL_REDUCE_SCATTER, in, c.own, c.shard, 0));
    KOLO_TRY(INTRA(l, call, KOLO_COLL_ALL_REDUCE, tail, c.tail, c.rest, 0));
    KOLO_TRY(take_inter(l, call, &(struct step){KOLO_COLL_ALL_REDUCE, c.own, c.own, c.inter, 0}));
    return gather_shards(l, call, &c);
}

static kolo_status broadcast(struct kolo_hier_path *l, const struct kolo_gpu_call *call)
{
    const struct cut c = cut_in(l, call, call->args.out, call->args.count);
    const int from = l->group_of[call->args.root], root = kolo_hier_place_of(l, call->args.root);
    const char *in = l->comm->ranks.rank == call->args.root ? call->args.in : call->args.out;
    if (from == l->inter->ranks.rank) {
        const char *tail = in + (c.tail - (char *)call->args.out);
        KOLO_TRY(INTRA(l, call, KOLO_COLL_SCATTER, in, c.own, c.shard, root));
        KOLO_TRY(INTRA(l, call, KOLO_COLL_BROADCAST, tail, c.tail, c.rest, root));
    }
    KOLO_TRY(take_inter(l, call, &(struct step){KOLO_COLL_BROADCAST, c.own, c.own, c.inter, from}));
    return gather_shards(l, call, &c);
}

/* Reduce `count` elements from `at` on. Their shards and tail fit into the scratch. */
static kolo_status reduce_tile(struct kolo_hier_path *l, const struct kolo_gpu_call *call,
                               size_t at, size_t count)
{
    struct cut c = cut_vector(l, call, count);
    const int to = l->group_of[call->args.root], root = kolo_hier_place_of(l, call->args.root),
              last = kolo_hier_size(l) - 1;
    const bool mine = l->comm->ranks.rank == call->args.root;
    const size_t whole = (size_t)kolo_hier_size(l) * c.shard * c.elem;
    const char *in = (const char *)call->args.in + at * c.elem;
    char *out = mine ? (char *)call->args.out + at * c.elem : NULL;
    c.own = (char *)(uintptr_t)l->scratch;
    c.tail = c.own + c.shard * c.elem;
    KOLO_TRY(INTRA(l, call, KOLO_COLL_REDUCE_SCATTER, in, c.own, c.shard, 0));
    KOLO_TRY(INTRA(l, call, KOLO_COLL_REDUCE, in + whole, c.tail, c.rest, last));
    KOLO_TRY(take_inter(l, call, &(struct step){KOLO_COLL_REDUCE, c.own, c.own, c.inter, to}));
    if (to != l->inter->ranks.rank) {
        return KOLO_OK;
    }
    KOLO_TRY(INTRA(l, call, KOLO_COLL_GATHER, c.own, out, c.shard, root));
    return INTRA(l, call, KOLO_COLL_BROADCAST, c.tail, mine ? out + whole : c.tail, c.rest, last);
}

static kolo_status reduce(struct kolo_hier_path *l, const struct kolo_gpu_call *call)
{
    const size_t most =
        KOLO_HIER_SCRATCH_BYTES / 2 / kolo_type_bytes(call->args.type) * (size_t)kolo_hier_size(l);
    for (size_t at = 0; at < call->args.count; at += most) {
        KOLO_TRY(reduce_tile(l, call, at, kolo_min(most, call->args.count - at)));
    }
    return KOLO_OK;
}

/* ---- calls of blocks ---- */

static kolo_status all_gather(struct kolo_hier_path *l, const struct kolo_gpu_call *call)
{
    const size_t bytes = call->args.count * kolo_type_bytes(call->args.type);
    const int size = kolo_hier_size(l), groups = kolo_hier_groups(l), place = l->intra->ranks.rank;
    char *out = call->args.out;
    KOLO_TRY(
        gather_blocks(l, l->inter, call,
                      &(struct step){.in = call->args.in, .out = out, .count = call->args.count},
                      l->rank_of + place, size));
    for (int g = 0; g < groups; g++) {
        const char *own = out + (size_t)kolo_hier_rank_at(l, g, place) * bytes;
        const struct step s = {KOLO_COLL_ALL_GATHER, own, out + (size_t)(g * size) * bytes,
                               call->args.count, 0};
        const struct step apart = {.in = own, .out = out, .count = call->args.count};
        KOLO_TRY(l->in_order ? take_step(l, l->intra, call, &s)
                             : gather_blocks(l, l->intra, call, &apart, l->rank_of + g * size, 1));
    }
    return KOLO_OK;
}

/* Copy elements [at, at + n) of the blocks of group g's ranks into the scratch, one after the
 * other. */
static kolo_status pack_blocks(const struct kolo_hier_path *l, const struct kolo_gpu_call *call,
                               int g, const size_t part[2])
{
    const size_t elem = kolo_type_bytes(call->args.type);
    KOLO_TRY(kolo_gpu_enter(l->gpu));
    kolo_status st = KOLO_OK;
    for (int i = 0; i < kolo_hier_size(l) && st == KOLO_OK; i++) {
        const size_t at = (size_t)kolo_hier_rank_at(l, g, i) * call->args.count + part[0];
        st = KOLO_CUDA(l->gpu, "cuMemcpyDtoDAsync",
                       memcpy_dtod_async(l->scratch + (size_t)i * part[1] * elem,
                                         (uintptr_t)call->args.in + at * elem, part[1] * elem,
                                         (kolo_cuda_stream)call->stream));
    }
    kolo_gpu_leave(l->gpu);
    return st;
}

/* The scratch has the packed blocks first, and then a block for each group. */
static kolo_status reduce_scatter_tile(struct kolo_hier_path *l, const struct kolo_gpu_call *call,
                                       const size_t part[2], bool packed)
{
    const size_t elem = kolo_type_bytes(call->args.type), n = part[1];
    const size_t size = (size_t)kolo_hier_size(l);
    char *scratch = (char *)(uintptr_t)l->scratch, *sums = scratch + (packed ? size * n * elem : 0);
    for (int g = 0; g < kolo_hier_groups(l); g++) {
        const char *in =
            packed ? scratch : (const char *)call->args.in + (size_t)g * size * n * elem;
        KOLO_TRY(packed ? pack_blocks(l, call, g, part) : KOLO_OK);
        KOLO_TRY(INTRA(l, call, KOLO_COLL_REDUCE_SCATTER, in, sums + (size_t)g * n * elem, n, 0));
    }
    char *out = (char *)call->args.out + part[0] * elem;
    return take_inter(l, call, &(struct step){KOLO_COLL_REDUCE_SCATTER, sums, out, n, 0});
}

static kolo_status reduce_scatter(struct kolo_hier_path *l, const struct kolo_gpu_call *call)
{
    const size_t room = KOLO_HIER_SCRATCH_BYTES / kolo_type_bytes(call->args.type);
    const size_t size = (size_t)kolo_hier_size(l), groups = (size_t)kolo_hier_groups(l);
    if (l->in_order && call->args.count <= room / groups) {
        return reduce_scatter_tile(l, call, (size_t[]){0, call->args.count}, false);
    }
    const size_t most = room / (size + groups);
    for (size_t at = 0; at < call->args.count; at += most) {
        const size_t part[2] = {at, kolo_min(most, call->args.count - at)};
        KOLO_TRY(reduce_scatter_tile(l, call, part, true));
    }
    return KOLO_OK;
}

/* ---- calls ---- */

static kolo_status enqueue_steps(struct kolo_hier_path *l, const struct kolo_gpu_call *call)
{
    switch (call->args.coll) {
    case KOLO_COLL_ALL_REDUCE:
        return all_reduce(l, call);
    case KOLO_COLL_REDUCE_SCATTER:
        return reduce_scatter(l, call);
    case KOLO_COLL_ALL_GATHER:
        return all_gather(l, call);
    case KOLO_COLL_BROADCAST:
        return broadcast(l, call);
    default:
        return reduce(l, call);
    }
}

/* The proxy keeps the order of the communicator's calls. */
kolo_status kolo_hier_path_enqueue(struct kolo_hier_path *l, const struct kolo_gpu_call *call)
{
    pthread_mutex_lock(&l->order);
    kolo_status st = kolo_proxy_follow(l->proxy, call->stream);
    st = st == KOLO_OK ? enqueue_steps(l, call) : st;
    st = st == KOLO_OK ? kolo_proxy_note(l->proxy, call->stream) : st;
    pthread_mutex_unlock(&l->order);
    return st;
}
