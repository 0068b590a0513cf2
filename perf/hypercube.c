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

/* Put the rank's own block in its place. On a stream a message to itself does so in the stream's
 * order. */
static kolo_status place_own(const struct perf_call *c, unsigned char *place, size_t bytes)
{
    if (c->send == place || bytes == 0) {
        return KOLO_OK;
    }
    if (c->stream != NULL) {
        const int self = c->shape->rank;
        return perf_exchange(c, c->shape->count, self, c->send, self, place);
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
        const int own = rank & ~(held - 1), theirs = own ^ held, peer = rank ^ held;
        status = perf_exchange(c, c->shape->count * (size_t)held, peer,
                               blocks + (size_t)own * bytes, peer, blocks + (size_t)theirs * bytes);
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
    .shape = perf_all_gather_shape,
    .block = perf_all_gather_block,
    .call = call,
};
