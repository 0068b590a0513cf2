// SPDX-License-Identifier: Apache-2.0
/* The path for memory of GPUs. A communicator of config.device takes both: memory of that GPU, and
 * host memory, as other communicators do. A buffer's kind is found from its pointer. So the
 * library's own small exchanges, as those of kolo_comm_split(), stay on the host.
 *
 * A call on GPU memory goes one of four ways: see inner.h. */
#ifndef KOLO_GPU_PATH_H
#define KOLO_GPU_PATH_H

#include "core/path.h"

extern const struct kolo_path_ops kolo_gpu_path_ops;

#endif
