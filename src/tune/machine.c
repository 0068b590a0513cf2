// SPDX-License-Identifier: Apache-2.0
/* The machine that prices plans, of measured costs.
 *
 * - Shared memory: a sender copies into its outbox. A receiver's core copies or adds from there.
 * - The time of a line depends on what the two cores share: an L3, a NUMA node, a package, nothing.
 *   All lines between two packages share one channel.
 * - Ranks that share a core take turns. The total bandwidth of an L3 or a node has no price.
 * - Between hosts nothing is measured: the transport names the time of a message.
 */
#include "model.h"
#include "topology/machine/host.h"

/* A copy between ranks that take turns on a core finds the caches filled by the other ranks.
 * Measured on 2 cores with 4 and 8 ranks. Arithmetic hides the same in additions. */
static const double CROWDED_COPY = 2;

/* A line that many cores of another package read goes to one core after the other. A broadcast took
 * 0.22 us to the 24 ranks of one package and 0.71 to the 48 of two (XHC, Cascade Lake). */
static const double TURN_US = 0.02;

/* A step without lines or a message: what exec takes for an op. Measured: 4 to 11 ns. */
static const double OP_US = 0.01;

void kolo_model_init(struct kolo_model *model, const struct kolo_costs *costs, int nranks,
                     int nhosts, int npools, const struct kolo_place *place)
{
    *model = (struct kolo_model){
        .costs = *costs, .nranks = nranks, .nhosts = nhosts, .npools = npools, .place = place};
    /* Not where only the ranks of several containers crowd their cores: there hierarchies, which copy
     * more within a host, and send less, were measured to be faster (perf/RESULTS.md). */
    if (kolo_model_cores(model) < nranks && (double)costs->cores * nhosts < nranks) {
        model->costs.copy_us_per_byte *= CROWDED_COPY;
        for (size_t i = 0; i < KOLO_LENGTH(model->costs.far); i++) {
            model->costs.far[i].copy_us_per_byte *= CROWDED_COPY;
        }
    }
}

/* ---- links ---- */

static struct kolo_link_price shared_memory(const struct kolo_costs *costs)
{
    return (struct kolo_link_price){
        .latency_us = costs->latency_us, .us_per_byte = costs->copy_us_per_byte, .by_core = true};
}

/* Beyond an L3 a line takes longer to come, and so do the steps that wait for lines. Two ranks of
 * one core are as near as two ranks of one L3: the core's price already has their turns. */
static void make_far(const struct kolo_costs *costs, int at, struct kolo_link_price *out)
{
    const struct kolo_far *far = &costs->far[at];
    const double more_us = far->copy_us_per_byte - costs->copy_us_per_byte;
    if (far->latency_us > costs->latency_us) {
        out->latency_us = far->latency_us;
        out->far_step_us = costs->step_us * (far->latency_us / costs->latency_us - 1);
    }
    out->far_us_per_byte = more_us > 0 ? more_us : 0;
}

static const struct kolo_place *place_of(const struct kolo_model_machine *m, int rank)
{
    return &m->model->place[m->rank != NULL ? m->rank[rank] : rank];
}

static int package_index(const struct kolo_model_machine *m, int package)
{
    int at = 0;
    while (at < m->npackages && m->package[at] != package) {
        at++;
    }
    return at;
}

static void link_in_host(const struct kolo_model_machine *m, int from, int to,
                         struct kolo_link_price *out)
{
    const struct kolo_costs *costs = &m->model->costs;
    const struct kolo_place *a = place_of(m, from), *b = place_of(m, to);
    const enum kolo_near near = kolo_near_of(a, b);
    const int at = near == KOLO_NEAR_UNKNOWN ? costs->unbound - 1 : (int)near - KOLO_NEAR_NUMA;
    *out = shared_memory(costs);
    if (at >= 0) {
        make_far(costs, at, out);
    }
    if (near == KOLO_NEAR_HOST && m->machine.channels > 0) {
        const int i = package_index(m, a->package), k = package_index(m, b->package);
        out->channel = 1 + i * m->npackages + k;
        out->channel_us_per_byte = costs->cross_us_per_byte;
        out->turn_us = TURN_US;
    }
}

/* A core's time for a message between hosts, at either end, is a quarter of the latency if nobody
 * says more: a send over TCP took 4.3 of 15 us, and over InfiniBand 0.2 to 0.3 of 1.3 are usual. */
double kolo_model_message_us(const struct kolo_costs *costs)
{
    return costs->net_message_us > 0 ? costs->net_message_us : costs->net.latency_us / 4;
}

