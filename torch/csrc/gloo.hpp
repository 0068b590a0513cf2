// SPDX-License-Identifier: Apache-2.0
/* A group of kolo's in the place of one of gloo (KOLO_TORCH_AS=gloo).
 *
 * Programs find gloo's name, options and titles of calls. A call that kolo does not serve goes to a
 * gloo of the same ranks: tensors on other devices than the CPU, and several tensors of a rank in one
 * call. It is made with the group where there is such a device, else at the first such call. */
#pragma once

#include "backend.hpp"

namespace kolo_torch
{

class InPlaceOfGloo final : public KoloBackend
{
  public:
    explicit InPlaceOfGloo(const Group &group);
    InPlaceOfGloo(std::shared_ptr<Communicator> comm, const Group &group);
    ~InPlaceOfGloo() override;

    const std::string getBackendName() const override
    {
        return "gloo";
    }
    bool supportsCoalescing() const override
    {
        return false;
    }
    /* gloo connects no device, and its barrier takes no notice of one. */
    void eagerConnectSingleDevice(at::Device /*device*/) override {}
    WorkPtr barrier(const c10d::BarrierOptions &opts) override;
    void setTimeout(std::chrono::milliseconds timeout) override;
    void abort() override;
    void shutdown() override;

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
    WorkPtr send(Tensors &tensors, int peer, int tag) override;
    WorkPtr recv(Tensors &tensors, int peer, int tag) override;
    WorkPtr recvAnysource(Tensors &tensors, int tag) override;

  private:
    c10::intrusive_ptr<c10d::Backend> another(std::shared_ptr<Communicator> comm,
                                              const Group &group) const override;
    const char *titleOf(const char *title) const override;
    void begin(const Group &group);
    /* The gloo that serves the rest. The first call makes it, and waits for no other rank. */
    c10d::Backend &gloo();
    c10::intrusive_ptr<c10d::Backend> keptGloo();

    /* Programs see options of gloo's own type. Their time-out is the group's at the beginning, and
     * what setTimeout() was given later. */
    void showGloosOptions(const Group &group);

    std::mutex gloo_mutex_;
    c10::intrusive_ptr<c10d::Backend> gloo_; /* gloo_mutex_ */
};

} // namespace kolo_torch
