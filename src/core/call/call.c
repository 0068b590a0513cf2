// SPDX-License-Identifier: Apache-2.0
/* The state machine of a collective call.
 *
 *   CHOOSE   choose the algorithm by size; a large call publishes an entry line: its shared memory
 *   ENTRIES  wait for the lines of all ranks, so that both ends of a link lower alike
 *   LOWER    find the plan, and its program for these links, in a cache if possible
 *   SLOTS    map the outboxes that this rank reads from; bind the program to these bytes
 *   RUN      run the executor; then narrow the result if it is wide, or decode it
 */
#include "core/call/memo.h"
#include "core/call/parts.h"
#include "exec/cpu/bound.h"
#include "exec/cpu/wait.h"

#include <stdlib.h>
#include <string.h>

/* ---- preparing: choice, factors, accumulator type ---- */

static void log_choice(const struct kolo_call *call)
{
    struct kolo_text text = {0};
    if (call->base.comm->ranks.rank == 0 && kolo_log_on(KOLO_LEVEL_INFO, KOLO_SUB_TUNE)) {
        kolo_choice_line(call->base.comm->selection.chooser, call->args.coll, call->args.root,
                         call->extent.bytes, &text);
        KOLO_LOG(INFO, TUNE, "%s", text.chars != NULL ? text.chars : "");
        kolo_text_free(&text);
    }
}

/* v-forms use the plan that needs no scratch, because blocks differ in length. */
static const char *v_algorithm(enum kolo_coll coll)
{
    switch (coll) {
    case KOLO_COLL_GATHER:
        return "gather_direct";
    case KOLO_COLL_SCATTER:
        return "scatter_direct";
    case KOLO_COLL_ALL_GATHER:
        return "allgather_direct";
    case KOLO_COLL_REDUCE_SCATTER:
        return "reducescatter_direct";
    default:
        return "alltoall_direct";
    }
}

static const struct kolo_algo *builtin(const char *name)
{
    for (int i = 0; i < kolo_algos_count; i++) {
        if (strcmp(kolo_algos[i]->base.name, name) == 0) {
            return kolo_algos[i];
        }
    }
    return NULL;
}

static void take_pick(struct kolo_call *call, const struct kolo_pick *pick)
{
    call->algo = pick->algo;
    call->tile_bytes = pick->tile_bytes;
    if (pick->fresh) {
        log_choice(call);
    }
}

static kolo_status choose(struct kolo_call *call)
{
    struct kolo_pick pick;
    if (call->args.v.all != NULL) {
        call->algo = builtin(v_algorithm(call->args.coll));
        return call->algo != NULL ? KOLO_OK : KOLO_ERR_INTERNAL;
    }
    KOLO_TRY(kolo_choose(call->base.comm->selection.chooser, call->args.coll, call->args.root,
                         call->extent.bytes, call->args.type, &pick));
    call->wide = pick.wide;
    take_pick(call, &pick);
    return call->args.codec == KOLO_CODEC_NONE ? KOLO_OK : kolo_call_choose_codec(call, &pick);
}

/* Choose again, because the entries now show where the buffers lie. The signature of the first
 * choice stays, because the entries carry it. */
static kolo_status choose_again(struct kolo_call *call)
{
    struct kolo_chooser *chooser = call->base.comm->selection.chooser;
    const size_t bytes = call->extent.bytes;
    struct kolo_pick pick;
    if (call->wide || call->codec != KOLO_CODEC_NONE || call->args.v.all != NULL ||
        !kolo_chooser_looks_at_buffers(chooser)) {
        return KOLO_OK;
    }
    KOLO_TRY(kolo_call_is_mapped(call)
                 ? kolo_choose_mapped(chooser, call->args.coll, call->args.root, bytes,
                                      call->args.type, &pick)
                 : kolo_choose(chooser, call->args.coll, call->args.root, bytes, call->args.type,
                               &pick));
    if (!pick.wide) { /* the entries describe buffers that were not widened */
        take_pick(call, &pick);
    }
    return KOLO_OK;
}

/* PREMULSUM: scale the input once by the factor, rounded in its type. The rest is a sum. */
static kolo_status scale_input(struct kolo_call *call)
{
    const size_t count = call->extent.in_elems;
    call->scaled = malloc(count * kolo_type_bytes(call->args.type) + 1);
    if (call->scaled == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %zu scaled elements", count);
    }
    kolo_scale(call->args.type, call->scaled, call->args.in, count, &call->args.factor);
    call->args.in = call->scaled;
    return KOLO_OK;
}

