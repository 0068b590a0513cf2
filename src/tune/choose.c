// SPDX-License-Identifier: Apache-2.0
/* Choosing: rules, else the tuner, else the measured table, else the least price. */
#include "chooser.h"
#include "plan/plan.h"
#include "plan/price.h"
#include "topology/machine/host.h"

#include <stdlib.h>
#include <string.h>

static bool rounds_to_less(enum kolo_type type)
{
    return type == KOLO_FLOAT16 || type == KOLO_BFLOAT16 || type == KOLO_FLOAT8_E4M3 ||
           type == KOLO_FLOAT8_E5M2;
}

/* ---- tiles ---- */

enum call_fact {
    BETWEEN_HOSTS = 1, /* some link is of messages, or there are several hosts */
    FLAT = 2,
    ROOTED = 4,
    REDUCES = 8,
    PAIR = 16,    /* of ranks */
    CROWDED = 32, /* ranks share cores */
    MAPPED = 64   /* all ranks have mapped the buffers */
};

/* A row is for calls of less than `below` bytes, counted over the blocks of all ranks. All facts of
 * `is` hold for the call, and no fact of `is_not`. The first row that fits counts. A tile of 0 is
 * the default, which stays in a core's L2.
 *
 * Between hosts each tile costs system calls and a latency. Tiles pay if several ranks pass data
 * on, because then these ranks work at the same time. They gain nothing if each byte goes straight
 * from its first place to its last. Measured over loopback:
 * - a gather of 8 MiB of 4 ranks takes half the time in tiles of 4 MiB;
 * - an all-gather of 2 ranks takes a tenth less in these tiles;
 * - with more ranks that work at the same time, tiles of 1 MiB take a sixth less.
 *
 * On one host, measured with kolo tune on 2 cores:
 * - If one rank fills slots that another empties, an early first tile lets both work sooner. So a
 *   broadcast or a reduce of less than 1 MiB has small tiles: alone, it would take twice as long in
 *   one.
 * - From there on large tiles win, since slots use their places by turns (src/exec/cpu/bind.c):
 *   with tiles of 512 KiB instead of 64 KiB a broadcast of 1 MiB takes 33 us instead of 44.
 *   Exchanges take 2 to 9 % less than with 256 KiB. In memory that all ranks map, 2, 4 and 8 ranks
 *   take 1 to 21 % less.
 * - Ranks that share cores take turns between tiles. Gather and similar collectives of 8 ranks take
 *   20 to 25 % less in tiles of 1 MiB. */
static const struct {
    unsigned is, is_not;
    size_t below, tile_bytes;
} tiles[] = {
    {BETWEEN_HOSTS, 0, KOLO_TILE_BYTES + 1, 0},
    {BETWEEN_HOSTS | FLAT | ROOTED, PAIR, SIZE_MAX, 0},
    {BETWEEN_HOSTS | ROOTED, REDUCES, SIZE_MAX, 4096 << 10},
    {BETWEEN_HOSTS | PAIR, REDUCES, SIZE_MAX, 4096 << 10},
    {BETWEEN_HOSTS, 0, SIZE_MAX, 1024 << 10},
    {FLAT | ROOTED, CROWDED | MAPPED, 256 << 10, 32 << 10},
    {FLAT | ROOTED, CROWDED | MAPPED, 1024 << 10, 64 << 10},
    {0, 0, KOLO_TILE_BYTES + 1, 0},
    {CROWDED, FLAT, SIZE_MAX, 1024 << 10},
    {CROWDED, MAPPED, SIZE_MAX, 0},
    {0, 0, SIZE_MAX, 512 << 10},
};

static unsigned facts_of(const struct kolo_asked *call)
{
    const struct kolo_chooser_options *o = &call->chooser->options;
    const bool crowded = kolo_model_cores(&call->chooser->model) < o->nranks;
    return (o->by_messages || o->nhosts > 1 ? BETWEEN_HOSTS : 0u) |
           (kolo_coll_flat(call->coll) ? FLAT : 0u) | (kolo_coll_rooted(call->coll) ? ROOTED : 0u) |
           (kolo_coll_reduces(call->coll) ? REDUCES : 0u) | (o->nranks <= 2 ? PAIR : 0u) |
           (crowded ? CROWDED : 0u) | (call->mapped ? MAPPED : 0u);
}

