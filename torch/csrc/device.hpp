// SPDX-License-Identifier: Apache-2.0
/* Two facts that c10's device-generic interface lacks in some releases of torch: the driver's
 * handle of a stream, and whether a graph captures the stream. No CUDA header is used, so that one
 * source serves all builds of torch. */
#pragma once

#include <c10/core/Stream.h>

namespace kolo_torch
{

/* The cudaStream_t of a stream. Errors: RuntimeError if this torch has no way to tell. */
void *nativeStream(const c10::Stream &stream);
bool isCapturing(const c10::Stream &stream);

} // namespace kolo_torch
