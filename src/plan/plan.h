// SPDX-License-Identifier: Apache-2.0
/* A plan: the steps of every rank, as data. Algorithms make plans through the builder of
 * <kolo/plugin.h>. The library verifies, prices, prints, lowers and runs them.
 *
 * Order:
 * - The steps of a lane run in order. The lanes of a rank run concurrently.
 * - Messages match in order per (from, to, lane). The steps at both ends carry both slices.
 * - A SEND has read its source before a later step of its lane writes there.
 * - `dep` waits for an earlier step of another lane of the same rank.
 */
#ifndef KOLO_PLAN_H
#define KOLO_PLAN_H

#include "util/util.h"

#include <kolo/plugin.h>

#include <assert.h>

#ifdef __cplusplus
extern "C" {
#endif

enum kolo_meaning { KOLO_SEND, KOLO_RECV, KOLO_RECV_REDUCE, KOLO_COPY, KOLO_REDUCE };

enum kolo_step_flag {
    KOLO_STEP_LEFT = 1, /* RECV_REDUCE, REDUCE: dst = src op dst */
    KOLO_STEP_LAST = 2, /* RECV_REDUCE, REDUCE: completes the reduction */
    /* Facts about a message that only the whole plan shows. Sealing sets them, alike at both ends.
     */
    KOLO_STEP_STABLE = 4, /* the sender never writes src after this SEND, in place or not */
    KOLO_STEP_FRESH = 8   /* the receiver has not touched dst before this RECV, in place or not */
};

/* One step of one rank. SEND, RECV, RECV_REDUCE: src is the sender's slice, dst the receiver's.
 * One signal, the sender's `phase`-th, announces a run of sends of one lane and round. The sent
 * chunks lie in the sender's outbox from chunk `place` on. If one run sends the same slice to
 * several ranks, these sends share the place. Each sender numbers phases and places from 0 in
 * every tile. */
struct kolo_step {
    uint8_t op, flags, lane, pad;
    int32_t peer; /* the other rank, -1 for local steps */
    struct kolo_slice src, dst;
    int32_t dep; /* index of an earlier step of this rank, or -1 */
    uint16_t phase, place;
};
static_assert(sizeof(struct kolo_step) == 32, "two 16-byte loads per step on a GPU");

struct kolo_rank_plan {
    struct kolo_step *step; /* NULL for ranks that were not asked for */
    int count, cap;
    int phases, places; /* signals and outbox chunks per tile; known for every rank */
    /* Messages, and COPY steps; known for the ranks whose steps are here. */
    int sends, receives, copies;
};

struct kolo_plan {
    struct kolo_shape shape; /* order, group and tree point into this plan, or are NULL */
    const struct kolo_algo *algo;
    int only; /* the one rank whose steps are here; negative: all */
    int lanes;
    int chunks, scratch_chunks;
    int max_places;              /* the largest `places` of any rank */
    struct kolo_rank_plan *rank; /* [nranks] */
    uint64_t hash;               /* hash of algorithm name, shape and chunks: equal on every rank */
    int *order, *group, *tree;
};

/* Build and seal the plan of `algo` for `shape`: for one rank, for all (rank -1), or for all without
 * the facts STABLE and FRESH (KOLO_PLAN_PLAIN): each rank's steps as it would build them alone.
 * Errors: UNSUPPORTED (the algorithm refuses), INVALID (it emits invalid steps, or the groups of
 * the shape are invalid; the text names the fault), SYSTEM. */
enum { KOLO_PLAN_PLAIN = -2 };
kolo_status kolo_plan_build(const struct kolo_algo *algo, const struct kolo_shape *shape, int rank,
                            struct kolo_plan **out);
void kolo_plan_destroy(struct kolo_plan *plan);

/* Chunks of a buffer at `rank` (0: the rank does not have it). */
int kolo_plan_buf_chunks(const struct kolo_plan *plan, int rank, enum kolo_buf buf);

/* Flat collectives (all_reduce, reduce, broadcast) cut one vector into chunks. In the others a
 * chunk is a rank's block. */
static inline bool kolo_coll_flat(enum kolo_coll coll)
{
    return coll == KOLO_COLL_ALL_REDUCE || coll == KOLO_COLL_REDUCE || coll == KOLO_COLL_BROADCAST;
}
static inline bool kolo_coll_reduces(enum kolo_coll coll)
{
    return coll == KOLO_COLL_ALL_REDUCE || coll == KOLO_COLL_REDUCE ||
           coll == KOLO_COLL_REDUCE_SCATTER;
}
static inline bool kolo_coll_rooted(enum kolo_coll coll)
{
    return coll == KOLO_COLL_REDUCE || coll == KOLO_COLL_BROADCAST || coll == KOLO_COLL_GATHER ||
           coll == KOLO_COLL_SCATTER;
}
/* "allreduce", the prefix of algorithm names and the word in KOLO_ALGO; "AllReduce" for the log. */
const char *kolo_coll_name(enum kolo_coll coll);
/* Find the collective called `name`. Underscores, as in all_reduce, are ignored. False: no
 * collective has this name. */
bool kolo_coll_find(const char *name, size_t len, enum kolo_coll *out);
/* Add the names of all collectives, separated by `between`. */
void kolo_coll_list(struct kolo_text *out, const char *between);
const char *kolo_coll_title(enum kolo_coll coll);

/* The chunk of OUT that is chunk `chunk` of IN at `rank` in an in-place call; -1: none. */
int kolo_alias_out_chunk(const struct kolo_plan *plan, int rank, int chunk);

/* Whether rank `from` sends and copies more often than rank `to` receives and copies. If so, the
 * receivers do better to fetch the data from where it lies, all at the same time. False for plans of
 * one rank. */
static inline bool kolo_plan_fans_out(const struct kolo_plan *plan, int from, int to)
{
    const struct kolo_rank_plan *sender = &plan->rank[from], *receiver = &plan->rank[to];
    return plan->only < 0 && sender->sends + sender->copies > receiver->receives + receiver->copies;
}

/* Whether this is a broadcast to one rank. In place its root has nothing else to do. So it stores
 * even chunks where they belong, while the other rank fetches odd ones. */
static inline bool kolo_plan_halves(const struct kolo_plan *plan)
{
    return plan->only < 0 && plan->shape.coll == KOLO_COLL_BROADCAST && plan->shape.nranks == 2;
}

/* The group of `rank` at level `level` of the shape. */
static inline int kolo_group_of(const struct kolo_shape *shape, int level, int rank)
{
    return shape->group[level * shape->nranks + rank];
}

/* The rank at place i of the shape's ring. */
static inline int kolo_rank_at(const struct kolo_shape *shape, int i)
{
    return shape->order != NULL ? shape->order[i] : i;
}

/* The built-in algorithms, one row each. algos/registry.c defines them. */
extern const struct kolo_algo *const kolo_algos[];
extern const int kolo_algos_count;

#ifdef __cplusplus
}
#endif
#endif
