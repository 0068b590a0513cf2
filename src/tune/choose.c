// SPDX-License-Identifier: Apache-2.0
/* Choosing: rules, else the tuner, else the least price.
 *
 * Sizes fall into classes by powers of two. For a class every algorithm of the collective is built
 * and priced once, at the class's smallest size (which most calls have); a call then takes the
 * cheapest that can run it. Beyond 64 ranks a whole plan would take too long, so two smaller
 * communicators of the same kind are priced and the growth between them continued.
 *
 * Nothing here depends on the calls made before: what is kept is what would be computed again.
 */
#include "model.h"
#include "plan/plan.h"
#include "plan/verify.h"
#include "sums.h"
#include "tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CLASSES = 64 };

enum { SUMS_KNOWN = 1, SUMS_ORDERED = 2, SUMS_WIDE = 4 };

struct sums { /* what the plans of one algorithm compute, by root */
    const struct kolo_algo *algo;
    uint8_t *by_root; /* [nranks]: SUMS_* */
};

struct candidate {
    const struct kolo_algo *algo;
    double us;
};

struct size_class {
    struct candidate *candidate; /* cheapest first; NULL: not priced yet */
    int count;
    const char **name; /* room for a tuner's query: [count] each */
    double *us;
    int *index;
    struct kolo_pick newest; /* algo NULL: none yet */
};

struct kolo_chooser {
    struct kolo_chooser_options options;
    int *order, *group;
    struct kolo_model model;
    struct size_class class[KOLO_COLLS][CLASSES];
    struct sums *sums;
    int nsums;
};

/* ---- classes ---- */

/* floor(log2(bytes)); nothing at all costs as much as a byte. */
static int class_of(size_t bytes)
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
                               .group = c->group};
}

static bool supported(const struct kolo_algo *algo, const struct kolo_shape *shape)
{
    return algo->supports == NULL || algo->supports(shape);
}

/* Almost always 0: the price of one root stands for all. -1: no root will do. */
static int first_root(const struct kolo_chooser *c, const struct kolo_algo *algo)
{
    const int roots = kolo_coll_rooted(algo->coll) ? c->options.nranks : 1;
    for (int root = 0; root < roots; root++) {
        const struct kolo_shape shape = shape_of(c, algo->coll, root);
        if (supported(algo, &shape)) {
            return root;
        }
    }
    return -1;
}

/* Stable: of equal prices the earlier row of the catalogue stays first. */
static void insert(struct size_class *class, struct candidate new)
{
    int at = class->count++;
    for (; at > 0 && class->candidate[at - 1].us > new.us; at--) {
        class->candidate[at] = class->candidate[at - 1];
    }
    class->candidate[at] = new;
}

static kolo_status price_candidates(struct kolo_chooser *c, struct size_class *class,
                                    enum kolo_coll coll, size_t bytes)
{
    const int algos = c->options.algo_count();
    for (int i = 0; i < algos; i++) {
        const struct kolo_algo *algo = c->options.algo_at(i);
        const int root = algo->coll == coll ? first_root(c, algo) : -1;
        if (root < 0) {
            continue;
        }
        const struct kolo_shape shape = shape_of(c, coll, root);
        struct kolo_forecast forecast;
        const kolo_status st =
            kolo_model_price(&c->model, algo, &shape, bytes, c->options.max_phases, &forecast);
        if (st == KOLO_OK && forecast.phases <= c->options.max_phases) {
            insert(class, (struct candidate){algo, forecast.us});
        } else if (st != KOLO_OK && st != KOLO_ERR_UNSUPPORTED && st != KOLO_ERR_INVALID) {
            return st; /* a plan that is refused, or makes no sense, is no candidate */
        }
    }
    return KOLO_OK;
}

static void class_free(struct size_class *class)
{
    free(class->candidate);
    free(class->name);
    free(class->us);
    free(class->index);
    *class = (struct size_class){0};
}

