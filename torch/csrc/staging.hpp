// SPDX-License-Identifier: Apache-2.0
/* A call's tensors in kolo's form: dense memory of the host or of one device.
 *
 * A contiguous tensor is used in place. Other tensors (strided, or a list of tensors that are not
 * adjacent) are copied at the call. Results are copied back at its end. On a device, both copies
 * are in the order of the stream that is current at that time. */
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
    /* Address of t's elements, for writing. */
    void *out(const at::Tensor &t);
    /* Address of t's elements, for reading and writing. */
    void *inout(const at::Tensor &t);
    /* The same for a list of tensors of one dtype and device, as one dense block. */
    const void *in(at::TensorList list);
    void *out(at::TensorList list);

    /* The call is on this device. Errors: ValueError if a tensor is on another one. */
    void requireHere(c10::Device device);
    /* Copy results back, at the end of a successful call. */
    void finish();

    /* Drop tensors and copies, which stay alive until then for an asynchronous call. */
    void release();
    /* The tensors' device; none: the host. */
    std::optional<c10::Device> device() const
    {
        return place_ && !place_->is_cpu() ? place_ : std::nullopt;
    }

    Staging() = default;
    Staging(Staging &&) = default;
    Staging &operator=(Staging &&) = default;
    /* Also take the tensors of `other`. Errors: ValueError if they are on another device. */
    void join(Staging &&other);

  private:
    struct Result {
        at::Tensor user, copy;
    };
    void *written(const at::Tensor &t, bool filled);
    at::Tensor flat(at::TensorList list);
    void requireHere(const at::Tensor &t);

    c10::SmallVector<at::Tensor, 2> kept_;
    std::vector<Result> results_;
    std::optional<c10::Device> place_;
};

} // namespace kolo_torch
