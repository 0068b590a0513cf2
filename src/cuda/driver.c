// SPDX-License-Identifier: Apache-2.0
/* Loading the driver, and the meaning of its answers. libcuda.so.1 is the driver; libcuda.so is a
 * stub of the toolkit. The driver is never unloaded, because other libraries of the process use
 * it. */
#include "cuda/driver.h"

#include "util/library.h"

#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* ---- loading ---- */

struct symbol {
    size_t offset;
    const char *name;
    bool optional;
};
#define NEEDED(member, symbol)                                                                     \
    {                                                                                              \
        offsetof(struct kolo_cuda, member), symbol, false                                          \
    }

/* Macros of cuda.h map its plain names to these names with _v2. */
static const struct symbol symbols[] = {
    NEEDED(init, "cuInit"),
    NEEDED(driver_get_version, "cuDriverGetVersion"),
    NEEDED(get_error_name, "cuGetErrorName"),
    NEEDED(get_error_string, "cuGetErrorString"),
    NEEDED(device_get_count, "cuDeviceGetCount"),
    NEEDED(device_get, "cuDeviceGet"),
    NEEDED(device_get_attribute, "cuDeviceGetAttribute"),
    NEEDED(device_get_uuid, "cuDeviceGetUuid_v2"),
    NEEDED(device_get_pci_bus_id, "cuDeviceGetPCIBusId"),
    NEEDED(device_can_access_peer, "cuDeviceCanAccessPeer"),
    NEEDED(device_get_p2p_attribute, "cuDeviceGetP2PAttribute"),
    NEEDED(device_primary_ctx_retain, "cuDevicePrimaryCtxRetain"),
    NEEDED(device_primary_ctx_release, "cuDevicePrimaryCtxRelease_v2"),
    NEEDED(ctx_push_current, "cuCtxPushCurrent_v2"),
    NEEDED(ctx_pop_current, "cuCtxPopCurrent_v2"),
    NEEDED(ctx_enable_peer_access, "cuCtxEnablePeerAccess"),
    NEEDED(ctx_disable_peer_access, "cuCtxDisablePeerAccess"),
    NEEDED(mem_alloc, "cuMemAlloc_v2"),
    NEEDED(mem_free, "cuMemFree_v2"),
    NEEDED(memset_d8_async, "cuMemsetD8Async"),
    NEEDED(mem_host_alloc, "cuMemHostAlloc"),
    NEEDED(mem_host_get_device_pointer, "cuMemHostGetDevicePointer_v2"),
    NEEDED(mem_free_host, "cuMemFreeHost"),
    NEEDED(mem_get_address_range, "cuMemGetAddressRange_v2"),
    NEEDED(mem_get_handle_for_address_range, "cuMemGetHandleForAddressRange"),
    NEEDED(flush_gpu_direct_rdma_writes, "cuFlushGPUDirectRDMAWrites"),
    NEEDED(memcpy_dtoh_async, "cuMemcpyDtoHAsync_v2"),
    NEEDED(memcpy_htod_async, "cuMemcpyHtoDAsync_v2"),
    NEEDED(memcpy_dtod_async, "cuMemcpyDtoDAsync_v2"),
    NEEDED(memcpy_peer_async, "cuMemcpyPeerAsync"),
    NEEDED(ipc_get_mem_handle, "cuIpcGetMemHandle"),
    NEEDED(ipc_open_mem_handle, "cuIpcOpenMemHandle_v2"),
    NEEDED(ipc_close_mem_handle, "cuIpcCloseMemHandle"),
    NEEDED(mem_retain_allocation_handle, "cuMemRetainAllocationHandle"),
    NEEDED(mem_release, "cuMemRelease"),
    NEEDED(mem_export_to_shareable_handle, "cuMemExportToShareableHandle"),
    NEEDED(mem_import_from_shareable_handle, "cuMemImportFromShareableHandle"),
    NEEDED(mem_address_reserve, "cuMemAddressReserve"),
    NEEDED(mem_address_free, "cuMemAddressFree"),
    NEEDED(mem_map, "cuMemMap"),
    NEEDED(mem_unmap, "cuMemUnmap"),
    NEEDED(mem_set_access, "cuMemSetAccess"),
    NEEDED(pointer_get_attribute, "cuPointerGetAttribute"),
    NEEDED(stream_create, "cuStreamCreate"),
    NEEDED(stream_create_with_priority, "cuStreamCreateWithPriority"),
    NEEDED(stream_destroy, "cuStreamDestroy_v2"),
    NEEDED(stream_query, "cuStreamQuery"),
    NEEDED(stream_synchronize, "cuStreamSynchronize"),
    NEEDED(stream_wait_event, "cuStreamWaitEvent"),
    NEEDED(stream_is_capturing, "cuStreamIsCapturing"),
    {offsetof(struct kolo_cuda, stream_get_id), "cuStreamGetId", true},
    NEEDED(stream_get_capture_info, "cuStreamGetCaptureInfo_v2"),
    NEEDED(user_object_create, "cuUserObjectCreate"),
    NEEDED(user_object_release, "cuUserObjectRelease"),
    NEEDED(graph_retain_user_object, "cuGraphRetainUserObject"),
    NEEDED(stream_batch_mem_op, "cuStreamBatchMemOp_v2"),
    NEEDED(launch_host_func, "cuLaunchHostFunc"),
    NEEDED(thread_exchange_stream_capture_mode, "cuThreadExchangeStreamCaptureMode"),
    NEEDED(event_create, "cuEventCreate"),
    NEEDED(event_destroy, "cuEventDestroy_v2"),
    NEEDED(event_record, "cuEventRecord"),
    NEEDED(event_synchronize, "cuEventSynchronize"),
    NEEDED(event_query, "cuEventQuery"),
    NEEDED(module_load_data, "cuModuleLoadData"),
    NEEDED(module_unload, "cuModuleUnload"),
    NEEDED(module_get_function, "cuModuleGetFunction"),
    {offsetof(struct kolo_cuda, func_load), "cuFuncLoad", true},
    NEEDED(func_get_attribute, "cuFuncGetAttribute"),
    NEEDED(launch_kernel, "cuLaunchKernel"),
};

