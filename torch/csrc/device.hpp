// SPDX-License-Identifier: Apache-2.0
/* What c10's device-generic interface does not give in every release of torch that kolo serves: a
 * stream as the driver knows it, and whether it is being captured in a graph. No header of CUDA's
 * is used, so that one source serves all builds of torch. */
#pragma once

#include <c10/core/Stream.h>

namespace kolo_torch
{

/* The cudaStream_t of a stream. Errors: RuntimeError where this torch has no way to tell. */
void *nativeStream(const c10::Stream &stream);
bool isCapturing(const c10::Stream &stream);

} // namespace kolo_torch