/* Partial sums travel: run in float32 throughout and round once, at the end. */
static kolo_status widen_input(struct kolo_call *call)
{
    const size_t nin = call->extent.in_elems, nout = call->extent.out_elems;
    call->wide_in = malloc(nin * sizeof(float) + 1);
    call->wide_out = malloc(nout * sizeof(float) + 1);
    if (call->wide_in == NULL || call->wide_out == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %zu float32 elements", nin + nout);
    }
    kolo_widen(call->args.type, call->wide_in, call->args.in, nin);
    call->run_elem = sizeof(float);
    return KOLO_OK;
}

/* ---- signature ---- */

/* A hash of the counts of a v-form, if all ranks know all of them; otherwise 0. */
static uint32_t hash_of_counts(const struct kolo_call *call)
{
    const size_t n = (size_t)call->base.comm->ranks.nranks;
    return call->args.v.all == NULL || kolo_coll_by_messages(&call->args)
               ? 0
               : (uint32_t)(kolo_hash(0, call->args.v.all, n * sizeof *call->args.v.all) >> 32);
}

uint64_t kolo_call_key(const struct kolo_call *call)
{
    struct kolo_coll_args args = call->args;
    args.op = args.op < KOLO_OPS ? args.op : KOLO_OPS; /* handles are local */
    if (args.v.all != NULL && !kolo_coll_rooted(args.coll)) {
        args.root = (int)hash_of_counts(call);
    }
    return kolo_memo_key(&args) | (args.v.all != NULL ? KOLO_KEY_V : 0);
}

size_t kolo_call_count(const struct kolo_call *call)
{
    const struct kolo_comm *c = call->base.comm;
    const size_t *all = call->args.v.all;
    size_t sum = 0;
    if (all == NULL || call->args.coll != KOLO_COLL_ALL_TO_ALL) {
        return all == NULL ? call->args.count : all[c->ranks.rank];
    }
    for (int q = 0; q < c->ranks.nranks; q++) {
        sum += all[q];
    }
    return sum;
}

/* A hash of the facts that all ranks must agree on. It leaves out the lengths of v-forms that not
 * all ranks know, and the type in calls that only move bytes. */
static uint64_t signature_of(const struct kolo_call *call)
{
    const uint64_t words[] = {call->args.coll,
                              (uint64_t)call->args.root,
                              call->extent.by_messages ? 0 : call->extent.bytes,
                              call->extent.reduces ? call->args.type : 0,
                              !call->extent.reduces       ? 0
                              : call->args.op >= KOLO_OPS ? KOLO_OPS
                                                          : call->args.op, /* handles are local */
                              call->wide,
                              call->args.codec,
                              call->codec,
                              call->tile_bytes,
                              hash_of_counts(call)};
    uint64_t hash = kolo_hash(0, call->algo->base.name, strlen(call->algo->base.name));
    for (size_t i = 0; i < KOLO_LENGTH(words); i++) {
        hash = (hash ^ words[i]) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 29;
    }
    return hash;
}

/* ---- states ---- */

/* The input as the program takes it. */
static kolo_status prepare_input(struct kolo_call *call)
{
    if (call->extent.reduces && call->args.op >= KOLO_OPS) {
        KOLO_TRY(scale_input(call));
    }
    if (call->codec != KOLO_CODEC_NONE) {
        return kolo_call_encode(call);
    }
    return call->wide ? widen_input(call) : KOLO_OK;
}

static kolo_status do_choose(struct kolo_call *call)
{
    if (!call->started) {
        call->run_elem =
            call->args.coll == KOLO_COLL_BARRIER ? 1 : kolo_type_bytes(call->args.type);
        KOLO_TRY(choose(call));
        KOLO_TRY(prepare_input(call));
        call->signature = signature_of(call);
        KOLO_TRY(kolo_call_decide_entries(call));
        call->started = true;
    }
    if (call->uses_entries) {
        kolo_call_publish_entry(call);
    }
    call->state = call->uses_entries ? KOLO_CALL_ENTRIES : KOLO_CALL_LOWER;
    return KOLO_OK;
}

static kolo_status do_lower(struct kolo_call *call)
{
    const struct kolo_plan *plan = NULL;
    KOLO_TRY(kolo_call_find_plan(call->base.comm, call->algo, call->args.root, &plan));
    KOLO_TRY(kolo_call_find_prog(call, plan));
    call->state = KOLO_CALL_SLOTS;
    return KOLO_OK;
}

/* The call as its messages tell it. Without messages, only its number is needed. */
static struct kolo_call_sign sign_of(const struct kolo_call *call)
{
    if (call->prog->nreqs == 0) {
        return (struct kolo_call_sign){.number = (uint32_t)call->number};
    }
    return kolo_record_sign(call->base.comm->health.slot, call->number, kolo_call_key(call),
                            kolo_call_count(call));
}

