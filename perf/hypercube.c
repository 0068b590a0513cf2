// SPDX-License-Identifier: Apache-2.0
/* hypercube_perf: an all-gather out of messages. In step k, ranks whose numbers differ in bit k
 * exchange all blocks that they have, so each rank has 2^(k+1) of them afterwards. It needs a power
 * of two of ranks. Source: the hypercube test of nccl-tests 2.19. */
#include "perf.h"

#include <string.h>

static bool is_power_of_two(int nranks)
{
    return (nranks & (nranks - 1)) == 0;
}

static void shape_of(struct perf_shape *shape)
{
    shape->total = shape->count * (size_t)shape->nranks;
    shape->send_elems = shape->count;
    shape->recv_elems = shape->total;
    shape->send_at = shape->count * (size_t)shape->rank;
}

static bool block(const struct perf_shape *shape, size_t k, struct perf_block *out)
{
    *out = (struct perf_block){.first = k * shape->count, .elems = shape->count, .source = (int)k};
    return k < (size_t)shape->nranks;
}

/* The group is also ended after an error. The result is then that error. */
static kolo_status exchange(const struct perf_call *c, int peer, const void *send, void *recv,
                            size_t elems)
{
    kolo_status status = kolo_group_begin();
    if (status < 0) {
        return status;
    }
    status = kolo_send(send, elems, c->type, peer, c->comm, c->stream);
    if (status >= 0) {
        status = kolo_recv(recv, elems, c->type, peer, c->comm, c->stream);
    }
    const kolo_status ended = kolo_group_end();
    return status < 0 ? status : ended;
}

/* Put the rank's own block in its place. On a stream a message to itself does so in the stream's
 * order. */
static kolo_status place_own(const struct perf_call *c, unsigned char *place, size_t bytes)
{
    if (c->send == place || bytes == 0) {
        return KOLO_OK;
    }
    if (c->stream != NULL) {
        return exchange(c, c->shape->rank, c->send, place, c->shape->count);
    }
    memcpy(place, c->send, bytes);
    return KOLO_OK;
}

static kolo_status call(const struct perf_call *c)
{
    const int rank = c->shape->rank;
    const size_t bytes = c->shape->count * perf_type_bytes(c->type);
    unsigned char *blocks = c->recv;
    kolo_status status = place_own(c, blocks + (size_t)rank * bytes, bytes);
    for (int held = 1; held < c->shape->nranks && status >= 0; held *= 2) {
        const int own = rank & ~(held - 1), theirs = own ^ held;
        status = exchange(c, rank ^ held, blocks + (size_t)own * bytes,
                          blocks + (size_t)theirs * bytes, c->shape->count * (size_t)held);
    }
    return status;
}

const struct perf_collective perf_hypercube = {
    .name = "hypercube_perf",
    .chained = true,
    .moves = true,
    .per_rank = true,
    .share = perf_factor_part,
    .factor = perf_factor_one,
    .runs = is_power_of_two,
    .shape = shape_of,
    .block = block,
    .call = call,
};
