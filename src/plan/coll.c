// SPDX-License-Identifier: Apache-2.0
/* The elements and bytes that the arguments of a collective mean for one rank. Each call computes
 * them once. */
#include "plan/coll.h"

static bool has_in(const struct kolo_coll_args *args, bool is_root)
{
    return args->coll == KOLO_COLL_BROADCAST || args->coll == KOLO_COLL_SCATTER
               ? is_root
               : args->coll != KOLO_COLL_BARRIER;
}

static bool has_out(const struct kolo_coll_args *args, bool is_root)
{
    return args->coll == KOLO_COLL_REDUCE || args->coll == KOLO_COLL_GATHER
               ? is_root
               : args->coll != KOLO_COLL_BARRIER;
}

static size_t end_of_blocks(const size_t *counts, const size_t *displs, int n)
{
    size_t end = 0;
    for (int r = 0; r < n; r++) {
        end = counts[r] > 0 ? kolo_max(end, displs[r] + counts[r]) : end;
    }
    return end;
}

static size_t span_of(const struct kolo_coll_args *args, bool in, int rank, int n)
{
    const size_t *all = args->v.all;
    const bool one = kolo_coll_is_one_block(args->coll, in);
    if (kolo_coll_flat(args->coll)) {
        return args->count;
    }
    if (all == NULL) {
        return one ? args->count : args->count * (size_t)n;
    }
    if (one) {
        return all[rank];
    }
    const size_t *side = args->coll == KOLO_COLL_ALL_TO_ALL && !in ? all + 2 * n : all;
    return end_of_blocks(side, side + n, n);
}

struct kolo_coll_extent kolo_coll_extent_of(const struct kolo_coll_args *args, int rank, int nranks)
{
    const bool v = args->v.all != NULL, is_root = rank == args->root;
    return (struct kolo_coll_extent){.in_elems = span_of(args, true, rank, nranks),
                                     .out_elems = span_of(args, false, rank, nranks),
                                     .bytes = (v ? args->v.full : args->count) *
                                              kolo_type_bytes(args->type),
                                     .has_in = has_in(args, is_root),
                                     .has_out = has_out(args, is_root),
                                     .reduces = kolo_coll_reduces(args->coll),
                                     .by_messages = kolo_coll_by_messages(args)};
}

ptrdiff_t kolo_coll_in_place(const struct kolo_coll_args *args, int rank, int nranks)
{
    const size_t *all = args->v.all;
    const size_t block = all != NULL ? all[nranks + rank] : (size_t)rank * args->count;
    const ptrdiff_t bytes = (ptrdiff_t)(block * kolo_type_bytes(args->type));
    if (kolo_coll_flat(args->coll) || args->coll == KOLO_COLL_ALL_TO_ALL) {
        return 0;
    }
    return kolo_coll_is_one_block(args->coll, true) ? -bytes : bytes;
}
