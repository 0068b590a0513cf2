// SPDX-License-Identifier: Apache-2.0
/* Which algorithm runs: the user's rules, else a tuner plug-in, else a measured table, else the
 * price of each candidate's plan on this machine's costs.
 *
 * Every rank chooses for itself, without a word to the others, and all must choose alike. So a
 * choice depends only on what all ranks share: the rules' text, the table's (read by one rank), the
 * costs (measured by one rank), the number of ranks and hosts, the order of the ring, the groups of
 * near ranks, and the call's collective, root, bytes and type.
 */
#ifndef KOLO_TUNE_H
#define KOLO_TUNE_H

#include "table.h"
#include "util/util.h"

#include <kolo/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- rules: the user's overrides ---- */

struct kolo_rules;

/* The algorithm's name without the collective's prefix: "ring". */
const char *kolo_algo_word(const struct kolo_algo *algo);

/* "allreduce:0-4k:direct,4k-:ring;broadcast:chain": collectives apart by ';', ranges lo-hi by ','
 * (bytes per rank as in struct kolo_query; hi is exclusive, an empty one has no end; without a
 * range all sizes), algorithms without the collective's prefix. Sizes outside all ranges have no
 * rule. Errors: INVALID, naming the word, its position and what is allowed; SYSTEM. */
KOLO_CHECK kolo_status kolo_rules_parse(const char *text, struct kolo_rules **out);
/* The same among these algorithms, so that rules can name plugged-in ones; the other takes the
 * built-in ones. */
KOLO_CHECK kolo_status kolo_rules_parse_among(const char *text, int (*algo_count)(void),
                                              const struct kolo_algo *(*algo_at)(int index),
                                              struct kolo_rules **out);
void kolo_rules_destroy(struct kolo_rules *rules);
/* NULL: no rule. `rules` may be NULL. */
const struct kolo_algo *kolo_rules_find(const struct kolo_rules *rules, enum kolo_coll coll,
                                        size_t bytes);
/* The rule that was found as it was written: "allreduce:0-4k:direct". */
void kolo_rules_say(const struct kolo_rules *rules, enum kolo_coll coll, size_t bytes,
                    struct kolo_text *out);

/* ---- costs of this machine ---- */

struct kolo_far {
    double latency_us, copy_us_per_byte;
};

/* Plain old data: one rank a host measures, and it travels as bytes. */
struct kolo_costs {
    uint32_t size;             /* sizeof(struct kolo_costs) */
    int32_t cores;             /* that the ranks of a host share */
    double latency_us;         /* one flag from a core to another of the same L3 */
    double copy_us_per_byte;   /* of one core, cache to cache; the same */
    double reduce_us_per_byte; /* float32 sums: of the bytes of one operand */
    double step_us;            /* of a core, for a message's lines at either end */
    double switch_us;          /* a yield to another process on the same core */
    /* The same between cores that share a NUMA node but no L3, a package but no node, and no
     * package: at [near - KOLO_NEAR_NUMA]. */
    struct kolo_far far[3];
    double cross_us_per_byte; /* of all that passes from one package to another */
    struct kolo_far net;      /* a message to another host */
    int32_t unbound; /* ranks that may run anywhere: as far apart as far[unbound - 1]; 0: near */
};

struct kolo_host;
struct kolo_place;

/* Measure in less than 50 ms; what cannot be measured (a flag between cores where only one is
 * allowed) gets its default. `host` is this machine, and says which cores are near; NULL: the first
 * and the last stand for all. Rounded to two digits. */
void kolo_costs_measure(int cores_allowed, const struct kolo_host *host, struct kolo_costs *out);
/* KOLO_COSTS, "latency_us=0.2,copy_gbs=10,...": cores, latency_us, copy_gbs, reduce_gbs (1e9 bytes
 * a second), step_us, switch_us; numa_latency_us and numa_gbs, package_latency_us and package_gbs,
 * host_latency_us and host_gbs for ranks that share no more than that; cross_gbs; net_latency_us
 * and net_gbs between hosts. What is not named has its default. False, and `out` untouched, where
 * the text is not just that. */
bool kolo_costs_parse(const char *text, struct kolo_costs *out);

/* ---- choosing ---- */

struct kolo_chooser;

