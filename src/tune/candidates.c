// SPDX-License-Identifier: Apache-2.0
/* The algorithms that may run a call, and their predicted times.
 *
 * Sizes fall into classes by powers of two. For a class, every algorithm of the collective is built
 * and priced once, at the class's smallest size, which most calls have. Beyond 64 ranks a whole
 * plan would take too long to price. Then the model prices two smaller communicators of the same
 * kind and extrapolates the growth between them.
 *
 * Results do not depend on earlier calls. The kept values only save computing them again.
 */
#include "chooser.h"
#include "plan/plan.h"
#include "plan/verify/verify.h"
#include "sums.h"

#include <stdlib.h>

/* ---- classes ---- */

int kolo_class_of(size_t bytes)
{
    return bytes < 2 ? 0 : 63 - __builtin_clzll((unsigned long long)bytes);
}

static struct kolo_shape shape_of(const struct kolo_chooser *c, enum kolo_coll coll, int root)
{
    return (struct kolo_shape){.size = sizeof(struct kolo_shape),
                               .coll = coll,
                               .nranks = c->options.nranks,
                               .root = root,
                               .order = c->order,
                               .nlevels = c->options.nlevels,
                               .group = c->group,
                               .nrings = c->options.nrings,
                               .ntrees = c->options.ntrees,
                               .tree = c->tree};
}

bool kolo_has_shape(const struct kolo_chooser *c, const struct kolo_algo *algo, int root)
{
    const struct kolo_shape shape = shape_of(c, algo->coll, root);
    return algo->supports == NULL || algo->supports(&shape);
}

/* The first root for which `algo` has a plan, almost always 0. The price of one root stands for
 * all. -1: there is no plan for any root. */
static int first_root(const struct kolo_chooser *c, const struct kolo_algo *algo)
{
    const int roots = kolo_coll_rooted(algo->coll) ? c->options.nranks : 1;
    for (int root = 0; root < roots; root++) {
        if (kolo_has_shape(c, algo, root)) {
            return root;
        }
    }
    return -1;
}

/* Insert by price. The order is stable: at equal prices the earlier row of the catalogue stays
 * first. */
static void insert(struct kolo_ranking *ranking, struct kolo_candidate new)
{
    int at = ranking->count++;
    for (; at > 0 && ranking->candidate[at - 1].us > new.us; at--) {
        ranking->candidate[at] = ranking->candidate[at - 1];
    }
    ranking->candidate[at] = new;
}

static struct kolo_priced price_one(const struct kolo_chooser *c, const struct kolo_algo *algo,
                                    const struct kolo_asking *about)
{
    struct kolo_priced priced = {.status = KOLO_ERR_UNSUPPORTED};
    const int root = first_root(c, algo);
    if (root >= 0) {
        const struct kolo_shape shape = shape_of(c, algo->coll, root);
        priced.status = kolo_model_price(&c->model, algo, &shape, about, &priced.forecast);
    }
    return priced;
}

static void price_and_tell(const struct kolo_chooser *c, int index, uint64_t call,
                           const struct kolo_asking *about, struct kolo_priced *out)
{
    const struct kolo_algo *algo = c->options.algo_at(index);
    *out = price_one(c, algo, about);
    if (c->options.prices != NULL) {
        kolo_price_tell(c->options.prices, kolo_price_key(call, index, algo), out);
    }
}

/* Price what no other process has begun. Mark what others have begun with INPROGRESS. */
static void price_own(const struct kolo_chooser *c, enum kolo_coll coll,
                      const struct kolo_asking *about, struct kolo_priced *priced)
{
    const uint64_t call = kolo_call_facts(c, coll, about);
    for (int i = 0; i < c->options.algo_count(); i++) {
        const struct kolo_algo *algo = c->options.algo_at(i);
        enum kolo_offer offer = KOLO_OFFER_MINE;
        priced[i].status = KOLO_ERR_UNSUPPORTED;
        if (algo->coll == coll && c->options.prices != NULL) {
            offer = kolo_price_claim(c->options.prices, kolo_price_key(call, i, algo), &priced[i]);
        }
        if (offer == KOLO_OFFER_PENDING) {
            priced[i].status = KOLO_INPROGRESS;
        } else if (offer == KOLO_OFFER_MINE && algo->coll == coll) {
            price_and_tell(c, i, call, about, &priced[i]);
        }
    }
}

