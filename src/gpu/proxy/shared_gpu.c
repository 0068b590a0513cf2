// SPDX-License-Identifier: Apache-2.0
/* A call of ranks that share a GPU: the meeting of the ranks before it is enqueued, and the
 * kernel. */
#include "gpu/proxy/shared_gpu.h"

#include "core/call/parts.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum outcome { DONE = 0, CANNOT_OPEN = 1 }; /* a negative value is a status */

kolo_status kolo_shared_gpu_open(struct kolo_shared_gpu *l)
{
    return kolo_unix_socket_open(l->host, &l->sockets);
}

/* ---- meeting ---- */

/* Log once that rank 0 cannot open memory of rank q. Other memory may be better. */
static void say_closed(struct kolo_shared_gpu *l, int q)
{
    if (!l->said) {
        l->said = true;
        KOLO_LOG(
            INFO, INIT,
            "rank 0 cannot open a buffer of rank %d on GPU %d (managed memory, a pool, several "
            "allocations, or a mapping that is still in its place); such calls go through the "
            "host",
            q, l->gpu->ordinal);
    }
}

static kolo_status check_offer(const struct kolo_shared_gpu_offer *first,
                               const struct kolo_shared_gpu_offer *offer, int q)
{
    if (offer->key != first->key) {
        return kolo_fail(KOLO_ERR_MISMATCH,
                         "ranks 0 and %d are in different calls on memory of their GPU", q);
    }
    if (offer->captured != first->captured) {
        return kolo_fail(KOLO_ERR_MISMATCH,
                         "rank %d's call is in a graph, and rank %d's is not; all ranks capture a "
                         "call, or none does",
                         offer->captured != 0 ? q : 0, offer->captured != 0 ? 0 : q);
    }
    return KOLO_OK;
}

/* On rank 0: wait for the offers of all ranks, and open their memory. *closed_out: a rank whose
 * memory cannot be opened. */
static kolo_status take_offers(struct kolo_shared_gpu *l, const struct kolo_shared_gpu_offer *mine,
                               struct kolo_fused_rank *ranks, int *closed_out)
{
    struct kolo_shared_gpu_offer offer[KOLO_FUSED_RANKS] = {*mine};
    const int n = l->host->ranks.nranks;
    for (int q = 1; q < n; q++) {
        KOLO_TRY(kolo_recv(&offer[q], sizeof offer[q], KOLO_UINT8, q, l->desk, NULL));
        KOLO_TRY(check_offer(mine, &offer[q], q));
    }
    kolo_shared_gpu_take_descriptors(l);
    for (int q = 0; q < n; q++) { /* all, so that the next call finds nothing stale */
        ranks[q].factor = offer[q].factor;
        const bool open = offer[q].usable != 0 &&
                          kolo_shared_gpu_open_memory(l, q, &offer[q].in, &ranks[q].in) &&
                          kolo_shared_gpu_open_memory(l, q, &offer[q].out, &ranks[q].out);
        *closed_out = open ? *closed_out : q;
    }
    return KOLO_OK;
}

static kolo_status lead_meeting(struct kolo_shared_gpu *l, const struct kolo_shared_gpu_offer *mine,
                                struct kolo_fused_rank **ranks_out)
{
    int closed = -1;
    struct kolo_fused_rank *ranks = calloc((size_t)l->host->ranks.nranks, sizeof *ranks);
    if (ranks == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for %d ranks", l->host->ranks.nranks);
    }
    const kolo_status st = take_offers(l, mine, ranks, &closed);
    if (closed >= 0) {
        say_closed(l, closed);
    }
    if (st == KOLO_OK && closed < 0) {
        *ranks_out = ranks;
        return KOLO_OK;
    }
    free(ranks);
    return st;
}

kolo_status kolo_shared_gpu_meet(struct kolo_shared_gpu *l, const struct kolo_gpu_call *call,
                                 bool captured, struct kolo_shared_gpu_met *out)
{
    const struct kolo_shared_gpu_offer mine = kolo_shared_gpu_offer(l, call, captured);
    *out = (struct kolo_shared_gpu_met){.key = mine.key, .number = ++l->meetings};
    return l->host->ranks.rank == 0 ? lead_meeting(l, &mine, &out->ranks)
                                    : kolo_send(&mine, sizeof mine, KOLO_UINT8, 0, l->desk, NULL);
}

/* ---- running ---- */

static bool is_ended(const struct kolo_shared_gpu *l)
{
    return atomic_load(&l->host->failure.error) != KOLO_OK;
}

