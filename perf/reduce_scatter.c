// SPDX-License-Identifier: Apache-2.0
/* reduce_scatter_perf: rank r receives block r of the reduction of all ranks' n blocks. */
#include "perf.h"

static void shape_of(struct perf_shape *shape)
{
    shape->total = shape->count * (size_t)shape->nranks;
    shape->send_elems = shape->total;
    shape->recv_elems = shape->count;
    shape->recv_at = shape->count * (size_t)shape->rank;
}

static bool block(const struct perf_shape *shape, size_t k, struct perf_block *out)
{
    *out = (struct perf_block){.first = 0,
                               .elems = shape->count,
                               .source_first = shape->count * (size_t)shape->rank,
                               .source = PERF_REDUCED};
    return k == 0;
}

static kolo_status call(const struct perf_call *c)
{
    return kolo_reduce_scatter(c->send, c->recv, c->shape->count, c->type, c->op, c->comm,
                               c->stream);
}

const struct perf_collective perf_reduce_scatter = {
    .name = "reduce_scatter_perf",
    .reduces = true,
    .moves = true,
    .per_rank = true,
    .factor = perf_factor_part,
    .shape = shape_of,
    .block = block,
    .call = call,
};
