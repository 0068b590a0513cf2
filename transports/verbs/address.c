// SPDX-License-Identifier: Apache-2.0
/* The address of a rank: its rails. Two addresses give the pairs of rails between two ranks. Both
 * ends compute the same pairs, because both order the addresses by rank. */
#include "transports/verbs/verbs.h"

#include <sys/socket.h>

void kolo_verbs_address_make(const struct kolo_endpoint *ep, struct kolo_verbs_address *out)
{
    *out = (struct kolo_verbs_address){.magic = KOLO_VERBS_MAGIC,
                                       .nrails = (uint16_t)ep->nrails,
                                       .lanes = ep->lanes,
                                       .place = ep->interface.place};
    memcpy(out->nonce, ep->nonce, sizeof out->nonce);
    for (int i = 0; i < ep->nrails; i++) {
        out->port[i] = ep->rail[i].self;
    }
}

bool kolo_verbs_address_read(const void *bytes, size_t len, struct kolo_verbs_address *out)
{
    if (bytes == NULL || len != sizeof *out) {
        return false;
    }
    memcpy(out, bytes, len);
    return out->magic == KOLO_VERBS_MAGIC && out->nrails >= 1 && out->nrails <= KOLO_VERBS_RAILS &&
           out->lanes >= 1 && out->lanes <= KOLO_VERBS_LANES &&
           (out->place.family == AF_INET || out->place.family == AF_INET6);
}

int kolo_verbs_address_pair(const struct kolo_endpoint *ep, int rank,
                            const struct kolo_verbs_address *address, int pair[KOLO_VERBS_LANES][2])
{
    struct kolo_verbs_address own;
    const bool lower = ep->env.rank <= rank;
    kolo_verbs_address_make(ep, &own);
    const int count = lower ? kolo_verbs_rails_pair(&own, address, pair)
                            : kolo_verbs_rails_pair(address, &own, pair);
    for (int i = 0; i < count && !lower; i++) {
        const int ours = pair[i][1];
        pair[i][1] = pair[i][0];
        pair[i][0] = ours;
    }
    return count;
}

kolo_status kolo_verbs_address_probe(struct kolo_endpoint *ep, const struct kolo_peer *peer,
                                     struct kolo_reach *out)
{
    struct kolo_verbs_address address;
    int pair[KOLO_VERBS_LANES][2];
    uint32_t mbps[KOLO_VERBS_RAILS] = {0};
    double all_mbps = 0;
    *out = (struct kolo_reach){.size = sizeof *out,
                               .latency_us = 3,
                               .bandwidth_gbs = 1,
                               .score = 30,
                               .via = ep->via[0],
                               .rendezvous_bytes = KOLO_VERBS_LONG};
    const int count = kolo_verbs_address_read(peer->address, peer->address_len, &address)
                          ? kolo_verbs_address_pair(ep, peer->rank, &address, pair)
                          : 0;
    const char **via = ep->vias[peer->rank];
    for (int i = 0; i < count; i++) { /* a rail is as fast as its slower end */
        const int rail = pair[i][0];
        const uint32_t here = ep->rail[rail].self.speed_mbps;
        const uint32_t there = address.port[pair[i][1]].speed_mbps;
        if (mbps[rail] == 0) {
            via[out->nvias++] = ep->via[rail];
        }
        mbps[rail] = here < there ? here : there;
    }
    for (int i = 0; i < ep->nrails; i++) {
        all_mbps += mbps[i];
    }
    if (count > 0 && all_mbps > 0) {
        out->caps = KOLO_CAP_HOST | KOLO_CAP_MESSAGE;
        out->bandwidth_gbs = all_mbps / 8e3 * 0.9;
        out->via = via[0];
        out->vias = via;
    }
    return KOLO_OK;
}
