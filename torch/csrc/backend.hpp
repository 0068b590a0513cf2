// SPDX-License-Identifier: Apache-2.0
/* c10d::Backend over libkolo.
 *
 * Host memory: a call with asyncOp false runs in the caller's thread. An asynchronous call runs on
 * kolo's progress thread, or in the thread that waits for it.
 * CUDA tensors: a call is queued in the current stream, an asynchronous call in a side stream. The
 * first call on a device makes a communicator for it, on all ranks together.
 *
 * Methods have the names and arguments of c10d::Backend, and the shapes and meanings of
 * torch.distributed. Errors: ValueError for invalid arguments; DistBackendError for a failure that
 * ends the process group. Its text names the rank at fault, if there is one. */
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

/* One list; {tensors} would copy it. */
inline std::vector<Tensors> listOf(Tensors tensors)
{
    std::vector<Tensors> lists(1);
    lists[0] = std::move(tensors);
    return lists;
}

/* A process group, as this rank joins it. */
struct Group {
    c10::intrusive_ptr<c10d::Store> store;
    int rank, size;
    c10::intrusive_ptr<KoloOptions> options;
};

class KoloBackend : public c10d::Backend
{
  public:
    /* Joins the group: returns when all its ranks have joined. */
    explicit KoloBackend(const Group &group);
    KoloBackend(std::shared_ptr<Communicator> comm, const Group &group);
    ~KoloBackend() override;

    /* A communicator of some ranks of this group, as Communicator::among(). */
    std::shared_ptr<Communicator> among(const std::vector<int> &members, const KoloOptions &options)
    {
        return Communicator::among(*comm_, members, options);
    }

    const std::string getBackendName() const override
    {
        return "kolo";
    }
    c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override
    {
        return shown_options_;
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
    void enableCollectivesTiming() override {} /* every work has its duration */
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
    c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store> &store,
                                            const c10::intrusive_ptr<c10d::Backend::Options> &opts,
                                            const int &rank, const int &size) override;
    c10::intrusive_ptr<c10d::Backend>
    shrink(const std::vector<int64_t> &exclude, int flags,
           const c10::intrusive_ptr<c10d::Backend::Options> &opts) override;
    /* Agree among the survivors: kolo_comm_agree(). Returns the word and the ranks that failed. */
    std::pair<uint64_t, std::vector<int>> agree(uint64_t word);
    /* A group of members of this one and new ranks: kolo_comm_reconfigure(). members[i] is the number
     * here of its rank i, or -1. It may be smaller, if members die meanwhile. */
    c10::intrusive_ptr<c10d::Backend> reconfigured(const c10::intrusive_ptr<c10d::Store> &store,
                                                   const kolo_id &id,
                                                   const std::vector<int> &members);
    void monitoredBarrier(const c10d::BarrierOptions &opts, bool waitAllRanks) override;
    c10d::ErrorType getError() override;
    /* Throw the error that ended the group, if one did. Any thread may call it. */
    void raiseFailure();
    /* FSDP2, if configured so, asks for tensors that peers read without a copy. */
    bool supportsTensorAlloc(c10::DeviceIndex) override
    {
        return true;
    }
    void eagerConnectSingleDevice(at::Device device) override
    {
        communicatorOf(device);
    }
    at::Tensor allocateTensor(long size, at::TensorOptions options) override;
    std::shared_ptr<c10::Allocator> getMemAllocator() override;
    void abort() override;
    void shutdown() override;
    void waitForPendingWorks() override;

  protected:
    /* A group of the same kind; `comm` NULL: its ranks join it. */
    virtual c10::intrusive_ptr<c10d::Backend> another(std::shared_ptr<Communicator> comm,
                                                      const Group &group) const;
    /* The title under which a profiler and the recorder show a call. */
    virtual const char *titleOf(const char *title) const
    {
        return title;
    }

    const c10::intrusive_ptr<c10d::Store> store_;
    const c10::intrusive_ptr<KoloOptions> options_;
    /* The options that programs see. They must lie here: the logger of DDP takes a group named gloo
     * for a ProcessGroupGloo, and reads the number of threads from the options of that class, which
     * come behind 16 bytes. */
    c10::intrusive_ptr<c10d::Backend::Options> shown_options_;

  private:
    using KoloCall = DeviceWork::KoloCall;
    static constexpr int kNoPeer = -1;
    struct Coalesced {
        Staging staging;
        std::vector<KoloCall> calls;
        Tensors inputs, outputs;
    };

