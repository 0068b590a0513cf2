// SPDX-License-Identifier: Apache-2.0
/* Tensors in memory of kolo_mem_alloc(), which the ranks of a host read and write without a copy.
 *
 * Such memory is dear to get and dear to give back, and kolo keeps what it knows of it: freed
 * blocks are kept for the next tensor of their size, at most as much as is in use, or 1 GiB. */
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>

namespace kolo_torch
{

/* An uninitialised CPU tensor. Errors: DistBackendError where there is no memory. */
at::Tensor emptyShared(at::IntArrayRef sizes, at::ScalarType dtype);
/* Allocates shared memory, whatever the size. Lives for ever. */
c10::Allocator *sharedAllocator();
/* From now on CPU tensors of at least so many bytes lie in shared memory, where there is some. */
void useSharedMemory(size_t least);

} // namespace kolo_torch
