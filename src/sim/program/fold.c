// SPDX-License-Identifier: Apache-2.0
/* The check that all hosts are alike. */
#include "sim/program/fold.h"

static bool machine_is_even(const struct kolo_sim_place *place)
{
    const struct kolo_sim_machine *m = place->machine;
    return place->nranks % place->per_host == 0 && place->nhosts > 1 && m->noise == 0 &&
           m->slow_rank < 0 && m->hosts_per_switch == 0;
}

/* Whether `rank` does as `like`, at the same place of the first host. Equal programs tell lines from
 * messages, so their partners are alike on the own host or on others. */
static bool is_alike(const struct kolo_sim_set *set, const struct kolo_sim_place *place, int rank,
                     int like)
{
    const struct kolo_sim_member *a = &set->member[rank], *b = &set->member[like];
    const struct kolo_sim_prog *p = set->prog[a->prog];
    if (a->prog != b->prog) {
        return false;
    }
    for (int i = 0; i < p->npeers; i++) {
        const int mine = set->peer[a->peer + (uint32_t)i];
        const int its = set->peer[b->peer + (uint32_t)i];
        if (mine % place->per_host != its % place->per_host) {
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

bool kolo_sim_folds(const struct kolo_sim_set *set, const struct kolo_sim_place *place)
{
    bool folds = machine_is_even(place);
    for (int r = place->per_host; r < set->nranks && folds; r++) {
        folds = is_alike(set, place, r, r % place->per_host);
    }
    return folds;
}
