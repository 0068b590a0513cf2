// SPDX-License-Identifier: Apache-2.0
/* The builder turns an algorithm's calls into a sealed plan.
 *
 * kolo_transfer() emits both ends of a message. Within a round the sends of a rank come first. All
 * other steps wait in `held` until kolo_round().
 *
 * The builder counts every rank's signals and outbox chunks, even if it keeps only one rank's
 * steps. So a receiver knows the outbox place of each message. facts.c then finds the messages of
 * the whole plan that need no copy.
 */
#include "facts.h"
#include "plan.h"
#include "util/grow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct held {
    int rank, join; /* join: lane to wait for, or -1 */
    struct kolo_step step;
};

/* The newest send of a rank in a lane. The next send of the same round shares its signal. */
struct sent {
    uint32_t round;
    uint16_t phase, place;
    struct kolo_slice src;
};

struct kolo_builder {
    struct kolo_plan *plan;
    struct sent *sent; /* [KOLO_LANES * nranks]: pages of unused lanes are never touched */
    struct held *held;
    int nheld, cap, lane;
    uint32_t round; /* from 1: 0 in `sent` means never */
    bool chunks_used;
    kolo_status status;
};

/* ---- emission ---- */

static void refuse_plan(struct kolo_builder *b, kolo_status status, const char *what, long value)
{
    if (b->status == KOLO_OK) {
        b->status = kolo_fail(status, "%s: %s (%ld), %d ranks", b->plan->algo->base.name, what,
                              value, b->plan->shape.nranks);
    }
}

void kolo_refuse(struct kolo_builder *b, const char *why)
{
    refuse_plan(b, KOLO_ERR_UNSUPPORTED, why, b->plan->shape.nranks);
}

static void append(struct kolo_builder *b, int rank, const struct kolo_step *step)
{
    struct kolo_rank_plan *mine = &b->plan->rank[rank];
    struct kolo_step *grown = kolo_grow(mine->step, mine->count, &mine->cap, sizeof *grown);
    if (grown == NULL) {
        refuse_plan(b, KOLO_ERR_SYSTEM, "out of memory for steps", mine->count);
        return;
    }
    mine->step = grown;
    mine->step[mine->count++] = *step;
}

static void hold_step(struct kolo_builder *b, int rank, int join, const struct kolo_step *step)
{
    struct held *grown = kolo_grow(b->held, b->nheld, &b->cap, sizeof *grown);
    if (grown == NULL) {
        refuse_plan(b, KOLO_ERR_SYSTEM, "out of memory for steps", b->nheld);
        return;
    }
    b->held = grown;
    b->held[b->nheld++] = (struct held){.rank = rank, .join = join, .step = *step};
}

static bool is_kept(const struct kolo_builder *b, int rank)
{
    return b->plan->only < 0 || b->plan->only == rank;
}

static bool rank_ok(struct kolo_builder *b, int rank)
{
    if (rank < 0 || rank >= b->plan->shape.nranks) {
        refuse_plan(b, KOLO_ERR_INVALID, "no such rank", rank);
        return false;
    }
    return true;
}

static bool slice_ok(struct kolo_builder *b, int rank, struct kolo_slice s)
{
    if (s.buf >= KOLO_BUFS) {
        refuse_plan(b, KOLO_ERR_INVALID, "no such buffer", s.buf);
        return false;
    }
    const int chunks = kolo_plan_buf_chunks(b->plan, rank, (enum kolo_buf)s.buf);
    if (s.count > 0 && (uint64_t)s.first + s.count > (uint64_t)chunks) {
        refuse_plan(b, KOLO_ERR_INVALID, "slice ends beyond its buffer, at chunk",
                    (long)s.first + s.count);
        return false;
    }
    return true;
}

void kolo_chunks(struct kolo_builder *b, int chunks)
{
    if (chunks < 1 || chunks > UINT16_MAX || b->chunks_used) {
        refuse_plan(b, KOLO_ERR_INVALID, "chunks must be 1..65535 and come before any step",
                    chunks);
        return;
    }
    b->plan->chunks = chunks;
}

void kolo_scratch_chunks(struct kolo_builder *b, int chunks)
{
    if (chunks < 0 || chunks > UINT16_MAX || b->chunks_used) {
        refuse_plan(b, KOLO_ERR_INVALID, "chunks must be 0..65535 and come before any step",
                    chunks);
        return;
    }
    b->plan->scratch_chunks = chunks;
}

