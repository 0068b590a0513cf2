// SPDX-License-Identifier: Apache-2.0
/* What the log says of a new communicator: who, which rings and trees, how long it took. */
#include "core/path.h"
#include "core/setup/join.h"
#include "exec/cpu/region.h"
#include "exec/reduce/reduce.h"
#include "topology/draw/lines.h"

#include <stdio.h>

/* ---- the log of a new communicator ---- */

/* A channel for each ring and each tree that runs at once: two trees where none are planned. */
static int channels_of(const struct kolo_comm *c)
{
    const int lanes = c->layout.nrings < KOLO_LANES ? c->layout.nrings : KOLO_LANES;
    const int trees = c->layout.ntrees > 0 ? c->layout.ntrees : 2;
    return lanes < trees ? trees : lanes;
}

static const int *ring_of(const struct kolo_comm *c, int channel)
{
    return c->layout.order + (size_t)(channel % c->layout.nrings) * (size_t)c->ranks.nranks;
}

static void log_text(struct kolo_text *text)
{
    KOLO_LOG(INFO, INIT, "%s", text->chars != NULL ? text->chars : "");
    kolo_text_free(text);
}

/* What this rank sends to next on a ring. */
static void log_edge(const struct kolo_comm *c, int channel)
{
    const int *ring = ring_of(c, channel);
    struct kolo_text text = {0};
    char via[96];
    int at = 0;
    while (ring[at] != c->ranks.rank) {
        at++;
    }
    const int next = ring[(at + 1) % c->ranks.nranks];
    const struct kolo_reach *reach = &c->member[next].reach;
    (void)snprintf(via, sizeof via, "%s%s",
                   reach->nvias > 0 ? reach->vias[channel % reach->nvias] : reach->via,
                   kolo_path_via(c, next));
    const struct kolo_edge edge = {.channel = channel,
                                   .connection = 0,
                                   .from = c->ranks.rank,
                                   .from_device = c->ranks.local_rank,
                                   .to = next,
                                   .to_device = next,
                                   .via = via};
    if (next != c->ranks.rank) {
        kolo_line_edge(&text, &edge);
        KOLO_LOG(INFO, SHM, "%s", text.chars != NULL ? text.chars : "");
        kolo_text_free(&text);
    }
}

static void log_layout(const struct kolo_comm *c)
{
    const int channels = channels_of(c);
    struct kolo_text text = {0};
    struct kolo_tree trees[2]; /* over the first ring, where none are planned */
    for (int channel = 0; channel < channels && c->ranks.rank == 0; channel++) {
        kolo_line_ring(&text, channel, channels, c->ranks.nranks, ring_of(c, channel));
        log_text(&text);
    }
    if (c->ranks.rank == 0) {
        kolo_line_groups(&text, c->ranks.nranks, &c->layout.groups);
        log_text(&text);
    }
    for (int t = 0; t < 2; t++) {
        kolo_tree_build(c->ranks.nranks, c->layout.order, t, c->ranks.rank, &trees[t]);
    }
    kolo_line_trees(&text, c->ranks.rank, c->layout.ntrees > 0 ? c->layout.ntrees : 2,
                    c->layout.ntrees > 0 ? c->layout.branch : trees);
    log_text(&text);
    for (int channel = 0; channel < channels; channel++) {
        log_edge(c, channel);
    }
}

/* Only where ranks are far from each other. */
static void log_far_costs(const struct kolo_comm *c)
{
    const struct kolo_far *far = c->selection.costs.far;
    if (c->layout.groups.nlevels > 0) {
        KOLO_LOG(INFO, TUNE,
                 "costs beyond an L3: flag %.2g us, a NUMA node %.2g us, a package %.2g us; copy "
                 "%.2g, %.2g, %.2g GB/s, between packages %.2g GB/s",
                 far[0].latency_us, far[1].latency_us, far[2].latency_us,
                 1e-3 / far[0].copy_us_per_byte, 1e-3 / far[1].copy_us_per_byte,
                 1e-3 / far[2].copy_us_per_byte, 1e-3 / c->selection.costs.cross_us_per_byte);
    }
}

void kolo_log_start(const struct kolo_comm *c)
{
    static _Atomic int told;
    if (c->ranks.rank == 0 && atomic_exchange(&told, 1) == 0 &&
        kolo_log_on(KOLO_LEVEL_VERSION, KOLO_SUB_INIT)) {
        kolo_log_print(KOLO_LEVEL_VERSION, "kolo version %d.%d.%d", KOLO_VERSION_MAJOR,
                       KOLO_VERSION_MINOR, KOLO_VERSION_PATCH);
    }
    KOLO_LOG(INFO, INIT, "kolo_comm_create comm %p rank %d nranks %d name %s - Init START",
             (const void *)c, c->ranks.rank, c->ranks.nranks, c->ranks.name);
}

void kolo_log_done(const struct kolo_comm *c, const double at[5])
{
    if (!kolo_log_on(KOLO_LEVEL_INFO, KOLO_SUB_INIT)) {
        return;
    }
    KOLO_LOG(INFO, INIT, "comm %p rank %d nRanks %d nNodes %d localRanks %d localRank %d",
             (const void *)c, c->ranks.rank, c->ranks.nranks, c->ranks.nhosts, c->ranks.local_size,
             c->ranks.local_rank);
    log_layout(c);
    if (c->ranks.rank == 0 && c->ranks.nranks > 1) {
        const struct kolo_costs *costs = &c->selection.costs;
        const double copy_gbs = 1e-3 / costs->copy_us_per_byte;
        const double sum_gbs = 1e-3 / costs->reduce_us_per_byte;
        KOLO_LOG(INFO, TUNE,
                 "costs: %d cores, flag %.2g us, copy %.*g GB/s, sum %.*g GB/s, switch %.*g us, "
                 "kernels %s",
                 costs->cores, costs->latency_us, kolo_digits(copy_gbs, 2), copy_gbs,
                 kolo_digits(sum_gbs, 2), sum_gbs, kolo_digits(costs->switch_us, 2),
                 costs->switch_us, kolo_reduce_isa());
        log_far_costs(c);
    }
    KOLO_LOG(
        INFO, INIT,
        "Init timings: rank %d nranks %d total %.2f ms (meet %.2f, addresses %.2f, regions %.2f, "
        "costs and choice %.2f)",
        c->ranks.rank, c->ranks.nranks, (at[4] - at[0]) / 1e3, (at[1] - at[0]) / 1e3,
        (at[2] - at[1]) / 1e3, (at[3] - at[2]) / 1e3, (at[4] - at[3]) / 1e3);
    KOLO_LOG(INFO, INIT, "comm %p rank %d nranks %d commId 0x%llx region %zu bytes - Init COMPLETE",
             (const void *)c, c->ranks.rank, c->ranks.nranks, (unsigned long long)c->ranks.id,
             kolo_region_bytes(c->links.exec_env.phases));
}
