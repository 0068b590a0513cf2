// SPDX-License-Identifier: Apache-2.0
/* The CUDA driver, loaded at run time: one build of kolo runs with and without it.
 *
 * The declarations are ours, so that no header of CUDA's is needed; names and numbers are those of
 * NVIDIA's CUDA Driver API reference (13.0), and tests/device compares them with cuda.h where there
 * is one. Only what kolo calls is here. */
#ifndef KOLO_CUDA_DRIVER_H
#define KOLO_CUDA_DRIVER_H

#include "util/util.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CUctx_st *kolo_cuda_context;
typedef struct CUstream_st *kolo_cuda_stream;
typedef struct CUevent_st *kolo_cuda_event;
typedef struct CUmod_st *kolo_cuda_module;
typedef struct CUgraph_st *kolo_cuda_graph;
typedef struct CUuserObject_st *kolo_cuda_user_object;
typedef struct CUfunc_st *kolo_cuda_function;
typedef unsigned long long kolo_cuda_address;
typedef unsigned long long kolo_cuda_allocation; /* CUmemGenericAllocationHandle */

enum { /* CUresult: those that are told apart */
       KOLO_CUDA_OK = 0,
       KOLO_CUDA_INVALID_VALUE = 1,
       KOLO_CUDA_OUT_OF_MEMORY = 2,
       KOLO_CUDA_INVALID_DEVICE = 101,
       KOLO_CUDA_INVALID_IMAGE = 200,
       KOLO_CUDA_NO_BINARY_FOR_GPU = 209,
       KOLO_CUDA_INVALID_PTX = 218,
       KOLO_CUDA_JIT_COMPILER_NOT_FOUND = 221,
       KOLO_CUDA_UNSUPPORTED_PTX_VERSION = 222,
       KOLO_CUDA_JIT_COMPILATION_DISABLED = 223,
       KOLO_CUDA_NOT_FOUND = 500,
       KOLO_CUDA_NOT_READY = 600,
       KOLO_CUDA_PEER_ALREADY_ENABLED = 704
};
enum { /* CUdevice_attribute */
       KOLO_CUDA_MULTIPROCESSORS = 16,
       KOLO_CUDA_RDMA_FLUSHES = 117,  /* GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS */
       KOLO_CUDA_RDMA_ORDERING = 118, /* GPU_DIRECT_RDMA_WRITES_ORDERING */
       KOLO_CUDA_64_BIT_STREAM_OPS = 122,
       KOLO_CUDA_DMA_BUFS = 124
};
enum { KOLO_CUDA_RANGE_DMA_BUF = 1 };        /* CUmemRangeHandleType */
enum { KOLO_CUDA_RDMA_FLUSHED_BY_HOST = 1 }; /* CUflushGPUDirectRDMAWritesOptions */
enum { KOLO_CUDA_RDMA_OWNER = 100 };         /* CUGPUDirectRDMAWritesOrdering, and ...Scope */
enum {                                       /* CUpointer_attribute */
       KOLO_CUDA_POINTER_TYPE = 2,
       KOLO_CUDA_POINTER_ID = 7,
       KOLO_CUDA_POINTER_MANAGED = 8,
       KOLO_CUDA_POINTER_ORDINAL = 9,
       KOLO_CUDA_POINTER_IPC = 10,
       KOLO_CUDA_POINTER_HANDLES = 14,
       KOLO_CUDA_POINTER_POOL = 17
};
enum { KOLO_CUDA_HANDLE_FD = 1 };                            /* CUmemAllocationHandleType */
enum { KOLO_CUDA_LOCATION_DEVICE = 1 };                      /* CUmemLocationType */
enum { KOLO_CUDA_READ_WRITE = 3 };                           /* CUmemAccess_flags */
enum { KOLO_CUDA_TYPE_HOST = 1, KOLO_CUDA_TYPE_DEVICE = 2 }; /* CUmemorytype */
enum { KOLO_CUDA_NON_BLOCKING = 1 };                         /* CUstream_flags */
enum { KOLO_CUDA_DISABLE_TIMING = 2 };                       /* CUevent_flags */
enum { KOLO_CUDA_WAIT_EQUAL = 1 };                           /* CUstreamWaitValue_flags */
enum {                                                       /* CUstreamBatchMemOpType */
       KOLO_CUDA_WAIT_32 = 1,
       KOLO_CUDA_WRITE_32 = 2,
       KOLO_CUDA_WAIT_64 = 4,
       KOLO_CUDA_WRITE_64 = 5
};
enum { KOLO_CUDA_STREAM_OPS = 255 }; /* fit in one batch */

