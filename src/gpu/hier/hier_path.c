// SPDX-License-Identifier: Apache-2.0
/* The groups of a communicator and its two layers: finding, opening, failing, closing. */
#include "core/failure/failure.h"
#include "gpu/hier/inner.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- groups ---- */

static int first_in_group(int q, kolo_hier_is_near *is_near, const void *who)
{
    int r = 0;
    while (r < q && !is_near(who, q, r)) {
        r++;
    }
    return r;
}

static bool groups_fit(int nranks, kolo_hier_is_near *is_near, const void *who, const int *group)
{
    for (int q = 0; q < nranks; q++) {
        for (int r = 0; r < q; r++) {
            if (is_near(who, q, r) != (group[q] == group[r])) {
                return false;
            }
        }
    }
    return true;
}

bool kolo_hier_path_cut(int nranks, int most, kolo_hier_is_near *is_near, const void *who,
                        int *group_out)
{
    int groups = 0, size = 0;
    for (int q = 0; q < nranks; q++) {
        const int first = first_in_group(q, is_near, who);
        group_out[q] = first < q ? group_out[first] : groups++;
        size += group_out[q] == 0;
    }
    for (int g = 0; g < groups; g++) {
        int members = 0;
        for (int q = 0; q < nranks; q++) {
            members += group_out[q] == g;
        }
        if (members != size) {
            return false;
        }
    }
    return groups > 1 && size > 1 && size <= most && groups_fit(nranks, is_near, who, group_out);
}

/* ---- opening and closing ---- */

/* Fill the tables of groups and places. Returns this rank's place in its group. */
static int lay_out(struct kolo_hier_path *l, const int *group, int size)
{
    const int n = l->comm->ranks.nranks;
    int mine = 0;
    l->in_order = true;
    for (int q = 0; q < n; q++) {
        int place = 0;
        for (int r = 0; r < q; r++) {
            place += group[r] == group[q];
        }
        l->group_of[q] = group[q];
        l->rank_of[group[q] * size + place] = q;
        l->in_order = l->in_order && group[q] * size + place == q;
        mine = q == l->comm->ranks.rank ? place : mine;
    }
    return mine;
}

static kolo_status split_layer(struct kolo_hier_path *l, const char *layer, const int at[2],
                               struct kolo_comm **out)
{
    const struct kolo_comm *c = l->comm;
    struct kolo_config config = KOLO_CONFIG_INIT;
    char name[sizeof c->ranks.name];
    (void)snprintf(name, sizeof name, "%.24s %s", c->ranks.name, layer);
    config.deterministic = c->options.deterministic;
    config.timeout_ms = c->options.timeout_ms;
    if (out == &l->inter && c->options.timeout_ms < INT_MAX - KOLO_HIER_GRACE_MS) {
        config.timeout_ms += KOLO_HIER_GRACE_MS;
    }
    config.device = c->options.cuda_ordinal;
    config.name = name;
    config.algo = "";
    config.transport = c->options.transport_text;
    return l->env.split(l->comm, at[0], at[1], &config, out);
}

/* Whether all ranks were successful so far. */
static kolo_status agree_on(struct kolo_comm *c, bool mine, bool *all_out)
{
    const int32_t lacks = !mine;
    int32_t any = 0;
    KOLO_TRY(kolo_all_reduce(&lacks, &any, 1, KOLO_INT32, KOLO_MAX, c, NULL));
    *all_out = any == 0;
    return KOLO_OK;
}

static bool make_scratch(struct kolo_hier_path *l, const struct kolo_gpu *gpu)
{
    kolo_status st = kolo_gpu_enter(gpu);
    if (st == KOLO_OK) {
        st = kolo_gpu_pool_take(gpu->pool, KOLO_GPU_MEMORY, KOLO_HIER_SCRATCH_BYTES, &l->block);
        kolo_gpu_leave(gpu);
    }
    l->scratch = st == KOLO_OK ? l->block->at : 0;
    return st == KOLO_OK;
}

