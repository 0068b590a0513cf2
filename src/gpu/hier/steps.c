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

/* A call of a layer on the buffers of `s`. */
static struct kolo_hier_step make_step(struct kolo_comm *layer, const struct kolo_gpu_call *call,
                                       const struct step *s)
{
    struct kolo_hier_step made = {.layer = layer, .call = *call};
    made.call.args.in = s->in;
    made.call.args.out = s->out;
    made.call.args.count = s->count;
    return made;
}

static kolo_status add_step(struct kolo_hier_run *run, struct kolo_comm *layer, kolo_op op,
                            const struct step *s)
{
    struct kolo_hier_step made = make_step(layer, run->call, s);
    made.call.args.coll = s->coll;
    made.call.args.root = s->root;
    made.call.args.op = op;
    return s->count > 0 ? kolo_hier_run_add(run, &made) : KOLO_OK;
}

#define INTRA(run, ...)                                                                            \
    add_step(run, (run)->path->intra, (run)->call->args.op, &(struct step){__VA_ARGS__})

/* A call of the inter layer. The intra layer has applied PREMULSUM's factor, so this step only
 * adds. */
static kolo_status add_inter(struct kolo_hier_run *run, const struct step *s)
{
    const kolo_op op = run->call->args.op;
    return add_step(run, run->path->inter, op == KOLO_OPS ? KOLO_SUM : op, s);
}