    /* The options of one call. */
    struct CallOptions {
        c10d::OpType type;
        const char *title;
        bool asynchronous;
        std::chrono::milliseconds timeout;
        int peer = kNoPeer; /* of a message on a device: its communicator is of these two ranks */
        int partner = kNoPeer; /* of any message, where it is known */
    };

    /* Every call goes through here. Inside startCoalescing() the call is kept for later and the
     * result is NULL: kolo_call must then hold all its values by value. */
    template <typename L>
    WorkPtr enqueue(const CallOptions &call_options, const Tensors &inputs,
                    std::vector<Tensors> outputs, Staging &&staging, L kolo_call);
    c10::intrusive_ptr<Work> makeWork(const CallOptions &call_options, const Tensors &inputs,
                                      std::vector<Tensors> outputs);
    WorkPtr enqueueOnDevice(const CallOptions &call_options, const Tensors &inputs,
                            std::vector<Tensors> outputs, Staging &&staging,
                            const KoloCall &kolo_call);
    Call describe(const CallOptions &call_options, const Tensors &inputs,
                  const std::vector<Tensors> &outputs);
    /* The communicator for memory of this device, for all ranks, or for this rank and `peer`. Its
     * ranks make it together at the first use. Errors: ValueError, and as Communicator. */
    std::shared_ptr<Communicator> communicatorOf(c10::Device device, int peer = kNoPeer);
    std::shared_ptr<Communicator> makeCommunicator(c10::Device device, int peer) const;
    /* The device of the last collective on a device, if there was one. */
    std::optional<c10::Device> lastDevice();
    std::vector<std::shared_ptr<Communicator>> communicators();
    uint64_t recordCall(const Call &call, int partner, const Tensors &inputs,
                        const std::vector<Tensors> &outputs) const;
    void keepInFlight(const c10::intrusive_ptr<Work> &work);
    int pairWith(const at::Tensor &t, int peer) const;
    WorkPtr enqueueReceive(Tensors &tensors, int peer, int tag, const CallOptions &call_options);
    std::chrono::milliseconds timeoutOf(std::chrono::milliseconds given) const;
    kolo_op reductionOf(const c10d::ReduceOp &op, const at::Tensor &t, Element *out);
    /* The codec of a call on `t`: that of the options if the tensor and the operation allow it. */
    kolo_codec codecOf(const at::Tensor &t, const Element &element, kolo_op op = KOLO_SUM) const;

    /* The options of a group that is made from this one: `given`, or this group's own. */
    c10::intrusive_ptr<KoloOptions>
    optionsFrom(const c10::intrusive_ptr<c10d::Backend::Options> &given) const;

    const std::shared_ptr<Communicator> comm_;
    const kolo_codec codec_;
    uint64_t sequence_ = 0, messages_ = 0, barriers_ = 0, shrinks_ = 0;
    std::unique_ptr<Coalesced> coalesced_;
    std::mutex in_flight_mutex_;
    std::deque<c10::intrusive_ptr<Work>> in_flight_; /* on host memory, with their tensors */
    std::deque<c10::intrusive_ptr<DeviceWork>> device_in_flight_; /* on devices */
    std::mutex connecting_mutex_, devices_mutex_;
    std::map<std::pair<c10::DeviceIndex, int>, std::shared_ptr<Communicator>> devices_;
    std::optional<c10::Device> last_device_;
};

template <typename L>
WorkPtr KoloBackend::enqueue(const CallOptions &call_options, const Tensors &inputs,
                             std::vector<Tensors> outputs, Staging &&staging, L kolo_call)
{
    if (coalesced_ != nullptr) {
        coalesced_->staging.join(std::move(staging));
        coalesced_->calls.emplace_back(std::move(kolo_call));
        coalesced_->inputs.insert(coalesced_->inputs.end(), inputs.begin(), inputs.end());
        for (Tensors &list : outputs) {
            coalesced_->outputs.insert(coalesced_->outputs.end(), list.begin(), list.end());
        }
        return nullptr;
    }
    if (staging.device()) {
        return enqueueOnDevice(call_options, inputs, std::move(outputs), std::move(staging),
                               kolo_call);
    }
    const bool asynchronous = call_options.asynchronous || call_options.timeout != comm_->timeout();
    auto work = makeWork(call_options, inputs, std::move(outputs));
    work->run(asynchronous, std::move(staging), std::move(kolo_call));
    if (asynchronous) {
        keepInFlight(work);
    }
    return work;
}

} // namespace kolo_torch
