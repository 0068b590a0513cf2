// SPDX-License-Identifier: Apache-2.0
/* gather_perf: block r of the root's result is rank r's `count` elements. */
#include "perf.h"

static void shape_of(struct perf_shape *shape)
{
    const bool is_root = shape->rank == shape->root;
    shape->total = shape->count * (size_t)shape->nranks;
    shape->send_elems = shape->count;
    shape->recv_elems = is_root ? shape->total : 0;
    shape->send_at = is_root ? shape->count * (size_t)shape->rank : 0;
}

static bool block(const struct perf_shape *shape, size_t k, struct perf_block *out)
{
    *out = (struct perf_block){
        .first = k * shape->count, .elems = shape->count, .source_first = 0, .source = (int)k};
    return k < (size_t)shape->nranks && shape->rank == shape->root;
}

static kolo_status call(const struct perf_call *c)
{
    return kolo_gather(c->send, c->recv, c->shape->count, c->type, c->shape->root, c->comm,
                       c->stream);
}

const struct perf_collective perf_gather = {
    .name = "gather_perf",
    .rooted = true,
    .moves = true,
    .per_rank = true,
    .factor = perf_factor_part,
    .shape = shape_of,
    .block = block,
    .call = call,
};