static kolo_status class_prepare(struct kolo_chooser *c, enum kolo_coll coll, size_t bytes,
                                 struct size_class **out)
{
    const int number = class_of(bytes);
    struct size_class *class = &c->class[coll][number];
    *out = class;
    if (class->candidate != NULL) {
        return KOLO_OK;
    }
    const size_t room = (size_t)c->options.algo_count() + 1;
    class->candidate = calloc(room, sizeof *class->candidate);
    class->name = calloc(room, sizeof *class->name);
    class->us = calloc(room, sizeof *class->us);
    class->index = calloc(room, sizeof *class->index);
    kolo_status st = KOLO_OK;
    if (class->candidate == NULL || class->name == NULL || class->us == NULL ||
        class->index == NULL) {
        st = kolo_fail(KOLO_ERR_SYSTEM, "out of memory while choosing an algorithm");
    } else {
        st = price_candidates(c, class, coll, (size_t)1 << number);
    }
    if (st != KOLO_OK) {
        class_free(class);
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
    struct sums *grown = realloc(c->sums, ((size_t)c->nsums + 1) * sizeof *grown);
    c->sums = grown != NULL ? grown : c->sums;
    if (by_root == NULL || grown == NULL) {
        free(by_root);
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory while choosing an algorithm");
    }
    c->sums[c->nsums++] = (struct sums){algo, by_root};
    *out = by_root;
    return KOLO_OK;
}

static kolo_status look_at_sums(const struct kolo_chooser *c, const struct kolo_algo *algo,
                                int root, uint8_t *out)
{
    const struct kolo_shape shape = shape_of(c, algo->coll, root);
    struct kolo_plan *plan = NULL;
    bool ordered = false, wide = false;
    KOLO_TRY(kolo_model_plan(algo, &shape, &plan));
    kolo_status st = kolo_verify_expression(plan, &ordered);
    if (st == KOLO_OK) {
        st = kolo_sums_are_stored(plan, &wide);
    }
    kolo_plan_destroy(plan);
    if (st == KOLO_OK) {
        *out = (uint8_t)(SUMS_KNOWN | (ordered ? SUMS_ORDERED : 0) | (wide ? SUMS_WIDE : 0));
    }
    return st;
}

/* SUMS_* of this algorithm and root. A plan that cannot be proved is not in rank order. */
static kolo_status sums_of(struct kolo_chooser *c, const struct kolo_algo *algo, int root,
                           unsigned *out)
{
    uint8_t *by_root = NULL;
    KOLO_TRY(sums_entry(c, algo, &by_root));
    if ((by_root[root] & SUMS_KNOWN) == 0) {
        const kolo_status st = look_at_sums(c, algo, root, &by_root[root]);
        if (st != KOLO_OK && st != KOLO_ERR_UNSUPPORTED && st != KOLO_ERR_INVALID) {
            return st;
        }
        by_root[root] |= SUMS_KNOWN;
    }
    *out = by_root[root];
    return KOLO_OK;
}

static bool rounds_to_less(enum kolo_type type)
{
    return type == KOLO_FLOAT16 || type == KOLO_BFLOAT16 || type == KOLO_FLOAT8_E4M3 ||
           type == KOLO_FLOAT8_E5M2;
}

/* ---- one call ---- */

struct call {
    struct kolo_chooser *chooser;
    const struct size_class *class;
    enum kolo_coll coll;
    int root;
    size_t bytes;
    enum kolo_type type;
};

static bool must_be_ordered(const struct call *call)
{
    return call->chooser->options.deterministic && kolo_coll_reduces(call->coll);
}

/* NULL where `algo` may run this call, else why not. */
static kolo_status objection(const struct call *call, const struct kolo_algo *algo,
                             const char **out)
{
    const struct kolo_shape shape = shape_of(call->chooser, call->coll, call->root);
    unsigned sums = SUMS_ORDERED;
    *out = NULL;
    if (!supported(algo, &shape)) {
        *out = "cannot run";
        return KOLO_OK;
    }
    if (must_be_ordered(call)) {
        KOLO_TRY(sums_of(call->chooser, algo, call->root, &sums));
    }
    *out = (sums & SUMS_ORDERED) != 0 ? NULL : "does not add in rank order (deterministic)";
    return KOLO_OK;
}

/* The next candidate, from place *at on, that may run; NULL at the end. */
static kolo_status next_candidate(const struct call *call, int *at, const struct candidate **out)
{
    *out = NULL;
    while (*at < call->class->count && *out == NULL) {
        const struct candidate *candidate = &call->class->candidate[(*at)++];
        const char *why = NULL;
        KOLO_TRY(objection(call, candidate->algo, &why));
        *out = why == NULL ? candidate : NULL;
    }
    return KOLO_OK;
}

/* "rule allreduce:ring: allreduce_ring cannot run ... ; allowed are direct, oneshot" */
static kolo_status refuse_rule(const struct call *call, const struct kolo_algo *algo,
                               const char *why)
{
    const struct kolo_chooser *c = call->chooser;
    struct kolo_text rule = {0}, allowed = {0};
    const struct candidate *candidate = NULL;
    int at = 0;
    kolo_rules_say(c->options.rules, call->coll, call->bytes, &rule);
    while (next_candidate(call, &at, &candidate) == KOLO_OK && candidate != NULL) {
        kolo_text_add(&allowed, "%s%s", allowed.len > 0 ? ", " : "",
                      kolo_algo_word(candidate->algo));
    }
    const kolo_status st =
        kolo_fail(KOLO_ERR_INVALID, "rule \"%s\": %s %s with %d ranks, root %d%s; allowed: %s",
                  rule.chars != NULL ? rule.chars : "", algo->base.name, why, c->options.nranks,
                  call->root, c->options.nlevels == 0 ? ", no groups" : "",
                  allowed.chars != NULL ? allowed.chars : "nothing");
    kolo_text_free(&rule);
    kolo_text_free(&allowed);
    return st;
}

static kolo_status choose_by_rule(const struct call *call, const struct kolo_algo *algo,
                                  struct kolo_pick *out)
{
    const char *why = NULL;
    KOLO_TRY(objection(call, algo, &why));
    for (int i = 0; why == NULL && i < call->class->count; i++) {
        if (call->class->candidate[i].algo == algo) {
            *out = (struct kolo_pick){
                .algo = algo, .predicted_us = call->class->candidate[i].us, .source = "rules"};
            return KOLO_OK;
        }
    }
    return refuse_rule(call, algo, why != NULL ? why : "has too many rounds, or is refused,");
}

/* What the tuner says of the first `count` of class->index; *choice is -1 without an opinion. */
static kolo_status ask_tuner(const struct call *call, int count, int *choice)
{
    const struct kolo_chooser_options *o = &call->chooser->options;
    const struct kolo_query query = {.size = sizeof query,
                                     .coll = call->coll,
                                     .nranks = o->nranks,
                                     .nhosts = o->nhosts,
                                     .bytes = call->bytes,
                                     .type = call->type,
                                     .ncandidates = count,
                                     .candidate = call->class->name,
                                     .predicted_us = call->class->us};
    struct kolo_choice answer = {.size = sizeof answer, .index = -1};
    KOLO_TRY(o->tuner->choose(o->tuner_self, &query, &answer));
    if (answer.index < -1 || answer.index >= count) {
        return kolo_fail(KOLO_ERR_INVALID, "tuner %s chose candidate %d of %d", o->tuner->base.name,
                         answer.index, count);
    }
    *choice = answer.index;
    return KOLO_OK;
}

static kolo_status choose_by_price(const struct call *call, struct kolo_pick *out)
{
    const struct kolo_chooser_options *o = &call->chooser->options;
    const struct size_class *class = call->class;
    const struct candidate *candidate = NULL;
    const bool asks = o->tuner != NULL && o->tuner->choose != NULL;
    int count = 0, at = 0, choice = -1;
    KOLO_TRY(next_candidate(call, &at, &candidate));
    while (candidate != NULL) {
        class->name[count] = candidate->algo->base.name;
        class->us[count] = candidate->us;
        class->index[count++] = at - 1;
        candidate = NULL;
        if (asks) { /* else the first will do */
            KOLO_TRY(next_candidate(call, &at, &candidate));
        }
    }
    if (count == 0) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "no algorithm of %s runs with %d ranks, root %d%s",
                         kolo_coll_name(call->coll), o->nranks, call->root,
                         must_be_ordered(call) ? " in rank order" : "");
    }
    if (asks) {
        KOLO_TRY(ask_tuner(call, count, &choice));
    }
    candidate = &class->candidate[class->index[choice >= 0 ? choice : 0]];
    *out = (struct kolo_pick){.algo = candidate->algo,
                              .predicted_us = candidate->us,
                              .source = choice >= 0 ? "tuner" : "price"};
    return KOLO_OK;
}

