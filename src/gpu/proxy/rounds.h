// SPDX-License-Identifier: Apache-2.0
/* Rounds of copies between a GPU and pinned memory.
 *
 * A call is enqueued as rounds: in each, the stream waits for the word `done`, a kernel copies what
 * a batch in pinned memory says, and the stream stores to the word `ended` that the round is over.
 * After the rounds, the stream waits once more, until the call is over. The proxy's thread fills a
 * batch, stores to `done`, and reads `ended`. So it calls no driver while the stream waits: another
 * thread may have the driver's lock until that stream goes on. No kernel waits for anything, so
 * processes may share a GPU, and graphs hold rounds as they hold any kernel.
 *
 *   stream   wait done >= 1 | copy | ended = 1 | wait done >= 2 | copy | ended = 2 | wait ...
 *   thread   batch, done = 1 ........ ended >= 1: work; batch, done = 2 ..........
 *
 * Without kernels, and for the calls that staging.h names, a call has no rounds: the thread lets
 * the driver copy. */
#ifndef KOLO_GPU_PROXY_ROUNDS_H
#define KOLO_GPU_PROXY_ROUNDS_H

#include "core/comm.h"
#include "exec/gpu/copies/copies_layout.h"
#include "gpu/context/gpu.h"

#include <stdatomic.h>

struct kolo_rounds_plan {                       /* of a call */
    int rounds;                                 /* 0: the driver copies */
    struct kolo_gpu_block *room[KOLO_GPU_WAYS]; /* pinned, borrowed */
};

struct kolo_rounds_words { /* pinned; and as the GPU addresses them */
    _Atomic uint64_t *done, *ended;
    _Atomic uint32_t *stop; /* not 0: kernels copy nothing any more */
    struct kolo_copy_batch *batch[2];
    kolo_cuda_address done_at, ended_at, stop_at, batch_at[2];
};

struct kolo_rounds {
    const struct kolo_gpu *gpu;
    struct kolo_comm *host; /* its failure and its timeout end all waits */
    int most;               /* copies of a round, at most */
    struct kolo_rounds_words words;
    kolo_cuda_event event[2][KOLO_GPU_WAYS]; /* of the driver's copies of a round */

    struct kolo_rounds_plan plan; /* of the call that the thread serves */
    int gone;                     /* rounds of it that were let go */
    int count;                    /* copies of the next one; negative: its batch may be in use */

    /* Of who enqueues. The last one is the largest; calls may still use the others. */
    struct kolo_gpu_block *room[KOLO_GPU_WAYS];
};

/* Bytes of the words and batches. */
size_t kolo_rounds_bytes(int most);
/* Open it in such memory; *r has gpu, host and most, the rest is zero. Close it also after an
 * error. `lost`: the GPU may still copy to and from the rooms. Errors: SYSTEM. */
kolo_status kolo_rounds_open(struct kolo_rounds *r, void *pinned, kolo_cuda_address at);
void kolo_rounds_close(struct kolo_rounds *r, bool lost);

/* ---- for who enqueues ---- */

/* Set plan->room: of at least so many bytes each. Errors: SYSTEM. */
kolo_status kolo_rounds_take_room(struct kolo_rounds *r, const size_t bytes[KOLO_GPU_WAYS],
                                  struct kolo_rounds_plan *plan);
/* Enqueue the rounds of a call and the wait for its end. Errors: SYSTEM. */
kolo_status kolo_rounds_enqueue(const struct kolo_rounds *r, kolo_stream stream,
                                const struct kolo_rounds_plan *plan);
/* Entries of a stream that this takes. */
static inline int kolo_rounds_entries(const struct kolo_rounds_plan *plan)
{
    return 2 * plan->rounds + 1;
}

/* ---- for the thread ---- */

void kolo_rounds_begin(struct kolo_rounds *r, const struct kolo_rounds_plan *plan);
/* Add a copy between memory of the GPU and host memory to the next round. With a plan that has
 * rounds, `host` is in its room. Errors: ABORTED, TIMEOUT, SYSTEM. */
kolo_status kolo_rounds_copy(struct kolo_rounds *r, enum kolo_gpu_way way, const void *user,
                             void *host, size_t bytes);
/* Let the next round go. */
kolo_status kolo_rounds_go(struct kolo_rounds *r);
/* Wait until the first `rounds` rounds are over. They are the last one let go, or the one before. */
kolo_status kolo_rounds_wait(struct kolo_rounds *r, int rounds);
/* Wait until all copies are over; the driver's also after an error `st`. */
kolo_status kolo_rounds_finish(struct kolo_rounds *r, kolo_status st);
/* The call is over: let the stream go on. */
void kolo_rounds_end(struct kolo_rounds *r, const struct kolo_rounds_plan *plan);
/* Let the stream go on, whatever it waits for, and copy nothing more. For any thread. */
void kolo_rounds_abort(const struct kolo_rounds *r);

#endif
