// SPDX-License-Identifier: Apache-2.0
/* See hier_path.h. */
#include "gpu/hier/hier_path.h"

#include "gpu/path.h"
#include "gpu/proxy/proxy.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    SCRATCH_BYTES = 8 << 20, /* what does not fit there goes in tiles */
    /* A layer's time-out comes later than what is inside it, which is more exact. */
    FAR_GRACE_MS = 1000
};

struct kolo_layers {
    struct kolo_comm *comm, *near, *far;
    int *rank_of;  /* [groups * size]: of place i of group g in [g * size + i] */
    int *group_of; /* [nranks] */
    bool in_order; /* a group's ranks follow each other, and groups do */
    size_t least_bytes;
    const struct kolo_gpu *gpu;
    kolo_cuda_address scratch;
    pthread_mutex_t order; /* in calls that enqueue: the steps of one stay together */
    pthread_mutex_t gate;  /* while one layer's failure ends the other; of `closed` */
    bool closed;           /* they are being destroyed, one after the other */
};

/* ---- groups ---- */

static int first_near(int q, kolo_layers_near *near, const void *who)
{
    int r = 0;
    while (r < q && !near(who, q, r)) {
        r++;
    }
    return r;
}

static bool fits(int nranks, kolo_layers_near *near, const void *who, const int *group)
{
    for (int q = 0; q < nranks; q++) {
        for (int r = 0; r < q; r++) {
            if (near(who, q, r) != (group[q] == group[r])) {
                return false;
            }
        }
    }
    return true;
}

bool kolo_layers_cut(int nranks, int most, kolo_layers_near *near, const void *who, int *group_out)
{
    int groups = 0, size = 0;
    for (int q = 0; q < nranks; q++) {
        const int first = first_near(q, near, who);
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
    return groups > 1 && size > 1 && size <= most && fits(nranks, near, who, group_out);
}

static int size_of(const struct kolo_layers *l)
{
    return l->near->nranks;
}

static int groups_of(const struct kolo_layers *l)
{
    return l->far->nranks;
}

static int rank_at(const struct kolo_layers *l, int group, int place)
{
    return l->rank_of[group * size_of(l) + place];
}

static int place_of(const struct kolo_layers *l, int rank)
{
    int place = 0;
    while (rank_at(l, l->group_of[rank], place) != rank) {
        place++;
    }
    return place;
}

/* ---- coming up, and going down ---- */

/* Where each rank is, before there are layers. Returns this rank's place. */
static int lay_out(struct kolo_layers *l, const int *group, int size)
{
    const int n = l->comm->nranks;
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
        mine = q == l->comm->rank ? place : mine;
    }
    return mine;
}

static kolo_status split(struct kolo_layers *l, const char *what, const int at[2],
                         struct kolo_comm **out)
{
    const struct kolo_comm *c = l->comm;
    struct kolo_config config = KOLO_CONFIG_INIT;
    char name[sizeof c->name];
    (void)snprintf(name, sizeof name, "%.24s %s", c->name, what);
    config.deterministic = c->deterministic;
    config.timeout_ms = c->timeout_ms;
    if (out == &l->far && c->timeout_ms < INT_MAX - FAR_GRACE_MS) {
        config.timeout_ms += FAR_GRACE_MS;
    }
    config.device = c->device;
    config.name = name;
    config.algo = "";
    config.transport = c->transport_text;
    return kolo_comm_split(l->comm, at[0], at[1], &config, out);
}

/* Whether all ranks have come so far. */
static kolo_status agree(struct kolo_comm *c, bool mine, bool *all_out)
{
    const int32_t lacks = !mine;
    int32_t any = 0;
    KOLO_TRY(kolo_all_reduce(&lacks, &any, 1, KOLO_INT32, KOLO_MAX, c, NULL));
    *all_out = any == 0;
    return KOLO_OK;
}

