// SPDX-License-Identifier: Apache-2.0
// src/cuda/driver.h says what cuda.h says. Compiled where there is a cuda.h; that is all of it.
#include "cuda/driver.h"

#include <cstddef>
#include <cuda.h>
#include <type_traits>

#define SAME(ours, theirs)                                                                         \
    static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs), #theirs)

SAME(KOLO_CUDA_OK, CUDA_SUCCESS);
SAME(KOLO_CUDA_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
SAME(KOLO_CUDA_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(KOLO_CUDA_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
SAME(KOLO_CUDA_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE);
SAME(KOLO_CUDA_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(KOLO_CUDA_INVALID_PTX, CUDA_ERROR_INVALID_PTX);
SAME(KOLO_CUDA_JIT_COMPILER_NOT_FOUND, CUDA_ERROR_JIT_COMPILER_NOT_FOUND);
SAME(KOLO_CUDA_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
SAME(KOLO_CUDA_JIT_COMPILATION_DISABLED, CUDA_ERROR_JIT_COMPILATION_DISABLED);
SAME(KOLO_CUDA_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(KOLO_CUDA_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(KOLO_CUDA_PEER_ALREADY_ENABLED, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
SAME(KOLO_CUDA_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(KOLO_CUDA_64_BIT_STREAM_OPS, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
SAME(KOLO_CUDA_RDMA_FLUSHES, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
SAME(KOLO_CUDA_RDMA_ORDERING, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
SAME(KOLO_CUDA_DMA_BUFS, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
SAME(KOLO_CUDA_RANGE_DMA_BUF, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
SAME(KOLO_CUDA_RDMA_FLUSHED_BY_HOST, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST);
SAME(KOLO_CUDA_RDMA_OWNER, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER);
SAME(KOLO_CUDA_RDMA_OWNER, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
SAME(0, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX); // src/gpu/proxy/gdr.c
SAME(KOLO_CUDA_POINTER_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(KOLO_CUDA_POINTER_ID, CU_POINTER_ATTRIBUTE_BUFFER_ID);
SAME(KOLO_CUDA_POINTER_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED);
SAME(KOLO_CUDA_POINTER_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(KOLO_CUDA_POINTER_IPC, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE);
SAME(KOLO_CUDA_POINTER_HANDLES, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES);
SAME(KOLO_CUDA_POINTER_POOL, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
SAME(KOLO_CUDA_HANDLE_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME(KOLO_CUDA_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(KOLO_CUDA_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME(sizeof(kolo_cuda_access), sizeof(CUmemAccessDesc));
SAME(offsetof(kolo_cuda_access, device), offsetof(CUmemAccessDesc, location.id));
SAME(offsetof(kolo_cuda_access, flags), offsetof(CUmemAccessDesc, flags));
SAME(sizeof(kolo_cuda_allocation), sizeof(CUmemGenericAllocationHandle));
SAME(KOLO_CUDA_TYPE_HOST, CU_MEMORYTYPE_HOST);
SAME(KOLO_CUDA_TYPE_DEVICE, CU_MEMORYTYPE_DEVICE);
SAME(KOLO_CUDA_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(KOLO_CUDA_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
SAME(KOLO_CUDA_WAIT_EQUAL, CU_STREAM_WAIT_VALUE_EQ);
SAME(KOLO_CUDA_WAIT_32, CU_STREAM_MEM_OP_WAIT_VALUE_32);
SAME(KOLO_CUDA_WRITE_32, CU_STREAM_MEM_OP_WRITE_VALUE_32);
SAME(KOLO_CUDA_WAIT_64, CU_STREAM_MEM_OP_WAIT_VALUE_64);
SAME(0, CU_STREAM_WAIT_VALUE_GEQ); // src/gpu/context/stream_ops.h
SAME(KOLO_CUDA_WRITE_64, CU_STREAM_MEM_OP_WRITE_VALUE_64);
SAME(2, CU_STREAM_CAPTURE_MODE_RELAXED); // src/gpu/proxy/proxy.c, staging.c
SAME(1, CU_MEMHOSTALLOC_PORTABLE);
SAME(2, CU_MEMHOSTALLOC_DEVICEMAP);
SAME(1, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);              // src/gpu/proxy/shared_gpu.c
SAME(3, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED); // src/gpu/p2p/open.c
SAME(4, CU_FUNC_ATTRIBUTE_NUM_REGS);                      // src/cuda/driver.c

using Theirs = CUstreamBatchMemOpParams;
using Ours = kolo_cuda_stream_op;
SAME(sizeof(Ours), sizeof(Theirs));
SAME(offsetof(Ours, at), offsetof(Theirs, waitValue.address));
SAME(offsetof(Ours, at), offsetof(Theirs, writeValue.address));
SAME(offsetof(Ours, value), offsetof(Theirs, waitValue.value));
SAME(offsetof(Ours, value), offsetof(Theirs, writeValue.value64));
SAME(offsetof(Ours, value), offsetof(Theirs, waitValue.value64));
SAME(offsetof(Ours, flags), offsetof(Theirs, waitValue.flags));
SAME(offsetof(Ours, flags), offsetof(Theirs, writeValue.flags));
SAME(sizeof(kolo_cuda_ipc_handle), sizeof(CUipcMemHandle));
SAME(sizeof(kolo_cuda_address), sizeof(CUdeviceptr));
SAME(sizeof(CUuuid), 16);

// A member takes as many arguments as the function that it is loaded with.
template <class... Args> constexpr size_t Count(CUresult (*)(Args...))
{
    return sizeof...(Args);
}
template <class... Args> constexpr size_t Count(int (*)(Args...))
{
    return sizeof...(Args);
}
#define TAKES(member, function)                                                                    \
    static_assert(Count(decltype(kolo_cuda::member){}) == Count(decltype(&function){}), #function)

TAKES(init, cuInit);
TAKES(get_error_name, cuGetErrorName);
TAKES(get_error_string, cuGetErrorString);
TAKES(device_get_count, cuDeviceGetCount);
TAKES(device_get, cuDeviceGet);
TAKES(device_get_attribute, cuDeviceGetAttribute);
TAKES(device_get_uuid, cuDeviceGetUuid);
TAKES(device_get_pci_bus_id, cuDeviceGetPCIBusId);
TAKES(device_can_access_peer, cuDeviceCanAccessPeer);
TAKES(device_primary_ctx_retain, cuDevicePrimaryCtxRetain);
TAKES(device_primary_ctx_release, cuDevicePrimaryCtxRelease);
TAKES(ctx_push_current, cuCtxPushCurrent);
TAKES(ctx_pop_current, cuCtxPopCurrent);
TAKES(ctx_enable_peer_access, cuCtxEnablePeerAccess);
TAKES(ctx_disable_peer_access, cuCtxDisablePeerAccess);
TAKES(mem_alloc, cuMemAlloc);
TAKES(device_get_p2p_attribute, cuDeviceGetP2PAttribute);
TAKES(mem_free, cuMemFree);
TAKES(memset_d8_async, cuMemsetD8Async);
TAKES(driver_get_version, cuDriverGetVersion);
TAKES(mem_host_alloc, cuMemHostAlloc);
TAKES(mem_host_get_device_pointer, cuMemHostGetDevicePointer);
TAKES(mem_free_host, cuMemFreeHost);
TAKES(mem_get_address_range, cuMemGetAddressRange);
TAKES(mem_get_handle_for_address_range, cuMemGetHandleForAddressRange);
TAKES(flush_gpu_direct_rdma_writes, cuFlushGPUDirectRDMAWrites);
TAKES(memcpy_dtoh_async, cuMemcpyDtoHAsync);
TAKES(memcpy_htod_async, cuMemcpyHtoDAsync);
TAKES(memcpy_dtod_async, cuMemcpyDtoDAsync);
TAKES(memcpy_peer_async, cuMemcpyPeerAsync);
TAKES(ipc_get_mem_handle, cuIpcGetMemHandle);
TAKES(ipc_open_mem_handle, cuIpcOpenMemHandle);
TAKES(ipc_close_mem_handle, cuIpcCloseMemHandle);
TAKES(mem_retain_allocation_handle, cuMemRetainAllocationHandle);
TAKES(mem_release, cuMemRelease);
TAKES(mem_export_to_shareable_handle, cuMemExportToShareableHandle);
TAKES(mem_import_from_shareable_handle, cuMemImportFromShareableHandle);
TAKES(mem_address_reserve, cuMemAddressReserve);
TAKES(mem_address_free, cuMemAddressFree);
TAKES(mem_map, cuMemMap);
TAKES(mem_unmap, cuMemUnmap);
TAKES(mem_set_access, cuMemSetAccess);
TAKES(pointer_get_attribute, cuPointerGetAttribute);
TAKES(stream_create, cuStreamCreate);
TAKES(stream_create_with_priority, cuStreamCreateWithPriority);
TAKES(stream_destroy, cuStreamDestroy);
TAKES(stream_query, cuStreamQuery);
TAKES(stream_synchronize, cuStreamSynchronize);
TAKES(stream_wait_event, cuStreamWaitEvent);
TAKES(stream_is_capturing, cuStreamIsCapturing);
TAKES(stream_get_id, cuStreamGetId);
TAKES(user_object_create, cuUserObjectCreate);
TAKES(user_object_release, cuUserObjectRelease);
TAKES(graph_retain_user_object, cuGraphRetainUserObject);
TAKES(stream_batch_mem_op, cuStreamBatchMemOp);
TAKES(launch_host_func, cuLaunchHostFunc);
TAKES(thread_exchange_stream_capture_mode, cuThreadExchangeStreamCaptureMode);
TAKES(event_create, cuEventCreate);
TAKES(event_destroy, cuEventDestroy);
TAKES(event_record, cuEventRecord);
TAKES(event_synchronize, cuEventSynchronize);
TAKES(event_query, cuEventQuery);
TAKES(module_load_data, cuModuleLoadData);
TAKES(module_unload, cuModuleUnload);
TAKES(module_get_function, cuModuleGetFunction);
TAKES(func_load, cuFuncLoad);
TAKES(func_get_attribute, cuFuncGetAttribute);
TAKES(launch_kernel, cuLaunchKernel);
