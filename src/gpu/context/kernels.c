// SPDX-License-Identifier: Apache-2.0
/* The kernels on a GPU. All communicators of the process share them, and they stay with the pool.
 * The driver loads and unloads when the GPU has done all its work, and lets no other call pass
 * meanwhile; so loading them for a communicator while another one's call waits for a rank would
 * wait for ever. For the same reason all kernels are loaded before any is launched (CUDA C++
 * Programming Guide, "Lazy Loading"). */
#include "exec/gpu/copies/copies_layout.h"
#include "exec/reduce/reduce.h"
#include "gpu/context/gpu.h"
#include "plan/plan.h"
#include "util/library.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KERNELS = 128 };
enum { REDUCES, COPIES, SWAPS, KINDS }; /* of collectives: all that a kernel depends on */

struct kernel {
    char name[KOLO_FUSED_NAME];
    kolo_cuda_function function;
};

struct kolo_gpu_kernels {
    bool stores;
    kolo_cuda_module module;
    struct kernel kernel[KERNELS];
    int nkernels;
    kolo_cuda_function copies;
    /* The same by what a call is; NULL: no such call. COPIES and SWAPS use operation 0. */
    kolo_cuda_function by[KINDS][KOLO_TYPES][KOLO_OPS + 1], ll[KINDS][KOLO_TYPES][KOLO_OPS + 1];
};

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER; /* of the kernels of all pools */

/* ---- loading ---- */

/* Read the cubin, PTX or fatbin that KOLO_CUDA_KERNELS names. A zero follows it, because PTX is a
 * string. */
static kolo_status read_image(const char *path, char **out)
{
    char why[KOLO_WHY_BYTES];
    char *real = NULL;
    const kolo_status allowed = kolo_code_path(path, true, &real, why);
    if (allowed != KOLO_OK) {
        return kolo_fail(allowed, "KOLO_CUDA_KERNELS refused: %s", why);
    }
    FILE *file = fopen(real, "rbe");
    free(real);
    long bytes = -1;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0) {
        bytes = ftell(file);
    }
    char *image = bytes >= 0 ? calloc((size_t)bytes + 1, 1) : NULL;
    const bool whole = image != NULL && fseek(file, 0, SEEK_SET) == 0 &&
                       fread(image, 1, (size_t)bytes, file) == (size_t)bytes;
    if (file != NULL) {
        (void)fclose(file);
    }
    if (!whole) {
        free(image);
        return kolo_fail(KOLO_ERR_SYSTEM, "KOLO_CUDA_KERNELS: %s cannot be read", path);
    }
    *out = image;
    return KOLO_OK;
}

static kolo_status load_module(struct kolo_gpu_kernels *k, const struct kolo_cuda *cuda)
{
    const char *path = kolo_code_variable("KOLO_CUDA_KERNELS");
    const void *image = k->stores ? kolo_program_image() : kolo_fused_image();
    char *read = NULL;
    if (path != NULL) {
        KOLO_TRY(read_image(path, &read));
    } else if (image == NULL) {
        return kolo_fail(KOLO_ERR_UNSUPPORTED,
                         "this kolo was built without nvcc, so without kernels for GPUs");
    }
    const kolo_status st = kolo_cuda_load(cuda, read != NULL ? read : image, &k->module);
    free(read);
    return st;
}

static kolo_cuda_function find_kernel(const struct kolo_gpu_kernels *k, const char *name)
{
    for (int i = 0; i < k->nkernels; i++) {
        if (strcmp(k->kernel[i].name, name) == 0) {
            return k->kernel[i].function;
        }
    }
    return NULL;
}

static void name_kernel(const struct kolo_gpu_kernels *k, enum kolo_coll coll, enum kolo_type type,
                        kolo_op op, char out[KOLO_FUSED_NAME])
{
    if (k->stores) {
        kolo_program_name(coll, type, op, out);
    } else {
        kolo_fused_name(coll, type, op, out);
    }
}

static kolo_status load_kernel(struct kolo_gpu_kernels *k, const struct kolo_cuda *cuda,
                               const char *name)
{
    struct kernel *next = &k->kernel[k->nkernels];
    if (find_kernel(k, name) != NULL) {
        return KOLO_OK;
    }
    assert(k->nkernels < KERNELS);
    memcpy(next->name, name, sizeof next->name);
    KOLO_TRY(kolo_cuda_function_find(cuda, k->module, next->name, &next->function));
    k->nkernels++;
    return KOLO_OK;
}

static int kind_of(enum kolo_coll coll)
{
    return kolo_coll_reduces(coll) ? REDUCES : coll == KOLO_COLL_ALL_TO_ALL ? SWAPS : COPIES;
}

