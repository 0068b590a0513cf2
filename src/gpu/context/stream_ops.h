// SPDX-License-Identifier: Apache-2.0
/* Memory operations in streams, enqueued in batches. An error sticks: the flush after the last
 * operation returns it. */
#ifndef KOLO_GPU_STREAM_OPS_H
#define KOLO_GPU_STREAM_OPS_H

#include "cuda/driver.h"

struct kolo_stream_ops {
    const struct kolo_cuda *cuda; /* set by the user; all else is zero at first */
    kolo_status status;
    kolo_cuda_stream stream; /* of the collected operations */
    unsigned count;
    struct kolo_cuda_stream_op op[KOLO_CUDA_STREAM_OPS];
};

static inline kolo_status kolo_stream_ops_flush(struct kolo_stream_ops *ops)
{
    if (ops->count > 0 && ops->status == KOLO_OK) {
        ops->status = kolo_cuda_check(
            ops->cuda, ops->cuda->stream_batch_mem_op(ops->stream, ops->count, ops->op, 0),
            "cuStreamBatchMemOp");
    }
    ops->count = 0;
    return ops->status;
}

/* `kind` is a CUstreamBatchMemOpType. A wait on 32 bits ends at the value itself. A wait on 64 bits
 * ends at the value or a larger one. */
static inline void kolo_stream_ops_add(struct kolo_stream_ops *ops, kolo_cuda_stream stream,
                                       uint32_t kind, kolo_cuda_address at, uint64_t value)
{
    if (ops->count == KOLO_CUDA_STREAM_OPS || ops->stream != stream) {
        (void)kolo_stream_ops_flush(ops);
    }
    ops->stream = stream;
    ops->op[ops->count++] =
        (struct kolo_cuda_stream_op){.kind = kind,
                                     .at = at,
                                     .value = value,
                                     .flags = kind == KOLO_CUDA_WAIT_32 ? KOLO_CUDA_WAIT_EQUAL : 0};
}

#endif
