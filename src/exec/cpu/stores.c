// SPDX-License-Identifier: Apache-2.0
/* Store kinds are chosen by trials. A lesson is the leader's knowledge of one call.
 *
 * The lower quartile of some calls with the present kind is the level. A trial runs some calls with the
 * other kind, behind those that the change itself disturbs. If its quartile is a twentieth below the
 * level, but not less than half, the first kind has to show its level once more: whatever slowed it
 * down, cold caches or another process, may have ended just before the trial. The other kind is kept
 * if it is a twentieth below the second level, too. Another trial follows after 50 ms or more, when
 * the calls have taken 100 times the time that the last trial cost: so all trials cost at most one
 * percent. If the level has changed much, 10 times are enough, because the cores may have moved.
 *
 * Two looks at the clock take some 60 ns. So of short calls the leader times only some. */
#include "exec/cpu/stores.h"

#include "exec/cpu/parts.h"
#include "util/util.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 8, SAMPLES_OF_LONG = 2, REST = 64, LOGGED = 2, SLOW_CALLS = 3, BURST = 64 };
static const double SHORT_US = 20, LONG_US = 2000, AGAIN_US = 50000, PAUSE_US = 5000, BETTER = 0.95,
                    HOPELESS = 2;
static const double SHARE = 100, SHARE_IF_CHANGED = 10, CHANGED = 1.5;

enum phase { LEVEL, TRIAL, CHECK };

