// SPDX-License-Identifier: Apache-2.0
/* The planner's rings and trees, from places on a machine's GPUs to ranks. */
#ifndef KOLO_CORE_SETUP_LAYOUT_FILE_H
#define KOLO_CORE_SETUP_LAYOUT_FILE_H

#include "core/comm.h"
#include "topology/layout/wiring.h"

/* Which ranks are on each place of a wiring, host after host: those on place p are rank[first[p]]
 * to rank[first[p + 1] - 1], in ascending order; one at least. */
struct kolo_seats {
    int places;
    int *first; /* [places + 1] */
    int *rank;  /* [nranks] */
};
/* place[q]: that of rank q, 0 to places - 1; none is empty. Errors: SYSTEM. kolo_seats_free() in
 * either case. */
kolo_status kolo_seats_make(int nranks, const int *place, int places, struct kolo_seats *out);
void kolo_seats_free(struct kolo_seats *seats);

struct kolo_rings { /* of all ranks */
    int nrings, ntrees;
    int *order;             /* [nrings * nranks] as in struct kolo_shape */
    struct kolo_tree *tree; /* [ntrees * nranks] */
};
/* Room for that many. Errors: SYSTEM. kolo_rings_free() in either case. */
kolo_status kolo_rings_open(int nranks, int nrings, int ntrees, struct kolo_rings *out);
void kolo_rings_free(struct kolo_rings *rings);
/* All rings of a wiring, and a pair of trees along each of the first, as many as there are lanes
 * for. Ranks of one place follow one another. Errors: SYSTEM. */
kolo_status kolo_rings_make(const struct kolo_wiring *w, const struct kolo_seats *seats, int nranks,
                            struct kolo_rings *out);
/* They become the communicator's, which takes `order`. Errors: SYSTEM. */
kolo_status kolo_rings_take(struct kolo_comm *c, struct kolo_rings *rings);
/* The log says how good the plan is: rank 0. */
void kolo_rings_log(const struct kolo_comm *c, const struct kolo_wiring *w);

#endif