struct kolo_cuda_stream_op { /* CUstreamBatchMemOpParams: a wait and a write look alike */
    uint32_t kind;
    uint32_t unused_a;
    kolo_cuda_address at;
    uint64_t value; /* its first 32 bits for operations on 32 */
    uint32_t flags;
    uint32_t unused_b;
    uint64_t unused_c[2];
};
#ifndef __cplusplus
_Static_assert(sizeof(struct kolo_cuda_stream_op) == 48, "an entry of the driver's array");
#endif

struct kolo_cuda_ipc_handle { /* CUipcMemHandle */
    unsigned char data[64];
};

struct kolo_cuda_access { /* CUmemAccessDesc */
    int kind, device, flags;
};

struct kolo_cuda { /* the driver's functions, under its names without cu and version */
    int (*init)(unsigned flags);
    int (*driver_get_version)(int *version); /* 1000 * major + 10 * minor, of CUDA */
    int (*get_error_name)(int error, const char **name);
    int (*get_error_string)(int error, const char **text);
    int (*device_get_count)(int *count);
    int (*device_get)(int *device, int ordinal);
    int (*device_get_attribute)(int *value, int attribute, int device);
    int (*device_get_uuid)(unsigned char uuid[16], int device);
    int (*device_get_pci_bus_id)(char *out, int room, int device);
    int (*device_can_access_peer)(int *can, int device, int peer);
    int (*device_get_p2p_attribute)(int *value, int attribute, int device, int peer);
    int (*device_primary_ctx_retain)(kolo_cuda_context *context, int device);
    int (*device_primary_ctx_release)(int device);
    int (*ctx_push_current)(kolo_cuda_context context);
    int (*ctx_pop_current)(kolo_cuda_context *context);
    int (*ctx_enable_peer_access)(kolo_cuda_context peer, unsigned flags);
    int (*ctx_disable_peer_access)(kolo_cuda_context peer);
    int (*mem_alloc)(kolo_cuda_address *at, size_t bytes);
    int (*mem_free)(kolo_cuda_address at);
    int (*memset_d8_async)(kolo_cuda_address at, unsigned char value, size_t bytes,
                           kolo_cuda_stream stream);
    int (*mem_host_alloc)(void **at, size_t bytes, unsigned flags);
    int (*mem_host_get_device_pointer)(kolo_cuda_address *out, void *at, unsigned flags);
    int (*mem_free_host)(void *at);
    int (*mem_get_address_range)(kolo_cuda_address *base, size_t *bytes, kolo_cuda_address at);
    int (*mem_get_handle_for_address_range)(void *out, kolo_cuda_address at, size_t bytes, int kind,
                                            unsigned long long flags);
    int (*flush_gpu_direct_rdma_writes)(int target, int scope);
    int (*memcpy_dtoh_async)(void *to, kolo_cuda_address from, size_t bytes,
                             kolo_cuda_stream stream);
    int (*memcpy_htod_async)(kolo_cuda_address to, const void *from, size_t bytes,
                             kolo_cuda_stream stream);
    int (*memcpy_dtod_async)(kolo_cuda_address to, kolo_cuda_address from, size_t bytes,
                             kolo_cuda_stream stream);
    int (*memcpy_peer_async)(kolo_cuda_address to, kolo_cuda_context to_context,
                             kolo_cuda_address from, kolo_cuda_context from_context, size_t bytes,
                             kolo_cuda_stream stream);
    int (*ipc_get_mem_handle)(struct kolo_cuda_ipc_handle *out, kolo_cuda_address base);
    int (*ipc_open_mem_handle)(kolo_cuda_address *at, struct kolo_cuda_ipc_handle handle,
                               unsigned flags);
    int (*ipc_close_mem_handle)(kolo_cuda_address at);
    int (*mem_retain_allocation_handle)(kolo_cuda_allocation *out, void *at);
    int (*mem_release)(kolo_cuda_allocation allocation);
    int (*mem_export_to_shareable_handle)(void *out, kolo_cuda_allocation allocation, int kind,
                                          unsigned long long flags);
    int (*mem_import_from_shareable_handle)(kolo_cuda_allocation *out, void *handle, int kind);
    int (*mem_address_reserve)(kolo_cuda_address *out, size_t bytes, size_t alignment,
                               kolo_cuda_address wanted, unsigned long long flags);
    int (*mem_address_free)(kolo_cuda_address at, size_t bytes);
    int (*mem_map)(kolo_cuda_address at, size_t bytes, size_t offset,
                   kolo_cuda_allocation allocation, unsigned long long flags);
    int (*mem_unmap)(kolo_cuda_address at, size_t bytes);
    int (*mem_set_access)(kolo_cuda_address at, size_t bytes, const struct kolo_cuda_access *access,
                          size_t count);
    int (*pointer_get_attribute)(void *value, int attribute, kolo_cuda_address at);
    int (*stream_create)(kolo_cuda_stream *stream, unsigned flags);
    int (*stream_create_with_priority)(kolo_cuda_stream *stream, unsigned flags, int priority);
    int (*stream_destroy)(kolo_cuda_stream stream);
    int (*stream_query)(kolo_cuda_stream stream);
    int (*stream_synchronize)(kolo_cuda_stream stream);
    int (*stream_wait_event)(kolo_cuda_stream stream, kolo_cuda_event event, unsigned flags);
    int (*stream_is_capturing)(kolo_cuda_stream stream, int *status);
    /* A number that no other stream of the process ever has. NULL with some drivers of CUDA 12. */
    int (*stream_get_id)(kolo_cuda_stream stream, unsigned long long *id);
    int (*stream_get_capture_info)(kolo_cuda_stream stream, int *status, unsigned long long *id,
                                   kolo_cuda_graph *graph, const void ***dependencies,
                                   size_t *ndependencies);
    int (*user_object_create)(kolo_cuda_user_object *object, void *at, void (*destroy)(void *at),
                              unsigned references, unsigned flags);
    int (*user_object_release)(kolo_cuda_user_object object, unsigned references);
    int (*graph_retain_user_object)(kolo_cuda_graph graph, kolo_cuda_user_object object,
                                    unsigned references, unsigned flags);
    int (*stream_batch_mem_op)(kolo_cuda_stream stream, unsigned count,
                               struct kolo_cuda_stream_op *ops, unsigned flags);
    int (*launch_host_func)(kolo_cuda_stream stream, void (*fn)(void *), void *arg);
    int (*thread_exchange_stream_capture_mode)(int *mode);
    int (*event_create)(kolo_cuda_event *event, unsigned flags);
    int (*event_destroy)(kolo_cuda_event event);
    int (*event_record)(kolo_cuda_event event, kolo_cuda_stream stream);
    int (*event_synchronize)(kolo_cuda_event event);
    int (*event_query)(kolo_cuda_event event);
    int (*module_load_data)(kolo_cuda_module *module, const void *image);
    int (*module_unload)(kolo_cuda_module module);
    int (*module_get_function)(kolo_cuda_function *function, kolo_cuda_module module,
                               const char *name);
    /* NULL with drivers before 12.4, which load a kernel when it is first asked for its size. */
    int (*func_load)(kolo_cuda_function function);
    int (*func_get_attribute)(int *value, int attribute, kolo_cuda_function function);
    int (*launch_kernel)(kolo_cuda_function function, unsigned grid_x, unsigned grid_y,
                         unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                         unsigned shared_bytes, kolo_cuda_stream stream, void **arguments,
                         void **extra);
};

