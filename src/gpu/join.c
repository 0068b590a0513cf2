// SPDX-License-Identifier: Apache-2.0
/* Opening and closing the GPU path of a communicator. Each rank tells all ranks which GPU it has
 * and what it can do. From that, all ranks choose the same ways. */
#include "gpu/inner.h"
#include "gpu/options.h"

#include <stdlib.h>
#include <string.h>

/* ---- what each rank can do ---- */

struct intro { /* what a rank tells all ranks of its GPU */
    int32_t status, ordinal;
    uint32_t kernels; /* 1: kolo has kernels for GPUs here */
    uint32_t copies;  /* 1: its kernels may copy between a GPU and the host */
    uint32_t opens;   /* 1: it may open memory of other processes */
    uint32_t stores;  /* 1: its kernels may store to memory of other GPUs */
    uint32_t hier;    /* 1: calls may use the hierarchical way, */
    uint64_t least;   /* from this number of bytes on */
    unsigned char uuid[16];
};

/* With CUDA_LAUNCH_BLOCKING=1 a launch returns when the kernel is over. The kernel may wait for one
 * that this very thread would launch next. */
static bool launches_block(const struct kolo_comm *c)
{
    const char *text = getenv("CUDA_LAUNCH_BLOCKING");
    const bool block = text != NULL && text[0] != '\0' && strcmp(text, "0") != 0;
    if (block) {
        KOLO_LOG(WARN, INIT,
                 "GPU %d: CUDA_LAUNCH_BLOCKING is set, and kernels that wait for other ranks would "
                 "wait for ever; calls go through host memory",
                 c->options.cuda_ordinal);
    }
    return block;
}

/* A failure is told to all ranks, so that none waits for this one. */
static struct intro describe_gpu(const struct kolo_comm *c, struct kolo_gpu_options *options,
                                 struct kolo_gpu *gpu)
{
    const bool blocks = launches_block(c);
    struct intro intro = {.status = kolo_gpu_options_read(options),
                          .ordinal = c->options.cuda_ordinal};
    if (intro.status == KOLO_OK) {
        intro.status = kolo_gpu_open(c->options.cuda_ordinal, gpu);
    }
    intro.kernels = kolo_gpu_has_kernels();
    intro.copies = !blocks && intro.kernels;
    intro.opens = !blocks && options->ipc;
    intro.stores = !blocks && intro.kernels && options->p2p;
    intro.hier = !blocks && intro.kernels && options->hier;
    intro.least = options->hier_bytes;
    memcpy(intro.uuid, gpu->uuid, sizeof intro.uuid);
    return intro;
}

struct shared { /* what all ranks have in common */
    bool gpu, process, opens;
    bool stores; /* all are on one host, each on its own GPU, and may store to the other GPUs */
};

static struct shared what_is_shared(const struct kolo_comm *c, const struct intro *all)
{
    struct shared shared = {true, true, true,
                            c->ranks.nranks > 1 && c->ranks.nranks <= KOLO_PROGRAM_RANKS};
    for (int q = 0; q < c->ranks.nranks; q++) {
        const struct kolo_peer *peer = &c->member[q].peer, *first = &c->member[0].peer;
        shared.gpu = shared.gpu && peer->host == first->host &&
                     memcmp(all[q].uuid, all[0].uuid, sizeof all[q].uuid) == 0;
        shared.process = shared.process && peer->process == first->process;
        shared.opens = shared.opens && all[q].opens;
        shared.stores = shared.stores && all[q].stores && peer->host == first->host;
        for (int r = 0; r < q; r++) {
            const bool other = memcmp(all[q].uuid, all[r].uuid, sizeof all[q].uuid) != 0;
            shared.stores = shared.stores && other;
        }
    }
    shared.stores = shared.stores && (shared.process || shared.opens);
    return shared;
}

/* A communicator of the same ranks for host memory. It adds in the order of the kernels, so the
 * bits of a result do not depend on the way of a call. */
static kolo_status make_host(struct kolo_gpu_path *p, struct kolo_comm **out)
{
    struct kolo_comm *c = p->comm;
    struct kolo_config config = KOLO_CONFIG_INIT;
    config.deterministic = 1;
    config.timeout_ms = c->options.timeout_ms;
    config.device = KOLO_HOST;
    config.name = c->ranks.name;
    config.algo = "";
    config.transport = c->options.transport_text;
    return p->env.split(c, 0, c->ranks.rank, &config, out);
}

/* What the proxy needs of kernels. */
static kolo_status load_for_proxy(struct kolo_gpu *gpu, bool fuses, bool copies)
{
    KOLO_TRY(kolo_gpu_enter(gpu));
    const kolo_status st = fuses ? kolo_gpu_load(gpu) : KOLO_OK;
    if (copies && st == KOLO_OK) {
        kolo_gpu_load_copies(gpu);
    }
    kolo_gpu_leave(gpu);
    return st;
}

