// SPDX-License-Identifier: Apache-2.0
/* alltoallv_perf: the length of the block from rank s to rank d depends on how far d is behind s
 * round the ring of ranks: count * (1 + spread * (2 * distance - (n-1)) / n). With a spread of 0
 * all blocks are equal. With 1 they range from count/n to nearly twice count. Each rank sends and
 * receives the same sum. In place, the input lies behind the output. */
#include "perf.h"

/* counts[] holds four arrays of nranks each. */
enum { SEND_COUNTS, SEND_DISPLS, RECV_COUNTS, RECV_DISPLS };

static size_t *array(const struct perf_shape *shape, int which)
{
    return shape->counts + (size_t)which * (size_t)shape->nranks;
}

static size_t elems_between(const struct perf_shape *shape, int from, int to)
{
    const int n = shape->nranks;
    const int distance = (to - from + n) % n;
    return (size_t)((double)shape->count * (1 + shape->spread * (2 * distance - (n - 1)) / n));
}

static void shape_of(struct perf_shape *shape)
{
    size_t sent = 0, received = 0;
    for (int peer = 0; peer < shape->nranks; peer++) {
        array(shape, SEND_COUNTS)[peer] = elems_between(shape, shape->rank, peer);
        array(shape, SEND_DISPLS)[peer] = sent;
        array(shape, RECV_COUNTS)[peer] = elems_between(shape, peer, shape->rank);
        array(shape, RECV_DISPLS)[peer] = received;
        sent += array(shape, SEND_COUNTS)[peer];
        received += array(shape, RECV_COUNTS)[peer];
    }
    shape->send_elems = sent;
    shape->recv_elems = received;
    shape->total = sent > received ? sent : received;
}

/* The offset at rank `from` of its block for this rank. */
static size_t sent_from(const struct perf_shape *shape, int from)
{
    size_t first = 0;
    for (int to = 0; to < shape->rank; to++) {
        first += elems_between(shape, from, to);
    }
    return first;
}

static bool block(const struct perf_shape *shape, size_t k, struct perf_block *out)
{
    if (k >= (size_t)shape->nranks) {
        return false;
    }
    *out = (struct perf_block){.first = array(shape, RECV_DISPLS)[k],
                               .elems = array(shape, RECV_COUNTS)[k],
                               .source_first = sent_from(shape, (int)k),
                               .source = (int)k};
    return true;
}

static kolo_status call(const struct perf_call *c)
{
    return kolo_all_to_allv(c->send, array(c->shape, SEND_COUNTS), array(c->shape, SEND_DISPLS),
                            c->recv, array(c->shape, RECV_COUNTS), array(c->shape, RECV_DISPLS),
                            c->type, c->comm, c->stream);
}

const struct perf_collective perf_alltoallv = {
    .name = "alltoallv_perf",
    .beside = true,
    .moves = true,
    .per_rank = true,
    .factor = perf_factor_part,
    .shape = shape_of,
    .block = block,
    .call = call,
};
