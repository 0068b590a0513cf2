// SPDX-License-Identifier: Apache-2.0
/* One call on host memory, as c10d sees it.
 *
 * An asynchronous call has a kolo stream of its own. Whoever first sees that the stream is idle
 * settles the work: takes the status, copies results back, completes the future. That is a thread
 * which waits (it makes kolo's progress itself), which asks, or, if somebody wants to be called,
 * the completer. */
#pragma once

#include "comm.hpp"
#include "staging.hpp"

#include <atomic>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace kolo_torch
{

struct Call {
    c10d::OpType type;
    const char *title; /* "kolo:all_reduce" */
    uint64_t seq;
    std::chrono::milliseconds timeout;
    uint64_t record; /* of the recorder; 0: none */

    /* For texts: "all_reduce (number 3)". */
    std::string where() const;
    /* Nothing unless somebody listens: c10d makes a range of them, which is not free. */
    const char *titleForProfiler() const;
    static std::optional<std::vector<at::Tensor>>
    inputsForProfiler(const std::vector<at::Tensor> &inputs);
};

/* What a future of these outputs holds: a list, or a list of lists where there are several. */
c10::TypePtr typeOfOutputs(const std::vector<std::vector<at::Tensor>> &outputs);
c10::IValue valueOfOutputs(const std::vector<std::vector<at::Tensor>> &outputs);

class Work final : public c10d::Work
{
  public:
    /* `inputs` are what a profiler shows. */
    Work(std::shared_ptr<Communicator> comm, int rank, const Call &call,
         const std::vector<at::Tensor> &inputs, std::vector<std::vector<at::Tensor>> outputs);
    ~Work() override;

    /* Runs launch(comm, stream) here and now (asynchronous false: stream NULL) or starts it. Throws
     * where that fails at once. `received`, if not null, is written by launch's receive. */
    template <typename Launch> void run(bool asynchronous, Staging &&staging, Launch launch)
    {
        if (!asynchronous) {
            const kolo_status status = launch(comm_->get(), static_cast<kolo_stream>(nullptr));
            endHere(status, std::move(staging));
            return;
        }
        open(std::move(staging));
        const kolo_status status = launch(comm_->get(), stream_);
        started(status);
    }

    /* Where a receive says what came, and how many bytes it must be. */
    kolo_recv_info *expect(size_t bytes);

    /* Wait, whatever the end is: nothing is thrown. */
    void settleNow()
    {
        trySettle(true);
    }

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    int sourceRank() const override;
    std::vector<at::Tensor> result() override;
    bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
    void blockCurrentStream() override;
    void abort() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
    c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
    float getDuration() const override;
    uint64_t getSequencenumber() const override
    {
        return call_.seq;
    }

  private:
    void open(Staging &&staging);
    void started(kolo_status status);
    void endHere(kolo_status status, Staging &&staging);
    /* Call back when the stream gets there; mutex_ is held. */
    void callBack();
    static void reached(void *self);
    bool trySettle(bool block);
    void settle(kolo_status status);
    void ended(kolo_status status, const std::exception_ptr &error);
    std::exception_ptr finishResults(kolo_status status);
    void completeFuture();
    void checkReceived() const;
    bool waitUntil(std::chrono::steady_clock::time_point end);
    std::exception_ptr failureOf(kolo_status status) const;

    const std::shared_ptr<Communicator> comm_;
    const Call call_;
    const int lane_; /* of the completer */
    std::vector<std::vector<at::Tensor>> outputs_;
    Staging staging_;
    kolo_stream stream_ = nullptr;
    std::atomic<bool> done_{false};
    std::timed_mutex settling_; /* one thread at a time waits and settles */
    bool called_back_ = false;  /* mutex_ */
    c10::intrusive_ptr<c10::ivalue::Future> future_, future_result_; /* mutex_ */
    kolo_status status_ = KOLO_OK;
    kolo_recv_info received_{sizeof(kolo_recv_info), -1, 0, 0};
    size_t expected_ = 0;
    bool expects_ = false;
    std::chrono::steady_clock::time_point began_, ended_;
};

} // namespace kolo_torch