/* No call of the layers runs any more. */
void kolo_hier_path_drop(struct kolo_hier_path *l, const struct kolo_gpu *gpu)
{
    kolo_gpu_pool_give(gpu->pool, l->block);
    l->env.destroy(l->inter);
    l->env.destroy(l->intra);
    pthread_mutex_destroy(&l->order);
    pthread_mutex_destroy(&l->gate);
    free(l->rank_of);
    free(l->group_of);
    free(l);
}

/* Whether the calls inside a group need no host. */
static bool group_needs_no_host(const struct kolo_hier_path *l)
{
    const enum kolo_hier_way way = l->calls->way(l->intra);
    return way == KOLO_HIER_FUSED || way == KOLO_HIER_P2P;
}

/* Open the layers step by step. A step begins only if all ranks were successful in the step before;
 * otherwise calls go in one layer. */
static kolo_status open_layers(struct kolo_hier_path *l, const struct kolo_gpu *gpu,
                               const int at[2], bool *up_out)
{
    const int back[2] = {at[1], at[0]};
    bool good = split_layer(l, "intra", at, &l->intra) == KOLO_OK && group_needs_no_host(l) &&
                make_scratch(l, gpu);
    KOLO_TRY(agree_on(l->comm, good, &good));
    if (good) {
        good = split_layer(l, "inter", back, &l->inter) == KOLO_OK;
        KOLO_TRY(agree_on(l->comm, good, &good));
    }
    *up_out = good;
    return KOLO_OK;
}

static void say_layers(const struct kolo_hier_path *l)
{
    const bool shares = l->calls->way(l->intra) == KOLO_HIER_FUSED;
    const enum kolo_hier_way inter = l->calls->way(l->inter);
    KOLO_LOG(
        INFO, INIT,
        "GPU %d: hierarchical path: %d groups of %d %s; of a call of %zu bytes or more, 1/%d goes "
        "from group to group (%s), and the rest stays inside",
        l->comm->options.cuda_ordinal, kolo_hier_groups(l), kolo_hier_size(l),
        shares ? "ranks on a GPU" : "GPUs", l->least_bytes, kolo_hier_size(l),
        inter == KOLO_HIER_P2P    ? "over NVLink or PCIe"
        : inter == KOLO_HIER_HIER ? "in layers again"
                                  : "through host memory");
}

kolo_status kolo_hier_path_open(const struct kolo_hier_env *env, const int *group,
                                size_t least_bytes, struct kolo_hier_path **out)
{
    struct kolo_comm *comm = env->path->comm;
    const struct kolo_gpu *gpu = env->gpu;
    const size_t n = (size_t)comm->ranks.nranks;
    struct kolo_hier_path *l = calloc(1, sizeof *l);
    bool up = false;
    int size = 0;
    if (l == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for layers");
    }
    l->comm = comm;
    l->env = *env->path;
    l->calls = env->calls;
    l->least_bytes = least_bytes;
    l->rank_of = calloc(n, sizeof *l->rank_of);
    l->group_of = calloc(n, sizeof *l->group_of);
    pthread_mutex_init(&l->order, NULL);
    pthread_mutex_init(&l->gate, NULL);
    for (size_t q = 0; q < n; q++) {
        size += group[q] == group[0];
    }
    kolo_status st = KOLO_ERR_SYSTEM;
    if (l->rank_of != NULL && l->group_of != NULL) {
        const int at[2] = {group[comm->ranks.rank], lay_out(l, group, size)};
        st = open_layers(l, gpu, at, &up);
    }
    if (up) {
        say_layers(l);
        *out = l;
        return KOLO_OK;
    }
    KOLO_LOG(INFO, INIT, "GPU %d: no hierarchical path, because a rank could not open it",
             comm->options.cuda_ordinal);
    kolo_hier_path_drop(l, gpu);
    return st;
}

/* ---- failures ---- */