size_t kolo_tile_of(const struct kolo_asked *call)
{
    const size_t blocks = kolo_coll_flat(call->coll) ? 1 : (size_t)call->chooser->options.nranks;
    const unsigned facts = facts_of(call);
    for (size_t i = 0; i < KOLO_LENGTH(tiles); i++) {
        if ((facts & tiles[i].is) == tiles[i].is && (facts & tiles[i].is_not) == 0 &&
            call->bytes * blocks < tiles[i].below) {
            return tiles[i].tile_bytes;
        }
    }
    return 0;
}

/* ---- rules ---- */

/* "rule allreduce:ring: allreduce_ring cannot run ... ; allowed are direct, oneshot" */
static kolo_status refuse_rule(const struct kolo_asked *call, const struct kolo_algo *algo,
                               const char *why)
{
    const struct kolo_chooser *c = call->chooser;
    struct kolo_text rule = {0}, allowed = {0};
    const struct kolo_candidate *candidate = NULL;
    int at = 0;
    kolo_rules_say(c->options.rules, call->coll, call->bytes, &rule);
    while (kolo_next_candidate(call, &at, &candidate) == KOLO_OK && candidate != NULL) {
        kolo_text_add(&allowed, "%s%s", allowed.len > 0 ? ", " : "",
                      kolo_algo_word(candidate->algo));
    }
    const kolo_status st =
        kolo_fail(KOLO_ERR_INVALID, "rule \"%s\": %s %s with %d ranks, root %d%s%s; allowed: %s",
                  rule.chars != NULL ? rule.chars : "", algo->base.name, why, c->options.nranks,
                  call->root, c->options.nlevels == 0 ? ", no groups" : "",
                  c->options.ntrees == 0 ? ", no planned rings or trees" : "",
                  allowed.chars != NULL ? allowed.chars : "nothing");
    kolo_text_free(&rule);
    kolo_text_free(&allowed);
    return st;
}

static kolo_status choose_by_rule(const struct kolo_asked *call, const struct kolo_algo *algo,
                                  struct kolo_pick *out)
{
    const char *why = NULL;
    const struct kolo_candidate *candidate = kolo_candidate_of(call, algo);
    KOLO_TRY(kolo_objection(call, algo, &why));
    if (why != NULL || candidate == NULL) {
        return refuse_rule(call, algo, why != NULL ? why : "has too many rounds, or is refused,");
    }
    *out = (struct kolo_pick){.algo = algo,
                              .tile_bytes = kolo_tile_of(call),
                              .predicted_us = candidate->us,
                              .source = "rules"};
    return KOLO_OK;
}

/* Ask the tuner about the first `count` entries of class->index. *choice is -1 if it has no
 * opinion. */
static kolo_status ask_tuner(const struct kolo_asked *call, int count, int *choice)
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

/* Choose by the first row whose algorithm may run this call. out->algo stays NULL if there is
 * none. */
static kolo_status choose_by_table(const struct kolo_asked *call, struct kolo_pick *out)
{
    const struct kolo_chooser_options *o = &call->chooser->options;
    const struct kolo_row *row = NULL;
    int at = 0;
    while ((row = kolo_table_next(o->table, call->coll, o->nranks, call->bytes, call->mapped,
                                  &at)) != NULL) {
        const struct kolo_candidate *candidate = kolo_candidate_of(call, row->algo);
        const char *why = NULL;
        KOLO_TRY(kolo_objection(call, row->algo, &why));
        if (candidate != NULL && why == NULL) {
            *out = (struct kolo_pick){.algo = row->algo,
                                      .tile_bytes = row->tile_bytes > 0 ? row->tile_bytes
                                                                        : kolo_tile_of(call),
                                      .predicted_us = candidate->us,
                                      .source = "table"};
            return KOLO_OK;
        }
    }
    return KOLO_OK;
}

static kolo_status refuse_call(const struct kolo_asked *call)
{
    return kolo_fail(KOLO_ERR_UNSUPPORTED, "no algorithm of %s runs with %d ranks, root %d%s",
                     kolo_coll_name(call->coll), call->chooser->options.nranks, call->root,
                     kolo_must_be_ordered(call) ? " in rank order" : "");
}

/* Let the tuner choose among all algorithms that may run. out->algo stays NULL if it has no
 * opinion. */
