// SPDX-License-Identifier: Apache-2.0
/* One call on a device's memory, as a work of c10d: operations that are queued on a stream.
 *
 * wait() makes the current stream wait, not the caller. A barrier, and a wait() with a time-out,
 * block the caller too. The work keeps its tensors, so that the caching allocator does not reuse
 * their memory. It drops them when the waiting stream is ordered after the call, or the call is
 * over. A call that is captured in a graph cannot be polled. */
#pragma once

#include "comm.hpp"
#include "events.hpp"
#include "staging.hpp"
#include "work.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace kolo_torch
{

class DeviceWork final : public c10d::Work
{
  public:
    using KoloCall = std::function<kolo_status(kolo_comm *, kolo_stream)>;

    /* The call will run in `stream`, after the work that `current` has now. */
    DeviceWork(WorkOptions options, const c10::Stream &current, const c10::Stream &stream);

    /* Enqueue the call. Throws if that fails. */
    void start(Staging &&staging, const KoloCall &kolo_call);

    bool captured() const
    {
        return captured_;
    }
    /* The call is over, with success or not. Never throws because of the call. */
    bool isOver();
    /* Wait until the call is over. */
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
    const bool aside_; /* stream_ is not the caller's stream */
    const std::vector<std::vector<at::Tensor>> outputs_;
    UsedEvent end_;
    bool captured_ = false;
    mutable std::mutex mutex_; /* of the members below */
    Staging stash_;
    bool over_ = false;
    std::exception_ptr failure_;
    c10::intrusive_ptr<c10::ivalue::Future> future_, future_result_;
};

} // namespace kolo_torch
