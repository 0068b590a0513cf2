// SPDX-License-Identifier: Apache-2.0
/* Calls on the P2P path: the choice of an algorithm, its program and its launch. */
#include "gpu/p2p/inner.h"
#include "plugin/catalogue.h"

#include <ctype.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- algorithms ---- */

static size_t bytes_of(const struct kolo_gpu_call *call)
{
    return call->args.count * kolo_type_bytes(call->args.type);
}

/* The algorithm for GPUs that are all joined alike. All of these add in rank order, each sum in one
 * move. One-shot sends more bytes the more ranks there are; two-shot has one more exchange.
 * Published measurements of 4 and 8 H100 put the border near 512 and 128 KiB; for PCIe it is
 * lower. */
static const char *flat_name(const struct kolo_p2p_path *p, const struct kolo_gpu_call *call)
{
    static const char *const name[] = {
        [KOLO_COLL_ALL_REDUCE] = "allreduce_direct",
        [KOLO_COLL_REDUCE] = "reduce_direct",
        [KOLO_COLL_BROADCAST] = "broadcast_direct",
        [KOLO_COLL_GATHER] = "gather_direct",
        [KOLO_COLL_SCATTER] = "scatter_direct",
        [KOLO_COLL_ALL_GATHER] = "allgather_direct",
        [KOLO_COLL_ALL_TO_ALL] = "alltoall_direct",
        [KOLO_COLL_REDUCE_SCATTER] = "reducescatter_direct",
        [KOLO_COLL_BARRIER] = "barrier_dissemination",
    };
    enum { FAST = 1 << 20, SLOW = 128 << 10 };
    const size_t sent = bytes_of(call) * (size_t)(p->comm->ranks.nranks - 1);
    const bool small = call->args.coll == KOLO_COLL_ALL_REDUCE && sent <= (p->fast ? FAST : SLOW);
    return small ? "allreduce_oneshot" : name[call->args.coll];
}

/* The number of rings or trees that get a block each; each is a lane. */
static int lanes_of(const struct kolo_p2p_path *p, int wanted)
{
    return wanted < (int)p->slices ? wanted : (int)p->slices;
}

/* The planner's rings and trees, for GPUs of which some pairs have no NVLink. If all ranks send to
 * all at once, the transfers take turns on PCIe's bridges, or collapse. On a ring each GPU has one
 * stream in and one stream out, and its neighbours are those of the planner, which knows the links
 * (FlashInfer measured both on PCIe, pull request 4393). The 2 (n - 1) steps of a ring pay if their
 * chunks are long. NULL: no ring is better. */
static const char *ring_name(const struct kolo_p2p_path *p, const struct kolo_gpu_call *call)
{
    enum { CHUNK_BYTES = 128 << 10 };
    const struct kolo_comm *c = p->comm;
    const size_t chunks = kolo_coll_flat(call->args.coll) ? (size_t)c->ranks.nranks : 1;
    const bool orders = c->options.deterministic && kolo_coll_reduces(call->args.coll);
    if (p->fast || orders || c->ranks.nranks < 3 || call->args.v.all != NULL ||
        bytes_of(call) < CHUNK_BYTES * chunks) {
        return NULL;
    }
    switch (call->args.coll) {
    case KOLO_COLL_ALL_REDUCE:
        return lanes_of(p, c->layout.nrings) > 1 ? "allreduce_rings" : "allreduce_ring";
    case KOLO_COLL_ALL_GATHER:
        return "allgather_ring";
    case KOLO_COLL_REDUCE_SCATTER:
        return "reducescatter_ring";
    case KOLO_COLL_BROADCAST:
        return c->layout.ntrees > 0 ? "broadcast_tree" : "broadcast_chain";
    case KOLO_COLL_REDUCE:
        return c->layout.ntrees > 0 ? "reduce_tree" : NULL;
    default:
        return NULL;
    }
}

/* Whether a rule of KOLO_ALGO or the configuration is for this call. No rule is for a v-form. */
static bool is_ruled(const struct kolo_p2p_path *p, const struct kolo_gpu_call *call)
{
    return call->args.v.all == NULL &&
           kolo_rules_find(p->comm->selection.rules, call->args.coll, bytes_of(call)) != NULL;
}