/* The driver, loaded (libcuda.so.1, or the library that KOLO_CUDA_PATH names) and initialised by
 * the first call. Errors: UNSUPPORTED, with the reason. */
kolo_status kolo_cuda_open(const struct kolo_cuda **out);

/* The bus address of GPU `ordinal`, as /sys writes it. Errors: SYSTEM. */
kolo_status kolo_cuda_bus(const struct kolo_cuda *cuda, int ordinal, char *out, int room);

/* Keep "what: NAME: text" of a driver's error for kolo_error_text(). Returns SYSTEM, or OK for
 * KOLO_CUDA_OK. */
kolo_status kolo_cuda_check(const struct kolo_cuda *cuda, int error, const char *what);

/* Whose memory a pointer is. */
enum kolo_cuda_kind {
    KOLO_CUDA_KIND_HOST,   /* not the driver's, or pinned by it */
    KOLO_CUDA_KIND_DEVICE, /* of one GPU */
    KOLO_CUDA_KIND_MANAGED /* moves between GPUs and the host */
};
struct kolo_cuda_place {
    enum kolo_cuda_kind kind;
    int ordinal; /* of the GPU; -1: none in particular */
};
/* Errors: SYSTEM. */
kolo_status kolo_cuda_find(const struct kolo_cuda *cuda, const void *ptr,
                           struct kolo_cuda_place *out);
/* "host memory", "memory of GPU 1", "managed memory". */
void kolo_cuda_say_place(const struct kolo_cuda_place *place, char *out, size_t room);

/* Kernels of a module image, loaded whole: nothing is left for a launch to load, which would wait
 * for what runs. */
kolo_status kolo_cuda_load(const struct kolo_cuda *cuda, const void *image, kolo_cuda_module *out);
kolo_status kolo_cuda_function_find(const struct kolo_cuda *cuda, kolo_cuda_module module,
                                    const char *name, kolo_cuda_function *out);

#ifdef __cplusplus
}
#endif
#endif
