// SPDX-License-Identifier: Apache-2.0
// Communicators of threads on several GPUs, over the driver of fake_cuda.cc.
#ifndef KOLO_TESTS_DEVICE_GPU_THREADS_H
#define KOLO_TESTS_DEVICE_GPU_THREADS_H

#include "calls.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace calls
{

inline void Peers(const char *word)
{
    Find<void(const char *)>("FakeCudaPeers")(word);
}

// Rank r is a thread on GPU gpus[r].
class GpuThreads
{
  public:
    // The fail-th call of the driver fails from where they meet on; 0: none.
    explicit GpuThreads(std::vector<int> gpus, bool deterministic = false, int timeout_ms = 30000,
                        long fail = 0)
        : gpus_(std::move(gpus)), comm_(gpus_.size()), status_(comm_.size(), KOLO_ERR_INTERNAL)
    {
        kolo_id id;
        for (const int gpu : gpus_) {
            stream_.push_back(std::make_unique<Stream>(gpu));
        }
        const kolo_status made = kolo_id_create(&id);
        Find<void(long)>("FakeCudaFailNth")(fail);
        Threads([&](int r) {
            const auto at = static_cast<size_t>(r);
            kolo_config config = KOLO_CONFIG_INIT;
            config.device = gpus_[at];
            config.deterministic = deterministic;
            config.timeout_ms = timeout_ms;
            status_[at] =
                made == KOLO_OK ? kolo_comm_create(&id, Ranks(), r, &config, &comm_[at]) : made;
        });
    }
    ~GpuThreads()
    {
        Threads([&](int r) { kolo_comm_destroy(Comm(r)); });
    }
    GpuThreads(const GpuThreads &) = delete;
    GpuThreads &operator=(const GpuThreads &) = delete;
    // body(rank) in a thread for each rank.
    void Threads(const std::function<void(int)> &body)
    {
        std::vector<std::thread> threads;
        for (size_t r = 0; r < gpus_.size(); r++) {
            threads.emplace_back(body, static_cast<int>(r));
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        gpu::FreeLeft();
    }
    bool IsUp() const
    {
        return std::all_of(status_.begin(), status_.end(),
                           [](kolo_status st) { return st == KOLO_OK; });
    }
    int Ranks() const
    {
        return static_cast<int>(gpus_.size());
    }
    const std::vector<int> &Gpus() const
    {
        return gpus_;
    }
    int Gpu(int r) const
    {
        return gpus_[static_cast<size_t>(r)];
    }
    kolo_comm *Comm(int r) const
    {
        return comm_[static_cast<size_t>(r)];
    }
    const Stream &At(int r) const
    {
        return *stream_[static_cast<size_t>(r)];
    }

  private:
    std::vector<int> gpus_;
    std::vector<std::unique_ptr<Stream>> stream_; // before comm_: what is queued ends first
    std::vector<kolo_comm *> comm_;
    std::vector<kolo_status> status_;
};

} // namespace calls

#endif
