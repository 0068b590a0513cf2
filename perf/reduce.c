// SPDX-License-Identifier: Apache-2.0
/* reduce_perf: the root receives the reduction of every rank's `count` elements. */
#include "perf.h"

static void shape_of(struct perf_shape *shape)
{
    shape->total = shape->count;
    shape->send_elems = shape->count;
    shape->recv_elems = shape->rank == shape->root ? shape->count : 0;
}

static bool block(const struct perf_shape *shape, size_t k, struct perf_block *out)
{
    *out = (struct perf_block){.first = 0, .elems = shape->recv_elems, .source = PERF_REDUCED};
    return k == 0;
}

static kolo_status call(const struct perf_call *c)
{
    return kolo_reduce(c->send, c->recv, c->shape->count, c->type, c->op, c->shape->root, c->comm,
                       c->stream);
}

const struct perf_collective perf_reduce = {
    .name = "reduce_perf",
    .reduces = true,
    .rooted = true,
    .moves = true,
    .factor = perf_factor_one,
    .shape = shape_of,
    .block = block,
    .call = call,
};