static kolo_status open_chooser(struct kolo_p2p_path *p)
{
    const struct kolo_comm *c = p->comm;
    const struct kolo_chooser_options options = {.nranks = c->ranks.nranks,
                                                 .nhosts = 1,
                                                 .order = c->layout.order,
                                                 .nrings = lanes_of(p, c->layout.nrings),
                                                 .ntrees = lanes_of(p, c->layout.ntrees),
                                                 .tree = c->layout.tree,
                                                 .nlevels = c->layout.groups.nlevels,
                                                 .group = c->layout.groups.group,
                                                 .rules = c->selection.rules,
                                                 .costs = c->selection.costs,
                                                 .deterministic = c->options.deterministic != 0,
                                                 .algo_count = kolo_algo_count_all,
                                                 .algo_at = kolo_algo_at,
                                                 .max_phases = KOLO_LANES * KOLO_PROGRAM_SIGNALS};
    return p->chooser != NULL ? KOLO_OK : kolo_chooser_create(&options, &p->chooser);
}

/* Ask a chooser for the algorithm that a rule forces. Its prices are those of host memory and do
 * not count here. */
static kolo_status choose_by_rule(struct kolo_p2p_path *p, const struct kolo_gpu_call *call,
                                  const struct kolo_algo **out)
{
    const int root = kolo_coll_rooted(call->args.coll) ? call->args.root : 0;
    struct kolo_pick pick;
    KOLO_TRY(open_chooser(p));
    KOLO_TRY(
        kolo_choose(p->chooser, call->args.coll, root, bytes_of(call), call->args.type, &pick));
    if (pick.wide) {
        return kolo_fail(
            KOLO_ERR_INVALID,
            "%s rounds partial sums of %s, which a deterministic communicator does not "
            "allow on GPUs",
            pick.algo->base.name, kolo_type_name(call->args.type));
    }
    *out = pick.algo;
    return KOLO_OK;
}

struct choice {
    const struct kolo_algo *algo;
    const char *why;
};

static kolo_status choose_algo(struct kolo_p2p_path *p, const struct kolo_gpu_call *call,
                               struct choice *out)
{
    if (is_ruled(p, call)) {
        out->why = "rules";
        return choose_by_rule(p, call, &out->algo);
    }
    const char *ring = ring_name(p, call);
    out->algo = kolo_algo_find(ring != NULL ? ring : flat_name(p, call));
    out->why = ring != NULL ? "not all GPUs are joined by NVLink, and the call is long"
               : p->fast    ? "all GPUs are joined by NVLink"
                            : "no ring is better";
    return KOLO_OK;
}

/* Put a program that is too long for a launch into pinned memory, where the GPU reads it. It stays
 * as long as the communicator, because graphs may use it. */
static kolo_status pin_program(struct kolo_p2p_path *p, struct kolo_p2p_path_plan *plan)
{
    const struct kolo_program *program = plan->program;
    if (program->nwords <= KOLO_PROGRAM_HELD) {
        return KOLO_OK;
    }
    if (program->nwords > KOLO_P2P_PATH_WORDS - p->nwords) {
        return kolo_fail(KOLO_ERR_SYSTEM, "the program of %s has %u words; there is room for %u",
                         plan->algo->base.name, program->nwords, KOLO_P2P_PATH_WORDS - p->nwords);
    }
    memcpy(p->pinned->word + p->nwords, program->word, program->nwords * sizeof program->word[0]);
    plan->at = p->pinned_at + offsetof(struct kolo_p2p_path_pinned, word) +
               p->nwords * sizeof program->word[0];
    p->nwords += program->nwords;
    return KOLO_OK;
}

static kolo_status make_plan(struct kolo_p2p_path *p, const struct kolo_algo *algo, int root,
                             struct kolo_p2p_path_plan *out)
{
    struct kolo_shape shape = kolo_comm_shape(p->comm, algo->coll, root);
    shape.nrings = lanes_of(p, shape.nrings);
    shape.ntrees = lanes_of(p, shape.ntrees);
    out->algo = algo;
    out->root = root;
    KOLO_TRY(kolo_plan_build(algo, &shape, -1, &out->plan));
    KOLO_TRY(kolo_program_make(out->plan, p->comm->ranks.rank, &out->program));
    return pin_program(p, out);
}

static void plan_free(struct kolo_p2p_path_plan *plan)
{
    kolo_program_destroy(plan->program);
    kolo_plan_destroy(plan->plan);
    free(plan);
}

