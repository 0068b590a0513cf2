// SPDX-License-Identifier: Apache-2.0
/* The state of a link that all its parts change: connected, or failed. */
#include "transports/verbs/verbs.h"

#include <unistd.h>

bool kolo_verbs_is_ours(const struct kolo_endpoint *ep)
{
    return ep->pid == (int)getpid() &&
           (ep->acceptor.listener.fd < 0 || kolo_acceptor_is_whole(&ep->acceptor));
}

void kolo_verbs_connected(struct kolo_link *link)
{
    link->ep->nconnecting -= link->connecting;
    link->connecting = false;
}

void kolo_verbs_fail(struct kolo_link *link, const char *what, int error, bool gone)
{
    const struct kolo_env *env = &link->ep->env;
    if (kolo_carrier_fail(&link->base, &link->address.place, what, error)) {
        KOLO_LOG(INFO, NET, "NET/IB : %s", link->base.text);
        link->complains = !gone;
        if (gone && env->on_peer_lost != NULL) {
            env->on_peer_lost(env->owner, link->base.peer.rank, what, error);
        }
    }
}
