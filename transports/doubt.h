// SPDX-License-Identifier: Apache-2.0
/* A connection to a peer ended without a good-bye. Did the peer die, or is only the connection
 * lost?
 *
 * The end of a connection does not tell: the kernel ends the connections of a dead process, but a
 * firewall, or an administrator (ss -K), ends connections of processes that live. So this side
 * knocks at the address where the peer listens. A dead process refuses. The listener of one that
 * lives, even if it is stopped, keeps the new connection. A host that is cut off does not answer.
 *
 * A connection that is accepted and soon ends proves nothing: the process is ending, or its listener
 * has more guests than it keeps. Then this side knocks again.
 */
#ifndef KOLO_TRANSPORTS_DOUBT_H
#define KOLO_TRANSPORTS_DOUBT_H

#include "util/descriptor.h"
#include "util/net.h"

struct kolo_doubt {
    const struct kolo_inet *place;
    const struct kolo_interface *from;
    struct kolo_own_fd own; /* a new connection to the peer's listener */
    bool met;               /* there was a connection before */
    bool refused;
    int error;                    /* why there is no new connection */
    double since_us, answered_us; /* 0: no doubt; no answer yet */
    double knocked_us;            /* last */
    double alive_us;              /* when the new connection was last seen to stand */
    double again_us;              /* when to knock again; 0: the connection is looked at */
};

static inline bool kolo_doubt_is_open(const struct kolo_doubt *d)
{
    return d->since_us > 0;
}
/* Knock at `place`. `met`: a connection has ended; else the peer has refused the first one. Both
 * pointers are borrowed until the end of the doubt. */
void kolo_doubt_begin(struct kolo_doubt *d, const struct kolo_inet *place,
                      const struct kolo_interface *from, bool met);
/* 0: not known yet, try again. Else an errno as for on_peer_lost() of struct kolo_env. */
int kolo_doubt_step(struct kolo_doubt *d);
void kolo_doubt_end(struct kolo_doubt *d);

#endif