/* A process that has begun a price may die, so nobody waits for it long. */
static const double PATIENCE_US = 500e3;

static void await_others(const struct kolo_chooser *c, enum kolo_coll coll,
                         const struct kolo_asking *about, struct kolo_priced *priced)
{
    const uint64_t call = kolo_call_facts(c, coll, about);
    const double until_us = kolo_now_us() + PATIENCE_US;
    for (int i = 0; i < c->options.algo_count(); i++) {
        const uint64_t key = kolo_price_key(call, i, c->options.algo_at(i));
        if (priced[i].status == KOLO_INPROGRESS &&
            !kolo_price_await(c->options.prices, key, until_us, &priced[i])) {
            priced[i] = price_one(c, c->options.algo_at(i), about);
        }
    }
}

/* A refused or invalid plan is no candidate, but not an error. */
static kolo_status rank_prices(const struct kolo_chooser *c, const struct kolo_priced *priced,
                               struct kolo_ranking *ranking)
{
    for (int i = 0; i < c->options.algo_count(); i++) {
        const kolo_status st = priced[i].status;
        if (st == KOLO_OK && priced[i].forecast.phases <= c->options.max_phases) {
            insert(ranking, (struct kolo_candidate){.algo = c->options.algo_at(i),
                                                    .us = priced[i].forecast.us});
        } else if (st != KOLO_OK && st != KOLO_ERR_UNSUPPORTED && st != KOLO_ERR_INVALID) {
            return st;
        }
    }
    return KOLO_OK;
}

kolo_status kolo_ranking_price(struct kolo_chooser *c, struct kolo_ranking *ranking,
                               enum kolo_coll coll, const struct kolo_asking *about)
{
    struct kolo_priced *priced = calloc((size_t)c->options.algo_count() + 1, sizeof *priced);
    if (priced == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory while choosing an algorithm");
    }
    price_own(c, coll, about, priced);
    await_others(c, coll, about, priced);
    const kolo_status st = rank_prices(c, priced, ranking);
    free(priced);
    return st;
}

void kolo_class_free(struct kolo_class *class)
{
    free(class->ranking[0].candidate);
    free(class->ranking[1].candidate);
    free(class->name);
    free(class->us);
    free(class->index);
    *class = (struct kolo_class){0};
}

static bool has_room(const struct kolo_class *class)
{
    return class->name != NULL && class->us != NULL && class->index != NULL;
}

/* Within a host the price of the default tile stands for that of any. */
static kolo_status rank_class(struct kolo_chooser *c, struct kolo_ranking *ranking,
                              enum kolo_coll coll, int number, bool mapped)
{
    const size_t bytes = (size_t)1 << number;
    const struct kolo_asked call = {.chooser = c, .coll = coll, .bytes = bytes, .mapped = mapped};
    const struct kolo_asking about = {bytes, mapped, c->options.max_phases,
                                      kolo_model_is_between(&c->model) ? kolo_tile_of(&call) : 0};
    return kolo_ranking_share(c, ranking, coll, &about);
}

kolo_status kolo_class_prepare(struct kolo_chooser *c, enum kolo_coll coll, size_t bytes,
                               bool mapped, struct kolo_class **out)
{
    const int number = kolo_class_of(bytes);
    const size_t room = (size_t)c->options.algo_count() + 1;
    struct kolo_class *class = &c->class[coll][number];
    struct kolo_ranking *ranking = &class->ranking[mapped];
    *out = class;
    if (ranking->candidate != NULL) {
        return KOLO_OK;
    }
    if (!has_room(class)) {
        class->name = calloc(room, sizeof *class->name);
        class->us = calloc(room, sizeof *class->us);
        class->index = calloc(room, sizeof *class->index);
    }
    ranking->candidate = calloc(room, sizeof *ranking->candidate);
    kolo_status st = KOLO_OK;
    if (ranking->candidate == NULL || !has_room(class)) {
        st = kolo_fail(KOLO_ERR_SYSTEM, "out of memory while choosing an algorithm");
    } else {
        st = rank_class(c, ranking, coll, number, mapped);
    }
    if (st != KOLO_OK) {
        kolo_class_free(class);
    }
    return st;
}

/* ---- deterministic: what plans compute ---- */

