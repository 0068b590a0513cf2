// SPDX-License-Identifier: Apache-2.0
/* The environment's options for calls on GPU memory. */
#ifndef KOLO_GPU_OPTIONS_H
#define KOLO_GPU_OPTIONS_H

#include "util/util.h"

struct kolo_gpu_options {
    bool ipc;            /* KOLO_CUDA_IPC: this rank may open memory of other processes */
    bool p2p;            /* KOLO_CUDA_P2P: its kernels may store to other GPUs, */
    bool direct;         /* KOLO_CUDA_DIRECT: and use the buffers of other ranks */
    bool hier;           /* KOLO_CUDA_HIER: calls may use the hierarchical way, */
    uint64_t hier_bytes; /* KOLO_CUDA_HIER_BYTES: from this number of bytes on */
    uint64_t ll_bytes;   /* KOLO_CUDA_LL_BYTES: the longest LL call; UINT64_MAX: the default */
    bool gdr;            /* KOLO_DMABUF_ENABLE: GPUDirect RDMA may be used */
};

/* Errors: INVALID (a variable has another value than its kind allows). */
kolo_status kolo_gpu_options_read(struct kolo_gpu_options *out);

#endif