static bool make_scratch(struct kolo_layers *l, const struct kolo_gpu *gpu)
{
    kolo_status st = kolo_gpu_enter(gpu);
    if (st == KOLO_OK) {
        st = KOLO_CUDA(gpu, "cuMemAlloc", mem_alloc(&l->scratch, SCRATCH_BYTES));
        kolo_gpu_leave(gpu);
    }
    return st == KOLO_OK;
}

/* Nothing of them runs. */
void kolo_layers_drop(struct kolo_layers *l, const struct kolo_gpu *gpu)
{
    if (l->scratch != 0 && kolo_gpu_enter(gpu) == KOLO_OK) {
        (void)gpu->cuda->mem_free(l->scratch);
        kolo_gpu_leave(gpu);
    }
    kolo_comm_destroy(l->far);
    kolo_comm_destroy(l->near);
    pthread_mutex_destroy(&l->order);
    pthread_mutex_destroy(&l->gate);
    free(l->rank_of);
    free(l->group_of);
    free(l);
}

/* Each step, if all ranks have made the one before. A rank that cannot goes on in one layer. */
static kolo_status make(struct kolo_layers *l, const struct kolo_gpu *gpu, const int at[2],
                        bool *up_out)
{
    const int back[2] = {at[1], at[0]};
    bool good = split(l, "near", at, &l->near) == KOLO_OK &&
                (l->near->peers != NULL || l->near->team != NULL) && make_scratch(l, gpu);
    KOLO_TRY(agree(l->comm, good, &good));
    if (good) {
        good = split(l, "far", back, &l->far) == KOLO_OK;
        KOLO_TRY(agree(l->comm, good, &good));
    }
    *up_out = good;
    return KOLO_OK;
}

static void say_layers(const struct kolo_layers *l)
{
    const bool shares = l->near->team != NULL;
    KOLO_LOG(
        INFO, INIT,
        "GPU %d: %d groups of %d %s: of calls from %zu bytes on, 1/%d goes from group to group "
        "(%s), the rest stays inside",
        l->comm->device, groups_of(l), size_of(l), shares ? "ranks on a GPU" : "GPUs",
        l->least_bytes, size_of(l),
        l->far->peers != NULL    ? "over NVLink or PCIe"
        : l->far->layers != NULL ? "in layers again"
                                 : "through host memory");
}

kolo_status kolo_layers_open(struct kolo_comm *comm, const struct kolo_gpu *gpu, const int *group,
                             size_t least_bytes, struct kolo_layers **out)
{
    const size_t n = (size_t)comm->nranks;
    struct kolo_layers *l = calloc(1, sizeof *l);
    bool up = false;
    int size = 0;
    if (l == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for layers");
    }
    l->comm = comm;
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
        const int at[2] = {group[comm->rank], lay_out(l, group, size)};
        st = make(l, gpu, at, &up);
    }
    if (up) {
        say_layers(l);
        *out = l;
        return KOLO_OK;
    }
    KOLO_LOG(INFO, INIT, "GPU %d: some rank could make no layers; calls go in one", comm->device);
    kolo_layers_drop(l, gpu);
    return st;
}

void kolo_layers_join(struct kolo_layers *l)
{
    struct kolo_comm *const layer[] = {l->near, l->far};
    l->gpu = kolo_relay_gpu(l->comm->relay);
    l->comm->layers = l;
    for (int i = 0; i < 2; i++) {
        atomic_store(&layer[i]->ranks_above, l->comm->nranks);
        if (layer[i]->relay != NULL) {
            kolo_relay_widen(layer[i]->relay, l->comm->nranks);
        }
        layer[i]->above = l->comm;
        if (atomic_load(&layer[i]->error) != KOLO_OK) { /* it failed meanwhile */
            kolo_layers_tell(layer[i]);
        }
    }
    if (atomic_load(&l->comm->error) != KOLO_OK) {
        kolo_layers_abort(l);
    }
}

