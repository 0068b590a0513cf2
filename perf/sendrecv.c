// SPDX-License-Identifier: Apache-2.0
/* sendrecv_perf: every rank sends to the next one and receives from the one before, in one group.
 * In place, the outgoing message lies behind the incoming one: they may not share memory. */
#include "perf.h"

static void shape_of(struct perf_shape *shape)
{
    shape->total = shape->count;
    shape->send_elems = shape->count;
    shape->recv_elems = shape->count;
}

static int before(const struct perf_shape *shape)
{
    return (shape->rank + shape->nranks - 1) % shape->nranks;
}

static bool block(const struct perf_shape *shape, size_t k, struct perf_block *out)
{
    *out = (struct perf_block){.first = 0, .elems = shape->recv_elems, .source = before(shape)};
    return k == 0;
}

kolo_status perf_exchange(const struct perf_call *c, size_t elems, int to, const void *send,
                          int from, void *recv)
{
    kolo_status status = kolo_group_begin();
    if (status < 0) {
        return status;
    }
    status = kolo_send(send, elems, c->type, to, c->comm, c->stream);
    if (status >= 0) {
        status = kolo_recv(recv, elems, c->type, from, c->comm, c->stream);
    }
    const kolo_status ended = kolo_group_end();
    return status < 0 ? status : ended;
}

static kolo_status call(const struct perf_call *c)
{
    const int after = (c->shape->rank + 1) % c->shape->nranks;
    return perf_exchange(c, c->shape->count, after, c->send, before(c->shape), c->recv);
}

const struct perf_collective perf_sendrecv = {
    .name = "sendrecv_perf",
    .beside = true,
    .moves = true,
    .factor = perf_factor_one,
    .shape = shape_of,
    .block = block,
    .call = call,
};