static kolo_status join_proxy(struct kolo_gpu_path *p, struct kolo_gpu *gpu, bool fuses,
                              bool copies)
{
    struct kolo_comm *host = NULL, *desk = NULL;
    KOLO_TRY(load_for_proxy(gpu, fuses && p->comm->ranks.rank == 0, copies));
    KOLO_TRY(make_host(p, &host));
    const kolo_status st = fuses ? make_host(p, &desk) : KOLO_OK;
    if (st != KOLO_OK) {
        p->env.destroy(host);
        return st;
    }
    return kolo_proxy_open(&p->env, host, desk, gpu, &p->proxy);
}

/* The driver reads the variable when the GPU's context is made: too early for kolo to set it. */
static void warn_of_queues(const struct kolo_comm *c)
{
    enum { DEFAULT = 8, MOST = 32, OTHERS = 2 /* of the application */ };
    const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    const int queues = text != NULL && atoi(text) > 0 ? atoi(text) : DEFAULT;
    if (c->ranks.rank == 0 && queues < MOST && c->ranks.nranks + OTHERS > queues) {
        KOLO_LOG(WARN, INIT,
                 "GPU %d: %d ranks of one process share %d hardware queues, in which a stream that "
                 "waits holds up those behind it; graphs of these ranks can hang. Set "
                 "CUDA_DEVICE_MAX_CONNECTIONS=%d before the first call of CUDA",
                 c->options.cuda_ordinal, c->ranks.nranks, queues, MOST);
    }
}

static kolo_status join_fused(struct kolo_gpu_path *p)
{
    const struct kolo_comm *c = p->comm;
    warn_of_queues(c);
    return kolo_fused_path_join(c->ranks.id, c->ranks.nranks, c->ranks.rank,
                                c->options.cuda_ordinal, &p->fused);
}

static kolo_status join_p2p(struct kolo_gpu_path *p, struct kolo_gpu *gpu, const struct intro *all,
                            const struct kolo_gpu_options *options)
{
    unsigned char uuid[KOLO_PROGRAM_RANKS][16];
    for (int q = 0; q < p->comm->ranks.nranks; q++) {
        memcpy(uuid[q], all[q].uuid, sizeof uuid[q]);
    }
    return kolo_p2p_path_open(p->comm, gpu, (const unsigned char(*)[16])uuid, options, &p->p2p);
}

struct ranks { /* the argument of the relations between ranks */
    const struct kolo_comm *comm;
    const struct intro *intro;
};

static bool are_on_one_host(const void *who, int q, int r)
{
    const struct ranks *all = who;
    const struct kolo_peer *a = &all->comm->member[q].peer, *b = &all->comm->member[r].peer;
    const struct intro *x = &all->intro[q], *y = &all->intro[r];
    return a->host == b->host && memcmp(x->uuid, y->uuid, sizeof x->uuid) != 0 && x->stores != 0 &&
           y->stores != 0 && (a->process == b->process || (x->opens != 0 && y->opens != 0));
}

static bool are_on_one_gpu(const void *who, int q, int r)
{
    const struct ranks *all = who;
    const struct kolo_peer *a = &all->comm->member[q].peer, *b = &all->comm->member[r].peer;
    return a->host == b->host && a->process == b->process &&
           memcmp(all->intro[q].uuid, all->intro[r].uuid, sizeof all->intro[q].uuid) == 0;
}

/* *out NULL: the ranks form no groups, and calls go in one layer. */
static kolo_status join_hier(struct kolo_gpu_path *p, struct kolo_gpu *gpu, const struct intro *all,
                             struct kolo_hier_path **out)
{
    const struct kolo_comm *c = p->comm;
    const struct ranks who = {c, all};
    bool may = c->ranks.nranks > 1;
    size_t least = 0;
    for (int q = 0; q < c->ranks.nranks; q++) {
        may = may && all[q].hier != 0;
        least = kolo_max(least, all[q].least);
    }
    int *group = calloc((size_t)c->ranks.nranks, sizeof *group);
    if (group == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", c->ranks.nranks);
    }
    may = may &&
          (kolo_hier_path_cut(c->ranks.nranks, KOLO_PROGRAM_RANKS, are_on_one_host, &who, group) ||
           kolo_hier_path_cut(c->ranks.nranks, KOLO_FUSED_RANKS, are_on_one_gpu, &who, group));
    const struct kolo_hier_env layers = {&p->env, &kolo_gpu_hier_calls, gpu};
    const kolo_status st = may ? kolo_hier_path_open(&layers, group, least, out) : KOLO_OK;
    free(group);
    return st;
}

/* Load the kernels that this communicator or a later one of some of its ranks may need. Loading
 * them later would wait for the calls of this one. */
static void load_early(const struct kolo_comm *c, const struct kolo_gpu *gpu,
                       const struct intro *all)
{
    const int me = c->ranks.rank;
    bool fused = false, stores = false;
    for (int q = 0; q < c->ranks.nranks && all[me].kernels != 0; q++) {
        const bool same = memcmp(all[q].uuid, all[me].uuid, sizeof all[q].uuid) == 0;
        const bool here = q != me && c->member[q].peer.host == c->member[me].peer.host;
        fused = fused || (here && same && all[me].opens != 0);
        stores = stores || (here && !same && all[me].stores != 0 && all[q].stores != 0);
    }
    if ((fused || stores) && kolo_gpu_enter(gpu) == KOLO_OK) {
        if (fused) {
            kolo_gpu_load_early(gpu, false);
        }
        if (stores) {
            kolo_gpu_load_early(gpu, true);
        }
        kolo_gpu_leave(gpu);
    }
}

