// SPDX-License-Identifier: Apache-2.0
/* The steps of a plan of n ranks, if it grows from a plan of 2 m ranks as that grew from one of m. */
#include "sim/program/size.h"

#include <math.h>

static const double MOST_STEPS = 26e6; /* they take less than 1 GiB */

static kolo_status count_steps(const struct kolo_algo *algo, const struct kolo_sim_machine *machine,
                               int nranks, double *out)
{
    struct kolo_sim_place place;
    struct kolo_plan *plan = NULL;
    KOLO_TRY(kolo_sim_place_open(machine, nranks, &place));
    const struct kolo_shape shape = kolo_sim_shape(&place, algo->coll, 0);
    const kolo_status st = kolo_plan_build(algo, &shape, KOLO_PLAN_PLAIN, &plan);
    kolo_sim_place_close(&place);
    KOLO_TRY(st);
    *out = 0;
    for (int r = 0; r < nranks; r++) {
        *out += plan->rank[r].count;
    }
    kolo_plan_destroy(plan);
    return KOLO_OK;
}

kolo_status kolo_sim_check_size(const struct kolo_algo *algo, const struct kolo_sim_place *place)
{
    enum { SMALL = 64 };
    const struct kolo_sim_machine *machine = place->machine;
    const int hosts = place->nhosts > 1 ? 2 * place->per_host : 0;
    const int small = hosts > SMALL ? hosts : SMALL;
    double first = 0, second = 0;
    if (place->nranks <= 8 * small) {
        return KOLO_OK;
    }
    KOLO_TRY(count_steps(algo, machine, small, &first));
    KOLO_TRY(count_steps(algo, machine, 2 * small, &second));
    const double doublings = log2(place->nranks / (2.0 * small));
    const double steps = second * pow(second / first, doublings);
    return steps <= MOST_STEPS
               ? KOLO_OK
               : kolo_fail(KOLO_ERR_UNSUPPORTED,
                           "%s: a plan of %d ranks has about %.2g steps; the most that can be "
                           "simulated is %.2g",
                           algo->base.name, place->nranks, steps, MOST_STEPS);
}
