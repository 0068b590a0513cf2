// SPDX-License-Identifier: Apache-2.0
/* Store kinds are chosen by trials. A lesson is the leader's knowledge of one call.
 *
 * The median of some calls with the present kind is the level. A trial runs some calls with the
 * other kind, behind those that the change itself disturbs. The other kind is kept if its median is
 * a twentieth below the level. Another trial follows after 50 ms or more, when the calls have taken
 * 100 times the time that the last trial cost: so all trials cost at most one percent. If the level
 * has changed much, 10 times are enough, because the cores may have moved.
 *
 * Two looks at the clock take some 60 ns. So of short calls the leader times only some. */
#include "exec/cpu/stores.h"

#include "exec/cpu/parts.h"
#include "util/util.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 8, SAMPLES_OF_LONG = 2, REST = 64, LOGGED = 2 };
static const double SHORT_US = 20, LONG_US = 2000, AGAIN_US = 50000, BETTER = 0.95, HOPELESS = 2;
static const double SHARE = 100, SHARE_IF_CHANGED = 10, CHANGED = 1.5;

struct lesson {
    uint64_t key;
    double level_us; /* a call with the present kind */
    double next_us;  /* no trial before this time */
    double spent_us; /* what the last trial cost */
    double calls_us; /* the time of all calls since then */
    double sample_us[SAMPLES];
    uint8_t samples, skip, rest, logged; /* rest: calls that are not timed */
    bool past, tries;
};

struct kolo_lessons {
    struct lesson at[KOLO_STORE_PLACES];
};

/* ---- binding ---- */

static size_t place_of(uint64_t key)
{
    return key % KOLO_STORE_PLACES;
}

static bool stores_for_peers(const struct kolo_bound *b, const struct kolo_bound_op *op)
{
    for (unsigned i = 0; op->code == KOLO_DO_MOVE && i < op->ndst; i++) {
        const uint32_t kind = b->at[op->first + op->nsrc + i].kind;
        if (kind == K_SLOT || kind == K_PEER_OUT) {
            return op->odd ? b->piece >= KOLO_STORE_BYTES : op->len >= KOLO_STORE_BYTES;
        }
    }
    return false;
}

/* A rank that receives, because its time contains the stores of the others. `low` and `high` are the
 * lowest and the highest rank of this host; of a root on another host, `low` is the one that passes
 * the data on. */
static int leader_of(const struct kolo_shape *shape, int low, int high)
{
    switch (shape->coll) {
    case KOLO_COLL_REDUCE:
    case KOLO_COLL_GATHER:
        return shape->root >= low && shape->root <= high ? shape->root : low;
    case KOLO_COLL_BROADCAST:
    case KOLO_COLL_SCATTER:
        return shape->root == high ? low : high;
    default:
        return high;
    }
}

/* Readers of a broadcast or a scatter keep the lines that are written next. Stores past the caches
 * took half the time of ordinary ones there even within an L3, and 0.1 to 0.5 of it between two. */
static bool starts_past(const struct kolo_bound *b, const struct kolo_exec_env *env)
{
    const struct kolo_prog *p = b->prog;
    bool past =
        p->plan->shape.coll == KOLO_COLL_BROADCAST || p->plan->shape.coll == KOLO_COLL_SCATTER;
    for (int i = 0; i < p->nreaders && env->is_far != NULL; i++) {
        past = past || env->is_far[p->readers[i]];
    }
    return past;
}

void kolo_store_bind(struct kolo_bound *b, const struct kolo_exec_env *env)
{
    const struct kolo_prog *p = b->prog;
    struct kolo_store_use *use = &b->stores;
    for (uint32_t i = 0; i < p->nops && !use->matters; i++) {
        use->matters = stores_for_peers(b, &b->op[i]);
    }
    /* A rank that stores nothing itself may lead those that do. */
    use->leads = b->piece >= KOLO_STORE_BYTES && env->store_choices != NULL &&
                 env->store_rule == KOLO_STORE_UNKNOWN && (p->nreaders > 0 || p->nsources > 0) &&
                 leader_of(&p->plan->shape, env->board_low, env->board_high) == env->me;
    use->starts_past = starts_past(b, env);
    use->settle = (uint8_t)(1 + (b->in_long ? KOLO_LONG_DEPTH : KOLO_DEPTH) / b->tiles);
    use->key = (p->plan->hash + b->extents.full * 0x9E3779B97F4A7C15u + (p->nentries > 0)) *
               0xD6E8FEB86659FD93u;
    use->key = (use->key ^ use->key >> 32) | 1; /* 0: no lesson yet */
}

/* ---- choosing ---- */

bool kolo_store_is_past(const struct kolo_exec_env *env, const struct kolo_store_use *use)
{
    enum kolo_store kind = env->store_rule;
    if (kind == KOLO_STORE_UNKNOWN && env->store_choices != NULL) {
        kind = atomic_load_explicit(&env->store_choices->kind[place_of(use->key)],
                                    memory_order_relaxed);
    }
    return kind == KOLO_STORE_UNKNOWN ? use->starts_past : kind == KOLO_STORE_PAST;
}

