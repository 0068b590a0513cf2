// SPDX-License-Identifier: Apache-2.0
/* barrier_perf: there is no data, so the only row has only times. Its halves are the same call,
 * measured twice. */
#include "perf.h"

static void shape_of(struct perf_shape *shape)
{
    shape->count = 0;
    shape->total = 0;
}

static bool block(const struct perf_shape *shape, size_t k, struct perf_block *out)
{
    (void)shape;
    (void)k;
    (void)out;
    return false;
}

static kolo_status call(const struct perf_call *c)
{
    return kolo_barrier(c->comm, c->stream);
}

const struct perf_collective perf_barrier = {
    .name = "barrier_perf",
    .factor = perf_factor_one,
    .shape = shape_of,
    .block = block,
    .call = call,
};