/* Load the kernels of a type. Several types share some of them. */
static kolo_status load_of_type(struct kolo_gpu_kernels *k, const struct kolo_cuda *cuda,
                                enum kolo_coll coll, enum kolo_type type)
{
    char name[KOLO_FUSED_NAME];
    const int kind = kind_of(coll);
    for (kolo_op op = 0; op <= (kind == REDUCES ? KOLO_OPS : 0); op++) {
        if (kind == REDUCES && !kolo_op_valid(type, op == KOLO_OPS ? KOLO_AVG : op)) {
            continue;
        }
        name_kernel(k, coll, type, op, name);
        KOLO_TRY(load_kernel(k, cuda, name));
        k->by[kind][type][op] = find_kernel(k, name);
        if (k->stores) {
            kolo_ll_name(coll, type, op, name);
            KOLO_TRY(load_kernel(k, cuda, name));
            k->ll[kind][type][op] = find_kernel(k, name);
        }
    }
    return KOLO_OK;
}

static kolo_status load_all(struct kolo_gpu_kernels *k, const struct kolo_cuda *cuda)
{
    static const enum kolo_coll colls[] = {KOLO_COLL_ALL_REDUCE, KOLO_COLL_BROADCAST,
                                           KOLO_COLL_ALL_TO_ALL};
    KOLO_TRY(load_module(k, cuda));
    KOLO_TRY(kolo_cuda_function_find(cuda, k->module, KOLO_COPIES_NAME, &k->copies));
    for (size_t i = 0; i < KOLO_LENGTH(colls); i++) {
        for (int type = 0; type < KOLO_TYPES; type++) {
            KOLO_TRY(load_of_type(k, cuda, colls[i], (enum kolo_type)type));
        }
    }
    return KOLO_OK;
}

/* ---- sharing ---- */

static void unload_all(struct kolo_gpu_kernels *k, const struct kolo_cuda *cuda)
{
    if (k->module != NULL) {
        (void)cuda->module_unload(k->module);
    }
    free(k);
}

static kolo_status load_locked(const struct kolo_gpu *gpu, bool stores,
                               struct kolo_gpu_kernels **out)
{
    struct kolo_gpu_kernels **kept = &gpu->pool->kernels[stores];
    if (*kept == NULL) {
        struct kolo_gpu_kernels *k = calloc(1, sizeof *k);
        if (k == NULL) {
            return kolo_fail(KOLO_ERR_SYSTEM, "out of memory for the kernels of a GPU");
        }
        k->stores = stores;
        const kolo_status st = load_all(k, gpu->cuda);
        if (st != KOLO_OK) {
            unload_all(k, gpu->cuda);
            return st;
        }
        *kept = k;
    }
    *out = *kept;
    return KOLO_OK;
}

kolo_status kolo_gpu_load(struct kolo_gpu *gpu)
{
    pthread_mutex_lock(&loading);
    const kolo_status st = load_locked(gpu, gpu->stores, &gpu->kernels);
    pthread_mutex_unlock(&loading);
    return st;
}

void kolo_gpu_load_early(const struct kolo_gpu *gpu, bool stores)
{
    struct kolo_gpu_kernels *unused = NULL;
    pthread_mutex_lock(&loading);
    (void)load_locked(gpu, stores, &unused); /* who needs them will say what is wrong */
    pthread_mutex_unlock(&loading);
}

void kolo_gpu_load_copies(struct kolo_gpu *gpu)
{
    struct kolo_gpu_kernels *any = NULL;
    pthread_mutex_lock(&loading);
    if (load_locked(gpu, gpu->pool->kernels[true] != NULL, &any) == KOLO_OK) {
        gpu->copies = any->copies;
    }
    pthread_mutex_unlock(&loading);
}

void kolo_gpu_kernels_free(struct kolo_gpu_pool *pool)
{
    for (int stores = 0; stores < 2; stores++) {
        if (pool->kernels[stores] != NULL) {
            unload_all(pool->kernels[stores], pool->cuda);
        }
    }
}

/* ---- finding ---- */

kolo_cuda_function kolo_gpu_kernel(const struct kolo_gpu *gpu, const struct kolo_gpu_call *call)
{
    const int kind = kind_of(call->args.coll);
    return gpu->kernels->by[kind][call->args.type][kind == REDUCES ? call->args.op : 0];
}

kolo_cuda_function kolo_gpu_ll_kernel(const struct kolo_gpu *gpu, const struct kolo_gpu_call *call)
{
    const int kind = kind_of(call->args.coll);
    return gpu->kernels->ll[kind][call->args.type][kind == REDUCES ? call->args.op : 0];
}

bool kolo_gpu_has_kernels(void)
{
    return kolo_code_variable("KOLO_CUDA_KERNELS") != NULL || kolo_fused_image() != NULL;
}