static kolo_status join_with(struct kolo_gpu_path *p, struct kolo_gpu *gpu, const struct intro *all,
                             const struct kolo_gpu_options *options)
{
    const struct kolo_comm *c = p->comm;
    const struct shared shared = what_is_shared(c, all);
    const bool fuses = shared.gpu && c->ranks.nranks <= KOLO_FUSED_RANKS && all[0].kernels;
    for (int q = 0; q < c->ranks.nranks; q++) {
        if (all[q].status != KOLO_OK) {
            return kolo_fail(KOLO_ERR_UNSUPPORTED, "rank %d cannot use its GPU %d: %s", q,
                             all[q].ordinal, kolo_status_name((kolo_status)all[q].status));
        }
    }
    if (!shared.stores) { /* else the P2P path loads its kernels, and says what fails */
        load_early(c, gpu, all);
    }
    if (fuses && shared.process) {
        KOLO_LOG(INFO, INIT, "GPU %d: %d ranks, a kernel a call", c->options.cuda_ordinal,
                 c->ranks.nranks);
        return join_fused(p);
    }
    if (shared.stores) {
        KOLO_TRY(join_p2p(p, gpu, all, options));
    }
    if (p->p2p != NULL) {
        return join_proxy(p, gpu, false, true); /* for messages and some v-forms */
    }
    struct kolo_hier_path *layers = NULL;
    if (!(fuses && shared.opens)) {
        KOLO_TRY(join_hier(p, gpu, all, &layers));
    }
    KOLO_LOG(INFO, INIT, "GPU %d: %s%s", c->options.cuda_ordinal, layers != NULL ? "other " : "",
             fuses && shared.opens ? "rank 0 opens the others' memory, a kernel a call"
             : all[0].kernels      ? "calls go through host memory"
                                   : "calls go through host memory; kolo was built without nvcc, "
                                     "so without kernels for GPUs");
    const kolo_status st =
        join_proxy(p, gpu, fuses && shared.opens, all[c->ranks.rank].copies != 0);
    if (layers != NULL && st == KOLO_OK) {
        p->hier = layers;
        kolo_hier_path_join(layers, p->proxy);
    } else if (layers != NULL) {
        kolo_hier_path_drop(layers, gpu);
    }
    return st;
}

static kolo_status join_over_host(struct kolo_gpu_path *p)
{
    struct kolo_comm *c = p->comm;
    struct kolo_gpu gpu = {.pool = NULL};
    struct kolo_gpu_options options = {.ipc = false};
    struct intro *all = calloc((size_t)c->ranks.nranks, sizeof *all);
    if (all == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", c->ranks.nranks);
    }
    const struct intro mine = describe_gpu(c, &options, &gpu);
    kolo_status st = kolo_all_gather(&mine, all, sizeof mine, KOLO_UINT8, c, NULL);
    st = mine.status != KOLO_OK ? (kolo_status)mine.status
         : st == KOLO_OK        ? join_with(p, &gpu, all, &options)
                                : st;
    free(all);
    if (p->proxy == NULL) {
        if (p->p2p != NULL) { /* it uses the proxy's GPU */
            kolo_p2p_path_close(p->p2p, c->options.timeout_ms);
            p->p2p = NULL;
        }
        kolo_gpu_close(&gpu);
    }
    return st;
}

kolo_status kolo_gpu_path_join(const struct kolo_path_env *env, struct kolo_comm_path **out)
{
    struct kolo_gpu_path *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a path to a GPU");
    }
    p->env = *env;
    p->comm = env->comm;
    *out = &p->base;
    return env->local ? join_fused(p) : join_over_host(p);
}

void kolo_gpu_path_leave(struct kolo_comm_path *path, int timeout_ms)
{
    struct kolo_gpu_path *p = (struct kolo_gpu_path *)(void *)path;
    if (p->fused != NULL) {
        kolo_fused_path_leave(p->fused, p->comm->ranks.rank, timeout_ms);
    }
    if (p->p2p != NULL) {
        kolo_p2p_path_close(p->p2p, timeout_ms);
    }
    if (p->hier != NULL) {
        kolo_hier_path_close(p->hier, timeout_ms);
    }
    if (p->proxy != NULL) {
        kolo_proxy_close(p->proxy, timeout_ms);
    }
    free(p);
}

void kolo_gpu_path_abort(struct kolo_comm_path *path)
{
    const struct kolo_gpu_path *p = (struct kolo_gpu_path *)(void *)path;
    if (p->fused != NULL) {
        kolo_fused_path_abort(p->fused);
    }
    if (p->p2p != NULL) {
        kolo_p2p_path_abort(p->p2p);
    }
    if (p->hier != NULL) {
        kolo_hier_path_abort(p->hier);
    }
    if (p->proxy != NULL) {
        kolo_proxy_abort(p->proxy);
    }
}
