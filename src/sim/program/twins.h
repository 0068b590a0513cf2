// SPDX-License-Identifier: Apache-2.0
/* Ranks whose steps are equal but for the numbers of their partners: one lowering serves all. */
#ifndef KOLO_SIM_TWINS_H
#define KOLO_SIM_TWINS_H

#include "plan/plan.h"

struct kolo_sim_twin;
struct kolo_sim_twins {
    int slots;
    struct kolo_sim_twin **table; /* open addressing */
    size_t bytes;                 /* that are kept */
};

/* The steps of a rank, with partners numbered 1, 2, ..., and its links to them. */
struct kolo_sim_steps {
    const struct kolo_rank_plan *plan;
    const uint8_t *link; /* [npartners] */
    int npartners;
};

/* For up to `nranks` twins. False: out of memory. */
bool kolo_sim_twins_open(struct kolo_sim_twins *twins, int nranks);
void kolo_sim_twins_close(struct kolo_sim_twins *twins);
/* The program of a rank with these steps; -1: none is known. */
int kolo_sim_twins_find(const struct kolo_sim_twins *twins, const struct kolo_sim_steps *steps);
/* Remember the program of these steps, unless that takes too much memory. */
void kolo_sim_twins_keep(struct kolo_sim_twins *twins, const struct kolo_sim_steps *steps,
                         int prog);

#endif