/* Bytes of the floats that the call's messages carry; 0: they carry no bfloat16 and no float32. */
static uint32_t float_bytes_of(const struct kolo_call *call)
{
    if (call->codec != KOLO_CODEC_NONE) {
        return call->codec == KOLO_CODEC_BF16 ? 2 : 0;
    }
    const enum kolo_type type = call->wide ? KOLO_FLOAT32 : call->args.type;
    return type == KOLO_BFLOAT16 ? 2 : type == KOLO_FLOAT32 ? 4 : 0;
}

static void start_exec(struct kolo_call *call, bool block)
{
    struct kolo_comm *c = call->base.comm;
    call->exec = (struct kolo_exec){.env = &c->links.exec_env,
                                    .bound = call->bound,
                                    .in = kolo_call_run_in(call),
                                    .out = kolo_call_run_out(call),
                                    .elem = call->run_elem,
                                    .float_bytes = float_bytes_of(call),
                                    .signature = call->signature,
                                    .call = sign_of(call),
                                    .block = block};
    if (call->extent.reduces) {
        call->exec.reduce =
            call->codec != KOLO_CODEC_NONE
                ? kolo_codec_sum(call->codec)
                : kolo_reduce_kernel(call->wide ? KOLO_FLOAT32 : call->args.type, call->args.op);
        call->exec.divisor = call->args.op == KOLO_AVG ? (unsigned)c->ranks.nranks : 0;
    }
    kolo_exec_start(&call->exec);
    call->state = KOLO_CALL_RUN;
}

static kolo_status do_slots(struct kolo_call *call, bool block)
{
    const kolo_status st = kolo_call_find_bound(call, block);
    if (st != KOLO_OK) {
        return st;
    }
    kolo_memo_learn(call);
    start_exec(call, block);
    return KOLO_OK;
}

static kolo_status do_run(struct kolo_call *call)
{
    struct kolo_comm *c = call->base.comm;
    const bool messages = call->prog->nreqs > 0;
    if (messages && !call->exec.entered) { /* kolo_exec_enter() takes the lock itself */
        const kolo_status entered = kolo_exec_enter(&call->exec);
        if (entered != KOLO_OK) {
            return entered;
        }
    }
    if (messages) {
        pthread_mutex_lock(&c->links.lock);
    }
    const kolo_status st = kolo_exec_step(&call->exec);
    if (messages) {
        pthread_mutex_unlock(&c->links.lock);
    }
    if (st == KOLO_OK) {
        call->exec.bound = NULL;
        c->links.exec_env.entries += call->uses_entries ? 1 : 0;
        kolo_paused(&c->links.exec_env);
    }
    if (st == KOLO_OK && call->codec != KOLO_CODEC_NONE) {
        kolo_call_decode(call);
    } else if (st == KOLO_OK && call->wide_out != NULL && call->extent.has_out) {
        kolo_narrow(call->args.type, call->args.out, call->wide_out, call->extent.out_elems);
    }
    return st;
}

/* One rank: the result is its own input, passed through the operation (logical operations make
 * every value 0 or 1). */
static kolo_status run_alone(struct kolo_call *call)
{
    const size_t elem = kolo_type_bytes(call->args.type);
    const size_t *all = call->args.v.all;
    const char *in = call->args.in;
    char *out = call->args.out;
    size_t count = call->args.count;
    if (call->args.coll == KOLO_COLL_BARRIER) {
        return KOLO_OK;
    }
    if (call->extent.reduces && call->args.op >= KOLO_OPS) {
        KOLO_TRY(scale_input(call));
        in = call->args.in;
    }
    if (all != NULL) {
        const bool in_one =
            call->args.coll == KOLO_COLL_GATHER || call->args.coll == KOLO_COLL_ALL_GATHER;
        const bool out_one =
            call->args.coll == KOLO_COLL_SCATTER || call->args.coll == KOLO_COLL_REDUCE_SCATTER;
        count = all[0];
        in += in_one ? 0 : all[1] * elem;
        out += (out_one ? 0 : call->args.coll == KOLO_COLL_ALL_TO_ALL ? all[3] : all[1]) * elem;
    }
    if (call->extent.reduces) {
        const void *src[1] = {in};
        kolo_reduce_kernel(call->args.type, call->args.op)(out, src, 1, count, 0);
    } else if (in != out && count > 0) {
        memcpy(out, in, count * elem);
    }
    return KOLO_OK;
}

/* Collect the descriptors that report messages. They are not `alone` if a transport without a
 * descriptor only carries messages. Messages of a transport that maps memory, too, report nothing,
 * just as its lines do. */
static void find_news(const struct kolo_comm *c, struct kolo_news *news)
{
    for (int i = 0; i < c->links.nopened; i++) {
        const struct kolo_opened *o = &c->links.opened[i];
        const int fd = o->transport->wait_fd(o->endpoint);
        news->alone = news->alone && (fd >= 0 || (o->transport->caps & KOLO_CAP_MAP) != 0);
        if (fd >= 0) {
            news->fd[news->count++] = fd;
        }
    }
}