/* Such a message. Its time is all that the step takes. */
static struct kolo_link_price network(const struct kolo_costs *costs)
{
    const double latency_us = costs->net.latency_us, message_us = kolo_model_message_us(costs);
    return (struct kolo_link_price){
        .latency_us = costs->net_message_us > 0 ? latency_us : latency_us / 2,
        .message_us = message_us > costs->step_us ? message_us - costs->step_us : 0,
        .us_per_byte = costs->net.copy_us_per_byte,
        .copy_us_per_byte = costs->net_copy_us_per_byte,
        .sum_us_per_byte = costs->net_sum_us_per_byte,
        .rendezvous_bytes = costs->net_rendezvous_bytes,
        .by_core = false};
}

static int host_of(const struct kolo_model_machine *m, int rank)
{
    const struct kolo_model *model = m->model;
    if (model->host == NULL) { /* dealt in blocks, as launchers do */
        return (int)((long)rank * model->nhosts / m->nranks);
    }
    return model->host[m->rank != NULL ? m->rank[rank] : rank];
}

/* The ranks of a host share its network interface. */
static int port_of(const void *ctx, int rank)
{
    const struct kolo_model_machine *m = ctx;
    return m->rank != NULL ? m->port[rank] : host_of(m, rank) % m->nranks;
}

/* The ranks of a stand-in may lie on any hosts of many, so hosts' numbers are no ports. */
static void find_ports(struct kolo_model_machine *m)
{
    for (int r = 0; m->rank != NULL && r < m->nranks; r++) {
        m->port[r] = 0;
        while (host_of(m, m->port[r]) != host_of(m, r)) {
            m->port[r]++;
        }
    }
}

static void link_between(const void *ctx, int from, int to, struct kolo_link_price *out)
{
    const struct kolo_model_machine *m = ctx;
    if (m->model->by_messages || host_of(m, from) != host_of(m, to)) {
        *out = network(&m->model->costs);
    } else if (m->model->place != NULL) {
        link_in_host(m, from, to, out);
    } else {
        *out = shared_memory(&m->model->costs);
        if (m->model->costs.unbound > 0) {
            make_far(&m->model->costs, m->model->costs.unbound - 1, out);
        }
    }
}

/* The cores that make `nranks` ranks as crowded as the communicator is. 0: each rank has a core. */
static int cores_for(const struct kolo_model *model, int nranks)
{
    const double cores = kolo_model_cores(model);
    if (cores >= model->nranks) {
        return 0;
    }
    const int scaled = (int)(cores * nranks / model->nranks + 0.5);
    return scaled > 0 ? scaled : 1;
}

/* Find the packages of the ranks. There are channels only if the packages of all ranks are known
 * and few. */
static void find_packages(struct kolo_model_machine *m)
{
    for (int r = 0; m->model->place != NULL && r < m->nranks; r++) {
        const int package = place_of(m, r)->package;
        if (package_index(m, package) < m->npackages) {
            continue;
        }
        if (package < 0 || m->npackages == KOLO_MODEL_PACKAGES) {
            m->npackages = 0;
            return;
        }
        m->package[m->npackages++] = package;
    }
}

void kolo_model_machine(const struct kolo_model *model, int nranks, const int *rank,
                        struct kolo_model_machine *out)
{
    const struct kolo_costs *costs = &model->costs;
    *out = (struct kolo_model_machine){.model = model, .nranks = nranks, .rank = rank};
    find_packages(out);
    find_ports(out);
    const bool alike =
        model->nhosts == 1 && model->place == NULL && costs->unbound == 0 && !model->by_messages;
    const bool cross = model->nhosts == 1 && out->npackages > 1;
    /* Within a host, steps, joined copies and passes cost what was fitted to all collectives of two
     * ranks. */
    const bool between = kolo_model_is_between(model);
    const double local = kolo_local_us_per_byte(costs);
    out->machine =
        (struct kolo_machine){.link = shared_memory(costs),
                              .link_of = alike ? NULL : link_between,
                              .port_of = model->nhosts > 1 ? port_of : NULL,
                              .ctx = out,
                              .copy_us_per_byte = costs->copy_us_per_byte,
                              .reduce_us_per_byte = costs->reduce_us_per_byte,
                              .step_us = costs->step_us,
                              .local_step_us = between ? OP_US : costs->step_us,
                              .stage_us_per_byte = local,
                              .joined_us_per_byte = between ? local : costs->copy_us_per_byte,
                              .switch_us = costs->switch_us,
                              .cores = cores_for(model, nranks),
                              .channels = cross ? out->npackages * out->npackages : 0,
                              .outboxes = true,
                              .whole_passes = between};
}