static kolo_status choose_by_tuner(const struct kolo_asked *call, struct kolo_pick *out)
{
    const struct kolo_class *class = call->class;
    const struct kolo_candidate *candidate = NULL;
    int count = 0, at = 0, choice = -1;
    KOLO_TRY(kolo_next_candidate(call, &at, &candidate));
    while (candidate != NULL) {
        class->name[count] = candidate->algo->base.name;
        class->us[count] = candidate->us;
        class->index[count++] = at - 1;
        KOLO_TRY(kolo_next_candidate(call, &at, &candidate));
    }
    if (count == 0) {
        return refuse_call(call);
    }
    KOLO_TRY(ask_tuner(call, count, &choice));
    if (choice >= 0) {
        candidate = &class->ranking[call->mapped].candidate[class->index[choice]];
        *out = (struct kolo_pick){.algo = candidate->algo,
                                  .tile_bytes = kolo_tile_of(call),
                                  .predicted_us = candidate->us,
                                  .source = "tuner"};
    }
    return KOLO_OK;
}

static kolo_status choose_by_price(const struct kolo_asked *call, struct kolo_pick *out)
{
    const struct kolo_candidate *candidate = NULL;
    int at = 0;
    KOLO_TRY(kolo_next_candidate(call, &at, &candidate));
    if (candidate == NULL) {
        return refuse_call(call);
    }
    *out = (struct kolo_pick){.algo = candidate->algo,
                              .tile_bytes = kolo_tile_of(call),
                              .predicted_us = candidate->us,
                              .source = "price"};
    return KOLO_OK;
}

static kolo_status choose_by_order(const struct kolo_asked *call, struct kolo_pick *out)
{
    const struct kolo_chooser *c = call->chooser;
    const struct kolo_algo *ruled = kolo_rules_find(c->options.rules, call->coll, call->bytes);
    if (ruled != NULL) {
        return choose_by_rule(call, ruled, out);
    }
    if (c->options.tuner != NULL && c->options.tuner->choose != NULL) {
        KOLO_TRY(choose_by_tuner(call, out));
    }
    if (out->algo == NULL) {
        KOLO_TRY(choose_by_table(call, out));
    }
    return out->algo != NULL ? KOLO_OK : choose_by_price(call, out);
}

static kolo_status choose(struct kolo_asked *call, struct kolo_pick *out)
{
    struct kolo_chooser *c = call->chooser;
    struct kolo_class *class = NULL;
    struct kolo_pick pick = c->forced;
    if (pick.algo != NULL && pick.algo->coll == call->coll) {
        *out = pick;
        return KOLO_OK;
    }
    pick = (struct kolo_pick){0};
    KOLO_TRY(kolo_class_prepare(c, call->coll, call->bytes, call->mapped, &class));
    call->class = class;
    KOLO_TRY(choose_by_order(call, &pick));
    if (kolo_must_be_ordered(call) && rounds_to_less(call->type)) {
        unsigned sums = 0;
        KOLO_TRY(kolo_sums_of(c, pick.algo, call->root, &sums));
        pick.wide = (sums & KOLO_SUMS_WIDE) != 0;
    }
    const struct kolo_pick *other = &class->newest[call->mapped ? 0 : 1];
    pick.fresh = class->newest[call->mapped].algo == NULL &&
                 (other->algo != pick.algo || other->tile_bytes != pick.tile_bytes);
    class->newest[call->mapped] = pick;
    class->newest_is_mapped = call->mapped;
    *out = pick;
    return KOLO_OK;
}

kolo_status kolo_choose(struct kolo_chooser *c, enum kolo_coll coll, int root, size_t bytes,
                        enum kolo_type type, struct kolo_pick *out)
{
    struct kolo_asked call = {c, NULL, coll, root, bytes, type, false};
    return choose(&call, out);
}

kolo_status kolo_choose_mapped(struct kolo_chooser *c, enum kolo_coll coll, int root, size_t bytes,
                               enum kolo_type type, struct kolo_pick *out)
{
    struct kolo_asked call = {c, NULL, coll, root, bytes, type, true};
    return choose(&call, out);
}

bool kolo_chooser_looks_at_buffers(const struct kolo_chooser *c)
{
    return c->forced.algo == NULL;
}

void kolo_chooser_force(struct kolo_chooser *c, const struct kolo_algo *algo, size_t tile_bytes)
{
    c->forced = (struct kolo_pick){.algo = algo, .tile_bytes = tile_bytes, .source = "forced"};
}