static void log_choice(const struct kolo_gpu_call *call, const struct choice *choice,
                       const struct kolo_p2p_path_plan *plan)
{
    char name[32] = "";
    const char *word = kolo_algo_word(choice->algo);
    for (size_t i = 0; i + 1 < sizeof name && word[i] != '\0'; i++) {
        name[i] = (char)toupper((unsigned char)word[i]);
    }
    KOLO_LOG(INFO, TUNE, "%s: %zu Bytes -> Algo %s on GPUs (%s), %u lanes",
             kolo_coll_title(call->args.coll), bytes_of(call), name, choice->why,
             plan->program->nlanes);
}

static kolo_status find_plan(struct kolo_p2p_path *p, const struct kolo_gpu_call *call,
                             const struct kolo_p2p_path_plan **out)
{
    struct choice choice = {.algo = NULL};
    KOLO_TRY(choose_algo(p, call, &choice));
    const struct kolo_algo *algo = choice.algo;
    const int root = kolo_coll_rooted(call->args.coll) ? call->args.root : 0;
    struct kolo_p2p_path_plan *plan = p->plans;
    while (plan != NULL && (plan->algo != algo || plan->root != root)) {
        plan = plan->next;
    }
    if (plan == NULL) {
        plan = calloc(1, sizeof *plan);
        const kolo_status st = plan != NULL
                                   ? make_plan(p, algo, root, plan)
                                   : kolo_fail(KOLO_ERR_SYSTEM, "out of memory for a plan");
        if (st != KOLO_OK) {
            if (plan != NULL) {
                plan_free(plan);
            }
            return st;
        }
        plan->next = p->plans;
        p->plans = plan;
        if (p->comm->ranks.rank == 0) {
            log_choice(call, &choice, plan);
        }
    }
    *out = plan;
    return KOLO_OK;
}

void kolo_p2p_path_forget(struct kolo_p2p_path *p)
{
    kolo_chooser_destroy(p->chooser);
    while (p->plans != NULL) {
        struct kolo_p2p_path_plan *plan = p->plans;
        p->plans = plan->next;
        plan_free(plan);
    }
}

/* ---- binding ---- */

/* The slices of a lane. A short call gets few, because each slice adds signals. */
static unsigned slices_for(const struct kolo_p2p_path *p, unsigned lanes, size_t chunk_bytes)
{
    enum { SLICE_BYTES = 8 << 10 };
    const size_t want = (chunk_bytes + SLICE_BYTES - 1) / SLICE_BYTES;
    return (unsigned)kolo_max(1, kolo_min(want, p->slices / lanes));
}

/* Whether a call may go from buffer to buffer: not if a program sends less, if blocks differ in
 * length, or if a rule forces another algorithm. */
static bool goes_direct(const struct kolo_p2p_path *p, const struct kolo_gpu_call *call,
                        const struct kolo_algo *algo)
{
    const bool wanted = !is_ruled(p, call) || strcmp(kolo_algo_word(algo), "direct") == 0;
    return p->direct && call->args.v.all == NULL && wanted &&
           (call->args.coll == KOLO_COLL_ALL_REDUCE || call->args.coll == KOLO_COLL_ALL_GATHER ||
            call->args.coll == KOLO_COLL_REDUCE_SCATTER);
}

static bool bind_ll(const struct kolo_p2p_path *p, const struct kolo_gpu_call *call,
                    struct kolo_p2p_path_call *out)
{
    const struct kolo_comm *c = p->comm;
    out->is_ll =
        call->args.v.all == NULL && !is_ruled(p, call) &&
        kolo_ll_bytes(&call->args, c->ranks.nranks) <= p->ll_bytes &&
        kolo_ll_bind(&call->args, c->ranks.rank, &p->room, p->slices, &out->ll, &out->grid);
    return out->is_ll;
}

static kolo_status bind_program(struct kolo_p2p_path *p, const struct kolo_gpu_call *call,
                                struct kolo_p2p_path_call *out)
{
    const size_t elem = kolo_type_bytes(call->args.type);
    const struct kolo_p2p_path_plan *plan = NULL;
    struct kolo_extents extents;
    size_t *arrays = NULL;
    KOLO_TRY(find_plan(p, call, &plan));
    KOLO_TRY(
        kolo_extents_make(plan->plan, p->comm->ranks.rank, &call->args, elem, &extents, &arrays));
    const unsigned lanes = plan->program->nlanes, slices = slices_for(p, lanes, extents.full);
    out->grid.blocks = lanes * slices;
    out->grid.threads = KOLO_PROGRAM_THREADS;
    const kolo_status st =
        kolo_program_bind(plan->program, plan->at, &extents, &p->room, slices, &out->launch);
    free(arrays);
    if (st == KOLO_OK && goes_direct(p, call, plan->algo)) {
        kolo_program_bind_direct(call->args.coll, call->args.count * elem, &out->launch);
    }
    return st;
}

