// SPDX-License-Identifier: Apache-2.0
/* Slabs and their end. A rank's last kernel may be over while a kernel of another rank still stores
 * to its slab. So after its last kernel each rank writes `left` into the slabs of the other ranks.
 * A slab is freed when it has this word of all ranks. No rank waits for that: slabs that cannot be
 * freed yet are in a list, which every later end looks through. */
#include "gpu/p2p/inner.h"

#include <stdlib.h>

struct orphan {
    struct orphan *next;
    const struct kolo_cuda *cuda;
    int device;
    kolo_cuda_context context; /* retained */
    kolo_cuda_stream stream;
    kolo_cuda_address slab;
    int me, nranks;
};

static struct orphan *orphans;
static pthread_mutex_t orphans_lock = PTHREAD_MUTEX_INITIALIZER;

kolo_status kolo_p2p_path_slab_make(struct kolo_p2p_path *p)
{
    const size_t bytes = kolo_program_slab_bytes(&p->room);
    kolo_cuda_address *slab = &p->slab[p->comm->ranks.rank];
    KOLO_TRY(
        KOLO_CUDA(&p->gpu, "cuStreamCreate", stream_create(&p->stream, KOLO_CUDA_NON_BLOCKING)));
    KOLO_TRY(KOLO_CUDA(&p->gpu, "cuMemAlloc", mem_alloc(slab, bytes)));
    /* In a stream of its own, and over before another rank hears of the slab. cuMemsetD8 would only
     * queue it, behind the application's work in the default stream, and wipe out later signals. */
    KOLO_TRY(KOLO_CUDA(&p->gpu, "cuMemsetD8Async", memset_d8_async(*slab, 0, bytes, p->stream)));
    return KOLO_CUDA(&p->gpu, "cuStreamSynchronize", stream_synchronize(p->stream));
}

void kolo_p2p_path_slab_drop(struct kolo_p2p_path *p)
{
    kolo_cuda_address *slab = &p->slab[p->comm->ranks.rank];
    if (p->stream != NULL) { /* a failed wait has left the memset above in the stream */
        (void)p->gpu.cuda->stream_synchronize(p->stream);
    }
    if (*slab != 0) {
        (void)p->gpu.cuda->mem_free(*slab);
    }
    if (p->stream != NULL) {
        (void)p->gpu.cuda->stream_destroy(p->stream);
    }
    *slab = 0;
    p->stream = NULL;
}

/* ---- leaving ---- */

static kolo_cuda_address left_at(kolo_cuda_address slab, int rank)
{
    return slab + offsetof(struct kolo_program_slice, left) + (size_t)rank * sizeof(uint32_t);
}

static bool say_left(struct kolo_p2p_path *p)
{
    static const uint32_t one = 1;
    bool said = true;
    for (int q = 0; q < p->comm->ranks.nranks; q++) {
        if (q != p->comm->ranks.rank) {
            said = p->gpu.cuda->memcpy_htod_async(left_at(p->slab[q], p->comm->ranks.rank), &one,
                                                  sizeof one, p->stream) == KOLO_CUDA_OK &&
                   said;
        }
    }
    return p->gpu.cuda->stream_synchronize(p->stream) == KOLO_CUDA_OK && said;
}

/* Whether all ranks have left a slab; its context is current. */
static bool all_left(const struct orphan *o)
{
    uint32_t left[KOLO_PROGRAM_RANKS] = {0};
    int count = 1;
    if (o->cuda->memcpy_dtoh_async(left, left_at(o->slab, 0), sizeof left, o->stream) !=
            KOLO_CUDA_OK ||
        o->cuda->stream_synchronize(o->stream) != KOLO_CUDA_OK) {
        return false;
    }
    for (int q = 0; q < o->nranks; q++) {
        count += q != o->me && left[q] != 0;
    }
    return count == o->nranks;
}

static bool bury(struct orphan *o)
{
    kolo_cuda_context context = NULL;
    if (o->cuda->ctx_push_current(o->context) != KOLO_CUDA_OK) {
        return false;
    }
    const bool over = all_left(o);
    if (over) {
        (void)o->cuda->mem_free(o->slab);
        (void)o->cuda->stream_destroy(o->stream);
    }
    (void)o->cuda->ctx_pop_current(&context);
    if (over) {
        (void)o->cuda->device_primary_ctx_release(o->device);
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
    if (o == NULL ||
        p->gpu.cuda->device_primary_ctx_retain(&o->context, p->gpu.device) != KOLO_CUDA_OK) {
        free(o); /* the slab stays with the driver */
        return;
    }
    o->cuda = p->gpu.cuda;
    o->device = p->gpu.device;
    o->stream = p->stream;
    o->slab = p->slab[p->comm->ranks.rank];
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
