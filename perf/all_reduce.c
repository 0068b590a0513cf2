// SPDX-License-Identifier: Apache-2.0
/* all_reduce_perf: every rank sends and receives `count` elements. On a ring, each rank's link
 * carries 2(n-1)/n of them in each direction. No algorithm without in-network reduction carries
 * less. */
#include "perf.h"

static void shape_of(struct perf_shape *shape)
{
    shape->total = shape->count;
    shape->send_elems = shape->count;
    shape->recv_elems = shape->count;
}

static bool block(const struct perf_shape *shape, size_t k, struct perf_block *out)
{
    *out = (struct perf_block){.first = 0, .elems = shape->recv_elems, .source = PERF_REDUCED};
    return k == 0;
}

static kolo_status call(const struct perf_call *c)
{
    return kolo_all_reduce(c->send, c->recv, c->shape->count, c->type, c->op, c->comm, c->stream);
}

const struct perf_collective perf_all_reduce = {
    .name = "all_reduce_perf",
    .reduces = true,
    .moves = true,
    .factor = perf_factor_twice,
    .shape = shape_of,
    .block = block,
    .call = call,
};
