// SPDX-License-Identifier: Apache-2.0
/* The time of an algorithm on this communicator, by the price of its plan. */
#ifndef KOLO_TUNE_MODEL_H
#define KOLO_TUNE_MODEL_H

#include "plan/plan.h"
#include "plan/price.h"
#include "tune.h"

struct kolo_model {
    struct kolo_costs costs;
    int nranks, nhosts;
    const struct kolo_place *place; /* [nranks] or NULL: anywhere; borrowed */
    const int *host;                /* [nranks] or NULL: dealt to hosts in blocks; borrowed */
    bool by_messages;               /* no rank maps another's memory */
};

struct kolo_asking {
    size_t bytes;
    bool mapped; /* all buffers lie in memory that peers map */
    int max_phases;
};

struct kolo_forecast {
    double us;
    int phases; /* the most signals of a rank */
};

void kolo_model_init(struct kolo_model *model, const struct kolo_costs *costs, int nranks,
                     int nhosts, const struct kolo_place *place);

/* The machine that prices plans of `nranks` ranks: of rank[i] of the model as rank i (NULL: of all
 * as they are; borrowed). It points into itself: do not move it. */
enum { KOLO_MODEL_PACKAGES = 8 };
struct kolo_model_machine {
    struct kolo_machine machine;
    const struct kolo_model *model;
    int nranks;
    const int *rank;
    int npackages;
    int package[KOLO_MODEL_PACKAGES]; /* what the ranks' places say, each once */
};
void kolo_model_machine(const struct kolo_model *model, int nranks, const int *rank,
                        struct kolo_model_machine *out);

/* Up to KOLO_MODEL_RANKS ranks the plan of `shape` itself is priced; with more, those of two
 * smaller communicators (which are powers of two, even or odd as it is), and the growth from the
 * one to the other is continued. Only where these come near to max_phases is the whole plan built,
 * to count. Errors: UNSUPPORTED, INVALID (no such plan), SYSTEM. */
enum { KOLO_MODEL_RANKS = 64 };
KOLO_CHECK kolo_status kolo_model_price(const struct kolo_model *model,
                                        const struct kolo_algo *algo,
                                        const struct kolo_shape *shape,
                                        const struct kolo_asking *about, struct kolo_forecast *out);

/* The plan of all ranks for `shape`, or for the larger of the two that stand for it. */
KOLO_CHECK kolo_status kolo_model_plan(const struct kolo_algo *algo, const struct kolo_shape *shape,
                                       struct kolo_plan **out);

#endif