static kolo_status pause_call(struct kolo_call *call)
{
    struct kolo_comm *c = call->base.comm;
    const struct kolo_prog *p = call->prog;
    struct kolo_news news = {.alone = p->nsources == 0 && p->nreaders == 0};
    call->base.spins = call->exec.moved ? 0 : call->base.spins;
    if (p->nreqs > 0) {
        pthread_mutex_lock(&c->links.lock);
        find_news(c, &news);
        pthread_mutex_unlock(&c->links.lock);
    }
    return news.count > 0 ? kolo_pause_for_news(&c->links.exec_env, &call->base.spins,
                                                &call->base.deadline, &news)
                          : kolo_pause(&c->links.exec_env, &call->base.spins, &call->base.deadline);
}
static_assert((int)KOLO_TRANSPORTS_MAX <= (int)KOLO_NEWS_MAX, "a descriptor each");

bool kolo_call_is_known(struct kolo_call *call)
{
    const bool has_program =
        call->state == KOLO_CALL_RUN || (call->state == KOLO_CALL_CHOOSE && kolo_memo_recall(call));
    return call->base.comm->ranks.nranks == 1 || (has_program && kolo_exec_is_plain(call->prog));
}

kolo_status kolo_call_step(struct kolo_call *call, bool block)
{
    kolo_status st = KOLO_OK;
    if (call->base.comm->ranks.nranks == 1) {
        return run_alone(call);
    }
    if (call->state == KOLO_CALL_CHOOSE && kolo_memo_recall(call)) {
        start_exec(call, block);
    }
    while (st == KOLO_OK) {
        switch (call->state) {
        case KOLO_CALL_CHOOSE:
            st = do_choose(call);
            break;
        case KOLO_CALL_ENTRIES:
            st = kolo_call_wait_entries(call, block);
            st = st == KOLO_OK ? choose_again(call) : st;
            call->state = st == KOLO_OK ? KOLO_CALL_LOWER : call->state;
            break;
        case KOLO_CALL_LOWER:
            st = do_lower(call);
            break;
        case KOLO_CALL_SLOTS:
            st = do_slots(call, block);
            break;
        case KOLO_CALL_RUN:
            st = do_run(call);
            if (st == KOLO_OK) {
                return KOLO_OK;
            }
            if (st == KOLO_INPROGRESS &&
                block) { /* lanes or messages: more than one event to wait for */
                st = pause_call(call);
            }
            break;
        }
    }
    return st;
}

/* After an error messages may still be in flight. Their links were aborted, so progress() ends the
 * requests. Requests that a transport does not give back are left to it. */
static void end_messages(struct kolo_call *call)
{
    struct kolo_comm *c = call->base.comm;
    const struct kolo_bound *bound = call->exec.bound; /* NULL: not started, or done */
    const size_t copies = bound != NULL && bound->tiles > 1 ? KOLO_TILE_COPIES : 1;
    const size_t n = bound != NULL ? copies * call->prog->nreqs : 0;
    bool pending = n > 0;
    for (int tries = 0; pending && tries < 100; tries++) {
        pthread_mutex_lock(&c->links.lock);
        for (int i = 0; i < c->links.nopened; i++) {
            (void)c->links.opened[i].transport->progress(c->links.opened[i].endpoint, 64);
        }
        pthread_mutex_unlock(&c->links.lock);
        pending = false;
        for (size_t i = 0; i < n; i++) {
            const struct kolo_req *req = &bound->req[i];
            pending =
                pending || (req->bytes + req->data.bytes > 0 && req->status == KOLO_INPROGRESS);
        }
    }
    if (pending) {
        call->bound->req = NULL;
    }
}

void kolo_call_record_end(const struct kolo_call *call)
{
    if (call->number > 0 && kolo_comm_calls(call->base.comm) - call->number < KOLO_RECORDS) {
        kolo_record_end(kolo_record_at(call->base.comm->health.slot, call->number));
    }
}

void kolo_call_take_back(const struct kolo_call *call)
{
    if (call->wide_out == NULL && call->extent.has_out) {
        kolo_mem_take_back(call->base.comm, call->args.out,
                           call->extent.out_elems * kolo_type_bytes(call->args.type));
    }
}

void kolo_call_close(struct kolo_call *call)
{
    end_messages(call);
    kolo_bound_destroy(call->own_bound);
    free(call->args.v.all);
    free(call->scaled);
    free(call->wide_in);
    free(call->wide_out);
    call->own_bound = NULL;
    call->args.v.all = NULL;
    call->scaled = call->wide_in = call->wide_out = NULL;
}
