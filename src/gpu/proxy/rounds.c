// SPDX-License-Identifier: Apache-2.0
/* Rounds of copies: the words, the batches, and what is enqueued. */
#include "gpu/proxy/rounds.h"

#include "util/util.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

enum { LINE = 128 }; /* done, ended and stop, each apart; then the batches */

/* ---- opening and closing ---- */

static size_t batch_bytes(int most)
{
    return kolo_round_up(sizeof(struct kolo_copy_batch) + (size_t)most * sizeof(struct kolo_copy),
                         LINE);
}

size_t kolo_rounds_bytes(int most)
{
    return 3 * (size_t)LINE + 2 * batch_bytes(most);
}

kolo_status kolo_rounds_open(struct kolo_rounds *r, void *pinned, kolo_cuda_address at)
{
    char *const host = pinned;
    struct kolo_rounds_words *w = &r->words;
    w->done = pinned;
    w->ended = (void *)(host + LINE);
    w->stop = (void *)(host + 2 * LINE);
    w->done_at = at;
    w->ended_at = at + LINE;
    w->stop_at = at + 2 * LINE;
    for (int i = 0; i < 2; i++) {
        const size_t offset = 3 * (size_t)LINE + (size_t)i * batch_bytes(r->most);
        w->batch[i] = (void *)(host + offset);
        w->batch_at[i] = at + offset;
        for (int way = 0; way < KOLO_GPU_WAYS; way++) {
            KOLO_TRY(KOLO_CUDA(r->gpu, "cuEventCreate",
                               event_create(&r->event[i][way], KOLO_CUDA_DISABLE_TIMING)));
        }
    }
    return KOLO_OK;
}

void kolo_rounds_close(struct kolo_rounds *r, bool lost)
{
    for (int way = 0; way < KOLO_GPU_WAYS; way++) {
        for (int i = 0; i < 2; i++) {
            if (r->event[i][way] != NULL) {
                (void)r->gpu->cuda->event_destroy(r->event[i][way]);
            }
        }
        while (r->room[way] != NULL && !lost) {
            struct kolo_gpu_block *block = r->room[way];
            r->room[way] = block->next;
            kolo_gpu_pool_give(r->gpu->pool, block);
        }
    }
}

/* ---- enqueueing ---- */

/* Sizes are powers of two, so that all rooms together are at most twice as large as the last one. */
static kolo_status grow_room(struct kolo_rounds *r, size_t bytes, struct kolo_gpu_block **room)
{
    struct kolo_gpu_block *larger = NULL;
    size_t size = *room != NULL ? (*room)->bytes : 1;
    int mode = 2; /* CU_STREAM_CAPTURE_MODE_RELAXED; then the mode before */
    while (size < bytes) {
        size *= 2;
    }
    KOLO_TRY(KOLO_CUDA(r->gpu, "cuThreadExchangeStreamCaptureMode",
                       thread_exchange_stream_capture_mode(&mode)));
    const kolo_status st = kolo_gpu_pool_take(r->gpu->pool, KOLO_GPU_PINNED, size, &larger);
    (void)r->gpu->cuda->thread_exchange_stream_capture_mode(&mode);
    KOLO_TRY(st);
    larger->next = *room;
    *room = larger;
    return KOLO_OK;
}

kolo_status kolo_rounds_take_room(struct kolo_rounds *r, const size_t bytes[KOLO_GPU_WAYS],
                                  struct kolo_rounds_plan *plan)
{
    for (int way = 0; way < KOLO_GPU_WAYS; way++) {
        if (r->room[way] == NULL || r->room[way]->bytes < bytes[way]) {
            KOLO_TRY(grow_room(r, bytes[way], &r->room[way]));
        }
        plan->room[way] = r->room[way];
    }
    return KOLO_OK;
}

/* Behind so many rounds: tell that they are over, and wait for the next one, or for the call's end.
 * The thread stores 0 to `ended` before the first round. */
static kolo_status enqueue_wait(const struct kolo_rounds *r, kolo_stream stream, int rounds,
                                bool last)
{
    const uint64_t behind = (uint64_t)rounds;
    struct kolo_cuda_stream_op ops[] = {
        {.kind = KOLO_CUDA_WRITE_64, .at = r->words.ended_at, .value = behind},
        {.kind = KOLO_CUDA_WAIT_64, .at = r->words.done_at, .value = behind + 1},
        {.kind = KOLO_CUDA_WRITE_64, .at = r->words.done_at, .value = 0}};
    const int from = rounds > 0 ? 0 : 1, to = last ? 3 : 2;
    return KOLO_CUDA(r->gpu, "cuStreamBatchMemOp",
                     stream_batch_mem_op(stream, (unsigned)(to - from), ops + from, 0));
}

static kolo_status enqueue_kernel(const struct kolo_rounds *r, kolo_stream stream, int round)
{
    struct kolo_copies_launch launch = {r->words.stop_at, r->words.batch_at[round % 2]};
    void *arguments[] = {&launch};
    const unsigned blocks = (unsigned)kolo_min(KOLO_COPIES_BLOCKS, r->gpu->sms);
    return KOLO_CUDA(r->gpu, "cuLaunchKernel",
                     launch_kernel(r->gpu->copies, blocks, 1, 1, KOLO_COPIES_THREADS, 1, 1, 0,
                                   stream, arguments, NULL));
}

kolo_status kolo_rounds_enqueue(const struct kolo_rounds *r, kolo_stream stream,
                                const struct kolo_rounds_plan *plan)
{
    for (int i = 0; i < plan->rounds; i++) {
        KOLO_TRY(enqueue_wait(r, stream, i, false));
        KOLO_TRY(enqueue_kernel(r, stream, i));
    }
    return enqueue_wait(r, stream, plan->rounds, true);
}

