// SPDX-License-Identifier: Apache-2.0
/* Peer-to-peer between this machine's GPUs, tried with data. */
#ifndef KOLO_TOOLS_TOPO_PEERS_H
#define KOLO_TOOLS_TOPO_PEERS_H

#include "util/util.h"

struct kolo_probed {
    int number; /* in the order (0, 1), (0, 2), ... */
    int gpu[2];
    char bus[2][24]; /* as in /sys; "": unknown */
    /* OK: it works. UNSUPPORTED: the GPUs claim no peer access. SYSTEM: it could not be tried.
     * INPROGRESS: it is about to be tried. Another status: it is claimed, and fails. */
    kolo_status status;
    double gbs; /* OK: the slowest copy */
    char error[160];
};

static inline bool kolo_probed_fails(const struct kolo_probed *pair)
{
    return pair->status != KOLO_OK && pair->status != KOLO_ERR_UNSUPPORTED &&
           pair->status != KOLO_ERR_SYSTEM;
}

/* Try every pair of GPUs that claims peer access, and report each pair. The trial runs in child
 * processes, since drivers hang if hardware does. Returns false if the driver does not answer at
 * all. */
bool kolo_probe_pairs(void (*tell)(void *arg, const struct kolo_probed *pair), void *arg);

#endif