kolo_status kolo_choose(struct kolo_chooser *c, enum kolo_coll coll, int root, size_t bytes,
                        enum kolo_type type, struct kolo_pick *out)
{
    struct size_class *class = NULL;
    struct kolo_pick pick;
    KOLO_TRY(class_prepare(c, coll, bytes, &class));
    const struct call call = {c, class, coll, root, bytes, type};
    const struct kolo_algo *ruled = kolo_rules_find(c->options.rules, coll, bytes);
    KOLO_TRY(ruled != NULL ? choose_by_rule(&call, ruled, &pick) : choose_by_price(&call, &pick));
    if (must_be_ordered(&call) && rounds_to_less(type)) {
        unsigned sums = 0;
        KOLO_TRY(sums_of(c, pick.algo, root, &sums));
        pick.wide = (sums & SUMS_WIDE) != 0;
    }
    pick.fresh = class->newest.algo == NULL;
    class->newest = pick;
    *out = pick;
    return KOLO_OK;
}

/* ---- the log ---- */

static void add_upper(struct kolo_text *out, const char *name)
{
    for (; *name != '\0'; name++) {
        kolo_text_add(out, "%c", *name >= 'a' && *name <= 'z' ? *name - 'a' + 'A' : *name);
    }
}

void kolo_choice_line(const struct kolo_chooser *c, enum kolo_coll coll, int root, size_t bytes,
                      struct kolo_text *out)
{
    const struct size_class *class = &c->class[coll][class_of(bytes)];
    if (class->newest.algo == NULL) {
        return;
    }
    kolo_text_add(out, "%s: %zu Bytes -> Algo ", kolo_coll_title(coll), bytes);
    add_upper(out, kolo_algo_word(class->newest.algo));
    kolo_text_add(out, " (%s):", class->newest.source);
    for (int i = 0; i < class->count; i++) {
        const struct kolo_shape shape = shape_of(c, coll, root);
        const struct candidate *one = &class->candidate[i];
        if (supported(one->algo, &shape)) {
            kolo_text_add(out, one->us < 99.95 ? " %s %.3g" : " %s %.0f", kolo_algo_word(one->algo),
                          one->us);
        }
    }
    kolo_text_add(out, " us");
}

