// SPDX-License-Identifier: Apache-2.0
/* c10d::Backend over libkolo.
 *
 * On host memory a call that its caller waits for anyway (asyncOp false) runs in the caller's
 * thread; the others run on kolo's progress thread, or in whichever thread waits. On CUDA tensors
 * calls are queued: in the current stream, asynchronous ones in a stream beside it. The first such
 * call makes a communicator of the device, as all ranks do there. Methods have the names and
 * arguments of c10d::Backend; shapes and meanings are those of torch.distributed. Errors:
 * ValueError for arguments that make no sense; DistBackendError, naming the rank at fault where
 * there is one, for what ends the process group. */
#pragma once

#include "comm.hpp"
#include "device_work.hpp"
#include "staging.hpp"
#include "types.hpp"
#include "work.hpp"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace kolo_torch
{

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

class KoloBackend final : public c10d::Backend
{
  public:
    /* Joins the group: returns when all its ranks have come. */
    KoloBackend(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                const c10::intrusive_ptr<KoloOptions> &options);
    KoloBackend(std::shared_ptr<Communicator> comm, const c10::intrusive_ptr<c10d::Store> &store,
                int rank, int size, const c10::intrusive_ptr<KoloOptions> &options);
    ~KoloBackend() override;

    const std::string getBackendName() const override
    {
        return "kolo";
    }
    c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override
    {
        return options_;
    }
    bool supportsSplitting() const override
    {
        return true;
    }
    bool supportsCoalescing() const override
    {
        return true;
    }
    bool supportsShrinking() const override
    {
        return true;
    }

    /* collectives.cpp */
    WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts) override;
    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkPtr allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &opts) override;
    WorkPtr allreduce_coalesced(Tensors &tensors,
                                const c10d::AllreduceCoalescedOptions &opts) override;
    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &opts) override;
    WorkPtr allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                      const c10d::AllgatherOptions &opts) override;
    WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input,
                            const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                const c10d::AllgatherOptions &opts) override;
    WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &opts) override;
    WorkPtr gather(std::vector<Tensors> &outputs, Tensors &inputs,
                   const c10d::GatherOptions &opts) override;
    WorkPtr scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                    const c10d::ScatterOptions &opts) override;
    WorkPtr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                           const c10d::ReduceScatterOptions &opts) override;
    WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                 const c10d::ReduceScatterOptions &opts) override;
    WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::ReduceScatterOptions &opts) override;
    WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &outputSplits,
                          std::vector<int64_t> &inputSplits,
                          const c10d::AllToAllOptions &opts) override;
    WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &opts) override;
    WorkPtr barrier(const c10d::BarrierOptions &opts) override;

    /* messages.cpp */
    WorkPtr send(Tensors &tensors, int peer, int tag) override;
    WorkPtr recv(Tensors &tensors, int peer, int tag) override;
    WorkPtr recvAnysource(Tensors &tensors, int tag) override;

    /* backend.cpp */
    void startCoalescing() override;
    WorkPtr endCoalescing() override;
    void setSequenceNumberForGroup() override {}
    uint64_t getSequenceNumberForGroup() override
    {
        return sequence_;
    }
    void setTimeout(std::chrono::milliseconds timeout) override
    {
        options_->timeout = timeout;
    }
    c10::intrusive_ptr<c10d::Backend>
    split(const c10::intrusive_ptr<c10d::Store> &store, const std::vector<int> &ranks,
          const c10::intrusive_ptr<c10d::Backend::Options> &opts) override;
    c10::intrusive_ptr<c10d::Backend>
    shrink(const std::vector<int64_t> &exclude, int flags,
           const c10::intrusive_ptr<c10d::Backend::Options> &opts) override;
    void monitoredBarrier(const c10d::BarrierOptions &opts, bool waitAllRanks) override;
    c10d::ErrorType getError() override;
    /* Tensors that peers read without a copy: FSDP2's buffers, if it is told to ask for them. */
    bool supportsTensorAlloc(c10::DeviceIndex) override
    {
        return true;
    }
    void eagerConnectSingleDevice(at::Device device) override
    {
        on(device);
    }
    at::Tensor allocateTensor(long size, at::TensorOptions options) override;
    std::shared_ptr<c10::Allocator> getMemAllocator() override;
    void abort() override;
    void shutdown() override;
    void waitForPendingWorks() override;

  private:
    using Launch = DeviceWork::Launch;
    static constexpr int kNoPeer = -1;
    struct Coalesced {
        Staging staging;
        std::vector<Launch> launches;
        Tensors outputs;
    };

    /* How a call is to be made. */
    struct How {
        c10d::OpType type;
        const char *title;
        bool asynchronous;
        std::chrono::milliseconds timeout;
        int peer = kNoPeer; /* of a message on a device, which has a communicator of the two */
    };

    /* The one way of all calls. NULL inside startCoalescing(). launch is kept for later there:
     * it must hold what it uses by value. */
    template <typename L>
    WorkPtr run(const How &how, const Tensors &inputs, std::vector<Tensors> outputs,
                Staging &&staging, L launch);
    c10::intrusive_ptr<Work> begin(const How &how, const Tensors &inputs,
                                   std::vector<Tensors> outputs);
    WorkPtr runOnDevice(const How &how, const Tensors &inputs, std::vector<Tensors> outputs,
                        Staging &&staging, const Launch &launch);
    Call number(const How &how, const Tensors &inputs, const std::vector<Tensors> &outputs);
    /* The communicator of this memory, of all ranks or of this one and `peer`; made where there is
     * none yet, which all of them do together. Errors: ValueError, and as Communicator. */
    std::shared_ptr<Communicator> on(c10::Device device, int peer = kNoPeer);
    std::shared_ptr<Communicator> connect(c10::Device device, int peer) const;
    /* Where the last collective on a device was, if there was one. */
    std::optional<c10::Device> lastDevice();
    std::vector<std::shared_ptr<Communicator>> communicators();
    uint64_t note(const How &how, const Tensors &inputs, const std::vector<Tensors> &outputs) const;
    void fly(const c10::intrusive_ptr<Work> &work);
    int pairWith(const at::Tensor &t, int peer) const;
    WorkPtr receive(Tensors &tensors, int peer, int tag, const How &how);
    std::chrono::milliseconds limit(std::chrono::milliseconds given) const;
    kolo_op choose(const c10d::ReduceOp &op, const at::Tensor &t, Element *out);

    const c10::intrusive_ptr<c10d::Store> store_;
    const c10::intrusive_ptr<KoloOptions> options_;
    const std::shared_ptr<Communicator> comm_;
    uint64_t sequence_ = 0, messages_ = 0, barriers_ = 0, shrinks_ = 0;
    std::unique_ptr<Coalesced> coalesced_;
    std::mutex flying_mutex_;
    std::deque<c10::intrusive_ptr<Work>> flying_;       /* what is under way, with its tensors */
    std::deque<c10::intrusive_ptr<DeviceWork>> queued_; /* likewise, on devices */
    std::mutex connecting_mutex_, devices_mutex_;
    std::map<std::pair<c10::DeviceIndex, int>, std::shared_ptr<Communicator>> devices_;
    std::optional<c10::Device> last_device_;
};

template <typename L>
WorkPtr KoloBackend::run(const How &how, const Tensors &inputs, std::vector<Tensors> outputs,
                         Staging &&staging, L launch)
{
    if (coalesced_ != nullptr) {
        coalesced_->staging.join(std::move(staging));
        coalesced_->launches.emplace_back(std::move(launch));
        for (Tensors &list : outputs) {
            coalesced_->outputs.insert(coalesced_->outputs.end(), list.begin(), list.end());
        }
        return nullptr;
    }
    if (staging.device()) {
        return runOnDevice(how, inputs, std::move(outputs), std::move(staging), launch);
    }
    const bool asynchronous = how.asynchronous || how.timeout != comm_->timeout();
    auto work = begin(how, inputs, std::move(outputs));
    work->run(asynchronous, std::move(staging), std::move(launch));
    if (asynchronous) {
        fly(work);
    }
    return work;
}

} // namespace kolo_torch
