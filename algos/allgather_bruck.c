// SPDX-License-Identifier: Apache-2.0
/* Bruck all-gather (concatenation): rank r holds blocks r, r+1, ... (mod n). In each round it
 * doubles their number: it gets as many blocks again from the rank whose block comes next.
 * ceil(log2 n) rounds and n-1 blocks for every n. Blocks go straight to their places in OUT. So a
 * run that wraps is two messages, and no rotation follows.
 *
 *   r has [r]   r <-1- r+1   [r r+1]   r <-2- r+2   [r .. r+3]   r <-1- r+4   [r .. r+4]    n = 5
 *
 * Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient algorithms for all-to-all communications in
 * multiport message-passing systems, 1997.
 */
#include "algos.h"

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    for (int r = 0; r < n; r++) {
        kolo_local(b, r, kolo_in(0), kolo_out(r), KOLO_MOVE);
    }
    for (int have = 1; have < n; have *= 2) {
        const int count = 2 * have < n ? have : n - have;
        for (int r = 0; r < n; r++) {
            for (int c = 0, run; c < count; c += run) {
                run = kolo_run(r + c, count - c, n);
                const struct kolo_slice blocks = kolo_slice_make(KOLO_OUT, (r + c) % n, run);
                kolo_transfer(b, r, have == 1 ? kolo_in(0) : blocks, kolo_mod(r - have, n), blocks,
                              KOLO_MOVE);
            }
        }
        kolo_round(b);
    }
}

const struct kolo_algo kolo_algo_allgather_bruck = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "allgather_bruck"},
    .coll = KOLO_COLL_ALL_GATHER,
    .source = "Bruck, Ho, Kipnis, Upfal, Weathersby: Efficient algorithms for all-to-all "
              "communications in multiport message-passing systems, 1997, doi:10.1109/71.642949",
    .build = build,
};