struct kolo_chooser_options {
    int nranks, nhosts;
    const int *order; /* [nranks], of `nrings` rings one behind another, or NULL; copied */
    int nrings;       /* as in struct kolo_shape; 0: one */
    int ntrees;       /* as in struct kolo_shape */
    const int *tree;  /* [ntrees * nranks]; copied */
    const int *host;  /* [nranks], which host each is on; NULL: in blocks; copied */
    bool by_messages; /* no rank maps another's memory */
    const struct kolo_place *place; /* [nranks] or NULL: anywhere; copied */
    int nlevels;                    /* as in struct kolo_shape: groups of near ranks */
    const int *group;               /* [nlevels * nranks]; copied */
    const struct kolo_rules *rules; /* may be NULL; borrowed */
    const struct kolo_table *table; /* may be NULL; borrowed */
    struct kolo_costs costs;
    bool deterministic;
    const struct kolo_tuner *tuner; /* may be NULL; borrowed, as is tuner_self */
    const void *tuner_self;
    int (*algo_count)(void); /* the algorithms there are, built in and plugged in */
    const struct kolo_algo *(*algo_at)(int index);
    int max_phases; /* plans with more signals per rank cannot be run: not candidates */
};

/* Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_chooser_create(const struct kolo_chooser_options *options,
                                           struct kolo_chooser **out);
void kolo_chooser_destroy(struct kolo_chooser *chooser);

struct kolo_pick {
    const struct kolo_algo *algo;
    bool wide;         /* deterministic, and partial sums travel: run it in the accumulator type */
    size_t tile_bytes; /* over all chunks of a tile; 0: the default */
    double predicted_us; /* by the built-in model, at the size of the class */
    const char *source;  /* "rules", "tuner", "table" or "price"; "forced" */
    bool fresh;          /* the first time for this (collective, size class): log it */
};

/* Choose for one call. `bytes` per rank as in struct kolo_query; root 0 where there is none. The
 * caller serialises calls on one chooser. Errors: INVALID where a rule names an algorithm that
 * cannot run this shape, or that is not in rank order where deterministic (the text says what the
 * rule says, why not, and what is allowed); SYSTEM; what a tuner returns. */
KOLO_CHECK kolo_status kolo_choose(struct kolo_chooser *chooser, enum kolo_coll coll, int root,
                                   size_t bytes, enum kolo_type type, struct kolo_pick *out);

/* The same for a call whose buffers lie, on every rank, in memory that its peers map. The second
 * function is false where that changes nothing, because the algorithm is forced. */
KOLO_CHECK kolo_status kolo_choose_mapped(struct kolo_chooser *chooser, enum kolo_coll coll,
                                          int root, size_t bytes, enum kolo_type type,
                                          struct kolo_pick *out);
bool kolo_chooser_looks_at_buffers(const struct kolo_chooser *chooser);

/* From now on this algorithm and tile for every call of its collective, as kolo_choose() did not
 * exist: for measuring. The caller knows that it can run them. NULL: as before. */
void kolo_chooser_force(struct kolo_chooser *chooser, const struct kolo_algo *algo,
                        size_t tile_bytes);

struct kolo_candidate {
    const struct kolo_algo *algo;
    double us;         /* predicted, at the size of the class */
    size_t tile_bytes; /* what it runs in where no table says another; 0: the default */
};
enum { KOLO_CANDIDATES_MAX = 64 };
struct kolo_candidate_list {
    struct kolo_candidate candidate[KOLO_CANDIDATES_MAX];
    int count;
};
/* The algorithms that may run such a call of float32 with root 0, cheapest first: the first of them
 * is chosen by price. */
KOLO_CHECK kolo_status kolo_candidates(struct kolo_chooser *chooser, enum kolo_coll coll,
                                       size_t bytes, bool mapped, struct kolo_candidate_list *out);

/* The line for the log about the newest choice of (coll, root), begun as NCCL's: "AllReduce:
 * 1048576 Bytes -> Algo DIRECT (price): direct 81.2 oneshot 120 ring 140 us", best first. Adds
 * nothing where there was none for this size. */
void kolo_choice_line(const struct kolo_chooser *chooser, enum kolo_coll coll, int root,
                      size_t bytes, struct kolo_text *out);

#ifdef __cplusplus
}
#endif
#endif