/* An all-gather of `count` elements of each rank; rank q's elements go to at[q * stride] * count. */
static kolo_status gather_blocks(struct kolo_hier_run *run, struct kolo_comm *layer,
                                 const struct step *s, const int *at, int stride)
{
    const size_t n = (size_t)layer->ranks.nranks;
    struct kolo_hier_step made = make_step(layer, run->call, s);
    made.v = (struct kolo_counts){calloc(4 * n, sizeof *made.v.all), s->count};
    if (made.v.all == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for counts");
    }
    for (size_t q = 0; q < n; q++) {
        made.v.all[q] = s->count;
        made.v.all[n + q] = (size_t)at[q * (size_t)stride] * s->count;
    }
    made.call.args.count = 0;
    made.call.args.v = made.v;
    return kolo_hier_run_add(run, &made);
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
static kolo_status gather_shards(struct kolo_hier_run *run, const struct cut *c)
{
    const int last = kolo_hier_size(run->path) - 1;
    KOLO_TRY(INTRA(run, KOLO_COLL_ALL_GATHER, c->own, run->call->args.out, c->shard, 0));
    return INTRA(run, KOLO_COLL_BROADCAST, c->tail, c->tail, c->rest, last);
}

static kolo_status all_reduce(struct kolo_hier_run *run)
{
    const struct kolo_hier_path *l = run->path;
    const struct kolo_gpu_call *call = run->call;
    const struct cut c = cut_in(l, call, call->args.out, call->args.count);
    const char *in = call->args.in, *tail = in + (c.tail - (char *)call->args.out);
    KOLO_TRY(INTRA(run, KOLO_COLL_REDUCE_SCATTER, in, c.own, c.shard, 0));
    KOLO_TRY(INTRA(run, KOLO_COLL_ALL_REDUCE, tail, c.tail, c.rest, 0));
    KOLO_TRY(add_inter(run, &(struct step){KOLO_COLL_ALL_REDUCE, c.own, c.own, c.inter, 0}));
    return gather_shards(run, &c);
}

static kolo_status broadcast(struct kolo_hier_run *run)
{
    const struct kolo_hier_path *l = run->path;
    const struct kolo_gpu_call *call = run->call;
    const struct cut c = cut_in(l, call, call->args.out, call->args.count);
    const int from = l->group_of[call->args.root], root = kolo_hier_place_of(l, call->args.root);
    const char *in = l->comm->ranks.rank == call->args.root ? call->args.in : call->args.out;
    if (from == l->inter->ranks.rank) {
        const char *tail = in + (c.tail - (char *)call->args.out);
        KOLO_TRY(INTRA(run, KOLO_COLL_SCATTER, in, c.own, c.shard, root));
        KOLO_TRY(INTRA(run, KOLO_COLL_BROADCAST, tail, c.tail, c.rest, root));
    }
    KOLO_TRY(add_inter(run, &(struct step){KOLO_COLL_BROADCAST, c.own, c.own, c.inter, from}));
    return gather_shards(run, &c);
}

/* Reduce `count` elements from `at` on. Their shards and tail fit into the scratch. */
static kolo_status reduce_tile(struct kolo_hier_run *run, size_t at, size_t count)
{
    const struct kolo_hier_path *l = run->path;
    const struct kolo_gpu_call *call = run->call;
    struct cut c = cut_vector(l, call, count);
    const int to = l->group_of[call->args.root], root = kolo_hier_place_of(l, call->args.root),
              last = kolo_hier_size(l) - 1;
    const bool mine = l->comm->ranks.rank == call->args.root;
    const size_t whole = (size_t)kolo_hier_size(l) * c.shard * c.elem;
    const char *in = (const char *)call->args.in + at * c.elem;
    char *out = mine ? (char *)call->args.out + at * c.elem : NULL;
    c.own = (char *)(uintptr_t)l->scratch;
    c.tail = c.own + c.shard * c.elem;
    KOLO_TRY(INTRA(run, KOLO_COLL_REDUCE_SCATTER, in, c.own, c.shard, 0));
    KOLO_TRY(INTRA(run, KOLO_COLL_REDUCE, in + whole, c.tail, c.rest, last));
    KOLO_TRY(add_inter(run, &(struct step){KOLO_COLL_REDUCE, c.own, c.own, c.inter, to}));
    if (to != l->inter->ranks.rank) {
        return KOLO_OK;
    }
    KOLO_TRY(INTRA(run, KOLO_COLL_GATHER, c.own, out, c.shard, root));
    return INTRA(run, KOLO_COLL_BROADCAST, c.tail, mine ? out + whole : c.tail, c.rest, last);
}

static kolo_status reduce(struct kolo_hier_run *run)
{
    const struct kolo_hier_path *l = run->path;
    const struct kolo_gpu_call *call = run->call;
    const size_t most =
        KOLO_HIER_SCRATCH_BYTES / 2 / kolo_type_bytes(call->args.type) * (size_t)kolo_hier_size(l);
    for (size_t at = 0; at < call->args.count; at += most) {
        KOLO_TRY(reduce_tile(run, at, kolo_min(most, call->args.count - at)));
    }
    return KOLO_OK;
}

/* ---- calls of blocks ---- */

static kolo_status all_gather(struct kolo_hier_run *run)
{
    const struct kolo_hier_path *l = run->path;
    const struct kolo_gpu_call *call = run->call;
    const size_t bytes = call->args.count * kolo_type_bytes(call->args.type);
    const int size = kolo_hier_size(l), groups = kolo_hier_groups(l), place = l->intra->ranks.rank;
    char *out = call->args.out;
    KOLO_TRY(gather_blocks(
        run, l->inter, &(struct step){.in = call->args.in, .out = out, .count = call->args.count},
        l->rank_of + place, size));
    for (int g = 0; g < groups; g++) {
        const char *own = out + (size_t)kolo_hier_rank_at(l, g, place) * bytes;
        const struct step apart = {.in = own, .out = out, .count = call->args.count};
        KOLO_TRY(l->in_order ? INTRA(run, KOLO_COLL_ALL_GATHER, own,
                                     out + (size_t)(g * size) * bytes, call->args.count, 0)
                             : gather_blocks(run, l->intra, &apart, l->rank_of + g * size, 1));
    }
    return KOLO_OK;
}

/* The scratch has the packed blocks first, and then a block for each group. */
static kolo_status reduce_scatter_tile(struct kolo_hier_run *run, const size_t part[2], bool packed)
{
    const struct kolo_hier_path *l = run->path;
    const struct kolo_gpu_call *call = run->call;
    const size_t elem = kolo_type_bytes(call->args.type), n = part[1];
    const size_t size = (size_t)kolo_hier_size(l);
    char *scratch = (char *)(uintptr_t)l->scratch, *sums = scratch + (packed ? size * n * elem : 0);
    for (int g = 0; g < kolo_hier_groups(l); g++) {
        const struct kolo_hier_step pack = {.group = g, .at = part[0], .count = n};
        const char *in =
            packed ? scratch : (const char *)call->args.in + (size_t)g * size * n * elem;
        KOLO_TRY(packed ? kolo_hier_run_add(run, &pack) : KOLO_OK);
        KOLO_TRY(INTRA(run, KOLO_COLL_REDUCE_SCATTER, in, sums + (size_t)g * n * elem, n, 0));
    }
    char *out = (char *)call->args.out + part[0] * elem;
    return add_inter(run, &(struct step){KOLO_COLL_REDUCE_SCATTER, sums, out, n, 0});
}

static kolo_status reduce_scatter(struct kolo_hier_run *run)
{
    const struct kolo_hier_path *l = run->path;
    const struct kolo_gpu_call *call = run->call;
    const size_t room = KOLO_HIER_SCRATCH_BYTES / kolo_type_bytes(call->args.type);
    const size_t size = (size_t)kolo_hier_size(l), groups = (size_t)kolo_hier_groups(l);
    if (l->in_order && call->args.count <= room / groups) {
        return reduce_scatter_tile(run, (size_t[]){0, call->args.count}, false);
    }
    const size_t most = room / (size + groups);
    for (size_t at = 0; at < call->args.count; at += most) {
        const size_t part[2] = {at, kolo_min(most, call->args.count - at)};
        KOLO_TRY(reduce_scatter_tile(run, part, true));
    }
    return KOLO_OK;
}

/* ---- calls ---- */

kolo_status kolo_hier_run_plan(struct kolo_hier_run *run)
{
    switch (run->call->args.coll) {
    case KOLO_COLL_ALL_REDUCE:
        return all_reduce(run);
    case KOLO_COLL_REDUCE_SCATTER:
        return reduce_scatter(run);
    case KOLO_COLL_ALL_GATHER:
        return all_gather(run);
    case KOLO_COLL_BROADCAST:
        return broadcast(run);
    default:
        return reduce(run);
    }
}
