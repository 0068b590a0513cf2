// SPDX-License-Identifier: Apache-2.0
/* The check that all hosts are alike. */
#include "sim/program/fold.h"

/* Ranks of a host; of a leaf if there are several. */
static int ranks_of_part(const struct kolo_sim_place *place)
{
    const int hosts = place->machine->hosts_per_switch;
    return hosts > 0 && hosts < place->nhosts ? hosts * place->per_host : place->per_host;
}

static bool machine_is_even(const struct kolo_sim_place *place, int part)
{
    const struct kolo_sim_machine *m = place->machine;
    return place->nranks % part == 0 && place->nhosts > 1 && m->noise == 0 && m->slow_rank < 0 &&
           m->slow_nic < 0;
}

static bool is_across(const struct kolo_sim_place *place, int a, int b)
{
    return kolo_sim_leaf_of(place, a) != kolo_sim_leaf_of(place, b);
}

/* Whether `rank` does as `like`, at the same place of the first part. Equal programs tell lines from
 * messages, so their partners are alike on the own host or on others. */
static bool is_alike(const struct kolo_sim_set *set, const struct kolo_sim_place *place, int part,
                     int rank, int like)
{
    const struct kolo_sim_member *a = &set->member[rank], *b = &set->member[like];
    const struct kolo_sim_prog *p = set->prog[a->prog];
    if (a->prog != b->prog) {
        return false;
    }
    for (int i = 0; i < p->npeers; i++) {
        const int mine = set->peer[a->peer + (uint32_t)i];
        const int its = set->peer[b->peer + (uint32_t)i];
        if (mine % part != its % part ||
            is_across(place, rank, mine) != is_across(place, like, its)) {
            return false;
        }
    }
    for (int i = 0; i < p->nreqs; i++) {
        if (set->source[a->source + (uint32_t)i] != set->source[b->source + (uint32_t)i]) {
            return false;
        }
    }
    return true;
}

int kolo_sim_fold(const struct kolo_sim_set *set, const struct kolo_sim_place *place)
{
    const int part = ranks_of_part(place);
    bool folds = machine_is_even(place, part);
    for (int r = part; r < set->nranks && folds; r++) {
        folds = is_alike(set, place, part, r, r % part);
    }
    return folds ? part : set->nranks;
}