/* ---- the chooser ---- */

/* False when out of memory. Nothing stays NULL. */
static bool copied(const int *from, size_t count, int **out)
{
    if (from == NULL || count == 0) {
        return true;
    }
    *out = malloc(count * sizeof **out);
    if (*out != NULL) {
        memcpy(*out, from, count * sizeof **out);
    }
    return *out != NULL;
}

kolo_status kolo_chooser_create(const struct kolo_chooser_options *options,
                                struct kolo_chooser **out)
{
    struct kolo_chooser *c = calloc(1, sizeof *c);
    const size_t n = (size_t)options->nranks;
    if (c == NULL || !copied(options->order, n, &c->order) ||
        !copied(options->group, n * (size_t)options->nlevels, &c->group)) {
        kolo_chooser_destroy(c);
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for choosing algorithms");
    }
    c->options = *options;
    c->options.order = c->order;
    c->options.group = c->group;
    kolo_model_init(&c->model, &options->costs, options->nranks, options->nhosts);
    *out = c;
    return KOLO_OK;
}

void kolo_chooser_destroy(struct kolo_chooser *c)
{
    if (c == NULL) {
        return;
    }
    for (int coll = 0; coll < KOLO_COLLS; coll++) {
        for (int i = 0; i < CLASSES; i++) {
            class_free(&c->class[coll][i]);
        }
    }
    for (int i = 0; i < c->nsums; i++) {
        free(c->sums[i].by_root);
    }
    free(c->sums);
    free(c->order);
    free(c->group);
    free(c);
}