void kolo_layers_close(struct kolo_layers *l, int timeout_ms)
{
    if (!kolo_relay_wait(l->comm->relay, timeout_ms)) {
        kolo_comm_abort(l->near);
        kolo_comm_abort(l->far);
    }
    if (!kolo_relay_wait(l->comm->relay, FAR_GRACE_MS)) {
        l->scratch = 0; /* the driver keeps what is used */
    }
    pthread_mutex_lock(&l->gate);
    l->closed = true;
    pthread_mutex_unlock(&l->gate);
    kolo_layers_drop(l, l->gpu);
}

/* ---- failures ---- */

/* Ranks of the communicator above that are none of the layer's are counted behind its own. */
static int rank_above(const struct kolo_layers *l, const struct kolo_comm *layer, int rank)
{
    if (rank < 0 || rank >= layer->nranks) {
        return rank < 0 ? -1 : rank - layer->nranks;
    }
    return layer == l->near ? rank_at(l, l->group_of[l->comm->rank], rank)
                            : rank_at(l, rank, l->near->rank);
}

static int rank_below(const struct kolo_layers *l, const struct kolo_comm *layer, int rank)
{
    for (int q = 0; q < layer->nranks; q++) {
        if (rank_above(l, layer, q) == rank) {
            return q;
        }
    }
    return rank < 0 ? -1 : layer->nranks + rank;
}

void kolo_layers_tell(struct kolo_comm *layer)
{
    struct kolo_comm *c = layer->above;
    if (atomic_load(&c->error) != KOLO_OK) { /* it is what has ended the layer */
        return;
    }
    const struct kolo_layers *l = c->layers;
    const bool near = layer == l->near;
    const int rank = rank_above(l, layer, layer->verdict.rank);
    const kolo_status st = (kolo_status)layer->verdict.status;
    (void)kolo_fail(st, "%s, of which rank 0 is rank %d and rank %d is rank %d here: %s",
                    near ? "in this rank's group" : "between the groups", rank_above(l, layer, 0),
                    layer->nranks - 1, rank_above(l, layer, layer->nranks - 1), layer->error_text);
    (void)kolo_comm_fail_of(c, st, rank);
}

void kolo_layers_abort(struct kolo_layers *l)
{
    struct kolo_comm *const layer[] = {l->near, l->far};
    pthread_mutex_lock(&l->gate);
    for (int i = 0; i < 2 && !l->closed; i++) {
        const struct kolo_verdict *why = &l->comm->verdict;
        kolo_error_set(l->comm->error_text);
        (void)kolo_comm_fail_of(layer[i], (kolo_status)why->status,
                                rank_below(l, layer[i], why->rank));
    }
    pthread_mutex_unlock(&l->gate);
}

/* ---- which calls ---- */

/* Whether the order of additions or multiplications shows. That of MIN and MAX does not. */
static bool rounds(const struct kolo_gpu_call *call)
{
    const bool adds = call->op == KOLO_SUM || call->op == KOLO_PROD || call->op == KOLO_AVG ||
                      call->op == KOLO_OPS;
    return adds && call->type >= KOLO_FLOAT16 && call->type <= KOLO_FLOAT8_E5M2;
}

static size_t bytes_of(const struct kolo_gpu_call *call, int nranks)
{
    const size_t blocks = kolo_coll_flat(call->coll) ? 1 : (size_t)nranks;
    return call->count * blocks * kolo_type_bytes(call->type);
}

/* An integer's average is rounded once, which two cannot do. A barrier has nothing to spare. */
static bool may_reduce(const struct kolo_layers *l, const struct kolo_gpu_call *call)
{
    return rounds(call) ? l->comm->deterministic == 0 : call->op != KOLO_AVG;
}

bool kolo_layers_take(const struct kolo_layers *l, const struct kolo_gpu_call *call)
{
    if (call->counts != NULL || bytes_of(call, l->comm->nranks) < l->least_bytes) {
        return false;
    }
    return call->coll == KOLO_COLL_ALL_GATHER || call->coll == KOLO_COLL_BROADCAST ||
           (kolo_coll_reduces(call->coll) && may_reduce(l, call));
}

