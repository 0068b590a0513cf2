// SPDX-License-Identifier: Apache-2.0
/* Bruck all-to-all (index): rank r's block for rank r+i has i ranks to go. In round k all blocks
 * with bit k set in i go 2^k ranks on, in one message. ceil(log2 n) messages a rank instead of n-1,
 * each of up to n/2 blocks: for short blocks. Blocks stay where they arrive. A rank packs only the
 * blocks of the next message.
 *
 *   to go 1 3 5 --1--> r+1   |   2 3 6 --2--> r+2   |   4 5 6 --4--> r+4        n = 7
 *
 * Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient algorithms for all-to-all communications in
 * multiport message-passing systems, 1997.
 */
#include "algos.h"

/* SCRATCH: n/2 chunks of the message being packed, then n/2 for the arrivals of each round. */
static int arrivals(int n, int k)
{
    return n / 2 * (1 + k);
}

/* The slice in which rank r has the block with i to go, before round k. In its message of round j
 * the block follows the blocks with a smaller i that have bit j too. */
static struct kolo_slice held(int n, int r, int i, int k)
{
    const int gone = i & ((1 << k) - 1); /* its bits that are done */
    if (gone == 0) {
        return kolo_in((r + i) % n);
    }
    const int j = kolo_log2_ceil(gone + 1) - 1;
    const int before = ((i >> (j + 1)) << j) | (i & ((1 << j) - 1));
    return kolo_scratch(arrivals(n, j) + before);
}

/* Pack rank r's message of round k; returns its blocks. */
static int pack(struct kolo_builder *b, int n, int r, int k)
{
    int count = 0;
    for (int i = 1 << k; i < n; i++) {
        if ((i >> k) % 2 != 0) {
            kolo_local(b, r, held(n, r, i, k), kolo_scratch(count), KOLO_MOVE);
            count++;
        }
    }
    return count;
}

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    const int rounds = kolo_log2_ceil(n);
    kolo_scratch_chunks(b, arrivals(n, rounds));
    for (int k = 0; k < rounds; k++) {
        int count = 0;
        for (int r = 0; r < n; r++) {
            count = pack(b, n, r, k);
        }
        kolo_round(b);
        for (int r = 0; r < n; r++) {
            kolo_transfer(b, r, kolo_slice_make(KOLO_SCRATCH, 0, count), (r + (1 << k)) % n,
                          kolo_slice_make(KOLO_SCRATCH, arrivals(n, k), count), KOLO_MOVE);
        }
    }
    for (int r = 0; r < n; r++) {
        for (int i = 0; i < n; i++) {
            kolo_local(b, r, held(n, r, i, rounds), kolo_out(kolo_mod(r - i, n)), KOLO_MOVE);
        }
    }
}

const struct kolo_algo kolo_algo_alltoall_bruck = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "alltoall_bruck"},
    .coll = KOLO_COLL_ALL_TO_ALL,
    .source = "Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient algorithms for all-to-all "
              "communications in multiport message-passing systems, 1997, doi:10.1109/71.642949",
    .build = build,
};
