// SPDX-License-Identifier: Apache-2.0
/* Stages. The first wait after a signal opens a pipeline stage, so that the next tile's first sends
 * go out before this tile's waits.
 *
 * A step's level is the number of stages that must end before the step, over all ranks. Passes over
 * all steps raise the levels until none rises any more. */
#include "exec/lower/lowering.h"
#include "plan/facts.h"

#include <stdlib.h>
#include <string.h>

struct levels {
    const struct kolo_plan *plan;
    const struct kolo_match *match;
    uint8_t **of; /* [rank][step] */
    int top;
};

/* Do one pass over a rank. True: a level rose. */
static bool raise_levels(struct levels *v, int rank)
{
    const struct kolo_rank_plan *mine = &v->plan->rank[rank];
    int level = 0;
    bool sent = false, rose = false;
    for (int i = 0; i < mine->count; i++) {
        const struct kolo_step *s = &mine->step[i];
        if (s->op == KOLO_RECV || s->op == KOLO_RECV_REDUCE) {
            const int other = v->match[rank].other[i];
            const int sender = other >= 0 ? v->of[s->peer][other] : 0;
            const int at_least = level + (sent ? 1 : 0);
            const int now = sender > at_least ? sender : at_least;
            sent = sent && now == level;
            level = now;
        }
        sent = sent || s->op == KOLO_SEND;
        if (level > v->of[rank][i]) {
            v->of[rank][i] = (uint8_t)level;
            rose = true;
        }
        v->top = level > v->top ? level : v->top;
    }
    return rose;
}

/* Stages post a link's messages out of program order, so each message of an edge needs a channel of
 * its own. False if an edge has more than MOST messages: that many channels are not worth it. */
static bool channels_suffice(const struct kolo_plan *plan, int *count)
{
    enum { MOST = 8 };
    const int n = plan->shape.nranks;
    for (int r = 0; r < n; r++) {
        memset(count, 0, (size_t)n * sizeof *count);
        for (int i = 0; i < plan->rank[r].count; i++) {
            const struct kolo_step *s = &plan->rank[r].step[i];
            if (s->op == KOLO_SEND && ++count[s->peer] > MOST) {
                return false;
            }
        }
    }
    return true;
}

static void number_channels(struct kolo_prog *p, int *count)
{
    for (int code = KOLO_DO_SEND; code <= KOLO_DO_RECV; code++) {
        memset(count, 0, (size_t)p->plan->shape.nranks * sizeof *count);
        for (uint32_t i = 0; i < p->nops; i++) {
            if (p->op[i].code == code) {
                p->op[i].channel = (uint32_t)count[p->op[i].peer]++;
            }
        }
    }
}

/* The levels of all steps. NULL if the plan needs more than KOLO_STAGES stages or too many
 * channels. */
static uint8_t **level_steps(struct kolo_lowering *l)
{
    const int n = l->plan->shape.nranks;
    struct levels v = {.plan = l->plan, .match = l->match};
    size_t steps = 0;
    for (int r = 0; r < n; r++) {
        steps += (size_t)l->plan->rank[r].count;
    }
    v.of = malloc((size_t)n * sizeof *v.of + steps + 1);
    if (v.of == NULL) {
        l->failed = true;
        return NULL;
    }
    uint8_t *at = (uint8_t *)(v.of + n);
    memset(at, 0, steps);
    for (int r = 0; r < n; r++) {
        v.of[r] = at;
        at += l->plan->rank[r].count;
    }
    for (bool rose = true; rose && v.top < KOLO_STAGES;) {
        rose = false;
        for (int r = 0; r < n; r++) {
            rose = raise_levels(&v, r) || rose;
        }
    }
    if (v.top >= KOLO_STAGES || !channels_suffice(l->plan, l->count)) {
        free(v.of);
        return NULL;
    }
    l->top_level = v.top;
    return v.of;
}

void kolo_lower_stages(struct kolo_lowering *l)
{
    struct kolo_prog *p = l->prog;
    uint8_t **levels = l->match != NULL ? level_steps(l) : NULL;
    for (int lane = 0; lane < p->nlanes; lane++) {
        struct kolo_lane_ops *ops = &p->lane[lane];
        int stage = 0;
        ops->nstages = levels != NULL ? l->top_level + 1 : 1;
        for (uint32_t i = ops->begin; i < ops->end; i++) {
            const int step = p->op[i].step;
            const int level = step < 0         ? ops->nstages - 1
                              : levels != NULL ? levels[p->me][step]
                                               : 0;
            while (stage < level) {
                ops->stage[++stage] = i;
            }
        }
        ops->stage[0] = ops->begin;
        ops->stage[ops->nstages] = ops->end;
    }
    if (levels != NULL) {
        number_channels(p, l->count);
    }
    free(levels);
}
