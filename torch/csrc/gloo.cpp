// SPDX-License-Identifier: Apache-2.0
/* Which calls of a group in gloo's place are kolo's, and the gloo that serves the others.
 *
 * The installed torch has no headers of gloo: options and groups of gloo are made in Python, by
 * kolo_torch_entry.py. */
#include "gloo.hpp"

#include <algorithm>
#include <map>
#include <pybind11/chrono.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/utils/pybind.h>

namespace kolo_torch
{

namespace
{

namespace py = pybind11;

py::object entry(const char *name)
{
    return py::module_::import("kolo_torch_entry").attr(name);
}

c10::intrusive_ptr<c10d::Backend::Options> glooOptions(const Group &group)
{
    const py::gil_scoped_acquire locked;
    const auto options = entry("gloo_options")(group.options->timeout)
                             .cast<c10::intrusive_ptr<c10d::Backend::Options>>();
    options->group_name = group.options->group_name;
    options->group_desc = group.options->group_desc;
    options->global_ranks_in_group = group.options->global_ranks_in_group;
    return options;
}

bool onCpu(const at::Tensor &t)
{
    return t.is_cpu();
}

bool onCpu(const Tensors &tensors)
{
    return std::all_of(tensors.begin(), tensors.end(), [](const auto &t) { return t.is_cpu(); });
}

/* gloo also takes several tensors of a rank in one call. */
bool oneOnCpu(const Tensors &tensors)
{
    return tensors.size() < 2 && onCpu(tensors);
}

} // namespace

InPlaceOfGloo::InPlaceOfGloo(const Group &group) : KoloBackend(group)
{
    begin(group);
}

InPlaceOfGloo::InPlaceOfGloo(std::shared_ptr<Communicator> comm, const Group &group)
    : KoloBackend(std::move(comm), group)
{
    begin(group);
}

void InPlaceOfGloo::begin(const Group &group)
{
    showGloosOptions(group);
    bool needed = false;
    {
        const py::gil_scoped_acquire locked;
        needed = entry("needs_gloo")().cast<bool>();
    }
    if (needed) {
        gloo();
    }
}

void InPlaceOfGloo::showGloosOptions(const Group &group)
{
    shown_options_ = glooOptions(group);
    const auto *const base = reinterpret_cast<const char *>(static_cast<c10d::Backend *>(this));
    TORCH_INTERNAL_ASSERT(
        reinterpret_cast<const char *>(&shown_options_) - base ==
        (sizeof(c10d::Backend) + alignof(void *) - 1) / alignof(void *) * alignof(void *) + 16);
}

/* gloo's threads may want Python's lock, and its end waits for them. */
InPlaceOfGloo::~InPlaceOfGloo()
{
    if (gloo_ != nullptr && Py_IsInitialized() && PyGILState_Check()) {
        const py::gil_scoped_release released;
        gloo_.reset();
    }
}

c10::intrusive_ptr<c10d::Backend> InPlaceOfGloo::another(std::shared_ptr<Communicator> comm,
                                                         const Group &group) const
{
    return comm == nullptr ? c10::make_intrusive<InPlaceOfGloo>(group)
                           : c10::make_intrusive<InPlaceOfGloo>(std::move(comm), group);
}

/* Titles live for ever, as those of kolo do. */
const char *InPlaceOfGloo::titleOf(const char *title) const
{
    static std::mutex mutex;
    static auto *const titles = new std::map<const char *, std::string>;
    const std::lock_guard<std::mutex> lock(mutex);
    std::string &named = (*titles)[title];
    if (named.empty()) {
        named = c10::str("gloo:", title + sizeof "kolo:" - 1);
    }
    return named.c_str();
}

/* ---- the kept gloo ---- */

c10::intrusive_ptr<c10d::Backend> InPlaceOfGloo::keptGloo()
{
    const std::lock_guard<std::mutex> lock(gloo_mutex_);
    return gloo_;
}

/* Only the calls of one thread at a time make it: c10d's calls have an order. */
c10d::Backend &InPlaceOfGloo::gloo()
{
    if (auto kept = keptGloo()) {
        return *kept;
    }
    c10::intrusive_ptr<c10d::Store> store =
        c10::make_intrusive<c10d::PrefixStore>("kept_gloo/", store_);
    c10::intrusive_ptr<c10d::Backend> made;
    {
        const py::gil_scoped_acquire locked;
        made = entry("kept_gloo")(store, rank_, size_, options_->timeout)
                   .cast<c10::intrusive_ptr<c10d::Backend>>();
    }
    const std::lock_guard<std::mutex> lock(gloo_mutex_);
    gloo_ = std::move(made);
    return *gloo_;
}

/* gloo's barrier waits for the calls before it, and those may be the kept gloo's. */
WorkPtr InPlaceOfGloo::barrier(const c10d::BarrierOptions &opts)
{
    c10d::BarrierOptions here = opts;
    here.device_ids.clear();
    here.device.reset();
    if (const auto kept = keptGloo()) {
        kept->barrier(here)->wait();
    }
    return KoloBackend::barrier(here);
}

void InPlaceOfGloo::setTimeout(std::chrono::milliseconds timeout)
{
    KoloBackend::setTimeout(timeout);
    shown_options_->timeout = timeout;
    if (const auto kept = keptGloo()) {
        kept->setTimeout(timeout);
    }
}

void InPlaceOfGloo::abort()
{
    KoloBackend::abort();
    if (const auto kept = keptGloo()) {
        kept->abort();
    }
}

void InPlaceOfGloo::shutdown()
{
    KoloBackend::shutdown();
    if (const auto kept = keptGloo()) {
        kept->shutdown();
    }
}

/* ---- calls ---- */

WorkPtr InPlaceOfGloo::broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts)
{
    return oneOnCpu(tensors) ? KoloBackend::broadcast(tensors, opts)
                             : gloo().broadcast(tensors, opts);
}