static kolo_status bind_call(struct kolo_p2p_path *p, const struct kolo_gpu_call *call,
                             struct kolo_p2p_path_call *out)
{
    if (bind_ll(p, call, out)) {
        out->kernel = kolo_gpu_ll_kernel(&p->gpu, call);
        return KOLO_OK;
    }
    KOLO_TRY(bind_program(p, call, out));
    out->kernel = kolo_gpu_kernel(&p->gpu, call);
    out->launch.divisor = kolo_coll_reduces(call->args.coll) && call->args.op == KOLO_AVG
                              ? (uint32_t)p->comm->ranks.nranks
                              : 0;
    return KOLO_OK;
}

static kolo_status find_bound(struct kolo_p2p_path *p, const struct kolo_gpu_call *call,
                              struct kolo_p2p_path_call **out)
{
    const uint64_t key = kolo_gpu_call_key(call, p->comm->ranks.nranks) | 1;
    const size_t elem = kolo_type_bytes(call->args.type);
    struct kolo_p2p_path_call *b = NULL;
    for (unsigned i = 0; i < KOLO_P2P_PATH_CALLS; i++) {
        const bool same = p->bound[i].key == key && p->bound[i].elem == elem;
        b = same ? &p->bound[i] : b;
    }
    if (b == NULL) {
        b = &p->bound[p->next_bound++ % KOLO_P2P_PATH_CALLS];
        b->key = 0;
        KOLO_TRY(bind_call(p, call, b));
        b->key = key;
        b->elem = elem;
    }
    *out = b;
    return KOLO_OK;
}

/* ---- enqueueing ---- */

kolo_status kolo_p2p_path_follow(struct kolo_p2p_path *p, kolo_stream stream)
{
    return p == NULL ? KOLO_OK : kolo_gpu_order_apart(&p->gpu, &p->order, &p->calls, stream, false);
}

kolo_status kolo_p2p_path_note(struct kolo_p2p_path *p, kolo_stream stream)
{
    return p == NULL ? KOLO_OK : kolo_gpu_order_apart(&p->gpu, &p->order, &p->calls, stream, true);
}

static void fill_ends(const struct kolo_p2p_path *p, const struct kolo_gpu_call *call, uint64_t key,
                      struct kolo_program_ends *out)
{
    out->in = (uintptr_t)call->args.in;
    out->out = (uintptr_t)call->args.out;
    out->factor = call->args.factor;
    out->timeout_ns = (uint64_t)p->comm->options.timeout_ms * 1000000;
    out->control = p->pinned_at;
    out->signature = (uint32_t)(key >> 32) | 1;
    for (int q = 0; q < p->comm->ranks.nranks; q++) {
        out->slab[q] = p->slab[q];
    }
}

/* Whether other ranks of this process can use the memory. Peer access is to memory of cudaMalloc(),
 * not to pools, managed memory or mapped handles. */
static bool is_reached(const struct kolo_p2p_path *p, const void *ptr)
{
    uint64_t able = 0; /* the driver stores a bool, which is shorter */
    return p->gpu.cuda->pointer_get_attribute(&able, KOLO_CUDA_POINTER_IPC, (uintptr_t)ptr) ==
               KOLO_CUDA_OK &&
           (able & 0xff) != 0;
}

static bool are_registered(const struct kolo_p2p_path *p, const struct kolo_gpu_call *call,
                           bool wait, struct kolo_program_launch *out)
{
    const size_t block = call->args.count * kolo_type_bytes(call->args.type);
    const size_t all = block * (size_t)p->comm->ranks.nranks;
    const size_t in = call->args.coll == KOLO_COLL_REDUCE_SCATTER ? all : block;
    const bool registered =
        kolo_ipc_registry_find(p->registry, call->args.in, in, wait, out->in_shift);
    return kolo_ipc_registry_find(p->registry, call->args.out,
                                  call->args.coll == KOLO_COLL_ALL_GATHER ? all : block, wait,
                                  out->out_shift) &&
           registered;
}

/* Set whether the other ranks may use this rank's buffers. A reduce-scatter whose output overlaps
 * the input that the other ranks read is safe only through inboxes. */