/* The rank of the communicator above for a rank of a layer. Ranks above that are not in the layer
 * are numbered behind the layer's own ranks. */
static int rank_above(const struct kolo_hier_path *l, const struct kolo_comm *layer, int rank)
{
    if (rank < 0 || rank >= layer->ranks.nranks) {
        return rank < 0 ? -1 : rank - layer->ranks.nranks;
    }
    return layer == l->intra ? kolo_hier_rank_at(l, l->group_of[l->comm->ranks.rank], rank)
                             : kolo_hier_rank_at(l, rank, l->intra->ranks.rank);
}

static int rank_below(const struct kolo_hier_path *l, const struct kolo_comm *layer, int rank)
{
    for (int q = 0; q < layer->ranks.nranks; q++) {
        if (rank_above(l, layer, q) == rank) {
            return q;
        }
    }
    return rank < 0 ? -1 : layer->ranks.nranks + rank;
}

/* The failure of a layer ends the communicator above it. */
static void end_above(void *owner, const struct kolo_verdict *why)
{
    const struct kolo_hier_tie *tie = owner;
    const struct kolo_hier_path *l = tie->path;
    const struct kolo_comm *layer = tie->layer;
    struct kolo_comm *c = l->comm;
    if (atomic_load(&c->failure.error) != KOLO_OK) {
        return; /* this communicator's failure has ended the layer */
    }
    const bool intra = layer == l->intra;
    const int rank = rank_above(l, layer, why->rank);
    const kolo_status st = (kolo_status)why->status;
    (void)kolo_fail(st, "%s, of which rank 0 is rank %d and rank %d is rank %d here: %s",
                    intra ? "in this rank's group" : "between the groups", rank_above(l, layer, 0),
                    layer->ranks.nranks - 1, rank_above(l, layer, layer->ranks.nranks - 1),
                    layer->failure.text);
    (void)kolo_failure_end(c, st, rank);
}

void kolo_hier_path_abort(struct kolo_hier_path *l)
{
    struct kolo_comm *const layer[] = {l->intra, l->inter};
    pthread_mutex_lock(&l->gate);
    for (int i = 0; i < 2 && !l->closed; i++) {
        const struct kolo_verdict *why = &l->comm->failure.verdict;
        kolo_error_set(l->comm->failure.text);
        (void)kolo_failure_end(layer[i], (kolo_status)why->status,
                               rank_below(l, layer[i], why->rank));
    }
    pthread_mutex_unlock(&l->gate);
}

/* ---- joining, and leaving ---- */

void kolo_hier_path_join(struct kolo_hier_path *l, struct kolo_proxy *proxy)
{
    struct kolo_comm *const layer[] = {l->intra, l->inter};
    l->proxy = proxy;
    l->gpu = kolo_proxy_gpu(proxy);
    for (int i = 0; i < 2; i++) {
        atomic_store(&layer[i]->failure.ranks_above, l->comm->ranks.nranks);
        l->calls->widen(layer[i], l->comm->ranks.nranks);
        atomic_store(&layer[i]->failure.is_part, true);
        l->tie[i] = (struct kolo_hier_tie){l, layer[i]};
        kolo_failure_observe(layer[i], end_above, &l->tie[i]);
    }
    if (atomic_load(&l->comm->failure.error) != KOLO_OK) {
        kolo_hier_path_abort(l);
    }
}

static void abort_layers(void *arg)
{
    struct kolo_hier_path *l = arg;
    kolo_comm_abort(l->intra);
    kolo_comm_abort(l->inter);
}

void kolo_hier_path_close(struct kolo_hier_path *l, int timeout_ms)
{
    if (!kolo_proxy_drain(l->proxy, timeout_ms, KOLO_HIER_GRACE_MS, abort_layers, l)) {
        l->block = NULL; /* memory that is still used stays with the driver */
    }
    pthread_mutex_lock(&l->gate);
    l->closed = true;
    pthread_mutex_unlock(&l->gate);
    kolo_hier_path_drop(l, l->gpu);
}