void kolo_lane(struct kolo_builder *b, int lane)
{
    if (lane < 0 || lane >= KOLO_LANES) {
        refuse_plan(b, KOLO_ERR_INVALID, "no such lane", lane);
        return;
    }
    b->lane = lane;
    if (lane >= b->plan->lanes) {
        b->plan->lanes = lane + 1;
    }
}

/* Give this send its signal and its place in the outbox, numbered within its rank. */
static const struct sent *number_send(struct kolo_builder *b, int from, struct kolo_slice src)
{
    struct kolo_rank_plan *mine = &b->plan->rank[from];
    struct sent *last = &b->sent[b->lane * b->plan->shape.nranks + from];
    const bool same_run = last->round == b->round;
    if (!same_run) {
        last->round = b->round;
        last->phase = (uint16_t)mine->phases++;
    }
    if (!same_run || memcmp(&last->src, &src, sizeof src) != 0) {
        last->src = src;
        last->place = (uint16_t)mine->places;
        mine->places += src.count;
    }
    if (mine->phases > UINT16_MAX || mine->places > UINT16_MAX) {
        refuse_plan(b, KOLO_ERR_INVALID, "more than 65535 signals or sent chunks on rank", from);
    }
    return last;
}

void kolo_transfer(struct kolo_builder *b, int from, struct kolo_slice src, int to,
                   struct kolo_slice dst, unsigned how)
{
    if (b->status != KOLO_OK || !rank_ok(b, from) || !rank_ok(b, to) || !slice_ok(b, from, src) ||
        !slice_ok(b, to, dst)) {
        return;
    }
    if (from == to || src.count != dst.count || dst.buf == KOLO_IN || how > 7) {
        refuse_plan(b, KOLO_ERR_INVALID, "a message to itself, of two sizes, or into IN; from rank",
                    from);
        return;
    }
    b->chunks_used = true;
    const struct sent *sent = number_send(b, from, src);
    struct kolo_step step = {.op = KOLO_SEND,
                             .lane = (uint8_t)b->lane,
                             .peer = to,
                             .src = src,
                             .dst = dst,
                             .dep = -1,
                             .phase = sent->phase,
                             .place = sent->place};
    if (is_kept(b, from)) {
        append(b, from, &step);
    }
    if (is_kept(b, to)) {
        step.op = how & KOLO_ADD ? KOLO_RECV_REDUCE : KOLO_RECV;
        step.flags = (uint8_t)((how & KOLO_LEFT ? KOLO_STEP_LEFT : 0) |
                               (how & KOLO_LAST ? KOLO_STEP_LAST : 0));
        step.peer = from;
        hold_step(b, to, -1, &step);
    }
}

void kolo_local(struct kolo_builder *b, int rank, struct kolo_slice src, struct kolo_slice dst,
                unsigned how)
{
    if (b->status != KOLO_OK || !rank_ok(b, rank) || !slice_ok(b, rank, src) ||
        !slice_ok(b, rank, dst)) {
        return;
    }
    if (src.count != dst.count || dst.buf == KOLO_IN || how > 7) {
        refuse_plan(b, KOLO_ERR_INVALID, "a copy of two sizes or into IN, on rank", rank);
        return;
    }
    b->chunks_used = true;
    if (is_kept(b, rank)) {
        const struct kolo_step step = {.op = how & KOLO_ADD ? KOLO_REDUCE : KOLO_COPY,
                                       .flags = (uint8_t)((how & KOLO_LEFT ? KOLO_STEP_LEFT : 0) |
                                                          (how & KOLO_LAST ? KOLO_STEP_LAST : 0)),
                                       .lane = (uint8_t)b->lane,
                                       .peer = -1,
                                       .src = src,
                                       .dst = dst,
                                       .dep = -1};
        hold_step(b, rank, -1, &step);
    }
}

void kolo_join(struct kolo_builder *b, int rank, int lane)
{
    if (b->status != KOLO_OK || !rank_ok(b, rank)) {
        return;
    }
    if (lane < 0 || lane >= KOLO_LANES || lane == b->lane) {
        refuse_plan(b, KOLO_ERR_INVALID, "joins another lane, not", lane);
        return;
    }
    if (is_kept(b, rank)) {
        const struct kolo_slice none = kolo_slice_make(KOLO_SCRATCH, 0, 0);
        const struct kolo_step step = {.op = KOLO_COPY,
                                       .lane = (uint8_t)b->lane,
                                       .peer = -1,
                                       .src = none,
                                       .dst = none,
                                       .dep = -1};
        hold_step(b, rank, lane, &step);
    }
}

