// SPDX-License-Identifier: Apache-2.0
/* all_gather_perf: block r of every rank's result is rank r's `count` elements. */
#include "perf.h"

void perf_all_gather_shape(struct perf_shape *shape)
{
    shape->total = shape->count * (size_t)shape->nranks;
    shape->send_elems = shape->count;
    shape->recv_elems = shape->total;
    shape->send_at = shape->count * (size_t)shape->rank;
}

bool perf_all_gather_block(const struct perf_shape *shape, size_t k, struct perf_block *out)
{
    *out = (struct perf_block){
        .first = k * shape->count, .elems = shape->count, .source_first = 0, .source = (int)k};
    return k < (size_t)shape->nranks;
}

static kolo_status call(const struct perf_call *c)
{
    return kolo_all_gather(c->send, c->recv, c->shape->count, c->type, c->comm, c->stream);
}

const struct perf_collective perf_all_gather = {
    .name = "all_gather_perf",
    .moves = true,
    .per_rank = true,
    .factor = perf_factor_part,
    .shape = perf_all_gather_shape,
    .block = perf_all_gather_block,
    .call = call,
};