/* Wait for the kernel. A GPU that has failed ends no kernel, and says so to any call. That call may
 * wait for another thread of the process, which waits for the kernel at most. */
static kolo_status wait_for_kernel(struct kolo_shared_gpu *l, kolo_cuda_stream own)
{
    enum { SPIN_US = 1000, ASK_US = 1000000 };
    const struct timespec nap = {0, 20 * 1000};
    const double start = kolo_now_us();
    double asked = start;
    while (atomic_load_explicit(l->words.ended, memory_order_acquire) == 0) {
        const double now = kolo_now_us();
        if (is_ended(l)) {
            return kolo_fail(KOLO_ERR_ABORTED, "the communicator was ended");
        }
        if (now - asked > ASK_US) {
            asked = now;
            KOLO_TRY(KOLO_CUDA(l->gpu, "cuStreamSynchronize", stream_synchronize(own)));
        }
        if (now - start > SPIN_US) {
            (void)nanosleep(&nap, NULL);
        }
    }
    return KOLO_OK;
}

/* On rank 0: let the kernel go over the memory of all ranks. */
static kolo_status lead_call(struct kolo_shared_gpu *l, const struct kolo_shared_gpu_met *met,
                             kolo_cuda_stream own, bool *released_out)
{
    struct kolo_fused_table *table = l->words.table;
    if (is_ended(l)) { /* the stream may have gone on without this call */
        return kolo_fail(KOLO_ERR_ABORTED, "the communicator was ended");
    }
    memcpy(table->rank, met->ranks, (size_t)l->host->ranks.nranks * sizeof *met->ranks);
    atomic_store(l->words.ended, 0);
    __atomic_store_n(&table->aborted, 0, __ATOMIC_RELEASE);
    atomic_store_explicit(l->words.done, 1, memory_order_release);
    *released_out = true;
    const kolo_status st = wait_for_kernel(l, own);
    __atomic_store_n(&table->aborted, 1, __ATOMIC_RELEASE);
    return st;
}

kolo_status kolo_shared_gpu_enqueue(struct kolo_shared_gpu *l, const struct kolo_gpu_call *call)
{
    struct kolo_fused_launch argument = {.table = l->words.table_at};
    struct kolo_cuda_stream_op op = {
        .kind = KOLO_CUDA_WRITE_32, .at = l->words.ended_at, .value = 1};
    KOLO_TRY(kolo_gpu_launch(l->gpu, l->host->ranks.nranks, call, &argument));
    return KOLO_CUDA(l->gpu, "cuStreamBatchMemOp", stream_batch_mem_op(call->stream, 1, &op, 0));
}

struct arrival { /* what a rank tells all ranks when its stream has come to a call */
    uint64_t key, number;
};

/* The streams of all ranks come to the call that they met for. Launches of graphs may come in
 * another order. */
static kolo_status arrive(struct kolo_shared_gpu *l, const struct kolo_shared_gpu_met *met)
{
    struct arrival all[KOLO_FUSED_RANKS], mine = {met->key, met->number};
    KOLO_TRY(kolo_all_gather(&mine, all, sizeof mine, KOLO_UINT8, l->host, NULL));
    for (int q = 1; q < l->host->ranks.nranks; q++) {
        if (all[q].key != all[0].key || all[q].number != all[0].number) {
            return kolo_fail(KOLO_ERR_MISMATCH,
                             "ranks 0 and %d are in different calls on memory of their GPU", q);
        }
    }
    return KOLO_OK;
}

kolo_status kolo_shared_gpu_run(struct kolo_shared_gpu *l, const struct kolo_shared_gpu_met *met,
                                kolo_cuda_stream own, bool *done_out, bool *released_out)
{
    int32_t mine = CANNOT_OPEN, outcome = DONE;
    KOLO_TRY(arrive(l, met));
    if (met->ranks != NULL) {
        mine = (int32_t)lead_call(l, met, own, released_out);
    }
    KOLO_TRY(kolo_broadcast(&mine, &outcome, 1, KOLO_INT32, 0, l->host, NULL));
    if (outcome < 0) {
        return l->host->ranks.rank == 0
                   ? (kolo_status)outcome
                   : kolo_fail((kolo_status)outcome,
                               "rank 0 could not run the kernel for all ranks");
    }
    *done_out = outcome == DONE;
    if (outcome == CANNOT_OPEN) {
        atomic_store(&l->forget, true);
    }
    return KOLO_OK;
}
