// SPDX-License-Identifier: Apache-2.0
/* A call's tensors as kolo takes them: dense memory, of the host or of one device.
 *
 * A contiguous tensor is its own memory. Others (strided, a list of tensors that do not lie one
 * after the other) are copied at the call and, where they are results, copied back at its end. On a
 * device both are in the order of the stream that is current then. */
#pragma once

#include <ATen/ATen.h>
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

    /* The call is on this device. Errors: ValueError where a tensor is elsewhere. */
    void requireHere(c10::Device device);
    /* At the end of a call that went well: copies results back. */
    void finish();

    /* Tensors and copies stay alive for an asynchronous call: until release(). */
    void release();
    /* Where they are, if not on the host. */
    std::optional<c10::Device> device() const
    {
        return place_ && !place_->is_cpu() ? place_ : std::nullopt;
    }

    Staging() = default;
    Staging(Staging &&) = default;
    Staging &operator=(Staging &&) = default;
    /* Take what `other` has, too. Errors: ValueError where that is elsewhere. */
    void join(Staging &&other);

  private:
    struct Result {
        at::Tensor user, copy;
    };
    void *written(const at::Tensor &t, bool filled);
    at::Tensor flat(at::TensorList list);
    void requireHere(const at::Tensor &t);

    std::vector<at::Tensor> kept_;
    std::vector<Result> results_;
    std::optional<c10::Device> place_;
};

} // namespace kolo_torch
