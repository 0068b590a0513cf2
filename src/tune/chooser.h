// SPDX-License-Identifier: Apache-2.0
/* Declarations that the files of the chooser share. candidates.c finds the algorithms that may run
 * a call, and their costs. choose.c picks one. */
#ifndef KOLO_TUNE_CHOOSER_H
#define KOLO_TUNE_CHOOSER_H

#include "model.h"
#include "tune.h"

enum { KOLO_CLASSES = 64 }; /* sizes by powers of two */

/* The encodings of an element are in the bits from KOLO_SUMS_ENCODINGS on; 0: not proved. */
enum { KOLO_SUMS_KNOWN = 1, KOLO_SUMS_ORDERED = 2, KOLO_SUMS_WIDE = 4, KOLO_SUMS_ENCODINGS = 3 };

struct kolo_sums { /* the order and width of one algorithm's sums, by root */
    const struct kolo_algo *algo;
    uint8_t *by_root; /* [nranks]: KOLO_SUMS_* */
};

struct kolo_ranking {
    struct kolo_candidate *candidate; /* cheapest first; NULL: not priced yet */
    int count;
};

struct kolo_class {
    struct kolo_ranking ranking[2]; /* of unmapped calls, and of mapped calls */
    const char **name;              /* room for a tuner's query: [count] each */
    double *us;
    int *index;
    struct kolo_pick newest[2]; /* of unmapped calls, and of mapped calls; algo NULL: none */
    bool newest_is_mapped;
    unsigned coded; /* codecs that the log has told of, by bits */
};

struct kolo_chooser {
    struct kolo_chooser_options options;
    int *order, *group, *tree;
    struct kolo_place *place;
    int *host;
    struct kolo_model model;
    uint64_t facts; /* a hash of all above */
    bool shares;    /* it is counted in shared.c */
    struct kolo_class class[KOLO_COLLS][KOLO_CLASSES];
    struct kolo_sums *sums;
    int nsums;
    struct kolo_pick forced; /* algo NULL: none */
};

/* One call. */
struct kolo_asked {
    struct kolo_chooser *chooser;
    const struct kolo_class *class;
    enum kolo_coll coll;
    int root;
    size_t bytes;
    enum kolo_type type;
    bool mapped;
};

/* floor(log2(bytes)). 0 bytes fall into the class of 1 byte. */
int kolo_class_of(size_t bytes);
/* The class of this size, priced for mapped or for unmapped calls. */
KOLO_CHECK kolo_status kolo_class_prepare(struct kolo_chooser *c, enum kolo_coll coll, size_t bytes,
                                          bool mapped, struct kolo_class **out);
void kolo_class_free(struct kolo_class *class);
/* Price every algorithm of the collective into `ranking`, which is empty and has room. */
KOLO_CHECK kolo_status kolo_ranking_price(struct kolo_chooser *c, struct kolo_ranking *ranking,
                                          enum kolo_coll coll, const struct kolo_asking *about);
/* The processes of a host price a candidate once: see shared.c. */
enum kolo_offer { KOLO_OFFER_MINE, KOLO_OFFER_PENDING, KOLO_OFFER_TAKEN };
struct kolo_priced { /* a candidate's forecast, or the reason why there is none */
    kolo_status status;
    struct kolo_forecast forecast;
};
/* A key of the facts and of the class of the call: the same in all processes of a job. */
uint64_t kolo_call_facts(const struct kolo_chooser *c, enum kolo_coll coll,
                         const struct kolo_asking *about);
uint64_t kolo_price_key(uint64_t call, int index, const struct kolo_algo *algo);
/* TAKEN: *out is there. PENDING: another process has begun it. MINE: nobody else will price it, so
 * the caller does so, and then tells the others. */
enum kolo_offer kolo_price_claim(struct kolo_prices *prices, uint64_t key, struct kolo_priced *out);
void kolo_price_tell(struct kolo_prices *prices, uint64_t key, const struct kolo_priced *priced);
/* Wait for the price that another process has begun, until kolo_now_us() is `until_us`. */
bool kolo_price_await(struct kolo_prices *prices, uint64_t key, double until_us,
                      struct kolo_priced *out);
/* As kolo_ranking_price(), or a copy of the ranking that another chooser of this process made from
 * the same facts. */
KOLO_CHECK kolo_status kolo_ranking_share(struct kolo_chooser *c, struct kolo_ranking *ranking,
                                          enum kolo_coll coll, const struct kolo_asking *about);
/* The rankings that choosers share are kept until the last of them leaves. */
void kolo_ranking_join(struct kolo_chooser *c);
void kolo_ranking_leave(struct kolo_chooser *c);
/* A hash of the facts that prices depend on. */
uint64_t kolo_chooser_facts(const struct kolo_chooser *c);
/* Whether `algo` has a plan for this root. */
bool kolo_has_shape(const struct kolo_chooser *c, const struct kolo_algo *algo, int root);
/* KOLO_SUMS_* of this algorithm and root. A plan without a proof counts as not in rank order. */
KOLO_CHECK kolo_status kolo_sums_of(struct kolo_chooser *c, const struct kolo_algo *algo, int root,
                                    unsigned *out);
/* Whether the communicator is deterministic and this call reduces. */
bool kolo_must_be_ordered(const struct kolo_asked *call);
/* The reason why `algo` may not run this call. NULL: it may. */
KOLO_CHECK kolo_status kolo_objection(const struct kolo_asked *call, const struct kolo_algo *algo,
                                      const char **out);
/* The next candidate, from place *at on, that may run this call; NULL at the end. */
KOLO_CHECK kolo_status kolo_next_candidate(const struct kolo_asked *call, int *at,
                                           const struct kolo_candidate **out);
/* The tile of a call; 0: the default. */
size_t kolo_tile_of(const struct kolo_asked *call);
/* The candidate for `algo`. NULL: it is no candidate, because it has too many rounds or is
 * refused. */
const struct kolo_candidate *kolo_candidate_of(const struct kolo_asked *call,
                                               const struct kolo_algo *algo);

#endif
