// SPDX-License-Identifier: Apache-2.0
/* Tensors in memory of kolo_mem_alloc(), which the ranks of a host read and write without a copy.
 *
 * Allocation and release of this memory are expensive, and kolo caches facts about each block. So
 * freed blocks are kept for the next tensor of their size: at most as many bytes as are in use, or
 * 1 GiB. */
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Allocator.h>

namespace kolo_torch
{

/* An uninitialised CPU tensor. Errors: DistBackendError if there is no memory. */
at::Tensor emptyShared(at::IntArrayRef sizes, at::ScalarType dtype);
/* Allocates shared memory of any size. Lives for ever. */
c10::Allocator *sharedAllocator();
/* Allocate CPU tensors of at least this many bytes in shared memory from now on, if there is some.
 */
void useSharedMemory(size_t least);

} // namespace kolo_torch
