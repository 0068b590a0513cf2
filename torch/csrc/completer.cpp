// SPDX-License-Identifier: Apache-2.0
/* The lanes on which callbacks run: a queue each, one thread that runs it, and a watcher that adds
 * a thread to a blocked lane. */
#include "completer.hpp"

#include <algorithm>
#include <c10/util/thread_name.h>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <pthread.h>
#include <thread>

namespace kolo_torch
{

namespace
{

constexpr int kLanes = 4;        /* deeper calls share the last lane */
constexpr int kMostThreads = 16; /* of a lane */
constexpr auto kPatience = std::chrono::milliseconds(50);

thread_local int own_lane = -1;

/* One thread, `active`, runs jobs. If jobs wait behind it, a second thread stands by. */
class Lane
{
  public:
    void add(int number, std::function<void()> job)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        jobs_.push_back(std::move(job));
        if (idle_ == 0 && threads_ < kMostThreads) {
            threads_++;
            std::thread([this, number] { serve(number); }).detach();
        } else {
            wake_.notify_one();
        }
    }

  private:
    /* Whether a job may start: no job runs, or the running job has taken long. */
    bool free(uint64_t seen) const
    {
        return active_ == 0 || (seen != 0 && seen == started_);
    }

    void serve(int number)
    {
        c10::setThreadName("kolo_complete");
        own_lane = number;
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            const uint64_t seen = started_;
            idle_++;
            if (jobs_.empty()) {
                wake_.wait(lock);
            } else if (active_ > 0) {
                wake_.wait_for(lock, kPatience);
            }
            idle_--;
            if (!jobs_.empty() && free(active_ > 0 ? seen : 0)) {
                run(lock);
            }
        }
    }

    void run(std::unique_lock<std::mutex> &lock)
    {
        const std::function<void()> job = std::move(jobs_.front());
        jobs_.pop_front();
        active_++;
        started_++;
        lock.unlock();
        job();
        lock.lock();
        active_--;
        if (!jobs_.empty()) {
            wake_.notify_one();
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::function<void()>> jobs_;
    uint64_t started_ = 0;
    int threads_ = 0, idle_ = 0, active_ = 0;
};

/* The lanes are never freed: their threads may outlive everything. A forked child has no such
 * threads, and gets lanes of its own. */
Lane *lanes;
std::once_flag once;

void renew()
{
    lanes = new Lane[kLanes];
    own_lane = -1;
}

} // namespace

int completionLane()
{
    return std::min(own_lane + 1, kLanes - 1);
}

void complete(int lane, std::function<void()> job)
{
    std::call_once(once, [] {
        renew();
        pthread_atfork(nullptr, nullptr, renew);
    });
    lanes[lane].add(lane, std::move(job));
}

} // namespace kolo_torch