void kolo_round(struct kolo_builder *b)
{
    for (int i = 0; i < b->nheld && b->status == KOLO_OK; i++) {
        struct held *held = &b->held[i];
        if (held->join >= 0) {
            const struct kolo_rank_plan *mine = &b->plan->rank[held->rank];
            for (int k = mine->count - 1; k >= 0 && held->step.dep < 0; k--) {
                held->step.dep = mine->step[k].lane == held->join ? k : -1;
            }
        }
        append(b, held->rank, &held->step);
    }
    b->nheld = 0;
    b->round++;
}

/* ---- seal ---- */

static size_t order_bytes(const struct kolo_shape *shape)
{
    const int rings = shape->nrings > 1 ? shape->nrings : 1;
    return (size_t)rings * (size_t)shape->nranks * sizeof *shape->order;
}

static size_t groups_bytes(const struct kolo_shape *shape)
{
    return (size_t)shape->nlevels * (size_t)shape->nranks * sizeof *shape->group;
}

static size_t trees_bytes(const struct kolo_shape *shape)
{
    return (size_t)shape->ntrees * (size_t)shape->nranks * sizeof *shape->tree;
}

static void count_messages(struct kolo_rank_plan *mine)
{
    for (int i = 0; i < mine->count; i++) {
        const uint8_t op = mine->step[i].op;
        mine->sends += op == KOLO_SEND;
        mine->receives += op == KOLO_RECV || op == KOLO_RECV_REDUCE;
        mine->copies += op == KOLO_COPY;
    }
}

static void seal_counts(struct kolo_plan *plan)
{
    const struct kolo_shape *s = &plan->shape;
    const int numbers[] = {(int)s->coll, s->nranks, s->root, plan->chunks, plan->scratch_chunks};
    plan->hash = kolo_hash(0, plan->algo->base.name, strlen(plan->algo->base.name));
    plan->hash = kolo_hash(plan->hash, numbers, sizeof numbers);
    if (plan->order != NULL) {
        plan->hash = kolo_hash(plan->hash, plan->order, order_bytes(s));
    }
    if (plan->group != NULL) {
        plan->hash = kolo_hash(plan->hash, plan->group, groups_bytes(s));
    }
    if (plan->tree != NULL) {
        plan->hash = kolo_hash(plan->hash, plan->tree, trees_bytes(s));
    }
    for (int r = 0; r < s->nranks; r++) {
        count_messages(&plan->rank[r]);
        if (plan->rank[r].places > plan->max_places) {
            plan->max_places = plan->rank[r].places;
        }
    }
}

/* ---- build ---- */

/* Check that in each tree one rank has no parent, and that the parents of every other rank lead to
 * it. */
static kolo_status check_trees(const struct kolo_algo *algo, const struct kolo_shape *shape)
{
    const int n = shape->nranks;
    bool ok = shape->ntrees >= 0 && shape->ntrees <= KOLO_LANES &&
              (shape->ntrees == 0 || shape->tree != NULL);
    for (int t = 0; ok && t < shape->ntrees; t++) {
        const int *up = shape->tree + (size_t)t * (size_t)n;
        int roots = 0;
        for (int r = 0; ok && r < n; r++) {
            int steps = 0;
            roots += up[r] == -1;
            for (int at = r; ok && up[at] != -1; at = up[at]) {
                ok = up[at] >= 0 && up[at] < n && ++steps < n;
            }
        }
        ok = ok && roots == 1;
    }
    return ok ? KOLO_OK
              : kolo_fail(KOLO_ERR_INVALID, "%s: of %d trees, one is no tree of %d ranks",
                          algo->base.name, shape->ntrees, n);
}

/* Check that each group has the name of its smallest rank, and lies within one group of the next
 * level. */
