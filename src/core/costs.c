// SPDX-License-Identifier: Apache-2.0
/* The costs of a communicator. See costs.h. */
#include "core/costs.h"

#include "topology/source.h"
#include "tune/costs.h"

/* Of this host. `size` 0: not known yet. */
static struct {
    pthread_mutex_t lock;
    struct kolo_costs costs;
} measured = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Between containers of one machine the kernel carries a packet on the cores of the ranks, through
 * two network stacks and a bridge. Over the loopback a broadcast of 8 bytes of 2 ranks took 6.3 us,
 * where TCP names 4 us a message; between two network namespaces 10.7 to 13.6. An exchange took
 * 14.5 to 16. */
static const double CONTAINER_LATENCY_US = 2, CONTAINER_MESSAGE_US = 7;

kolo_status kolo_comm_costs_find(int cores, const struct kolo_host *host, struct kolo_costs *out)
{
    const char *given = kolo_env("KOLO_COSTS");
    if (given != NULL) {
        return kolo_costs_parse(given, out)
                   ? KOLO_OK
                   : kolo_fail(KOLO_ERR_INVALID,
                               "KOLO_COSTS is \"%s\"; it is a list such as cores=2,latency_us=0.2,"
                               "copy_gbs=10,reduce_gbs=10,step_us=0.01,switch_us=1; beyond an L3 "
                               "numa_, package_ and host_latency_us and _gbs, and cross_gbs; "
                               "between hosts net_latency_us,net_gbs,net_message_us,"
                               "net_copy_gbs,net_sum_gbs,net_rendezvous_bytes",
                               given);
    }
    pthread_mutex_lock(&measured.lock);
    if (measured.costs.size == 0) {
        kolo_costs_measure(cores, kolo_env("KOLO_TOPO_FILE") == NULL ? host : NULL,
                           &measured.costs);
        measured.costs.size = sizeof measured.costs;
    }
    *out = measured.costs;
    pthread_mutex_unlock(&measured.lock);
    return KOLO_OK;
}

void kolo_comm_costs_keep(const struct kolo_comm *c, const struct kolo_costs *told)
{
    pthread_mutex_lock(&measured.lock);
    if (measured.costs.size == 0 && c->ranks.nranks > 1 && kolo_env("KOLO_COSTS") == NULL &&
        c->member[0].peer.host == c->member[c->ranks.rank].peer.host) {
        measured.costs = *told;
        measured.costs.net = (struct kolo_far){0};
        measured.costs.size = sizeof measured.costs;
    }
    pthread_mutex_unlock(&measured.lock);
}

void kolo_comm_costs_add_net(const struct kolo_comm *c, struct kolo_costs *costs)
{
    const struct kolo_reach *far = NULL;
    for (int q = 1; q < c->ranks.nranks; q++) {
        const struct kolo_reach *reach = &c->member[q].reach;
        const double least_us = far != NULL ? far->latency_us : 0;
        far = (reach->caps & KOLO_CAP_MAP) == 0 && reach->latency_us > least_us ? reach : far;
    }
    if (far != NULL && far->bandwidth_gbs > 0 && kolo_env("KOLO_COSTS") == NULL) {
        costs->net = (struct kolo_far){far->latency_us, 1e-3 / far->bandwidth_gbs};
        costs->net_message_us = far->message_us;
        if (c->ranks.nhosts > 1 && c->ranks.npools == 1 && far->core_gbs > 0) {
            costs->net.latency_us = CONTAINER_LATENCY_US;
            costs->net_message_us = CONTAINER_MESSAGE_US;
        }
        costs->net_copy_us_per_byte = far->core_gbs > 0 ? 1e-3 / far->core_gbs : 0;
        /* Bytes that a core has just copied lie nearer than those that a NIC brought. */
        costs->net_sum_us_per_byte =
            kolo_costs_default.net_sum_us_per_byte / (far->core_gbs > 0 ? 2 : 1);
        costs->net_rendezvous_bytes = (double)far->rendezvous_bytes;
    }
}
