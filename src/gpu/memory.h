// SPDX-License-Identifier: Apache-2.0
/* Memory of GPUs for kolo_mem_alloc_on(). */
#ifndef KOLO_GPU_MEMORY_H
#define KOLO_GPU_MEMORY_H

#include "util/util.h"

/* The slots of struct kolo_path_ops. */
kolo_status kolo_gpu_memory_alloc(int device, size_t bytes, void **out);
bool kolo_gpu_memory_free(void *ptr);

#endif
