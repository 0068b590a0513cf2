// SPDX-License-Identifier: Apache-2.0
/* The functions of a CUDA driver that the probe calls, by the names of the CUDA Driver API. */
#ifndef KOLO_TESTS_PROBE_DRIVER_H
#define KOLO_TESTS_PROBE_DRIVER_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct CUctx_st *context;
typedef struct CUstream_st *stream;
typedef struct CUevent_st *event;
typedef struct CUmod_st *module;
typedef struct CUfunc_st *function;
typedef struct CUgraph_st *graph;
typedef struct CUgraphExec_st *graph_exec;
typedef unsigned long long address;
struct ipc_handle {
    unsigned char data[64];
};

struct stream_op { /* CUstreamBatchMemOpParams */
    uint32_t kind, unused_a;
    address at;
    uint64_t value;
    uint32_t flags, unused_b;
    uint64_t unused_c[2];
};
enum { WAIT_32 = 1, WRITE_32 = 2, WHEN_EQUAL = 1 };

enum { NOT_ASKED = -1 }; /* no result of the driver's */

/* Member, name of the symbol, parameters. */
#define PROBE_FUNCTIONS(F)                                                                         \
    F(init, "cuInit", (unsigned))                                                                  \
    F(get_error_name, "cuGetErrorName", (int, const char **))                                      \
    F(device_get, "cuDeviceGet", (int *, int))                                                     \
    F(primary_ctx_retain, "cuDevicePrimaryCtxRetain", (context *, int))                            \
    F(ctx_push_current, "cuCtxPushCurrent_v2", (context))                                          \
    F(mem_alloc, "cuMemAlloc_v2", (address *, size_t))                                             \
    F(mem_free, "cuMemFree_v2", (address))                                                         \
    F(mem_host_alloc, "cuMemHostAlloc", (void **, size_t, unsigned))                               \
    F(mem_host_get_device_pointer, "cuMemHostGetDevicePointer_v2", (address *, void *, unsigned))  \
    F(mem_free_host, "cuMemFreeHost", (void *))                                                    \
    F(memcpy_htod_async, "cuMemcpyHtoDAsync_v2", (address, const void *, size_t, stream))          \
    F(memcpy_dtoh_async, "cuMemcpyDtoHAsync_v2", (void *, address, size_t, stream))                \
    F(memcpy_dtod_async, "cuMemcpyDtoDAsync_v2", (address, address, size_t, stream))               \
    F(memset_d8_async, "cuMemsetD8Async", (address, unsigned char, size_t, stream))                \
    F(pointer_get_attribute, "cuPointerGetAttribute", (void *, int, address))                      \
    F(stream_create, "cuStreamCreate", (stream *, unsigned))                                       \
    F(stream_create_with_priority, "cuStreamCreateWithPriority", (stream *, unsigned, int))        \
    F(stream_destroy, "cuStreamDestroy_v2", (stream))                                              \
    F(stream_query, "cuStreamQuery", (stream))                                                     \
    F(stream_synchronize, "cuStreamSynchronize", (stream))                                         \
    F(stream_batch_mem_op, "cuStreamBatchMemOp_v2",                                                \
      (stream, unsigned, struct stream_op *, unsigned))                                            \
    F(stream_begin_capture, "cuStreamBeginCapture_v2", (stream, int))                              \
    F(stream_end_capture, "cuStreamEndCapture", (stream, graph *))                                 \
    F(graph_instantiate, "cuGraphInstantiateWithFlags", (graph_exec *, graph, unsigned long long)) \
    F(graph_launch, "cuGraphLaunch", (graph_exec, stream))                                         \
    F(graph_exec_destroy, "cuGraphExecDestroy", (graph_exec))                                      \
    F(launch_host_func, "cuLaunchHostFunc", (stream, void (*)(void *), void *))                    \
    F(event_create, "cuEventCreate", (event *, unsigned))                                          \
    F(event_record, "cuEventRecord", (event, stream))                                              \
    F(event_query, "cuEventQuery", (event))                                                        \
    F(event_synchronize, "cuEventSynchronize", (event))                                            \
    F(module_load_data, "cuModuleLoadData", (module *, const void *))                              \
    F(module_unload, "cuModuleUnload", (module))                                                   \
    F(module_get_function, "cuModuleGetFunction", (function *, module, const char *))              \
    F(func_load, "cuFuncLoad", (function))                                                         \
    F(launch_kernel, "cuLaunchKernel",                                                             \
      (function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, stream,     \
       void **, void **))                                                                          \
    F(ipc_get_mem_handle, "cuIpcGetMemHandle", (struct ipc_handle *, address))                     \
    F(ipc_open_mem_handle, "cuIpcOpenMemHandle_v2", (address *, struct ipc_handle, unsigned))      \
    F(ipc_close_mem_handle, "cuIpcCloseMemHandle", (address))

#define PROBE_MEMBER(member, name, parameters) int(*member) parameters;
static struct {
    PROBE_FUNCTIONS(PROBE_MEMBER)
} cuda;

/* Returns the reason where there is no driver with all of them, or NULL. */
static const char *probe_load(void)
{
    static char why[200];
    const char *path = getenv("KOLO_CUDA_PATH");
    void *library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        (void)snprintf(why, sizeof why, "no CUDA driver: %.150s", dlerror());
        return why;
    }
#define PROBE_FIND(member, name, parameters)                                                       \
    *(void **)&cuda.member = dlsym(library, name);                                                 \
    if (cuda.member == NULL) {                                                                     \
        (void)snprintf(why, sizeof why, "the CUDA driver has no %s", name);                        \
        return why;                                                                                \
    }
    PROBE_FUNCTIONS(PROBE_FIND)
    return NULL;
}

#endif