static struct kolo_cuda driver;
static char reason[2 * KOLO_WHY_BYTES];

/* False: `reason` says why. */
static bool find_symbols(void *library, const char *path)
{
    for (size_t i = 0; i < KOLO_LENGTH(symbols); i++) {
        void *address = dlsym(library, symbols[i].name);
        if (address == NULL && !symbols[i].optional) {
            (void)snprintf(reason, sizeof reason, "%s has no %s: the driver is too old (CUDA 12)",
                           path, symbols[i].name);
            return false;
        }
        memcpy((char *)&driver + symbols[i].offset, &address, sizeof address);
    }
    return true;
}

static void load_driver(void)
{
    const char *given = kolo_code_variable("KOLO_CUDA_PATH");
    const char *path = given != NULL ? given : "libcuda.so.1";
    char why[KOLO_WHY_BYTES];
    void *library = kolo_library_open("KOLO_CUDA_PATH", "libcuda.so.1", why);
    if (library == NULL) {
        (void)snprintf(reason, sizeof reason, "the CUDA driver (%.300s) cannot be loaded: %s", path,
                       why);
        return;
    }
    if (!find_symbols(library, path)) {
        return;
    }
    const int error = driver.init(0);
    if (error != KOLO_CUDA_OK) {
        const char *name = NULL;
        (void)driver.get_error_name(error, &name);
        (void)snprintf(reason, sizeof reason, "the CUDA driver does not initialise: %s",
                       name != NULL ? name : "an unknown error");
    }
}

kolo_status kolo_cuda_open(const struct kolo_cuda **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, load_driver);
    if (reason[0] != '\0') {
        return kolo_fail(KOLO_ERR_UNSUPPORTED, "%s", reason);
    }
    *out = &driver;
    return KOLO_OK;
}

kolo_status kolo_cuda_bus(const struct kolo_cuda *cuda, int ordinal, char *out, int room)
{
    int device = 0;
    KOLO_TRY(kolo_cuda_check(cuda, cuda->device_get(&device, ordinal), "cuDeviceGet"));
    KOLO_TRY(kolo_cuda_check(cuda, cuda->device_get_pci_bus_id(out, room, device),
                             "cuDeviceGetPCIBusId"));
    for (; *out != '\0'; out++) {
        *out = (char)tolower(*out);
    }
    return KOLO_OK;
}

kolo_status kolo_cuda_check(const struct kolo_cuda *cuda, int error, const char *what)
{
    const char *name = NULL, *text = NULL;
    if (error == KOLO_CUDA_OK) {
        return KOLO_OK;
    }
    if (cuda->get_error_name(error, &name) != KOLO_CUDA_OK || name == NULL) {
        return kolo_fail(KOLO_ERR_SYSTEM, "%s: CUDA error %d", what, error);
    }
    (void)cuda->get_error_string(error, &text);
    return kolo_fail(KOLO_ERR_SYSTEM, "%s: %s: %s", what, name, text != NULL ? text : "");
}

/* ---- pointers ---- */

/* An allocation's number, from 1 on, and where it is, in one word that threads share. (Memory of each
 * thread is scarce: a library that is loaded late gets little of it.) */
static uint64_t known_word(unsigned long long id, const struct kolo_cuda_place *place)
{
    return (uint64_t)id << 16 | (uint64_t)place->kind << 12 | (uint64_t)(place->ordinal + 1);
}

