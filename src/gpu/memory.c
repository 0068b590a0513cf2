// SPDX-License-Identifier: Apache-2.0
/* GPU memory for kolo_mem_alloc_on(). Each is an allocation of its own, by cuMemAlloc(), so that
 * other processes can open it. */
#include "gpu/memory.h"

#include "cuda/driver.h"

#include <pthread.h>
#include <stdlib.h>

struct allocation {
    struct allocation *next;
    kolo_cuda_address at;
    int device; /* the driver's number */
    kolo_cuda_context context;
};
static struct allocation *allocations;
static pthread_mutex_t allocations_lock = PTHREAD_MUTEX_INITIALIZER;

static kolo_status alloc_in_context(const struct kolo_cuda *cuda, struct allocation *a,
                                    size_t bytes)
{
    kolo_cuda_context popped = NULL;
    KOLO_TRY(kolo_cuda_check(cuda, cuda->device_primary_ctx_retain(&a->context, a->device),
                             "cuDevicePrimaryCtxRetain"));
    kolo_status st = kolo_cuda_check(cuda, cuda->ctx_push_current(a->context), "cuCtxPushCurrent");
    if (st == KOLO_OK) {
        st = kolo_cuda_check(cuda, cuda->mem_alloc(&a->at, bytes), "cuMemAlloc");
        (void)cuda->ctx_pop_current(&popped);
    }
    if (st != KOLO_OK) {
        (void)cuda->device_primary_ctx_release(a->device);
    }
    return st;
}

static void free_in_context(const struct kolo_cuda *cuda, const struct allocation *a)
{
    kolo_cuda_context popped = NULL;
    if (cuda->ctx_push_current(a->context) == KOLO_CUDA_OK) {
        (void)cuda->mem_free(a->at);
        (void)cuda->ctx_pop_current(&popped);
    }
    (void)cuda->device_primary_ctx_release(a->device);
}

kolo_status kolo_gpu_memory_alloc(int device, size_t bytes, void **out)
{
    const struct kolo_cuda *cuda = NULL;
    struct allocation *made = NULL;
    int count = 0;
    KOLO_TRY(kolo_cuda_open(&cuda));
    KOLO_TRY(kolo_cuda_check(cuda, cuda->device_get_count(&count), "cuDeviceGetCount"));
    if (device >= count) {
        return kolo_fail(KOLO_ERR_INVALID,
                         "device is %d; CUDA has %d devices here, numbered from 0", device, count);
    }
    made = calloc(1, sizeof *made);
    if (made == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for an allocation");
    }
    kolo_status st = kolo_cuda_check(cuda, cuda->device_get(&made->device, device), "cuDeviceGet");
    st = st == KOLO_OK ? alloc_in_context(cuda, made, bytes) : st;
    if (st != KOLO_OK) {
        free(made);
        return st;
    }
    pthread_mutex_lock(&allocations_lock);
    made->next = allocations;
    allocations = made;
    pthread_mutex_unlock(&allocations_lock);
    *out = (void *)(uintptr_t)made->at;
    return KOLO_OK;
}

bool kolo_gpu_memory_free(void *ptr)
{
    struct allocation *found = NULL;
    const struct kolo_cuda *cuda = NULL;
    pthread_mutex_lock(&allocations_lock);
    for (struct allocation **at = &allocations; *at != NULL; at = &(*at)->next) {
        if ((*at)->at == (uintptr_t)ptr) {
            found = *at;
            *at = found->next;
            break;
        }
    }
    pthread_mutex_unlock(&allocations_lock);
    if (found == NULL) {
        return false;
    }
    if (kolo_cuda_open(&cuda) == KOLO_OK) {
        free_in_context(cuda, found);
    }
    free(found);
    return true;
}
