// SPDX-License-Identifier: Apache-2.0
/* Life of a call on a device. It is enqueued on a stream, an event marks its end, and streams or
 * threads wait for that event. */
#include "device_work.hpp"

#include "completer.hpp"
#include "device.hpp"
#include "recorder.hpp"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <thread>

namespace kolo_torch
{

namespace
{

constexpr auto kNap = std::chrono::microseconds(50);

} // namespace

DeviceWork::DeviceWork(WorkOptions options, const c10::Stream &current, const c10::Stream &stream)
    : c10d::Work(options.rank, options.call.type, options.call.titleForProfiler(),
                 options.call.inputsForProfiler(options.inputs)),
      comm_(std::move(options.comm)), call_(options.call), stream_(stream),
      aside_(stream != current), outputs_(std::move(options.outputs)), end_(stream.device())
{
    if (aside_) {
        /* The wait is for what `current` has now; start() records the event anew. */
        end_->record(current);
        end_->block(stream_);
    }
}

void DeviceWork::start(Staging &&staging, const KoloCall &kolo_call)
{
    const kolo_status status = kolo_call(comm_->get(), nativeStream(stream_));
    captured_ = isCapturing(stream_);
    if (captured_) {
        end_.keepFromOthers();
    }
    if (status < 0) {
        failure_ = kolo_torch::failure(status, call_.where());
    } else {
        const c10::StreamGuard guard(stream_);
        staging.finish();
    }
    end_->record(stream_); /* also after a failure: a stream that joined a capture must leave it */
    if (recordFunctionEndCallback_ != nullptr) {
        recordFunctionEndCallback_();
        recordFunctionEndCallback_ = nullptr;
    }
    if (failure_ != nullptr) {
        synchronize();
        ended();
        std::rethrow_exception(failure_);
    }
    if (captured_) {
        Recorder::get().end(call_.record, true,
                            Recorder::Clock::now()); /* a captured call has no later events */
    }
    if (aside_) {
        stash_ = std::move(staging);
    }
}

/* ---- polling ---- */

/* mutex_ is held, or no other thread has the work. */
void DeviceWork::ended()
{
    over_ = true;
    stash_.release();
    Recorder::get().end(call_.record, failure_ == nullptr, Recorder::Clock::now());
}

void DeviceWork::requireAskable() const
{
    TORCH_CHECK(!captured_, "kolo: ", call_.where(),
                ": a call that is captured in a graph cannot be asked whether it is over");
}

bool DeviceWork::isOver()
{
    requireAskable();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!over_) {
        const BesideCaptures beside; /* a graph may be captured by any thread */
        failure_ = comm_->failure(call_.where());
        if (failure_ != nullptr || end_->query()) {
            ended();
        }
    }
    return over_;
}

bool DeviceWork::isSuccess() const
{
    const std::lock_guard<std::mutex> lock(mutex_);
    return over_ && failure_ == nullptr;
}

std::exception_ptr DeviceWork::exception() const
{
    const std::lock_guard<std::mutex> lock(mutex_);
    return failure_;
}

std::vector<at::Tensor> DeviceWork::result()
{
    std::vector<at::Tensor> all;
    for (const auto &list : outputs_) {
        all.insert(all.end(), list.begin(), list.end());
    }
    return all;
}

/* ---- waiting ---- */

void DeviceWork::synchronize()
{
    if (aside_) {
        const c10::impl::VirtualGuardImpl guard(stream_.device_type());
        end_->block(guard.getStream(stream_.device()));
    }
}

bool DeviceWork::waitUntil(std::chrono::steady_clock::time_point end)
{
    while (!isOver()) {
        if (std::chrono::steady_clock::now() > end) {
            return false;
        }
        std::this_thread::sleep_for(kNap);
    }
    return true;
}

void DeviceWork::settleNow()
{
    waitUntil(std::chrono::steady_clock::time_point::max());
}

void DeviceWork::throwFailure() const
{
    const std::exception_ptr failed = exception();
    if (failed != nullptr) {
        std::rethrow_exception(failed);
    }
}

bool DeviceWork::wait(std::chrono::milliseconds timeout)
{
    synchronize();
    if (timeout != kNoTimeout && timeout != c10d::kUnsetTimeout) {
        if (!waitUntil(std::chrono::steady_clock::now() + timeout)) {
            C10_THROW_ERROR(DistBackendError,
                            c10::str("kolo: ", call_.where(), ": Operation timed out: wait() ",
                                     "was given ", timeout.count(), " ms"));
        }
    } else if (call_.type == c10d::OpType::BARRIER) {
        settleNow();
    } else {
        const std::lock_guard<std::mutex> lock(mutex_);
        stash_.release(); /* their memory is reused after the call, in the current stream */
        if (!over_ && !captured_) {
            failure_ = comm_->failure(call_.where());
        }
    }
    throwFailure();
    return true;
}

/* ---- futures ---- */

/* The future is complete from the start: a waiter makes its stream wait. */
c10::intrusive_ptr<c10::ivalue::Future> DeviceWork::getFuture()
{
    const std::lock_guard<std::mutex> lock(mutex_);
    if (future_ == nullptr) {
        future_ = c10::make_intrusive<c10::ivalue::Future>(
            typeOfOutputs(outputs_), std::vector<c10::Device>{stream_.device()});
        const c10::StreamGuard guard(stream_);
        future_->markCompleted(valueOfOutputs(outputs_));
    }
    return future_;
}

/* The future completes when the call is over. */
c10::intrusive_ptr<c10::ivalue::Future> DeviceWork::getFutureResult()
{
    requireAskable();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (future_result_ == nullptr) {
        future_result_ = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
        const auto self = c10::intrusive_ptr<DeviceWork>::unsafe_reclaim_from_nonowning(this);
        complete(completionLane(), [self, result = future_result_] {
            self->settleNow();
            const auto end =
                self->isSuccess() ? c10d::WorkResult::SUCCESS : c10d::WorkResult::COMM_ERROR;
            result->markCompleted(c10::IValue(static_cast<int64_t>(end)));
        });
    }
    return future_result_;
}

} // namespace kolo_torch