kolo_status kolo_candidates(struct kolo_chooser *c, enum kolo_coll coll, size_t bytes, bool mapped,
                            struct kolo_candidate_list *out)
{
    const int root = 0;
    struct kolo_class *class = NULL;
    KOLO_TRY(kolo_class_prepare(c, coll, bytes, mapped, &class));
    const struct kolo_asked call = {c, class, coll, root, bytes, KOLO_FLOAT32, mapped};
    const struct kolo_candidate *candidate = NULL;
    int at = 0;
    out->count = 0;
    do {
        KOLO_TRY(kolo_next_candidate(&call, &at, &candidate));
        if (candidate != NULL) {
            out->candidate[out->count] = *candidate;
            out->candidate[out->count++].tile_bytes = kolo_tile_of(&call);
        }
    } while (candidate != NULL && out->count < KOLO_CANDIDATES_MAX);
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
    const struct kolo_class *class = &c->class[coll][kolo_class_of(bytes)];
    const struct kolo_pick *newest = &class->newest[class->newest_is_mapped];
    if (newest->algo == NULL) {
        return;
    }
    kolo_text_add(out, "%s: %zu Bytes -> Algo ", kolo_coll_title(coll), bytes);
    add_upper(out, kolo_algo_word(newest->algo));
    kolo_text_add(out, " (%s", newest->source);
    if (newest->tile_bytes > 0) {
        kolo_text_add(out, ", tiles of %zu", newest->tile_bytes);
    }
    kolo_text_add(out, "%s):", class->newest_is_mapped ? ", shared buffers" : "");
    const struct kolo_ranking *ranking = &class->ranking[class->newest_is_mapped];
    for (int i = 0; i < ranking->count; i++) {
        const struct kolo_candidate *one = &ranking->candidate[i];
        if (kolo_has_shape(c, one->algo, root)) {
            kolo_text_add(out, " %s %.*g", kolo_algo_word(one->algo), kolo_digits(one->us, 3),
                          one->us);
        }
    }
    kolo_text_add(out, " us");
}

/* ---- the chooser ---- */

/* A copy of `from`. NULL if `from` is NULL or memory is out. */
static void *copy_of(const void *from, size_t bytes)
{
    void *copy = from != NULL ? malloc(bytes + 1) : NULL;
    if (copy != NULL) {
        memcpy(copy, from, bytes);
    }
    return copy;
}

static bool copy_arrays(struct kolo_chooser *c, const struct kolo_chooser_options *o)
{
    const size_t n = (size_t)o->nranks;
    c->order = copy_of(o->order, (size_t)(o->nrings > 1 ? o->nrings : 1) * n * sizeof *o->order);
    c->tree = o->ntrees > 0 ? copy_of(o->tree, (size_t)o->ntrees * n * sizeof *o->tree) : NULL;
    c->group = copy_of(o->group, (size_t)o->nlevels * n * sizeof *o->group);
    c->place = copy_of(o->place, n * sizeof *o->place);
    c->host = copy_of(o->host, n * sizeof *o->host);
    return (c->host != NULL) == (o->host != NULL) && (c->order != NULL) == (o->order != NULL) &&
           (c->tree != NULL) == (o->ntrees > 0) && (c->group != NULL) == (o->group != NULL) &&
           (c->place != NULL) == (o->place != NULL);
}

kolo_status kolo_chooser_create(const struct kolo_chooser_options *options,
                                struct kolo_chooser **out)
{
    struct kolo_chooser *c = calloc(1, sizeof *c);
    if (c == NULL || !copy_arrays(c, options)) {
        kolo_chooser_destroy(c);
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for choosing algorithms");
    }
    c->options = *options;
    c->options.order = c->order;
    c->options.group = c->group;
    c->options.tree = c->tree;
    c->options.place = c->place;
    c->options.host = c->host;
    kolo_model_init(&c->model, &options->costs, options->nranks, options->nhosts,
                    options->npools > 0 ? options->npools : options->nhosts, c->place);
    c->model.host = c->host;
    c->model.by_messages = options->by_messages;
    c->facts = kolo_chooser_facts(c);
    kolo_ranking_join(c);
    *out = c;
    return KOLO_OK;
}

void kolo_chooser_destroy(struct kolo_chooser *c)
{
    if (c == NULL) {
        return;
    }
    kolo_ranking_leave(c);
    for (int coll = 0; coll < KOLO_COLLS; coll++) {
        for (int i = 0; i < KOLO_CLASSES; i++) {
            kolo_class_free(&c->class[coll][i]);
        }
    }
    for (int i = 0; i < c->nsums; i++) {
        free(c->sums[i].by_root);
    }
    free(c->sums);
    free(c->order);
    free(c->group);
    free(c->tree);
    free(c->place);
    free(c->host);
    free(c);
}
