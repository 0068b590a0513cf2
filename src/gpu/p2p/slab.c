// SPDX-License-Identifier: Apache-2.0
/* Slabs and their end. A rank's last kernel may be over while a kernel of another rank still stores
 * to its slab. So after its last kernel each rank writes `left` into the slabs of the other ranks.
 * The pool of the GPU gets a slab back when it has this word of all ranks. No rank waits for that:
 * until then the slab is in a list, which every later end looks through. */
#include "gpu/p2p/inner.h"

#include <stdlib.h>

struct orphan {
    struct orphan *next;
    struct kolo_gpu_pool *pool; /* a user of it */
    struct kolo_gpu_block *slab;
    int me, nranks;
};

static struct orphan *orphans;
static pthread_mutex_t orphans_lock = PTHREAD_MUTEX_INITIALIZER;

static kolo_cuda_stream stream_of(const struct kolo_gpu_pool *pool)
{
    return pool->stream[KOLO_GPU_TO];
}

kolo_status kolo_p2p_path_slab_make(struct kolo_p2p_path *p)
{
    const size_t bytes = kolo_program_slab_bytes(&p->room);
    const kolo_cuda_stream stream = stream_of(p->gpu.pool);
    KOLO_TRY(kolo_gpu_pool_take(p->gpu.pool, KOLO_GPU_MEMORY, bytes, &p->own));
    p->slab[p->comm->ranks.rank] = p->own->at;
    /* Over before another rank hears of the slab. cuMemsetD8 would only queue it, behind the
     * application's work in the default stream, and wipe out later signals. */
    KOLO_TRY(KOLO_CUDA(&p->gpu, "cuMemsetD8Async", memset_d8_async(p->own->at, 0, bytes, stream)));
    return KOLO_CUDA(&p->gpu, "cuStreamSynchronize", stream_synchronize(stream));
}

void kolo_p2p_path_slab_drop(struct kolo_p2p_path *p)
{
    if (p->own != NULL) { /* a failed wait has left the memset above in the stream */
        (void)p->gpu.cuda->stream_synchronize(stream_of(p->gpu.pool));
        kolo_gpu_pool_give(p->gpu.pool, p->own);
    }
    p->slab[p->comm->ranks.rank] = 0;
    p->own = NULL;
}

/* ---- leaving ---- */

static kolo_cuda_address left_at(kolo_cuda_address slab, int rank)
{
    return slab + offsetof(struct kolo_program_slice, left) + (size_t)rank * sizeof(uint32_t);
}

static bool say_left(struct kolo_p2p_path *p)
{
    static const uint32_t one = 1;
    const kolo_cuda_stream stream = stream_of(p->gpu.pool);
    bool said = true;
    for (int q = 0; q < p->comm->ranks.nranks; q++) {
        if (q != p->comm->ranks.rank) {
            said = p->gpu.cuda->memcpy_htod_async(left_at(p->slab[q], p->comm->ranks.rank), &one,
                                                  sizeof one, stream) == KOLO_CUDA_OK &&
                   said;
        }
    }
    return p->gpu.cuda->stream_synchronize(stream) == KOLO_CUDA_OK && said;
}

/* Whether all ranks have left a slab; its context is current. */
static bool all_left(const struct orphan *o)
{
    const struct kolo_cuda *cuda = o->pool->cuda;
    const kolo_cuda_stream stream = stream_of(o->pool);
    uint32_t left[KOLO_PROGRAM_RANKS] = {0};
    int count = 1;
    if (cuda->memcpy_dtoh_async(left, left_at(o->slab->at, 0), sizeof left, stream) !=
            KOLO_CUDA_OK ||
        cuda->stream_synchronize(stream) != KOLO_CUDA_OK) {
        return false;
    }
    for (int q = 0; q < o->nranks; q++) {
        count += q != o->me && left[q] != 0;
    }
    return count == o->nranks;
}

/* The driver frees nothing here: kernels of other communicators may be waiting for this very
 * thread. */
static bool bury(const struct orphan *o)
{
    kolo_cuda_context context = NULL;
    if (o->pool->cuda->ctx_push_current(o->pool->context) != KOLO_CUDA_OK) {
        return false;
    }
    const bool over = all_left(o);
    (void)o->pool->cuda->ctx_pop_current(&context);
    if (over) {
        kolo_gpu_pool_give(o->pool, o->slab);
        kolo_gpu_pool_leave(o->pool);
    }
    return over;
}

static void bury_all(void)
{
    pthread_mutex_lock(&orphans_lock);
    for (struct orphan **at = &orphans; *at != NULL;) {
        struct orphan *o = *at;
        if (bury(o)) {
            *at = o->next;
            free(o);
        } else {
            at = &o->next;
        }
    }
    pthread_mutex_unlock(&orphans_lock);
}

void kolo_p2p_path_slab_leave(struct kolo_p2p_path *p)
{
    struct orphan *o = calloc(1, sizeof *o);
    const bool said = say_left(p);
    if (o == NULL || kolo_gpu_pool_join(p->gpu.cuda, p->gpu.device, &o->pool) != KOLO_OK) {
        free(o); /* the slab stays with the driver */
        return;
    }
    o->slab = p->own;
    o->me = p->comm->ranks.rank;
    o->nranks = p->comm->ranks.nranks;
    if (!said) {
        KOLO_LOG(WARN, INIT, "GPU %d: the memory of other GPUs could not be released",
                 p->gpu.ordinal);
    }
    pthread_mutex_lock(&orphans_lock);
    o->next = orphans;
    orphans = o;
    pthread_mutex_unlock(&orphans_lock);
    bury_all();
}