/* ---- steps ---- */

struct step { /* `in` and `out` may be one */
    enum kolo_coll coll;
    const char *in;
    char *out;
    size_t count;
    int root;
};

static kolo_status take_step(struct kolo_comm *layer, const struct kolo_gpu_call *call,
                             const struct step *s)
{
    struct kolo_gpu_call what = *call;
    struct kolo_counts none = {NULL, 0};
    what.coll = s->coll;
    what.in = s->in;
    what.out = s->out;
    what.count = s->count;
    what.root = s->root;
    return s->count > 0 ? kolo_device_enqueue(layer, &what, &none) : KOLO_OK;
}

#define NEAR(l, call, ...) take_step((l)->near, call, &(struct step){__VA_ARGS__})

/* What was multiplied once is only added now. */
static kolo_status go_far(struct kolo_layers *l, const struct kolo_gpu_call *call,
                          const struct step *s)
{
    struct kolo_gpu_call what = *call;
    what.op = call->op == KOLO_OPS ? KOLO_SUM : call->op;
    return take_step(l->far, &what, s);
}

/* An all-gather of `count` elements each, rank q's at displs[q] * count of `out`. */
static kolo_status gather_blocks(struct kolo_comm *layer, const struct kolo_gpu_call *call,
                                 const struct step *s, const int *at, int stride)
{
    const size_t n = (size_t)layer->nranks;
    struct kolo_counts v = {calloc(4 * n, sizeof *v.all), s->count};
    struct kolo_gpu_call what = *call;
    if (v.all == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for counts");
    }
    for (size_t q = 0; q < n; q++) {
        v.all[q] = s->count;
        v.all[n + q] = (size_t)at[q * (size_t)stride] * s->count;
    }
    what.in = s->in;
    what.out = s->out;
    what.count = 0;
    what.counts = v.all;
    what.displs = v.all + n;
    const kolo_status st = kolo_device_enqueue(layer, &what, &v);
    free(v.all);
    return st;
}

/* ---- flat calls ---- */

struct cut { /* of elements that each rank has */
    size_t elem, shard, rest;
    char *own, *tail; /* this rank's shard, which the last one's tail is behind; `rest` elements */
    size_t far;       /* elements that this rank sends on */
};

/* Shards of whole pieces of 16 bytes, which kernels move best. */
static struct cut cut(const struct kolo_layers *l, const struct kolo_gpu_call *call, size_t count)
{
    enum { PIECE_BYTES = 16 };
    const size_t size = (size_t)size_of(l), place = (size_t)l->near->rank;
    struct cut c = {.elem = kolo_type_bytes(call->type)};
    const size_t piece = kolo_max(1, PIECE_BYTES / c.elem);
    c.shard = count / size / piece * piece;
    c.rest = count - size * c.shard;
    c.far = c.shard + (place + 1 == size ? c.rest : 0);
    return c;
}

static struct cut cut_in(const struct kolo_layers *l, const struct kolo_gpu_call *call, char *all,
                         size_t count)
{
    struct cut c = cut(l, call, count);
    c.own = all + (size_t)l->near->rank * c.shard * c.elem;
    c.tail = all + (size_t)size_of(l) * c.shard * c.elem;
    return c;
}

/* All have their shards in place, the last one the tail, too: now all have all. */
static kolo_status spread(struct kolo_layers *l, const struct kolo_gpu_call *call,
                          const struct cut *c)
{
    KOLO_TRY(NEAR(l, call, KOLO_COLL_ALL_GATHER, c->own, call->out, c->shard, 0));
    return NEAR(l, call, KOLO_COLL_BROADCAST, c->tail, c->tail, c->rest, size_of(l) - 1);
}