static void ask_for(struct kolo_exec_env *env, struct lesson *l, uint8_t settle, bool past)
{
    atomic_store_explicit(&env->store_choices->kind[place_of(l->key)],
                          past ? KOLO_STORE_PAST : KOLO_STORE_ORDINARY, memory_order_relaxed);
    l->past = past;
    l->skip = settle;
    l->samples = 0;
}

/* The lesson of this call; NULL without memory. A call that another one displaced starts anew. */
static struct lesson *find(struct kolo_exec_env *env, const struct kolo_store_use *use)
{
    if (env->lessons == NULL) {
        env->lessons = calloc(1, sizeof *env->lessons);
    }
    struct lesson *l = env->lessons != NULL ? &env->lessons->at[place_of(use->key)] : NULL;
    if (l != NULL && l->key != use->key) {
        *l = (struct lesson){.key = use->key};
        ask_for(env, l, use->settle, use->starts_past);
    }
    return l;
}

static double median_us(struct lesson *l)
{
    for (unsigned i = 1; i < l->samples; i++) {
        const double value = l->sample_us[i];
        unsigned at = i;
        for (; at > 0 && l->sample_us[at - 1] > value; at--) {
            l->sample_us[at] = l->sample_us[at - 1];
        }
        l->sample_us[at] = value;
    }
    return l->sample_us[(l->samples - 1) / 2];
}

static void log_choice(const struct kolo_exec_env *env, const struct kolo_bound *b,
                       struct lesson *l, double us, double other_us)
{
    if (l->logged < LOGGED) {
        l->logged++;
        KOLO_LOG(INFO, TUNE, "comm %p rank %d %s, chunks of %zu bytes: stores %s %.3g us, %s %.3g",
                 env->owner, env->me, b->prog->plan->algo->base.name, b->extents.full,
                 l->past ? "past the caches" : "through the caches", us,
                 l->past ? "through" : "past", other_us);
    }
}

static void end_trial(struct kolo_exec_env *env, const struct kolo_bound *b, struct lesson *l,
                      double trial_us, bool hopeless, double now_us)
{
    const uint8_t settle = b->stores.settle;
    l->tries = false;
    l->calls_us = 0;
    l->next_us = now_us + AGAIN_US;
    if (!hopeless && trial_us < BETTER * l->level_us) {
        log_choice(env, b, l, trial_us, l->level_us);
        l->level_us = trial_us;
        return;
    }
    ask_for(env, l, settle, !l->past);
    log_choice(env, b, l, l->level_us, trial_us);
}

/* Whether it is time for a trial, after a window whose median was `us`. */
static bool is_due(const struct lesson *l, double us, double now_us)
{
    const bool changed = us > CHANGED * l->level_us || l->level_us > CHANGED * us;
    return now_us >= l->next_us &&
           l->calls_us >= (changed ? SHARE_IF_CHANGED : SHARE) * l->spent_us;
}

bool kolo_store_times(struct kolo_exec_env *env, const struct kolo_store_use *use)
{
    struct lesson *l = find(env, use);
    if (l == NULL || l->rest == 0) {
        return l != NULL;
    }
    l->rest--;
    l->calls_us += l->level_us;
    return false;
}

void kolo_store_learn(struct kolo_exec_env *env, const struct kolo_bound *b, double began_us,
                      double now_us)
{
    const double took_us = now_us - began_us;
    struct lesson *l = &env->lessons->at[place_of(b->stores.key)];
    l->calls_us += took_us;
    if (l->tries) {
        l->spent_us += took_us > l->level_us ? took_us - l->level_us : 0;
    }
    if (l->skip > 0) {
        l->skip--;
        return;
    }
    l->sample_us[l->samples++] = took_us;
    const unsigned want = took_us < LONG_US ? SAMPLES : SAMPLES_OF_LONG;
    const bool hopeless = l->tries && l->samples == 1 && took_us > HOPELESS * l->level_us;
    if (l->samples < want && !hopeless) {
        return;
    }
    const double us = median_us(l);
    l->samples = 0;
    if (l->tries) {
        end_trial(env, b, l, us, hopeless, now_us);
        return;
    }
    const bool due = is_due(l, us, now_us);
    l->level_us = us;
    if (due) {
        l->tries = true;
        l->spent_us = 0;
        ask_for(env, l, b->stores.settle, !l->past);
    } else if (us < SHORT_US) {
        l->rest = REST;
    }
}

void kolo_lessons_free(struct kolo_lessons *lessons)
{
    free(lessons);
}

bool kolo_store_parse(const char *text, enum kolo_store *out)
{
    static const char *const names[] = {"measured", "ordinary", "past"};
    for (size_t i = 0; i < KOLO_LENGTH(names); i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (enum kolo_store)i;
            return true;
        }
    }
    return false;
}
