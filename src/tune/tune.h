// SPDX-License-Identifier: Apache-2.0
/* The choice of the algorithm for a call. The user's rules decide, else a tuner plug-in, else a
 * measured table, else the price of each candidate's plan on this machine's costs.
 *
 * Every rank chooses for itself, without a message to the others, and all must choose alike. So a
 * choice depends only on facts that all ranks share:
 * - the text of the rules, and of the table (one rank reads it);
 * - the costs (one rank measures them);
 * - the number of ranks and hosts, the order of the ring and the groups of near ranks;
 * - the call's collective, root, bytes and type.
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

/* Parse rules such as "allreduce:0-4k:direct,4k-:ring;broadcast:chain".
 * - ';' separates collectives, ',' separates ranges.
 * - A range lo-hi counts bytes per rank as in struct kolo_query. hi is exclusive; an empty hi has
 *   no end. A choice without a range holds for all sizes.
 * - Algorithms are named without the collective's prefix.
 * Sizes outside all ranges have no rule. Errors: INVALID, naming the word, its position and the
 * allowed words; SYSTEM. */
KOLO_CHECK kolo_status kolo_rules_parse(const char *text, struct kolo_rules **out);
/* The same among these algorithms, so that rules can name plugged-in algorithms.
 * kolo_rules_parse() knows only the built-in algorithms. */
KOLO_CHECK kolo_status kolo_rules_parse_among(const char *text, int (*algo_count)(void),
                                              const struct kolo_algo *(*algo_at)(int index),
                                              struct kolo_rules **out);
void kolo_rules_destroy(struct kolo_rules *rules);
/* The algorithm that a rule names for this call. NULL: no rule. `rules` may be NULL. */
const struct kolo_algo *kolo_rules_find(const struct kolo_rules *rules, enum kolo_coll coll,
                                        size_t bytes);
/* Add the rule for this call as the user wrote it: "allreduce:0-4k:direct". */
void kolo_rules_say(const struct kolo_rules *rules, enum kolo_coll coll, size_t bytes,
                    struct kolo_text *out);

/* ---- costs of this machine ---- */

struct kolo_far {
    double latency_us, copy_us_per_byte;
};

/* Plain old data: one rank of a host measures the costs, and they travel as bytes. */
struct kolo_costs {
    uint32_t size;             /* sizeof(struct kolo_costs) */
    int32_t cores;             /* cores that ranks share */
    double latency_us;         /* one flag from a core to another core of the same L3 */
    double copy_us_per_byte;   /* one core copies from cache to cache, within the same L3 */
    double reduce_us_per_byte; /* float32 sums, per byte of one operand */
    double step_us;            /* a core's time for a message's lines, at either end */
    double switch_us;          /* a yield to another process on the same core */
    /* Latency and copy between cores that share a NUMA node but no L3, a package but no node, and
     * no package: at [near - KOLO_NEAR_NUMA]. */
    struct kolo_far far[3];
    double cross_us_per_byte;    /* all traffic from one package to another */
    struct kolo_far net;         /* a message to another host */
    double net_message_us;       /* a core's time for such a message, at either end; 0: not known */
    double net_copy_us_per_byte; /* a core copies a byte of it, at either end; 0: no core does */
    /* A byte of such a message that is added costs so much beside reduce_us_per_byte. */
    double net_sum_us_per_byte;
    double net_rendezvous_bytes; /* a message of so many waits for its receive; 0: none does */
    int32_t unbound;             /* unbound ranks are as far apart as far[unbound - 1]; 0: near */
};

struct kolo_host;
struct kolo_place;

/* Measure the costs in less than 50 ms and round them to two digits. A cost that cannot be measured
 * gets its default, for example a flag between cores if only one core is allowed. `host` is this
 * machine and says which cores are near. NULL: the first and the last core stand for all. */
void kolo_costs_measure(int cores_allowed, const struct kolo_host *host, struct kolo_costs *out);
/* Parse KOLO_COSTS, "latency_us=0.2,copy_gbs=10,...". The names are (gbs is 1e9 bytes a second):
 * - cores, latency_us, copy_gbs, reduce_gbs, step_us, switch_us;
 * - numa_latency_us and numa_gbs, package_latency_us and package_gbs, host_latency_us and host_gbs,
 *   for ranks that share no more than a NUMA node, a package, a host;
 * - cross_gbs; net_latency_us, net_gbs, net_message_us, net_copy_gbs, net_sum_gbs and
 *   net_rendezvous_bytes between hosts.
 * A cost that the text does not name has its default. False if the text is anything else; `out` is
 * then untouched. */
bool kolo_costs_parse(const char *text, struct kolo_costs *out);

/* ---- choosing ---- */

struct kolo_chooser;
struct kolo_prices; /* prices.h */

struct kolo_chooser_options {
    int nranks, nhosts;
    int npools;       /* sets of costs.cores that the ranks have; 0: one a host */
    const int *order; /* [nranks] for each of the `nrings` rings in turn, or NULL; copied */
    int nrings;       /* as in struct kolo_shape; 0: one */
    int ntrees;       /* as in struct kolo_shape */
    const int *tree;  /* [ntrees * nranks]; copied */
    const int *host;  /* [nranks], the host of each rank; NULL: in blocks; copied */
    bool by_messages; /* no rank maps another's memory */
    const struct kolo_place *place; /* [nranks] or NULL: unknown places; copied */
    int nlevels;                    /* as in struct kolo_shape: groups of near ranks */
    const int *group;               /* [nlevels * nranks]; copied */
    const struct kolo_rules *rules; /* may be NULL; borrowed */
    const struct kolo_table *table; /* may be NULL; borrowed */
    struct kolo_costs costs;
    bool deterministic;
    const struct kolo_tuner *tuner; /* may be NULL; borrowed, as is tuner_self */
    const void *tuner_self;
    int (*algo_count)(void); /* of all algorithms, built in and plugged in */
    const struct kolo_algo *(*algo_at)(int index);
    int max_phases; /* plans with more signals per rank cannot run and are no candidates */
    struct kolo_prices *prices; /* may be NULL: nobody shares them; borrowed */
};

/* Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_chooser_create(const struct kolo_chooser_options *options,
                                           struct kolo_chooser **out);
void kolo_chooser_destroy(struct kolo_chooser *chooser);

struct kolo_pick {
    const struct kolo_algo *algo;
    bool wide;         /* run it in the accumulator type: deterministic, and partial sums travel */
    size_t tile_bytes; /* over all chunks of a tile; 0: the default */
    double predicted_us; /* by the built-in model, at the size of the class */
    const char *source;  /* "rules", "tuner", "table" or "price"; "forced" */
    bool fresh;          /* the first time for this (collective, size class): log it */
};

/* Choose for one call. `bytes` counts per rank as in struct kolo_query. `root` is 0 for collectives
 * without a root. The caller serialises calls on one chooser.
 *
 * Errors: INVALID if a rule names an algorithm that cannot run this shape, or that is not in rank
 * order though the communicator is deterministic (the text gives the rule, the reason, and the
 * allowed algorithms); SYSTEM; any error of the tuner. */
KOLO_CHECK kolo_status kolo_choose(struct kolo_chooser *chooser, enum kolo_coll coll, int root,
                                   size_t bytes, enum kolo_type type, struct kolo_pick *out);

/* The same for a call whose buffers lie, on every rank, in memory that its peers map. The second
 * function is false if mapped buffers change nothing, because the algorithm is forced. */
KOLO_CHECK kolo_status kolo_choose_mapped(struct kolo_chooser *chooser, enum kolo_coll coll,
                                          int root, size_t bytes, enum kolo_type type,
                                          struct kolo_pick *out);
bool kolo_chooser_looks_at_buffers(const struct kolo_chooser *chooser);

/* ---- codecs ---- */

enum kolo_codec_rule { KOLO_CODEC_BY_PRICE, KOLO_CODEC_ALWAYS, KOLO_CODEC_NEVER };

struct kolo_coded_call {
    enum kolo_coll coll; /* without a root */
    enum kolo_codec codec;
    enum kolo_codec_rule rule;
    size_t bytes, coded_bytes; /* as in struct kolo_query: uncompressed, and in units */
    size_t worked_bytes;       /* of float32 that a rank encodes and decodes */
};
struct kolo_coded_pick {
    const struct kolo_algo *algo; /* the cheapest admissible plan; NULL: none, or not looked for */
    size_t tile_bytes;            /* as in struct kolo_pick */
    bool pays;                    /* run compressed */
    double coded_us, plain_us;    /* predicted, at the call's size */
    bool fresh;                   /* the first time for this (collective, size class, codec) */
};

/* How often an element may be encoded on its way: at its source, and where the sum is complete. */
int kolo_codec_encodings(enum kolo_coll coll);
/* Choose whether a call is compressed; kolo_choose() gave `plain` for it. Rules of the user limit
 * the plans. A forced algorithm runs uncompressed. Errors: SYSTEM. */
KOLO_CHECK kolo_status kolo_choose_coded(struct kolo_chooser *chooser,
                                         const struct kolo_coded_call *about,
                                         const struct kolo_pick *plain,
                                         struct kolo_coded_pick *out);
/* Add the log line about it: "AllReduce: 67108864 Bytes, codec int8 -> compressed (price): int8 in
 * direct 160000 us, uncompressed 540000 us". */
void kolo_coded_line(const struct kolo_coded_call *about, const struct kolo_coded_pick *pick,
                     struct kolo_text *out);

/* Force this algorithm and tile for every later call of its collective; for measuring. The caller
 * knows that the calls can run with them. NULL: choose as usual again. */
void kolo_chooser_force(struct kolo_chooser *chooser, const struct kolo_algo *algo,
                        size_t tile_bytes);

struct kolo_candidate {
    const struct kolo_algo *algo;
    double us;         /* predicted, at the size of the class */
    size_t tile_bytes; /* its tile, unless a table says another; 0: the default */
};
enum { KOLO_CANDIDATES_MAX = 64 };
struct kolo_candidate_list {
    struct kolo_candidate candidate[KOLO_CANDIDATES_MAX];
    int count;
};
/* The algorithms that may run this call with float32 and root 0, cheapest first. The choice by
 * price is the first one. */
KOLO_CHECK kolo_status kolo_candidates(struct kolo_chooser *chooser, enum kolo_coll coll,
                                       size_t bytes, bool mapped, struct kolo_candidate_list *out);

/* Add the log line about the newest choice of (coll, root), best first: "AllReduce: 1048576 Bytes
 * -> Algo DIRECT (price): direct 81.2 oneshot 120 ring 140 us". It begins like NCCL's line. Adds
 * nothing if there was no choice for this size. */
void kolo_choice_line(const struct kolo_chooser *chooser, enum kolo_coll coll, int root,
                      size_t bytes, struct kolo_text *out);

#ifdef __cplusplus
}
#endif
#endif
