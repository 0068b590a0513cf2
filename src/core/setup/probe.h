// SPDX-License-Identifier: Apache-2.0
/* Whether ranks of other hosts still have a communicator: each listens at its reserved port as long
 * as it does. */
#ifndef KOLO_CORE_SETUP_PROBE_H
#define KOLO_CORE_SETUP_PROBE_H

#include "core/comm.h"

enum { KOLO_PROBES = 16 };

struct kolo_probe { /* begins as zeros */
    struct kolo_probe_try {
        int fd, rank;
        double since_us;
    } tries[KOLO_PROBES];
    int ntries;
    int next;        /* the place in ranks[] of the rank that is probed next */
    double sweep_us; /* when ranks[0] is probed next; 0: this is the first step */
};

/* Go on asking ranks[nranks] of `c` (-1: none), over and over, without waiting. Of each whose port
 * refuses a connection, kolo_gone_is() is true then. */
void kolo_probe_step(struct kolo_probe *probe, struct kolo_comm *c, const int *ranks, int nranks);
void kolo_probe_end(struct kolo_probe *probe);

#endif