static kolo_status all_reduce(struct kolo_layers *l, const struct kolo_gpu_call *call)
{
    const struct cut c = cut_in(l, call, call->out, call->count);
    const char *in = call->in, *tail = in + (c.tail - (char *)call->out);
    KOLO_TRY(NEAR(l, call, KOLO_COLL_REDUCE_SCATTER, in, c.own, c.shard, 0));
    KOLO_TRY(NEAR(l, call, KOLO_COLL_ALL_REDUCE, tail, c.tail, c.rest, 0));
    KOLO_TRY(go_far(l, call, &(struct step){KOLO_COLL_ALL_REDUCE, c.own, c.own, c.far, 0}));
    return spread(l, call, &c);
}

static kolo_status broadcast(struct kolo_layers *l, const struct kolo_gpu_call *call)
{
    const struct cut c = cut_in(l, call, call->out, call->count);
    const int from = l->group_of[call->root], root = place_of(l, call->root);
    const char *in = l->comm->rank == call->root ? call->in : call->out;
    if (from == l->far->rank) {
        const char *tail = in + (c.tail - (char *)call->out);
        KOLO_TRY(NEAR(l, call, KOLO_COLL_SCATTER, in, c.own, c.shard, root));
        KOLO_TRY(NEAR(l, call, KOLO_COLL_BROADCAST, tail, c.tail, c.rest, root));
    }
    KOLO_TRY(go_far(l, call, &(struct step){KOLO_COLL_BROADCAST, c.own, c.own, c.far, from}));
    return spread(l, call, &c);
}

/* `count` elements, whose shards and tail the scratch holds, from `at` on. */
static kolo_status reduce_tile(struct kolo_layers *l, const struct kolo_gpu_call *call, size_t at,
                               size_t count)
{
    struct cut c = cut(l, call, count);
    const int to = l->group_of[call->root], root = place_of(l, call->root), last = size_of(l) - 1;
    const bool mine = l->comm->rank == call->root;
    const size_t whole = (size_t)size_of(l) * c.shard * c.elem;
    const char *in = (const char *)call->in + at * c.elem;
    char *out = mine ? (char *)call->out + at * c.elem : NULL;
    c.own = (char *)(uintptr_t)l->scratch;
    c.tail = c.own + c.shard * c.elem;
    KOLO_TRY(NEAR(l, call, KOLO_COLL_REDUCE_SCATTER, in, c.own, c.shard, 0));
    KOLO_TRY(NEAR(l, call, KOLO_COLL_REDUCE, in + whole, c.tail, c.rest, last));
    KOLO_TRY(go_far(l, call, &(struct step){KOLO_COLL_REDUCE, c.own, c.own, c.far, to}));
    if (to != l->far->rank) {
        return KOLO_OK;
    }
    KOLO_TRY(NEAR(l, call, KOLO_COLL_GATHER, c.own, out, c.shard, root));
    return NEAR(l, call, KOLO_COLL_BROADCAST, c.tail, mine ? out + whole : c.tail, c.rest, last);
}

static kolo_status reduce(struct kolo_layers *l, const struct kolo_gpu_call *call)
{
    const size_t most = SCRATCH_BYTES / 2 / kolo_type_bytes(call->type) * (size_t)size_of(l);
    for (size_t at = 0; at < call->count; at += most) {
        KOLO_TRY(reduce_tile(l, call, at, kolo_min(most, call->count - at)));
    }
    return KOLO_OK;
}

/* ---- calls of blocks ---- */

static kolo_status all_gather(struct kolo_layers *l, const struct kolo_gpu_call *call)
{
    const size_t bytes = call->count * kolo_type_bytes(call->type);
    const int size = size_of(l), groups = groups_of(l), place = l->near->rank;
    char *out = call->out;
    KOLO_TRY(gather_blocks(l->far, call,
                           &(struct step){.in = call->in, .out = out, .count = call->count},
                           l->rank_of + place, size));
    for (int g = 0; g < groups; g++) {
        const char *own = out + (size_t)rank_at(l, g, place) * bytes;
        const struct step s = {KOLO_COLL_ALL_GATHER, own, out + (size_t)(g * size) * bytes,
                               call->count, 0};
        const struct step apart = {.in = own, .out = out, .count = call->count};
        KOLO_TRY(l->in_order ? take_step(l->near, call, &s)
                             : gather_blocks(l->near, call, &apart, l->rank_of + g * size, 1));
    }
    return KOLO_OK;
}

