// SPDX-License-Identifier: Apache-2.0
/* scatter_perf: rank r receives block r of the root's buffer. */
#include "perf.h"

static void shape_of(struct perf_shape *shape)
{
    const bool is_root = shape->rank == shape->root;
    shape->total = shape->count * (size_t)shape->nranks;
    shape->send_elems = is_root ? shape->total : 0;
    shape->recv_elems = shape->count;
    shape->recv_at = is_root ? shape->count * (size_t)shape->rank : 0;
}

static bool block(const struct perf_shape *shape, size_t k, struct perf_block *out)
{
    *out = (struct perf_block){.first = 0,
                               .elems = shape->count,
                               .source_first = shape->count * (size_t)shape->rank,
                               .source = shape->root};
    return k == 0;
}

static kolo_status call(const struct perf_call *c)
{
    return kolo_scatter(c->send, c->recv, c->shape->count, c->type, c->shape->root, c->comm,
                        c->stream);
}

const struct perf_collective perf_scatter = {
    .name = "scatter_perf",
    .rooted = true,
    .moves = true,
    .per_rank = true,
    .factor = perf_factor_part,
    .shape = shape_of,
    .block = block,
    .call = call,
};
