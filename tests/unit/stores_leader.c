// SPDX-License-Identifier: Apache-2.0
#include "stores_leader.h"

#include "exec/cpu/bound.h"
#include "exec/cpu/env.h"

#include <stdlib.h>

struct leader {
    struct kolo_algo algo;
    struct kolo_plan plan;
    struct kolo_prog prog;
    struct kolo_bound bound;
    struct kolo_exec_env env;
    struct kolo_store_choices choices;
    double clock_us;
};

struct leader *leader_create(void)
{
    struct leader *l = calloc(1, sizeof *l);
    if (l == NULL) {
        abort();
    }
    l->algo.base.name = "allgather_ring";
    l->plan.algo = &l->algo;
    l->prog.plan = &l->plan;
    l->bound.prog = &l->prog;
    l->bound.stores =
        (struct kolo_store_use){.matters = true, .leads = true, .settle = 2, .refill = 130};
    l->env.me = 1;
    l->clock_us = 1e9;
    l->env.store_choices = &l->choices;
    return l;
}

void leader_destroy(struct leader *l)
{
    kolo_lessons_free(l->env.lessons);
    free(l);
}

void leader_bind(struct leader *l, uint64_t key, bool starts_past)
{
    l->bound.stores.key = key;
    l->bound.stores.starts_past = starts_past;
}

bool leader_is_past(const struct leader *l)
{
    return kolo_store_is_past(&l->env, &l->bound.stores);
}

void leader_call(struct leader *l, double us)
{
    if (kolo_store_times(&l->env, &l->bound.stores)) {
        kolo_store_learn(&l->env, &l->bound, l->clock_us, l->clock_us + us);
    }
    l->clock_us += us;
}

bool leader_rule(struct leader *l, const char *text)
{
    return kolo_store_parse(text, &l->env.store_rule);
}

uint64_t leader_places(void)
{
    return KOLO_STORE_PLACES;
}

void leader_wait(struct leader *l, double us)
{
    l->clock_us += us;
}

double leader_clock_us(const struct leader *l)
{
    return l->clock_us;
}
