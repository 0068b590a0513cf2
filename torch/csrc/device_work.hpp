// SPDX-License-Identifier: Apache-2.0
/* One call on a device's memory, as c10d sees it: what is queued on a stream.
 *
 * wait() has the current stream wait, not the caller; a barrier and a wait() with a time-out also
 * have the caller wait. Tensors are kept until the stream that waits is known to come after the
 * call, or the call is over, so that the caching allocator does not give their memory away. What is
 * captured in a graph is never asked whether it is over. */
#pragma once

#include "comm.hpp"
#include "staging.hpp"
#include "work.hpp"

#include <atomic>
#include <c10/core/Event.h>
#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace kolo_torch
{

class DeviceWork final : public c10d::Work
{
  public:
    using Launch = std::function<kolo_status(kolo_comm *, kolo_stream)>;

    /* The call will run in `stream`, behind what `current` has now. */
    DeviceWork(std::shared_ptr<Communicator> comm, int rank, const Call &call,
               const c10::Stream &current, const c10::Stream &stream,
               const std::vector<at::Tensor> &inputs, std::vector<std::vector<at::Tensor>> outputs);

    /* Enqueues it. Throws where that fails. */
    void start(Staging &&staging, const Launch &launch);

    bool captured() const
    {
        return captured_;
    }
    /* Over, well or not; never throws because of the call. */
    bool isOver();
    /* Wait until it is. */
    void settleNow();

    bool isCompleted() override
    {
        return isOver();
    }
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    std::vector<at::Tensor> result() override;
    void synchronize() override;
    bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
    void blockCurrentStream() override
    {
        synchronize();
    }
    void abort() override
    {
        comm_->abort();
    }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
    uint64_t getSequencenumber() const override
    {
        return call_.seq;
    }

  private:
    void requireAskable() const;
    bool waitUntil(std::chrono::steady_clock::time_point end);
    void throwFailure() const;
    void ended();

    const std::shared_ptr<Communicator> comm_;
    const Call call_;
    const c10::Stream stream_;
    const bool aside_; /* in another stream than the caller's */
    const std::vector<std::vector<at::Tensor>> outputs_;
    c10::Event end_;
    bool captured_ = false;
    mutable std::mutex mutex_; /* of what follows */
    Staging stash_;
    bool over_ = false;
    std::exception_ptr failure_;
    c10::intrusive_ptr<c10::ivalue::Future> future_, future_result_;
};

} // namespace kolo_torch