static kolo_status check_groups(const struct kolo_algo *algo, const struct kolo_shape *shape)
{
    bool ok = shape->nlevels >= 0 && shape->nlevels <= KOLO_LEVELS &&
              (shape->nlevels == 0 || shape->group != NULL);
    for (int l = 0; ok && l < shape->nlevels; l++) {
        for (int r = 0; ok && r < shape->nranks; r++) {
            const int g = kolo_group_of(shape, l, r);
            ok = g >= 0 && g <= r && kolo_group_of(shape, l, g) == g &&
                 (l + 1 == shape->nlevels ||
                  kolo_group_of(shape, l + 1, g) == kolo_group_of(shape, l + 1, r));
        }
    }
    return ok ? KOLO_OK
              : kolo_fail(KOLO_ERR_INVALID,
                          "%s: of %d levels, a group is not named by its smallest rank or lies in "
                          "two of the next level",
                          algo->base.name, shape->nlevels);
}

static kolo_status plan_create(const struct kolo_algo *algo, const struct kolo_shape *shape,
                               int only, struct kolo_plan **out)
{
    const size_t n = (size_t)shape->nranks;
    struct kolo_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", algo->base.name);
    }
    plan->shape = *shape;
    plan->algo = algo;
    plan->only = only;
    plan->lanes = 1;
    plan->chunks = 1;
    plan->rank = calloc(n, sizeof *plan->rank);
    plan->order = shape->order != NULL ? malloc(order_bytes(shape)) : NULL;
    plan->group = shape->nlevels > 0 ? malloc(groups_bytes(shape)) : NULL;
    plan->tree = shape->ntrees > 0 ? malloc(trees_bytes(shape)) : NULL;
    if (plan->rank == NULL || (shape->order != NULL && plan->order == NULL) ||
        (shape->nlevels > 0 && plan->group == NULL) || (shape->ntrees > 0 && plan->tree == NULL)) {
        kolo_plan_destroy(plan);
        return kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", algo->base.name);
    }
    if (shape->order != NULL) {
        memcpy(plan->order, shape->order, order_bytes(shape));
    }
    if (plan->group != NULL) {
        memcpy(plan->group, shape->group, groups_bytes(shape));
    }
    if (plan->tree != NULL) {
        memcpy(plan->tree, shape->tree, trees_bytes(shape));
    }
    plan->shape.order = plan->order;
    plan->shape.group = plan->group;
    plan->shape.tree = plan->tree;
    *out = plan;
    return KOLO_OK;
}

kolo_status kolo_plan_build(const struct kolo_algo *algo, const struct kolo_shape *shape, int rank,
                            struct kolo_plan **out)
{
    struct kolo_builder b = {.round = 1};
    if (shape->nranks < 1 || shape->root < 0 || shape->root >= shape->nranks ||
        rank < KOLO_PLAN_PLAIN || rank >= shape->nranks || algo->coll != shape->coll) {
        return kolo_fail(KOLO_ERR_INVALID, "%s: no plan for %d ranks, root %d, of rank %d",
                         algo->base.name, shape->nranks, shape->root, rank);
    }
    KOLO_TRY(check_groups(algo, shape));
    KOLO_TRY(check_trees(algo, shape));
    if (algo->supports != NULL && !algo->supports(shape)) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "%s does not support %d ranks with root %d%s",
                         algo->base.name, shape->nranks, shape->root,
                         shape->nlevels == 0 ? ", without groups" : "");
    }
    KOLO_TRY(plan_create(algo, shape, rank, &b.plan));
    b.sent = calloc((size_t)shape->nranks * KOLO_LANES, sizeof *b.sent);
    if (b.sent == NULL) {
        b.status = kolo_fail(KOLO_ERR_SYSTEM, "%s: out of memory", algo->base.name);
    } else {
        algo->build(&b.plan->shape, &b);
        kolo_round(&b);
        seal_counts(b.plan);
        if (b.status == KOLO_OK && rank == -1) {
            b.status = kolo_plan_mark_facts(b.plan);
        }
    }
    free(b.sent);
    free(b.held);
    if (b.status != KOLO_OK) {
        kolo_plan_destroy(b.plan);
        return b.status;
    }
    *out = b.plan;
    return KOLO_OK;
}

void kolo_plan_destroy(struct kolo_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    for (int r = 0; plan->rank != NULL && r < plan->shape.nranks; r++) {
        free(plan->rank[r].step);
    }
    free(plan->rank);
    free(plan->order);
    free(plan->group);
    free(plan->tree);
    free(plan);
}
