// SPDX-License-Identifier: Apache-2.0
/* A call's tensors as kolo takes them: dense host memory.
 *
 * A contiguous CPU tensor is its own memory. Others (strided, on a device, a list of tensors that
 * do not lie one after the other) are copied at the call and, where they are results, copied back
 * at its end. Device copies go through pinned memory in the order of the device's current stream,
 * by c10's device-generic interface alone, so that one binary serves every build of torch. */
#pragma once

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <optional>
#include <vector>

namespace kolo_torch
{

class Staging
{
  public:
    /* Address of t's elements, for reading. */
    const void *in(const at::Tensor &t);
    /* Address where t's elements are to be written. */
    void *out(const at::Tensor &t);
    /* Both. */
    void *inout(const at::Tensor &t);
    /* The same for tensors of one dtype and device, one after the other. */
    const void *in(at::TensorList list);
    void *out(at::TensorList list);

    /* Before the call runs: waits until copies from a device have come. */
    void ready();
    /* At the end of a call that went well: copies results back. On a device, in the order of the
     * current stream. */
    void finish();

    /* Tensors and copies stay alive for an asynchronous call: until release(). */
    void release();
    const std::optional<c10::Device> &device() const
    {
        return device_;
    }

    Staging() = default;
    Staging(Staging &&) = default;
    Staging &operator=(Staging &&) = default;
    /* Take what `other` has, too. */
    void join(Staging &&other);

  private:
    struct Result {
        at::Tensor user, copy;
    };
    at::Tensor hostCopy(const at::Tensor &t, bool filled);
    void onDevice(const at::Tensor &t);

    std::vector<at::Tensor> kept_;
    std::vector<Result> results_;
    std::optional<c10::Device> device_; /* if not the CPU */
};

} // namespace kolo_torch