/* Elements [at, at + n) of the blocks of group g's ranks, one after the other. */
static kolo_status pack(const struct kolo_layers *l, const struct kolo_gpu_call *call, int g,
                        const size_t part[2])
{
    const size_t elem = kolo_type_bytes(call->type);
    KOLO_TRY(kolo_gpu_enter(l->gpu));
    kolo_status st = KOLO_OK;
    for (int i = 0; i < size_of(l) && st == KOLO_OK; i++) {
        const size_t at = (size_t)rank_at(l, g, i) * call->count + part[0];
        st = KOLO_CUDA(l->gpu, "cuMemcpyDtoDAsync",
                       memcpy_dtod_async(l->scratch + (size_t)i * part[1] * elem,
                                         (uintptr_t)call->in + at * elem, part[1] * elem,
                                         (kolo_cuda_stream)call->stream));
    }
    kolo_gpu_leave(l->gpu);
    return st;
}

/* What is packed goes first in the scratch, then a block for each group. */
static kolo_status reduce_scatter_tile(struct kolo_layers *l, const struct kolo_gpu_call *call,
                                       const size_t part[2], bool packed)
{
    const size_t elem = kolo_type_bytes(call->type), n = part[1];
    const size_t size = (size_t)size_of(l);
    char *scratch = (char *)(uintptr_t)l->scratch, *sums = scratch + (packed ? size * n * elem : 0);
    for (int g = 0; g < groups_of(l); g++) {
        const char *in = packed ? scratch : (const char *)call->in + (size_t)g * size * n * elem;
        KOLO_TRY(packed ? pack(l, call, g, part) : KOLO_OK);
        KOLO_TRY(NEAR(l, call, KOLO_COLL_REDUCE_SCATTER, in, sums + (size_t)g * n * elem, n, 0));
    }
    char *out = (char *)call->out + part[0] * elem;
    return go_far(l, call, &(struct step){KOLO_COLL_REDUCE_SCATTER, sums, out, n, 0});
}

static kolo_status reduce_scatter(struct kolo_layers *l, const struct kolo_gpu_call *call)
{
    const size_t room = SCRATCH_BYTES / kolo_type_bytes(call->type);
    const size_t size = (size_t)size_of(l), groups = (size_t)groups_of(l);
    if (l->in_order && call->count <= room / groups) {
        return reduce_scatter_tile(l, call, (size_t[]){0, call->count}, false);
    }
    const size_t most = room / (size + groups);
    for (size_t at = 0; at < call->count; at += most) {
        const size_t part[2] = {at, kolo_min(most, call->count - at)};
        KOLO_TRY(reduce_scatter_tile(l, call, part, true));
    }
    return KOLO_OK;
}

/* ---- calls ---- */

static kolo_status enqueue_steps(struct kolo_layers *l, const struct kolo_gpu_call *call)
{
    switch (call->coll) {
    case KOLO_COLL_ALL_REDUCE:
        return all_reduce(l, call);
    case KOLO_COLL_REDUCE_SCATTER:
        return reduce_scatter(l, call);
    case KOLO_COLL_ALL_GATHER:
        return all_gather(l, call);
    case KOLO_COLL_BROADCAST:
        return broadcast(l, call);
    default:
        return reduce(l, call);
    }
}

/* The relay knows where the communicator's last call is. */
kolo_status kolo_layers_enqueue(struct kolo_layers *l, const struct kolo_gpu_call *call)
{
    pthread_mutex_lock(&l->order);
    kolo_status st = kolo_relay_follow(l->comm->relay, call->stream);
    st = st == KOLO_OK ? enqueue_steps(l, call) : st;
    st = st == KOLO_OK ? kolo_relay_note(l->comm->relay, call->stream) : st;
    pthread_mutex_unlock(&l->order);
    return st;
}
