// SPDX-License-Identifier: Apache-2.0
/* Chain all-reduce: the partial sum goes from rank 0 up to rank n-1, and each rank adds its vector
 * on the right. The result then comes back down. The expression is ((x0 + x1) + x2) + ... and needs
 * no memory but the result's. The vector goes in pieces one behind the other, so that several links
 * are busy.
 *
 *   0 --x0--> 1 --x0+x1--> 2 --(x0+x1)+x2--> 3       sum      n = 4
 *   0 <------ 1 <--------- 2 <-------------- 3       result
 *
 * Sanders, Sibeyn: A bandwidth latency tradeoff for broadcast and reduction, 2003 (the linear
 * pipeline).
 */
#include "algos.h"

enum { PIECES = 4 }; /* while one is at the far end, the next are coming */

static void build(const struct kolo_shape *shape, struct kolo_builder *b)
{
    const int n = shape->nranks;
    kolo_chunks(b, PIECES);
    if (n == 1) {
        kolo_local(b, 0, kolo_slice_make(KOLO_IN, 0, PIECES), kolo_slice_make(KOLO_OUT, 0, PIECES),
                   KOLO_MOVE);
    }
    for (int c = 0; c < PIECES; c++) {
        for (int r = 1; r < n; r++) {
            const unsigned last = r == n - 1 ? KOLO_LAST : 0;
            kolo_local(b, r, kolo_in(c), kolo_out(c), KOLO_MOVE);
            kolo_transfer(b, r - 1, r == 1 ? kolo_in(c) : kolo_out(c), r, kolo_out(c),
                          KOLO_ADD | KOLO_LEFT | last);
            kolo_round(b);
        }
    }
    for (int c = 0; c < PIECES; c++) {
        for (int r = n - 1; r > 0; r--) {
            kolo_transfer(b, r, kolo_out(c), r - 1, kolo_out(c), KOLO_MOVE);
            kolo_round(b);
        }
    }
}

const struct kolo_algo kolo_algo_allreduce_chain = {
    .base = {KOLO_PLUGIN_ABI, sizeof(struct kolo_algo), "allreduce_chain"},
    .coll = KOLO_COLL_ALL_REDUCE,
    .source = "Sanders, Sibeyn: A bandwidth latency tradeoff for broadcast and reduction, 2003",
    .build = build,
};
