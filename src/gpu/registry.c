// SPDX-License-Identifier: Apache-2.0
/* The paths of a build with GPUs. */
#include "gpu/path.h"

const struct kolo_path_ops *const kolo_paths[] = {&kolo_gpu_path_ops, NULL};