static void set_reached(const struct kolo_p2p_path *p, const struct kolo_gpu_call *call,
                        bool captured, struct kolo_program_launch *out)
{
    const size_t block = call->args.count * kolo_type_bytes(call->args.type);
    const size_t bytes = block * (size_t)p->comm->ranks.nranks;
    const uintptr_t from = (uintptr_t)call->args.in, to = (uintptr_t)call->args.out;
    const bool overlaps = call->args.coll == KOLO_COLL_REDUCE_SCATTER && to + block > from &&
                          to < from + bytes && to != from + (size_t)p->comm->ranks.rank * block;
    if (overlaps || p->registry == NULL) {
        out->reached = !overlaps && is_reached(p, call->args.in) && is_reached(p, call->args.out);
        return;
    }
    out->reached =
        are_registered(p, call, false, out) || (captured && are_registered(p, call, true, out));
}

static kolo_status launch_bound(struct kolo_p2p_path *p, const struct kolo_gpu_call *call,
                                bool captured)
{
    struct kolo_p2p_path_call *b = NULL;
    KOLO_TRY(find_bound(p, call, &b));
    void *arguments[] = {&b->launch};
    fill_ends(p, call, b->key, b->is_ll ? &b->ll.ends : &b->launch.ends);
    if (!b->is_ll && b->launch.meets != 0) {
        set_reached(p, call, captured, &b->launch);
    }
    return KOLO_CUDA(&p->gpu, "cuLaunchKernel",
                     launch_kernel(b->kernel, b->grid.blocks, 1, 1, b->grid.threads, 1, 1, 0,
                                   call->stream, arguments, NULL));
}

static bool moves_something(const struct kolo_p2p_path *p, const struct kolo_gpu_call *call)
{
    size_t count = call->args.coll == KOLO_COLL_BARRIER ? 1 : call->args.count;
    for (int q = 0; call->args.v.all != NULL && q < p->comm->ranks.nranks; q++) {
        count += call->args.v.all[q];
    }
    return count > 0;
}

static kolo_status enqueue_locked(struct kolo_p2p_path *p, const struct kolo_gpu_call *call)
{
    if (__atomic_load_n(&p->pinned->control.abort, __ATOMIC_ACQUIRE) != 0) {
        return kolo_fail(KOLO_ERR_ABORTED, "the communicator was ended");
    }
    bool captured = false;
    KOLO_TRY(kolo_gpu_is_capturing(&p->gpu, call->stream, &captured));
    KOLO_TRY(kolo_gpu_order_follow(&p->gpu, &p->calls, call->stream, captured));
    KOLO_TRY(moves_something(p, call) ? launch_bound(p, call, captured) : KOLO_OK);
    return kolo_gpu_order_note(&p->gpu, &p->calls, call->stream, captured);
}

kolo_status kolo_p2p_path_enqueue(struct kolo_p2p_path *p, const struct kolo_gpu_call *call)
{
    KOLO_TRY(kolo_gpu_enter(&p->gpu));
    pthread_mutex_lock(&p->order);
    const kolo_status st = enqueue_locked(p, call);
    pthread_mutex_unlock(&p->order);
    kolo_gpu_leave(&p->gpu);
    return st;
}

/* ---- failures ---- */

kolo_status kolo_p2p_path_learn(const struct kolo_p2p_path *p, int *rank_out)
{
    for (unsigned s = 0; s < p->slices; s++) {
        const struct kolo_program_record *r = &p->pinned->control.record[s];
        const uint32_t status = __atomic_load_n(&r->status, __ATOMIC_ACQUIRE);
        if (status == KOLO_PROGRAM_TIMEOUT) {
            *rank_out = (int)r->rank;
            return kolo_fail(
                KOLO_ERR_TIMEOUT,
                "on GPU %d, rank %d waited %d ms for rank %u in block %u, tile %u, step "
                "%u: the word is %u, and %u was expected",
                p->gpu.ordinal, p->comm->ranks.rank, p->comm->options.timeout_ms, r->rank, s,
                r->epoch, r->step, (uint32_t)r->seen, (uint32_t)r->wanted);
        }
        if (status == KOLO_PROGRAM_MISMATCH) {
            *rank_out = (int)r->rank;
            return kolo_fail(KOLO_ERR_MISMATCH,
                             "ranks %d and %u are in different calls on GPU memory (collective, "
                             "size, type, operation or root) in tile %u",
                             p->comm->ranks.rank, r->rank, r->epoch - 1);
        }
    }
    return KOLO_OK;
}

void kolo_p2p_path_abort(struct kolo_p2p_path *p)
{
    __atomic_store_n(&p->pinned->control.abort, 1, __ATOMIC_RELEASE);
}
