// SPDX-License-Identifier: Apache-2.0
/* Peer-to-peer between this machine's GPUs, tried with data. */
#ifndef KOLO_TOOLS_PROBE_H
#define KOLO_TOOLS_PROBE_H

#include "util/util.h"

struct kolo_probed {
    int number; /* in the order (0, 1), (0, 2), ... */
    int gpu[2];
    char bus[2][24]; /* as in /sys; "": not known */
    /* OK; UNSUPPORTED: they claim none; SYSTEM: could not be tried; INPROGRESS: about to be tried;
     * else claimed, and it does not work. */
    kolo_status status;
    double gbs; /* OK: of the slowest way */
    char error[160];
};

static inline bool kolo_probed_fails(const struct kolo_probed *pair)
{
    return pair->status != KOLO_OK && pair->status != KOLO_ERR_UNSUPPORTED &&
           pair->status != KOLO_ERR_SYSTEM;
}

/* Try every pair that claims peer access, and tell of each. Processes of their own try, since
 * drivers hang where hardware does. Returns false where the driver does not answer at all. */
bool kolo_probe_pairs(void (*tell)(void *arg, const struct kolo_probed *pair), void *arg);

#endif