struct lesson {
    uint64_t key;
    double level_us; /* a call with the present kind; in a check, with the other one */
    double next_us;  /* no trial before this time */
    double spent_us; /* what the last trial cost */
    double calls_us; /* the time of all calls since then */
    double ended_us; /* when the last call ended that was timed */
    double sample_us[SAMPLES];
    uint32_t calls;                /* timed since the last change of kind */
    uint32_t burst;                /* calls since the last pause of the program */
    uint16_t skip;                 /* calls that are no samples */
    uint8_t samples, rest, logged; /* rest: calls that are not timed */
    uint8_t phase;                 /* enum phase */
    uint8_t slow;                  /* calls of this trial that took far too long */
    bool past;
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

/* With places by turns, ordinary stores took 0.5 to 0.9 of the time of stores past the caches
 * within an L3, at nearly all sizes. Between two L3 they took 2 to 10 times as long. */
static bool starts_past(const struct kolo_bound *b, const struct kolo_exec_env *env)
{
    const struct kolo_prog *p = b->prog;
    bool past = false;
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
    use->refill = (uint16_t)kolo_min(1 + (b->slot_mask + 1) * (b->turn_mask + 1) / b->tiles, 1024);
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

static void ask_for(struct kolo_exec_env *env, struct lesson *l, uint16_t skip, bool past)
{
    atomic_store_explicit(&env->store_choices->kind[place_of(l->key)],
                          past ? KOLO_STORE_PAST : KOLO_STORE_ORDINARY, memory_order_relaxed);
    l->past = past;
    l->skip = skip;
    l->samples = l->slow = 0;
    l->calls = 0;
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

/* The lower quartile of the samples. Another process, or a rank that has no core, slows calls down, and
 * tells nothing of the kind. */
static double quartile_us(struct lesson *l)
{
    for (unsigned i = 1; i < l->samples; i++) {
        const double value = l->sample_us[i];
        unsigned at = i;
        for (; at > 0 && l->sample_us[at - 1] > value; at--) {
            l->sample_us[at] = l->sample_us[at - 1];
        }
        l->sample_us[at] = value;
    }
    return l->sample_us[(l->samples - 1) / 4];
}

static void log_choice(const struct kolo_exec_env *env, const struct kolo_bound *b,
                       struct lesson *l, double us, double other_us)
{
    if (l->logged < LOGGED) {
        l->logged++;
        KOLO_LOG(INFO, TUNE, "comm %p rank %d %s, chunks of %zu bytes: stores %s %.*g us, %s %.*g",
                 env->owner, env->me, b->prog->plan->algo->base.name, b->extents.full,
                 l->past ? "past the caches" : "through the caches", kolo_digits(us, 3), us,
                 l->past ? "through" : "past", kolo_digits(other_us, 3), other_us);
    }
}

/* Stores past the caches have emptied them of all places. So ordinary stores show their speed only
 * after they have written each place once. */
static void begin_trial(struct kolo_exec_env *env, struct lesson *l,
                        const struct kolo_store_use *use)
{
    l->phase = TRIAL;
    const uint16_t skip = l->past && use->refill > use->settle ? use->refill : use->settle;
    ask_for(env, l, skip, !l->past);
}

/* A trial or its check ends, with the quartile `us` of the kind that ran. A trial that looks good is
 * followed by a check, unless the other kind takes less than half the time. */
static void end_trial(struct kolo_exec_env *env, const struct kolo_bound *b, struct lesson *l,
                      double us, double now_us)
{
    const uint8_t settle = b->stores.settle;
    const bool checks = l->phase == CHECK;
    const double lost_us = l->calls * (us - l->level_us);
    l->spent_us = checks ? l->spent_us : lost_us > 0 ? lost_us : 0;
    if (!checks && us < BETTER * l->level_us && HOPELESS * us > l->level_us) {
        l->phase = CHECK;
        l->level_us = us;
        ask_for(env, l, settle, !l->past);
        return;
    }
    /* In a trial `past` is the other kind, and in a check the first one. */
    const bool stays = checks ? l->level_us >= BETTER * us : us < BETTER * l->level_us;
    const double other_us = stays ? l->level_us : us;
    if (stays) {
        l->level_us = us;
    } else {
        ask_for(env, l, settle, !l->past);
    }
    l->phase = LEVEL;
    l->calls_us = 0;
    l->next_us = now_us + AGAIN_US;
    log_choice(env, b, l, l->level_us, other_us);
}

/* Whether it is time for a trial, after a window whose quartile was `us`. */
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
    l->burst++;
    return false;
}

/* In a pause the program's other data displaces the slots. A program with long bursts of calls
 * lives by the calls that find them in the caches again. One with short bursts lives by the first
 * calls, so there these are samples. A pause ends a trial. */
static void note_pause(struct kolo_exec_env *env, struct lesson *l,
                       const struct kolo_store_use *use, double began_us)
{
    if (began_us - l->ended_us > PAUSE_US) {
        if (l->burst >= BURST + 2u * use->refill) {
            ask_for(env, l, use->refill, l->phase == TRIAL ? !l->past : l->past);
            l->phase = LEVEL;
        }
        l->burst = 0;
    }
    l->burst++;
}

void kolo_store_learn(struct kolo_exec_env *env, const struct kolo_bound *b, double began_us,
                      double now_us)
{
    const double took_us = now_us - began_us;
    const struct kolo_store_use *use = &b->stores;
    struct lesson *l = &env->lessons->at[place_of(use->key)];
    note_pause(env, l, use, began_us);
    l->ended_us = now_us;
    l->calls_us += took_us;
    l->calls++;
    if (l->phase == TRIAL && l->calls > use->settle && took_us > HOPELESS * l->level_us) {
        l->slow++;
    }
    const bool hopeless = l->phase == TRIAL && l->slow >= (l->level_us < LONG_US ? SLOW_CALLS : 1);
    if (l->skip > 0 && !hopeless) {
        l->skip--;
        return;
    }
    l->sample_us[l->samples++] = took_us;
    if (l->samples < (took_us < LONG_US ? SAMPLES : SAMPLES_OF_LONG) && !hopeless) {
        return;
    }
    const double us = hopeless ? took_us : quartile_us(l);
    l->samples = 0;
    if (l->phase != LEVEL) {
        end_trial(env, b, l, us, now_us);
        return;
    }
    const bool due = is_due(l, us, now_us);
    l->level_us = us;
    if (due) {
        begin_trial(env, l, use);
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
