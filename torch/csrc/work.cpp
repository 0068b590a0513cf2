// SPDX-License-Identifier: Apache-2.0
/* Life of a call on host memory: it starts, one thread settles it, and futures and waiters are told
 * its end. */
#include "work.hpp"

#include "completer.hpp"
#include "recorder.hpp"

#include <algorithm>
#include <thread>

namespace kolo_torch
{

std::string Call::where() const
{
    return c10::str(title + sizeof "kolo:" - 1, " (number ", seq, ")");
}

const char *Call::titleForProfiler() const
{
    return profiled ? title : nullptr;
}

std::optional<std::vector<at::Tensor>>
Call::inputsForProfiler(const std::vector<at::Tensor> &inputs) const
{
    return profiled ? std::make_optional(inputs) : std::nullopt;
}

c10::TypePtr typeOfOutputs(const std::vector<std::vector<at::Tensor>> &outputs)
{
    const c10::TypePtr list = c10::ListType::create(c10::TensorType::get());
    return outputs.size() > 1 ? c10::TypePtr(c10::ListType::create(list)) : list;
}

c10::IValue valueOfOutputs(const std::vector<std::vector<at::Tensor>> &outputs)
{
    if (outputs.size() > 1) {
        return c10::IValue(outputs);
    }
    return c10::IValue(outputs.empty() ? std::vector<at::Tensor>() : outputs[0]);
}

Work::Work(WorkOptions options)
    : c10d::Work(options.rank, options.call.type, options.call.titleForProfiler(),
                 options.call.inputsForProfiler(options.inputs)),
      comm_(std::move(options.comm)), call_(options.call), lane_(completionLane()),
      outputs_(std::move(options.outputs))
{
}

Work::~Work()
{
    if (stream_ != nullptr) { /* the call never started: a running work is never destroyed */
        comm_->giveStream(stream_, call_.timeout);
    }
}

/* Making the text takes longer than a short call, so it is made for failures only. */
std::exception_ptr Work::failureOf(kolo_status status) const
{
    return status < 0 ? failure(status, call_.where()) : nullptr;
}

kolo_recv_info *Work::expect(size_t bytes)
{
    expected_ = bytes;
    expects_ = true;
    return &received_;
}

/* ---- beginning ---- */

void Work::open(Staging &&staging)
{
    staging_ = std::move(staging);
    stream_ = comm_->takeStream(call_.timeout);
}

void Work::started(kolo_status status)
{
    if (status < 0) {
        const std::exception_ptr error = failureOf(status);
        settle(status);
        std::rethrow_exception(error);
    }
    if (recordFunctionEndCallback_ != nullptr) {
        const std::lock_guard<std::mutex> lock(mutex_);
        callBack();
        return;
    }
    const kolo_status now = kolo_stream_query(stream_); /* nobody else knows the work yet */
    if (now != KOLO_INPROGRESS) {
        settle(now);
    }
}

/* The end of a call that ran in its caller's thread. */
void Work::endHere(kolo_status status, Staging &&staging)
{
    const std::exception_ptr error = failureOf(status);
    if (error == nullptr) {
        staging.finish();
    }
    ended(status, error);
    done_.store(true, std::memory_order_release);
    if (error != nullptr) {
        std::rethrow_exception(error);
    }
    checkReceived();
}

/* exception_ is set under mutex_. */
void Work::ended(kolo_status status, const std::exception_ptr &error)
{
    status_ = status;
    ended_ = std::chrono::steady_clock::now();
    Recorder::get().end(call_.record, error == nullptr, ended_);
    if (error != nullptr || recordFunctionEndCallback_ != nullptr) {
        finish(error); /* c10d's; what else it keeps nobody asks for */
    }
}

void Work::checkReceived() const
{
    if (expects_ && received_.bytes != expected_) {
        C10_THROW_ERROR(ValueError,
                        c10::str("kolo: ", call_.where(), ": rank ", received_.source, " sent ",
                                 received_.bytes, " bytes with tag ", received_.tag,
                                 ", the tensor to receive into has ", expected_));
    }
}

/* ---- the end ---- */

void Work::callBack()
{
    if (called_back_) {
        return;
    }
    called_back_ = true;
    c10::raw::intrusive_ptr::incref(this);
    if (kolo_stream_host_func(stream_, reached, this) < 0) {
        reached(this);
    }
}

/* Runs on kolo's progress thread, so it only hands the work to the completer. The completer
 * completes the futures even if another thread settles first, so that callbacks run in order. */
void Work::reached(void *self)
{
    complete(static_cast<Work *>(self)->lane_, [self] {
        const auto work = c10::intrusive_ptr<Work>::reclaim(static_cast<Work *>(self));
        work->trySettle(true);
        work->completeFuture();
    });
}

/* Try to settle the work. False: the call is not done, or (unless `block`) another thread is
 * settling. */
bool Work::trySettle(bool block)
{
    std::unique_lock<std::timed_mutex> lock(settling_, std::defer_lock);
    if (isDone()) {
        return true;
    }
    if (block) {
        lock.lock();
    } else if (!lock.try_lock()) {
        return false;
    }
    if (isDone()) {
        return true;
    }
    const kolo_status status = block ? kolo_stream_sync(stream_) : kolo_stream_query(stream_);
    if (status == KOLO_INPROGRESS) {
        return false;
    }
    settle(status);
    return true;
}

std::exception_ptr Work::finishResults(kolo_status status)
{
    const std::exception_ptr error = failureOf(status);
    if (error != nullptr) {
        return error;
    }
    try {
        checkReceived();
        staging_.finish();
    } catch (...) {
        return std::current_exception();
    }
    return nullptr;
}

/* Settle the work. The calling thread holds settling_, or is the only one that knows the work. */
void Work::settle(kolo_status status)
{
    const std::exception_ptr error = finishResults(status);
    staging_.release();
    ended(status, error);
    kolo_stream stream = nullptr;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        std::swap(stream, stream_);
        done_.store(true, std::memory_order_release);
    }
    comm_->giveStream(stream, call_.timeout);
}

