// SPDX-License-Identifier: Apache-2.0
#include "completer.hpp"

#include <c10/util/thread_name.h>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <pthread.h>
#include <thread>

namespace kolo_torch
{

namespace
{

constexpr int kMostThreads = 16;

class Pool
{
  public:
    void add(std::function<void()> job)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        jobs_.push_back(std::move(job));
        if (static_cast<int>(jobs_.size()) > idle_ && threads_ < kMostThreads) {
            threads_++;
            std::thread([this] { serve(); }).detach();
        } else {
            wake_.notify_one();
        }
    }

  private:
    void serve()
    {
        c10::setThreadName("kolo_complete");
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            while (!jobs_.empty()) {
                const std::function<void()> job = std::move(jobs_.front());
                jobs_.pop_front();
                lock.unlock();
                job();
                lock.lock();
            }
            idle_++;
            wake_.wait(lock);
            idle_--;
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::function<void()>> jobs_;
    int threads_ = 0, idle_ = 0;
};

/* Never freed: its threads may outlive everything. A forked child has none of them and gets its own
 * pool. */
Pool *pool;
std::once_flag once;

void renew()
{
    pool = new Pool;
}

} // namespace

void complete(std::function<void()> job)
{
    std::call_once(once, [] {
        renew();
        pthread_atfork(nullptr, nullptr, renew);
    });
    pool->add(std::move(job));
}

} // namespace kolo_torch
