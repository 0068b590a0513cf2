// SPDX-License-Identifier: Apache-2.0
/* Copies of tensors into dense buffers before a call, and back after it. */
#include "staging.hpp"

#include <c10/core/GradMode.h>
#include <iterator>

namespace kolo_torch
{

namespace
{

/* The tensor at which a list begins that is contiguous and adjacent; null if it is not. Tensors
 * without elements lie nowhere. On a device the list must also be in one storage: neighbouring
 * blocks may be separate allocations to the driver. */
const at::Tensor *firstOfConsecutive(at::TensorList list)
{
    const at::Tensor *first = nullptr;
    const char *end = nullptr;
    for (const at::Tensor &t : list) {
        if (t.numel() == 0) {
            continue;
        }
        first = first == nullptr ? &t : first;
        if (!t.is_contiguous() || (end != nullptr && t.const_data_ptr() != end) ||
            (!t.is_cpu() && !t.is_alias_of(*first))) {
            return nullptr;
        }
        end = static_cast<const char *>(t.const_data_ptr()) + t.nbytes();
    }
    return first != nullptr || list.empty() ? first : &list.front();
}

void *address(const at::Tensor &t)
{
    return const_cast<void *>(t.const_data_ptr());
}

} // namespace

void Staging::requireHere(c10::Device device)
{
    TORCH_CHECK_VALUE(!place_ || *place_ == device, "kolo: tensors on ", device, " and on ",
                      *place_, " in one call; they must be on one device");
    TORCH_CHECK_VALUE(device.is_cpu() || device.is_cuda(), "kolo: a tensor on ", device,
                      "; they are on the CPU or on a CUDA device");
    place_ = device;
}

void Staging::requireHere(const at::Tensor &t)
{
    TORCH_CHECK_VALUE(t.layout() == at::kStrided, "kolo: a tensor of layout ", t.layout(),
                      " can be all-reduced by SUM only; this call takes dense tensors");
    requireHere(t.device());
}

const void *Staging::in(const at::Tensor &t)
{
    requireHere(t);
    kept_.push_back(t);
    if (!t.is_contiguous()) {
        const c10::NoGradGuard quiet;
        kept_.push_back(t.contiguous());
    }
    return kept_.back().const_data_ptr();
}

void *Staging::written(const at::Tensor &t, bool filled)
{
    requireHere(t);
    if (t.is_contiguous()) {
        kept_.push_back(t);
        return address(t);
    }
    const c10::NoGradGuard quiet;
    results_.push_back({t, at::empty(t.sizes(), t.options())});
    if (filled) {
        results_.back().copy.copy_(t);
    }
    return address(results_.back().copy);
}

void *Staging::out(const at::Tensor &t)
{
    return written(t, false);
}

void *Staging::inout(const at::Tensor &t)
{
    return written(t, true);
}

/* Room for all elements of a list. */
at::Tensor Staging::flat(at::TensorList list)
{
    int64_t count = 0;
    for (const at::Tensor &t : list) {
        count += t.numel();
    }
    return at::empty({count}, list.front().options());
}

const void *Staging::in(at::TensorList list)
{
    for (const at::Tensor &t : list) {
        requireHere(t);
    }
    kept_.insert(kept_.end(), list.begin(), list.end());
    if (const at::Tensor *first = firstOfConsecutive(list)) {
        return first->const_data_ptr();
    }
    const c10::NoGradGuard quiet;
    kept_.push_back(flat(list));
    int64_t at = 0;
    for (const at::Tensor &t : list) {
        kept_.back().narrow(0, at, t.numel()).view(t.sizes()).copy_(t);
        at += t.numel();
    }
    return kept_.back().const_data_ptr();
}

void *Staging::out(at::TensorList list)
{
    for (const at::Tensor &t : list) {
        requireHere(t);
    }
    if (const at::Tensor *first = firstOfConsecutive(list)) {
        kept_.insert(kept_.end(), list.begin(), list.end());
        return address(*first);
    }
    const c10::NoGradGuard quiet;
    const at::Tensor all = flat(list);
    int64_t at = 0;
    for (const at::Tensor &t : list) {
        results_.push_back({t, all.narrow(0, at, t.numel()).view(t.sizes())});
        at += t.numel();
    }
    return address(all);
}

void Staging::finish()
{
    if (results_.empty()) {
        return;
    }
    const c10::NoGradGuard quiet;
    for (const Result &r : results_) {
        r.user.copy_(r.copy);
    }
}

void Staging::release()
{
    kept_.clear();
    results_.clear();
}

void Staging::join(Staging &&other)
{
    if (other.place_) {
        requireHere(*other.place_);
    }
    std::move(other.kept_.begin(), other.kept_.end(), std::back_inserter(kept_));
    std::move(other.results_.begin(), other.results_.end(), std::back_inserter(results_));
}

} // namespace kolo_torch