static kolo_status sums_entry(struct kolo_chooser *c, const struct kolo_algo *algo, uint8_t **out)
{
    for (int i = 0; i < c->nsums; i++) {
        if (c->sums[i].algo == algo) {
            *out = c->sums[i].by_root;
            return KOLO_OK;
        }
    }
    uint8_t *by_root = calloc((size_t)c->options.nranks, sizeof *by_root);
    struct kolo_sums *grown = realloc(c->sums, ((size_t)c->nsums + 1) * sizeof *grown);
    c->sums = grown != NULL ? grown : c->sums;
    if (by_root == NULL || grown == NULL) {
        free(by_root);
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory while choosing an algorithm");
    }
    c->sums[c->nsums++] = (struct kolo_sums){algo, by_root};
    *out = by_root;
    return KOLO_OK;
}

static kolo_status look_at_sums(const struct kolo_chooser *c, const struct kolo_algo *algo,
                                int root, uint8_t *out)
{
    const struct kolo_shape shape = shape_of(c, algo->coll, root);
    struct kolo_plan *plan = NULL;
    struct kolo_plan_sums sums = {0};
    bool ordered = false;
    KOLO_TRY(kolo_model_plan(algo, &shape, &plan));
    kolo_status st = kolo_verify_expression(plan, &ordered);
    if (st == KOLO_OK) {
        st = kolo_sums_of_plan(plan, &sums);
    }
    kolo_plan_destroy(plan);
    if (st == KOLO_OK) {
        *out = (uint8_t)(KOLO_SUMS_KNOWN | (ordered ? KOLO_SUMS_ORDERED : 0) |
                         (sums.stored ? KOLO_SUMS_WIDE : 0) |
                         (sums.encodings < 31 ? sums.encodings : 31) << KOLO_SUMS_ENCODINGS);
    }
    return st;
}

kolo_status kolo_sums_of(struct kolo_chooser *c, const struct kolo_algo *algo, int root,
                         unsigned *out)
{
    uint8_t *by_root = NULL;
    KOLO_TRY(sums_entry(c, algo, &by_root));
    if ((by_root[root] & KOLO_SUMS_KNOWN) == 0) {
        const kolo_status st = look_at_sums(c, algo, root, &by_root[root]);
        if (st != KOLO_OK && st != KOLO_ERR_UNSUPPORTED && st != KOLO_ERR_INVALID) {
            return st;
        }
        by_root[root] |= KOLO_SUMS_KNOWN;
    }
    *out = by_root[root];
    return KOLO_OK;
}

/* ---- one call ---- */

bool kolo_must_be_ordered(const struct kolo_asked *call)
{
    return call->chooser->options.deterministic && kolo_coll_reduces(call->coll);
}

kolo_status kolo_objection(const struct kolo_asked *call, const struct kolo_algo *algo,
                           const char **out)
{
    unsigned sums = KOLO_SUMS_ORDERED;
    *out = NULL;
    if (!kolo_has_shape(call->chooser, algo, call->root)) {
        *out = "cannot run";
        return KOLO_OK;
    }
    if (kolo_must_be_ordered(call)) {
        KOLO_TRY(kolo_sums_of(call->chooser, algo, call->root, &sums));
    }
    *out = (sums & KOLO_SUMS_ORDERED) != 0 ? NULL : "does not add in rank order (deterministic)";
    return KOLO_OK;
}

kolo_status kolo_next_candidate(const struct kolo_asked *call, int *at,
                                const struct kolo_candidate **out)
{
    *out = NULL;
    const struct kolo_ranking *ranking = &call->class->ranking[call->mapped];
    while (*at < ranking->count && *out == NULL) {
        const struct kolo_candidate *candidate = &ranking->candidate[(*at)++];
        const char *why = NULL;
        KOLO_TRY(kolo_objection(call, candidate->algo, &why));
        *out = why == NULL ? candidate : NULL;
    }
    return KOLO_OK;
}

const struct kolo_candidate *kolo_candidate_of(const struct kolo_asked *call,
                                               const struct kolo_algo *algo)
{
    const struct kolo_ranking *ranking = &call->class->ranking[call->mapped];
    for (int i = 0; i < ranking->count; i++) {
        if (ranking->candidate[i].algo == algo) {
            return &ranking->candidate[i];
        }
    }
    return NULL;
}
