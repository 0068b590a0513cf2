// SPDX-License-Identifier: Apache-2.0
/* The model predicts the time of an algorithm on this communicator from the price of its plan. */
#ifndef KOLO_TUNE_MODEL_H
#define KOLO_TUNE_MODEL_H

#include "plan/plan.h"
#include "plan/price.h"
#include "tune.h"

struct kolo_model {
    struct kolo_costs costs;
    int nranks, nhosts;
    int npools;                     /* as in struct kolo_chooser_options */
    const struct kolo_place *place; /* [nranks] or NULL: unknown places; borrowed */
    const int *host;                /* [nranks] or NULL: ranks go to hosts in blocks; borrowed */
    bool by_messages;               /* no rank maps another's memory */
};

/* Whether messages go between hosts, or between ranks that map nothing of each other. */
static inline bool kolo_model_is_between(const struct kolo_model *model)
{
    return model->nhosts > 1 || model->by_messages;
}

/* The cores of all ranks together. */
static inline double kolo_model_cores(const struct kolo_model *model)
{
    return (double)model->costs.cores * model->npools;
}

/* A core's time for a message between hosts, at either end. */
double kolo_model_message_us(const struct kolo_costs *costs);

/* A copy within a core's own caches. It takes a third of the time of a copy from another core's,
 * but a processor's core copies buffers that its L2 does not hold at 35 GB/s at most. Where the
 * costs have faster copies, as those of a GPU, both take the same. Fitted: perf/RESULTS.md. */
static inline double kolo_local_us_per_byte(const struct kolo_costs *costs)
{
    const double copy = costs->copy_us_per_byte, third = 0.33 * copy, least = 1e-3 / 35;
    return third > least ? third : copy < least ? copy : least;
}

struct kolo_asking {
    size_t bytes;
    bool mapped; /* all buffers lie in memory that peers map */
    int max_phases;
    size_t tile_bytes; /* of the call, between hosts; 0: the default */
};

struct kolo_forecast {
    double us;
    int phases; /* the most signals of a rank */
    int chunks;
    int peers; /* the most that a rank has links with; known up to KOLO_MODEL_RANKS ranks */
};

void kolo_model_init(struct kolo_model *model, const struct kolo_costs *costs, int nranks,
                     int nhosts, int npools, const struct kolo_place *place);

/* The machine that prices plans of `nranks` ranks. Rank i of the machine is rank[i] of the model
 * (NULL: rank i itself; borrowed). The struct points into itself: do not move it. */
enum { KOLO_MODEL_PACKAGES = 8, KOLO_MODEL_RANKS = 64 };
struct kolo_model_machine {
    struct kolo_machine machine;
    const struct kolo_model *model;
    int nranks;
    const int *rank;
    int npackages;
    int package[KOLO_MODEL_PACKAGES]; /* the packages of the ranks' places, each once */
    int port[KOLO_MODEL_RANKS];       /* with `rank`: the first rank of the same host */
};
void kolo_model_machine(const struct kolo_model *model, int nranks, const int *rank,
                        struct kolo_model_machine *out);

/* Predict the time and the signals of `algo`.
 *
 * Up to KOLO_MODEL_RANKS ranks, the model prices the plan of `shape` itself. With more ranks it
 * prices the plans of two smaller communicators and extrapolates the growth. The smaller ones are
 * powers of two, even or odd like the large one. A plan that would need more than 65535 chunks is
 * UNSUPPORTED. The model builds the whole plan only to count its signals, if the prediction comes
 * near max_phases.
 *
 * Errors: UNSUPPORTED, INVALID (no such plan), SYSTEM. */
KOLO_CHECK kolo_status kolo_model_price(const struct kolo_model *model,
                                        const struct kolo_algo *algo,
                                        const struct kolo_shape *shape,
                                        const struct kolo_asking *about, struct kolo_forecast *out);

/* The plan of all ranks for `shape`, or for the larger of the two smaller communicators that stand
 * for it. */
KOLO_CHECK kolo_status kolo_model_plan(const struct kolo_algo *algo, const struct kolo_shape *shape,
                                       struct kolo_plan **out);

#endif
