// SPDX-License-Identifier: Apache-2.0
/* What c10's device-generic interface lacks, in all releases of torch or in some: the driver's
 * handle of a stream, whether a graph captures the stream, and the mode of captures. No CUDA header
 * is used, so that one source serves all builds of torch. */
#pragma once

#include <c10/core/Stream.h>

namespace kolo_torch
{

/* The cudaStream_t of a stream. Errors: RuntimeError if this torch has no way to tell. */
void *nativeStream(const c10::Stream &stream);
bool isCapturing(const c10::Stream &stream);

/* While it lives, the driver takes no call of this thread as an error of another thread's capture.
 * Asking an event whether it is over would end a capture in the global mode, torch's default. */
class BesideCaptures
{
  public:
    BesideCaptures();
    ~BesideCaptures();
    BesideCaptures(const BesideCaptures &) = delete;
    BesideCaptures &operator=(const BesideCaptures &) = delete;

  private:
    int mode_;
};

} // namespace kolo_torch
