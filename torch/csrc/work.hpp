// SPDX-License-Identifier: Apache-2.0
/* One call on host memory, as a work of c10d.
 *
 * An asynchronous call has a kolo stream of its own. The first thread that finds the stream idle
 * settles the work: it takes the status, copies results back and completes the future. Three kinds
 * of thread can do so: a waiting thread (it makes kolo's progress itself), a thread that polls, and
 * the completer, if the work has a callback. */
#pragma once

#include "comm.hpp"
#include "staging.hpp"

#include <ATen/record_function.h>
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
    std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
    bool profiled = at::hasCallbacks();
    uint64_t record = 0; /* id in the recorder; 0: none */

    /* For texts: "all_reduce (number 3)". */
    std::string where() const;
    /* Both are empty unless a profiler listens: c10d makes a range of them, which costs time. */
    const char *titleForProfiler() const;
    std::optional<std::vector<at::Tensor>>
    inputsForProfiler(const std::vector<at::Tensor> &inputs) const;
};

/* Type and value of a future of these outputs: a list of tensors, or a list of several such lists.
 */
c10::TypePtr typeOfOutputs(const std::vector<std::vector<at::Tensor>> &outputs);
c10::IValue valueOfOutputs(const std::vector<std::vector<at::Tensor>> &outputs);

struct WorkOptions {
    std::shared_ptr<Communicator> comm;
    int rank;
    Call call;
    const std::vector<at::Tensor> &inputs; /* for a profiler; read by the constructor only */
    std::vector<std::vector<at::Tensor>> outputs;
};

class Work final : public c10d::Work
{
  public:
    explicit Work(WorkOptions options);
    ~Work() override;

    /* Asynchronous: start kolo_call(comm, stream). Else run it here, with stream NULL. Throws if
     * the call fails at once. */
    template <typename KoloCall> void run(bool asynchronous, Staging &&staging, KoloCall kolo_call)
    {
        if (!asynchronous) {
            recordWait();
            const kolo_status status = kolo_call(comm_->get(), static_cast<kolo_stream>(nullptr));
            endHere(status, std::move(staging));
            return;
        }
        open(std::move(staging));
        const kolo_status status = kolo_call(comm_->get(), stream_);
        started(status);
    }

    /* Expect a message of this many bytes. A receive stores its sender and length in the result. */
    kolo_recv_info *expect(size_t bytes);

    /* Wait until the call is over. Never throws, even if the call failed. */
    void settleNow()
    {
        trySettle(true);
    }

    /* The call is over, and its results are there. */
    bool isDone() const
    {
        return done_.load(std::memory_order_acquire);
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
    /* Register a callback at the end of the stream's work; mutex_ is held. */
    void callBack();
    static void reached(void *self);
    bool trySettle(bool block);
    void settle(kolo_status status);
    void ended(kolo_status status, const std::exception_ptr &error);
    std::exception_ptr finishResults(kolo_status status);
    void completeFuture();
    void awaitFuture();
    void recordWait() const;
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
    bool called_back_ = false, future_completed_ = false;            /* mutex_ */
    c10::intrusive_ptr<c10::ivalue::Future> future_, future_result_; /* mutex_ */
    kolo_status status_ = KOLO_OK;
    kolo_recv_info received_{sizeof(kolo_recv_info), -1, 0, 0};
    size_t expected_ = 0;
    bool expects_ = false;
    std::chrono::steady_clock::time_point ended_;
};

} // namespace kolo_torch
