// SPDX-License-Identifier: Apache-2.0
/* The path for GPU memory. A communicator with config.device takes memory of that GPU, and also
 * host memory, as every communicator does. The pointer tells which memory a buffer is in. So the
 * library's own small exchanges, such as those of kolo_comm_split(), stay on the host.
 *
 * inner.h lists the four ways of a call on GPU memory. */
#ifndef KOLO_GPU_PATH_H
#define KOLO_GPU_PATH_H

#include "core/path.h"

extern const struct kolo_path_ops kolo_gpu_path_ops;

#endif