WorkPtr InPlaceOfGloo::allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    return oneOnCpu(tensors) ? KoloBackend::allreduce(tensors, opts)
                             : gloo().allreduce(tensors, opts);
}

WorkPtr InPlaceOfGloo::allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts)
{
    return oneOnCpu(tensors) ? KoloBackend::allreduce_sparse(tensors, opts)
                             : gloo().allreduce_sparse(tensors, opts);
}

WorkPtr InPlaceOfGloo::allreduce_coalesced(Tensors &tensors,
                                           const c10d::AllreduceCoalescedOptions &opts)
{
    return onCpu(tensors) ? KoloBackend::allreduce_coalesced(tensors, opts)
                          : gloo().allreduce_coalesced(tensors, opts);
}

WorkPtr InPlaceOfGloo::reduce(Tensors &tensors, const c10d::ReduceOptions &opts)
{
    return oneOnCpu(tensors) ? KoloBackend::reduce(tensors, opts) : gloo().reduce(tensors, opts);
}

WorkPtr InPlaceOfGloo::allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                                 const c10d::AllgatherOptions &opts)
{
    return oneOnCpu(inputs) ? KoloBackend::allgather(outputs, inputs, opts)
                            : gloo().allgather(outputs, inputs, opts);
}

WorkPtr InPlaceOfGloo::_allgather_base(at::Tensor &output, at::Tensor &input,
                                       const c10d::AllgatherOptions &opts)
{
    return onCpu(input) ? KoloBackend::_allgather_base(output, input, opts)
                        : gloo()._allgather_base(output, input, opts);
}

WorkPtr InPlaceOfGloo::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                           const c10d::AllgatherOptions &opts)
{
    return onCpu(inputs) ? KoloBackend::allgather_coalesced(outputs, inputs, opts)
                         : gloo().allgather_coalesced(outputs, inputs, opts);
}

WorkPtr InPlaceOfGloo::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                       const c10d::AllgatherOptions &opts)
{
    return onCpu(inputs) ? KoloBackend::allgather_into_tensor_coalesced(outputs, inputs, opts)
                         : gloo().allgather_into_tensor_coalesced(outputs, inputs, opts);
}

WorkPtr InPlaceOfGloo::gather(std::vector<Tensors> &outputs, Tensors &inputs,
                              const c10d::GatherOptions &opts)
{
    return oneOnCpu(inputs) ? KoloBackend::gather(outputs, inputs, opts)
                            : gloo().gather(outputs, inputs, opts);
}

WorkPtr InPlaceOfGloo::scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                               const c10d::ScatterOptions &opts)
{
    return oneOnCpu(outputs) ? KoloBackend::scatter(outputs, inputs, opts)
                             : gloo().scatter(outputs, inputs, opts);
}

WorkPtr InPlaceOfGloo::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                                      const c10d::ReduceScatterOptions &opts)
{
    return oneOnCpu(outputs) ? KoloBackend::reduce_scatter(outputs, inputs, opts)
                             : gloo().reduce_scatter(outputs, inputs, opts);
}

WorkPtr InPlaceOfGloo::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                            const c10d::ReduceScatterOptions &opts)
{
    return onCpu(input) ? KoloBackend::_reduce_scatter_base(output, input, opts)
                        : gloo()._reduce_scatter_base(output, input, opts);
}

WorkPtr InPlaceOfGloo::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                       const c10d::ReduceScatterOptions &opts)
{
    return onCpu(inputs) ? KoloBackend::reduce_scatter_tensor_coalesced(outputs, inputs, opts)
                         : gloo().reduce_scatter_tensor_coalesced(outputs, inputs, opts);
}

WorkPtr InPlaceOfGloo::alltoall_base(at::Tensor &output, at::Tensor &input,
                                     std::vector<int64_t> &outputSplits,
                                     std::vector<int64_t> &inputSplits,
                                     const c10d::AllToAllOptions &opts)
{
    return onCpu(input) ? KoloBackend::alltoall_base(output, input, outputSplits, inputSplits, opts)
                        : gloo().alltoall_base(output, input, outputSplits, inputSplits, opts);
}

WorkPtr InPlaceOfGloo::alltoall(Tensors &outputs, Tensors &inputs,
                                const c10d::AllToAllOptions &opts)
{
    return onCpu(inputs) ? KoloBackend::alltoall(outputs, inputs, opts)
                         : gloo().alltoall(outputs, inputs, opts);
}

WorkPtr InPlaceOfGloo::send(Tensors &tensors, int peer, int tag)
{
    return onCpu(tensors) ? KoloBackend::send(tensors, peer, tag) : gloo().send(tensors, peer, tag);
}

WorkPtr InPlaceOfGloo::recv(Tensors &tensors, int peer, int tag)
{
    return onCpu(tensors) ? KoloBackend::recv(tensors, peer, tag) : gloo().recv(tensors, peer, tag);
}

WorkPtr InPlaceOfGloo::recvAnysource(Tensors &tensors, int tag)
{
    return onCpu(tensors) ? KoloBackend::recvAnysource(tensors, tag)
                          : gloo().recvAnysource(tensors, tag);
}

} // namespace kolo_torch
