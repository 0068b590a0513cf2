// SPDX-License-Identifier: Apache-2.0
/* A hash table over the steps themselves. Plans whose ranks all differ fill it up to its limit. */
#include "sim/program/twins.h"

#include <stdlib.h>
#include <string.h>

struct kolo_sim_twin {
    uint64_t hash;
    int prog, count, npartners, phases, places;
    struct kolo_step step[]; /* count of them, then the links */
};

static const size_t MOST_KEPT = 64 << 20;

bool kolo_sim_twins_open(struct kolo_sim_twins *twins, int nranks)
{
    twins->bytes = 0;
    twins->slots = 2 * nranks + 1;
    twins->table = calloc((size_t)twins->slots, sizeof(struct kolo_sim_twin *));
    return twins->table != NULL;
}

void kolo_sim_twins_close(struct kolo_sim_twins *twins)
{
    for (int i = 0; twins->table != NULL && i < twins->slots; i++) {
        free(twins->table[i]);
    }
    free(twins->table);
    *twins = (struct kolo_sim_twins){0};
}

/* A word at a time: kolo_hash() goes byte by byte. */
static uint64_t hash_of(const struct kolo_sim_steps *s)
{
    const char *at = (const char *)s->plan->step,
               *end = (const char *)(s->plan->step + s->plan->count);
    uint64_t hash = (uint64_t)s->plan->count;
    for (; at < end; at += sizeof hash) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 32;
    }
    return hash;
}

static bool is_twin(const struct kolo_sim_twin *t, const struct kolo_sim_steps *s)
{
    const struct kolo_rank_plan *p = s->plan;
    return t->count == p->count && t->npartners == s->npartners && t->phases == p->phases &&
           t->places == p->places &&
           memcmp(t->step, p->step, (size_t)p->count * sizeof *p->step) == 0 &&
           memcmp(t->step + t->count, s->link, (size_t)s->npartners) == 0;
}

/* The twin's slot, or the empty one where it belongs. */
static int slot_of(const struct kolo_sim_twins *twins, const struct kolo_sim_steps *s,
                   uint64_t hash)
{
    int at = (int)(hash % (uint64_t)twins->slots);
    while (twins->table[at] != NULL &&
           (twins->table[at]->hash != hash || !is_twin(twins->table[at], s))) {
        at = (at + 1) % twins->slots;
    }
    return at;
}

int kolo_sim_twins_find(const struct kolo_sim_twins *twins, const struct kolo_sim_steps *steps)
{
    const struct kolo_sim_twin *t = twins->table[slot_of(twins, steps, hash_of(steps))];
    return t != NULL ? t->prog : -1;
}

void kolo_sim_twins_keep(struct kolo_sim_twins *twins, const struct kolo_sim_steps *steps, int prog)
{
    const struct kolo_rank_plan *p = steps->plan;
    const uint64_t hash = hash_of(steps);
    const size_t body = (size_t)p->count * sizeof *p->step;
    const size_t bytes = sizeof(struct kolo_sim_twin) + body + (size_t)steps->npartners;
    struct kolo_sim_twin *t = twins->bytes + bytes <= MOST_KEPT ? malloc(bytes) : NULL;
    if (t == NULL) {
        return;
    }
    *t = (struct kolo_sim_twin){.hash = hash,
                                .prog = prog,
                                .count = p->count,
                                .npartners = steps->npartners,
                                .phases = p->phases,
                                .places = p->places};
    memcpy(t->step, p->step, body);
    memcpy(t->step + t->count, steps->link, (size_t)steps->npartners);
    twins->bytes += bytes;
    twins->table[slot_of(twins, steps, hash)] = t;
}
