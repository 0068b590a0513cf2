// SPDX-License-Identifier: Apache-2.0
/* The arguments of a collective, as its caller gives them, and the elements and bytes that they
 * mean for one rank. Every layer below the public calls takes them in this form. */
#ifndef KOLO_PLAN_COLL_H
#define KOLO_PLAN_COLL_H

#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The counts of a v-form: counts[n] displs[n] out_counts[n] out_displs[n], in elements. */
struct kolo_counts {
    size_t *all; /* NULL: a regular collective */
    size_t full; /* longest block that this rank knows */
};

struct kolo_coll_args {
    enum kolo_coll coll;
    enum kolo_type type;
    kolo_op op;
    int root;
    enum kolo_codec codec; /* as asked for */
    const void *in;
    void *out;
    size_t count; /* per block; of the whole vector where kolo_coll_flat() */
    struct kolo_counts v;
    uint64_t factor; /* the bits of PREMULSUM's factor */
};

struct kolo_coll_extent {
    size_t in_elems, out_elems; /* elements that the buffers span, from their starts */
    size_t bytes;               /* of a block or vector, as in struct kolo_query */
    bool has_in, has_out;       /* this rank's send is read, its recv is written */
    bool reduces;
    bool by_messages; /* each edge has its own length: a v-form whose counts not all ranks know */
};

/* v-forms whose counts not all ranks know: gatherv, scatterv, all_to_allv. */
static inline bool kolo_coll_by_messages(const struct kolo_coll_args *args)
{
    return args->v.all != NULL &&
           (args->coll == KOLO_COLL_GATHER || args->coll == KOLO_COLL_SCATTER ||
            args->coll == KOLO_COLL_ALL_TO_ALL);
}
/* Cost: constant for regular collectives, n for v-forms. */
struct kolo_coll_extent kolo_coll_extent_of(const struct kolo_coll_args *args, int rank,
                                            int nranks);
/* Bytes of a buffer; 0 if this rank has none. */
static inline size_t kolo_coll_in_bytes(const struct kolo_coll_args *args,
                                        const struct kolo_coll_extent *extent)
{
    return extent->has_in ? extent->in_elems * kolo_type_bytes(args->type) : 0;
}
static inline size_t kolo_coll_out_bytes(const struct kolo_coll_args *args,
                                         const struct kolo_coll_extent *extent)
{
    return extent->has_out ? extent->out_elems * kolo_type_bytes(args->type) : 0;
}
/* recv - send in bytes in the in-place form of kolo.h, in which the buffers may overlap. */
ptrdiff_t kolo_coll_in_place(const struct kolo_coll_args *args, int rank, int nranks);

/* Whether send (`in`), else recv, holds one block and not a block for each rank. */
static inline bool kolo_coll_is_one_block(enum kolo_coll coll, bool in)
{
    return in ? coll == KOLO_COLL_GATHER || coll == KOLO_COLL_ALL_GATHER
              : coll == KOLO_COLL_SCATTER || coll == KOLO_COLL_REDUCE_SCATTER;
}

#ifdef __cplusplus
}
#endif
#endif
