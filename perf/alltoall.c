// SPDX-License-Identifier: Apache-2.0
/* alltoall_perf: block q of rank r's result is block r of rank q's buffer. */
#include "perf.h"

static void shape_of(struct perf_shape *shape)
{
    shape->total = shape->count * (size_t)shape->nranks;
    shape->send_elems = shape->total;
    shape->recv_elems = shape->total;
}

static bool block(const struct perf_shape *shape, size_t k, struct perf_block *out)
{
    *out = (struct perf_block){.first = k * shape->count,
                               .elems = shape->count,
                               .source_first = shape->count * (size_t)shape->rank,
                               .source = (int)k};
    return k < (size_t)shape->nranks;
}

static kolo_status call(const struct perf_call *c)
{
    return kolo_all_to_all(c->send, c->recv, c->shape->count, c->type, c->comm, c->stream);
}

const struct perf_collective perf_alltoall = {
    .name = "alltoall_perf",
    .moves = true,
    .per_rank = true,
    .factor = perf_factor_part,
    .shape = shape_of,
    .block = block,
    .call = call,
};