/* ---- the thread ---- */

void kolo_rounds_begin(struct kolo_rounds *r, const struct kolo_rounds_plan *plan)
{
    r->plan = *plan;
    atomic_store(r->words.ended, 0);
    r->gone = 0;
    r->count = -1;
}

static kolo_status wait_for_stream(const struct kolo_rounds *r, uint64_t rounds)
{
    enum { SPIN_US = 1000 };
    const struct timespec nap = {0, 20 * 1000};
    const double start = kolo_now_us(), limit = r->host->options.timeout_ms * 1e3;
    while (atomic_load_explicit(r->words.ended, memory_order_acquire) < rounds) {
        const double waited = kolo_now_us() - start;
        if (atomic_load(&r->host->failure.error) != KOLO_OK) {
            return kolo_fail(KOLO_ERR_ABORTED, "the communicator was ended");
        }
        if (waited > limit) {
            return kolo_fail(KOLO_ERR_TIMEOUT, "GPU %d has copied nothing for %d ms",
                             r->gpu->ordinal, r->host->options.timeout_ms);
        }
        if (waited > SPIN_US) {
            (void)nanosleep(&nap, NULL);
        } else {
            (void)sched_yield(); /* the core may be what the other end waits for */
        }
    }
    return KOLO_OK;
}

kolo_status kolo_rounds_wait(struct kolo_rounds *r, int rounds)
{
    if (r->plan.rounds > 0) {
        return wait_for_stream(r, (uint64_t)rounds);
    }
    for (int way = 0; way < KOLO_GPU_WAYS; way++) {
        KOLO_TRY(KOLO_CUDA(r->gpu, "cuEventSynchronize",
                           event_synchronize(r->event[(rounds - 1) % 2][way])));
    }
    return KOLO_OK;
}

/* The next round has the batch of the round before the last one. */
static kolo_status take_batch(struct kolo_rounds *r)
{
    if (r->count < 0) {
        KOLO_TRY(r->gone >= 2 ? kolo_rounds_wait(r, r->gone - 1) : KOLO_OK);
        r->count = 0;
    }
    return KOLO_OK;
}

static void add_copy(struct kolo_rounds *r, enum kolo_gpu_way way, const void *user,
                     const void *host, size_t bytes)
{
    const struct kolo_gpu_block *room = r->plan.room[way];
    struct kolo_copy_batch *batch = r->words.batch[r->gone % 2];
    const uint64_t pinned = room->at + (uint64_t)((const char *)host - (const char *)room->host);
    struct kolo_copy *copy = (struct kolo_copy *)(void *)(batch + 1) + r->count++;
    *copy = (struct kolo_copy){.from = way == KOLO_GPU_FROM ? (uintptr_t)user : pinned,
                               .to = way == KOLO_GPU_FROM ? pinned : (uintptr_t)user,
                               .bytes = bytes};
}

kolo_status kolo_rounds_copy(struct kolo_rounds *r, enum kolo_gpu_way way, const void *user,
                             void *host, size_t bytes)
{
    const kolo_cuda_stream stream = r->gpu->pool->stream[way];
    KOLO_TRY(take_batch(r));
    if (bytes == 0) {
        return KOLO_OK;
    }
    if (r->plan.rounds > 0) {
        add_copy(r, way, user, host, bytes);
        return KOLO_OK;
    }
    return way == KOLO_GPU_FROM
               ? KOLO_CUDA(r->gpu, "cuMemcpyDtoHAsync",
                           memcpy_dtoh_async(host, (uintptr_t)user, bytes, stream))
               : KOLO_CUDA(r->gpu, "cuMemcpyHtoDAsync",
                           memcpy_htod_async((uintptr_t)user, host, bytes, stream));
}

kolo_status kolo_rounds_go(struct kolo_rounds *r)
{
    KOLO_TRY(take_batch(r));
    const int this = r->gone % 2;
    if (r->plan.rounds > 0) {
        r->words.batch[this]->count = (uint64_t)r->count;
        atomic_store_explicit(r->words.done, (uint64_t)r->gone + 1, memory_order_release);
    }
    for (int way = 0; way < KOLO_GPU_WAYS && r->plan.rounds == 0; way++) {
        KOLO_TRY(KOLO_CUDA(r->gpu, "cuEventRecord",
                           event_record(r->event[this][way], r->gpu->pool->stream[way])));
    }
    r->gone++;
    r->count = -1;
    return KOLO_OK;
}

kolo_status kolo_rounds_finish(struct kolo_rounds *r, kolo_status st)
{
    if (r->plan.rounds > 0) {
        return st == KOLO_OK ? kolo_rounds_wait(r, r->gone) : st;
    }
    if (r->gone == 0 && r->count < 0) { /* there are none */
        return st;
    }
    for (int way = 0; way < KOLO_GPU_WAYS; way++) {
        const kolo_status over =
            KOLO_CUDA(r->gpu, "cuStreamSynchronize", stream_synchronize(r->gpu->pool->stream[way]));
        st = st == KOLO_OK ? over : st;
    }
    return st;
}

void kolo_rounds_end(struct kolo_rounds *r, const struct kolo_rounds_plan *plan)
{
    atomic_store_explicit(r->words.done, (uint64_t)plan->rounds + 1, memory_order_release);
}

void kolo_rounds_abort(const struct kolo_rounds *r)
{
    atomic_store(r->words.stop, 1);
    atomic_store_explicit(r->words.done, INT64_MAX, memory_order_release);
}