/* Complete the futures, which runs their callbacks. */
void Work::completeFuture()
{
    c10::intrusive_ptr<c10::ivalue::Future> future, result;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!future_completed_) {
            future = future_;
            future_completed_ = future != nullptr;
        }
        result.swap(future_result_);
    }
    if (future != nullptr && exception_ != nullptr) {
        future->setError(exception_);
    } else if (future != nullptr) {
        future->markCompleted(valueOfOutputs(outputs_));
    }
    if (result != nullptr) {
        const c10d::WorkResult what = exception_ == nullptr         ? c10d::WorkResult::SUCCESS
                                      : status_ == KOLO_ERR_TIMEOUT ? c10d::WorkResult::TIMEOUT
                                                                    : c10d::WorkResult::COMM_ERROR;
        result->markCompleted(c10::IValue(static_cast<int64_t>(what)));
    }
}

/* ---- polling and waiting ---- */

bool Work::isCompleted()
{
    return trySettle(false);
}

bool Work::isSuccess() const
{
    return isDone() && exception_ == nullptr;
}

std::exception_ptr Work::exception() const
{
    return isDone() ? exception_ : nullptr;
}

int Work::sourceRank() const
{
    TORCH_CHECK(expects_, "kolo: only a receive has a source rank");
    return received_.source;
}

std::vector<at::Tensor> Work::result()
{
    TORCH_CHECK(isDone(), "kolo: result() before the work is done; wait() for it");
    std::vector<at::Tensor> all;
    for (const auto &list : outputs_) {
        all.insert(all.end(), list.begin(), list.end());
    }
    return all;
}

void Work::blockCurrentStream()
{
    wait();
}

/* Each look advances a short call. A nap takes a hundredth of the wait so far. */
bool Work::waitUntil(std::chrono::steady_clock::time_point end)
{
    constexpr int kYields = 1000;
    constexpr std::chrono::nanoseconds kShortest = std::chrono::microseconds(20);
    constexpr std::chrono::nanoseconds kLongest = std::chrono::milliseconds(4);
    const auto begin = std::chrono::steady_clock::now();
    for (int looks = 0; !trySettle(false); looks++) {
        const auto now = std::chrono::steady_clock::now();
        if (now > end) {
            return false;
        }
        if (looks < kYields) {
            std::this_thread::yield();
        } else {
            std::this_thread::sleep_for(
                std::clamp<std::chrono::nanoseconds>((now - begin) / 100, kShortest, kLongest));
        }
    }
    return true;
}

void Work::recordWait() const
{
    Recorder::get().wait(call_.record);
}

/* A future that somebody has is done when wait() returns. Programs then add callbacks to it, and
 * expect to find their effects. A callback does not wait: the future may be next on its own lane. */
void Work::awaitFuture()
{
    c10::intrusive_ptr<c10::ivalue::Future> future;
    if (completionLane() == 0) {
        const std::lock_guard<std::mutex> lock(mutex_);
        future = future_;
    }
    if (future != nullptr) {
        future->wait();
    }
}

bool Work::wait(std::chrono::milliseconds timeout)
{
    recordWait();
    if (timeout == kNoTimeout || timeout == c10d::kUnsetTimeout) {
        trySettle(true);
    } else if (!waitUntil(std::chrono::steady_clock::now() + timeout)) {
        C10_THROW_ERROR(DistBackendError,
                        c10::str("kolo: ", call_.where(), ": Operation timed out: wait() ",
                                 "was given ", timeout.count(), " ms"));
    }
    awaitFuture();
    if (exception_ != nullptr) {
        std::rethrow_exception(exception_);
    }
    return true;
}

void Work::abort()
{
    comm_->abort();
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFuture()
{
    auto future = c10::make_intrusive<c10::ivalue::Future>(typeOfOutputs(outputs_));
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (future_ != nullptr) {
            return future_;
        }
        future_ = future;
        if (!isDone()) {
            callBack();
            return future;
        }
    }
    completeFuture();
    return future;
}

c10::intrusive_ptr<c10::ivalue::Future> Work::getFutureResult()
{
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (future_result_ != nullptr) {
            return future_result_;
        }
        future_result_ = future;
        if (!isDone()) {
            callBack();
            return future;
        }
    }
    completeFuture();
    return future;
}

float Work::getDuration() const
{
    TORCH_CHECK(isDone(), "kolo: the work is not done");
    return std::chrono::duration<float, std::milli>(ended_ - call_.began).count();
}

} // namespace kolo_torch
