// SPDX-License-Identifier: Apache-2.0
/* CUDA's driver, for two facts that NCCL takes from its context and kolo takes as arguments: the
 * current device, and the value of a scalar on a device. The driver is loaded as kolo loads it.
 * Names and numbers are those of NVIDIA's CUDA Driver API reference. */
#include "shim.h"
#include "util/library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static struct {
    int (*init)(unsigned flags);
    int (*device_get_count)(int *count);
    int (*ctx_get_device)(int *device);
    int (*stream_is_capturing)(cudaStream_t stream, int *status);
    int (*stream_synchronize)(cudaStream_t stream);
    int (*copy)(unsigned long long to, unsigned long long from, size_t bytes);
} driver;

static bool find_symbol(void *library, const char *name, void *out)
{
    void *found = dlsym(library, name);
    memcpy(out, &found, sizeof found);
    return found != NULL;
}

static bool has_gpu;

static void load_driver(void)
{
    char why[KOLO_WHY_BYTES];
    void *library = kolo_library_open("KOLO_CUDA_PATH", "libcuda.so.1", why);
    int count = 0;
    has_gpu = library != NULL && find_symbol(library, "cuInit", &driver.init) &&
              find_symbol(library, "cuDeviceGetCount", &driver.device_get_count) &&
              find_symbol(library, "cuCtxGetDevice", &driver.ctx_get_device) &&
              find_symbol(library, "cuStreamIsCapturing", &driver.stream_is_capturing) &&
              find_symbol(library, "cuStreamSynchronize", &driver.stream_synchronize) &&
              find_symbol(library, "cuMemcpy", &driver.copy) && driver.init(0) == 0 &&
              driver.device_get_count(&count) == 0 && count > 0;
}

bool shim_has_gpu(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, load_driver);
    return has_gpu;
}

/* Before CUDA 12 the runtime makes a context at its first need, not in cudaSetDevice(). Without a
 * context the runtime is asked, unless it is linked statically and its symbols cannot be found. */
int shim_current_device(void)
{
    int (*get_device)(int *device) = NULL;
    int device = 0;
    if (!shim_has_gpu()) {
        return 0;
    }
    if (driver.ctx_get_device(&device) == 0) {
        return device;
    }
    return find_symbol(RTLD_DEFAULT, "cudaGetDevice", &get_device) && get_device(&device) == 0
               ? device
               : 0;
}

ncclResult_t shim_read(const void *at, size_t bytes, cudaStream_t stream, void *out)
{
    int capturing = 0, error = driver.stream_is_capturing(stream, &capturing);
    if (capturing != 0) {
        return shim_fail(ncclInvalidUsage,
                         "op has a scalar on the device (%p), which a graph cannot capture", at);
    }
    error = error == 0 ? driver.stream_synchronize(stream) : error;
    error = error == 0 ? driver.copy((uintptr_t)out, (uintptr_t)at, bytes) : error;
    return error == 0
               ? ncclSuccess
               : shim_fail(ncclUnhandledCudaError,
                           "reading the scalar at %p of an operation: CUDA error %d", at, error);
}
