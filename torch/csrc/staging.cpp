// SPDX-License-Identifier: Apache-2.0
#include "staging.hpp"

#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <iterator>

namespace kolo_torch
{

namespace
{

bool plain(const at::Tensor &t)
{
    return t.is_cpu() && t.is_contiguous();
}

void requireDense(const at::Tensor &t)
{
    TORCH_CHECK_VALUE(t.layout() == at::kStrided, "kolo: a tensor of layout ", t.layout(),
                      " can be all-reduced by SUM only; this call takes dense tensors");
}

/* All of them contiguous in host memory, one after the other. */
bool consecutive(at::TensorList list)
{
    const char *end = nullptr;
    for (const at::Tensor &t : list) {
        if (!plain(t) || (end != nullptr && t.const_data_ptr() != end)) {
            return false;
        }
        end = static_cast<const char *>(t.const_data_ptr()) + t.nbytes();
    }
    return !list.empty();
}

void *address(const at::Tensor &t)
{
    return const_cast<void *>(t.const_data_ptr());
}

} // namespace

void Staging::onDevice(const at::Tensor &t)
{
    requireDense(t);
    if (!t.is_cpu()) {
        TORCH_CHECK_VALUE(!device_ || *device_ == t.device(), "kolo: tensors on ", t.device(),
                          " and on ", *device_, " in one call; they must be on one device");
        device_ = t.device();
    }
}

at::Tensor Staging::hostCopy(const at::Tensor &t, bool filled)
{
    const auto options = at::TensorOptions().dtype(t.dtype()).device(at::kCPU);
    const c10::NoGradGuard quiet;
    const at::Tensor copy =
        at::empty(t.sizes(), t.is_cpu() ? options : options.pinned_memory(true));
    if (filled) {
        copy.copy_(t, !t.is_cpu());
    }
    return copy;
}

const void *Staging::in(const at::Tensor &t)
{
    if (plain(t)) {
        kept_.push_back(t);
        return t.const_data_ptr();
    }
    onDevice(t);
    kept_.push_back(t);
    kept_.push_back(hostCopy(t, true));
    return kept_.back().const_data_ptr();
}

void *Staging::out(const at::Tensor &t)
{
    if (plain(t)) {
        kept_.push_back(t);
        return address(t);
    }
    onDevice(t);
    results_.push_back({t, hostCopy(t, false)});
    return address(results_.back().copy);
}

void *Staging::inout(const at::Tensor &t)
{
    if (plain(t)) {
        kept_.push_back(t);
        return address(t);
    }
    onDevice(t);
    results_.push_back({t, hostCopy(t, true)});
    return address(results_.back().copy);
}

const void *Staging::in(at::TensorList list)
{
    if (consecutive(list)) {
        kept_.insert(kept_.end(), list.begin(), list.end());
        return list.front().const_data_ptr();
    }
    int64_t count = 0;
    for (const at::Tensor &t : list) {
        onDevice(t);
        count += t.numel();
    }
    kept_.insert(kept_.end(), list.begin(), list.end());
    const auto options = at::TensorOptions().dtype(list.front().dtype()).device(at::kCPU);
    const at::Tensor flat = at::empty({count}, device_ ? options.pinned_memory(true) : options);
    const c10::NoGradGuard quiet;
    int64_t at = 0;
    for (const at::Tensor &t : list) {
        flat.narrow(0, at, t.numel()).view(t.sizes()).copy_(t, !t.is_cpu());
        at += t.numel();
    }
    kept_.push_back(flat);
    return flat.const_data_ptr();
}

void *Staging::out(at::TensorList list)
{
    if (consecutive(list)) {
        kept_.insert(kept_.end(), list.begin(), list.end());
        return address(list.front());
    }
    int64_t count = 0;
    for (const at::Tensor &t : list) {
        onDevice(t);
        count += t.numel();
    }
    const auto options = at::TensorOptions().dtype(list.front().dtype()).device(at::kCPU);
    const at::Tensor flat = at::empty({count}, device_ ? options.pinned_memory(true) : options);
    int64_t at = 0;
    for (const at::Tensor &t : list) {
        results_.push_back({t, flat.narrow(0, at, t.numel()).view(t.sizes())});
        at += t.numel();
    }
    return address(flat);
}

/* The event also tells that what was queued before on buffers that are only written has passed. */
void Staging::ready()
{
    if (device_) {
        const c10::impl::VirtualGuardImpl guard(device_->type());
        c10::Event copied(device_->type());
        copied.record(guard.getStream(*device_));
        copied.synchronize();
    }
}

void Staging::finish()
{
    const c10::NoGradGuard quiet;
    for (const Result &r : results_) {
        r.user.copy_(r.copy, !r.user.is_cpu());
        if (!r.user.is_cpu()) {
            const c10::impl::VirtualGuardImpl guard(r.user.device().type());
            r.user.record_stream(guard.getStream(r.user.device()));
        }
    }
}

void Staging::release()
{
    kept_.clear();
    results_.clear();
}

void Staging::join(Staging &&other)
{
    std::move(other.kept_.begin(), other.kept_.end(), std::back_inserter(kept_));
    std::move(other.results_.begin(), other.results_.end(), std::back_inserter(results_));
    device_ = device_ ? device_ : other.device_;
}

} // namespace kolo_torch
