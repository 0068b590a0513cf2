// SPDX-License-Identifier: Apache-2.0
/* broadcast_perf: every rank receives the root's `count` elements. */
#include "perf.h"

static void shape_of(struct perf_shape *shape)
{
    shape->total = shape->count;
    shape->send_elems = shape->rank == shape->root ? shape->count : 0;
    shape->recv_elems = shape->count;
}

static bool block(const struct perf_shape *shape, size_t k, struct perf_block *out)
{
    *out = (struct perf_block){.first = 0, .elems = shape->recv_elems, .source = shape->root};
    return k == 0;
}

static kolo_status call(const struct perf_call *c)
{
    return kolo_broadcast(c->send, c->recv, c->shape->count, c->type, c->shape->root, c->comm,
                          c->stream);
}

const struct perf_collective perf_broadcast = {
    .name = "broadcast_perf",
    .rooted = true,
    .moves = true,
    .factor = perf_factor_one,
    .shape = shape_of,
    .block = block,
    .call = call,
};