static kolo_status ask_place(const struct kolo_cuda *cuda, kolo_cuda_address at,
                             struct kolo_cuda_place *out)
{
    unsigned type = 0;
    unsigned managed = 0; /* the driver stores a bool in it */
    int ordinal = -1;
    const int known = cuda->pointer_get_attribute(&type, KOLO_CUDA_POINTER_TYPE, at);
    if (known == KOLO_CUDA_INVALID_VALUE || (known == KOLO_CUDA_OK && type == 0)) {
        *out = (struct kolo_cuda_place){KOLO_CUDA_KIND_HOST, -1};
        return KOLO_OK;
    }
    KOLO_TRY(kolo_cuda_check(cuda, known, "cuPointerGetAttribute(MEMORY_TYPE)"));
    KOLO_TRY(kolo_cuda_check(cuda,
                             cuda->pointer_get_attribute(&managed, KOLO_CUDA_POINTER_MANAGED, at),
                             "cuPointerGetAttribute(IS_MANAGED)"));
    if ((managed & 0xff) != 0) {
        *out = (struct kolo_cuda_place){KOLO_CUDA_KIND_MANAGED, -1};
        return KOLO_OK;
    }
    if (type != KOLO_CUDA_TYPE_DEVICE) {
        *out = (struct kolo_cuda_place){KOLO_CUDA_KIND_HOST, -1};
        return KOLO_OK;
    }
    KOLO_TRY(kolo_cuda_check(cuda,
                             cuda->pointer_get_attribute(&ordinal, KOLO_CUDA_POINTER_ORDINAL, at),
                             "cuPointerGetAttribute(DEVICE_ORDINAL)"));
    *out = (struct kolo_cuda_place){KOLO_CUDA_KIND_DEVICE, ordinal};
    return KOLO_OK;
}

/* No other allocation of the process ever has the number of one. So one question is enough for a
 * buffer that was asked for before. */
kolo_status kolo_cuda_find(const struct kolo_cuda *cuda, const void *ptr,
                           struct kolo_cuda_place *out)
{
    enum { PLACES = 16, MOST_ORDINAL = 4000 };
    static _Atomic uint64_t known[PLACES];
    const kolo_cuda_address at = (kolo_cuda_address)(uintptr_t)ptr;
    unsigned long long id = 0;
    const int error = cuda->pointer_get_attribute(&id, KOLO_CUDA_POINTER_ID, at);
    if (error == KOLO_CUDA_INVALID_VALUE) {
        *out = (struct kolo_cuda_place){KOLO_CUDA_KIND_HOST, -1};
        return KOLO_OK;
    }
    KOLO_TRY(kolo_cuda_check(cuda, error, "cuPointerGetAttribute(BUFFER_ID)"));
    const uint64_t word = atomic_load_explicit(&known[id % PLACES], memory_order_relaxed);
    if (id != 0 && word >> 16 == id) {
        out->kind = (enum kolo_cuda_kind)(word >> 12 & 0xf);
        out->ordinal = (int)(word & 0xfff) - 1;
        return KOLO_OK;
    }
    KOLO_TRY(ask_place(cuda, at, out));
    if (id >> 48 == 0 && out->ordinal < MOST_ORDINAL) {
        atomic_store_explicit(&known[id % PLACES], known_word(id, out), memory_order_relaxed);
    }
    return KOLO_OK;
}

void kolo_cuda_say_place(const struct kolo_cuda_place *place, char *out, size_t room)
{
    if (place->kind == KOLO_CUDA_KIND_DEVICE) {
        (void)snprintf(out, room, "memory of GPU %d", place->ordinal);
    } else {
        (void)snprintf(out, room, "%s",
                       place->kind == KOLO_CUDA_KIND_HOST ? "host memory" : "managed memory");
    }
}

/* ---- kernels ---- */

/* A driver refuses code of a newer toolkit by one of several errors, among them those for code of
 * other GPUs. */
static bool is_refusal(int error)
{
    return error == KOLO_CUDA_INVALID_IMAGE || error == KOLO_CUDA_NO_BINARY_FOR_GPU ||
           error == KOLO_CUDA_INVALID_PTX || error == KOLO_CUDA_JIT_COMPILER_NOT_FOUND ||
           error == KOLO_CUDA_UNSUPPORTED_PTX_VERSION ||
           error == KOLO_CUDA_JIT_COMPILATION_DISABLED;
}

kolo_status kolo_cuda_load(const struct kolo_cuda *cuda, const void *image, kolo_cuda_module *out)
{
    const int error = cuda->module_load_data(out, image);
    const char *name = NULL;
    int version = 0;
    if (!is_refusal(error)) {
        return kolo_cuda_check(cuda, error, "loading kolo's kernels");
    }
    (void)cuda->driver_get_version(&version);
    (void)cuda->get_error_name(error, &name);
    return kolo_fail(KOLO_ERR_UNSUPPORTED,
                     "the driver, which is of CUDA %d.%d, refuses kolo's kernels (%s): they need a "
                     "GPU of compute capability 8.0 or later, and a driver as new as the nvcc that "
                     "compiled them",
                     version / 1000, version % 1000 / 10, name != NULL ? name : "unknown error");
}

kolo_status kolo_cuda_function_find(const struct kolo_cuda *cuda, kolo_cuda_module module,
                                    const char *name, kolo_cuda_function *out)
{
    int registers = 0;
    enum { NUM_REGS = 4 }; /* CUfunction_attribute */
    KOLO_TRY(kolo_cuda_check(cuda, cuda->module_get_function(out, module, name), name));
    return kolo_cuda_check(cuda,
                           cuda->func_load != NULL
                               ? cuda->func_load(*out)
                               : cuda->func_get_attribute(&registers, NUM_REGS, *out),
                           name);
}
