// SPDX-License-Identifier: Apache-2.0
/* The last calls of this process, to find the call in which a rank got stuck. torch's flight
 * recorder keeps the same facts for nccl and gloo, but before torch 2.14 other backends cannot
 * reach it. TORCH_FR_BUFFER_SIZE is the number of calls; 0: none. */
#pragma once

#include <ATen/ATen.h>
#include <chrono>
#include <mutex>
#include <string>
#include <vector>

namespace kolo_torch
{

class Recorder
{
  public:
    using Clock = std::chrono::steady_clock;
    enum class State : uint8_t { kStarted, kCompleted, kFailed };

    struct Shape {
        at::DimVector sizes;
        at::ScalarType dtype;
    };
    struct Entry {
        uint64_t id; /* from 1 */
        std::string group, description;
        const char *name;  /* static */
        int rank, partner; /* of a message; partner -1: it is none, or of any rank */
        bool sends;
        uint64_t collective, message;
        std::vector<Shape> inputs, outputs;
        int64_t timeout_ms;
        Clock::time_point began, ended, waited; /* waited: no time if nobody waited */
        State state;
    };

    static Recorder &get();

    bool enabled() const
    {
        return most_ > 0;
    }
    /* Add an entry, which `fill` completes in its place in the ring, and return its id. `fill` gets
     * an entry with the strings and lists of an older call, whose room it uses. */
    template <typename Fill> uint64_t begin(Clock::time_point began, Fill fill)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        Entry &entry = next();
        entry.began = began;
        fill(entry);
        return entry.id;
    }
    /* The call of an entry is over; 0: it has no entry. */
    void end(uint64_t id, bool well, Clock::time_point ended);
    /* A thread of the program waits for the call from now on. */
    void wait(uint64_t id);
    /* The entries in the order of their beginning. */
    std::vector<Entry> entries();

  private:
    Recorder();
    Entry &next();

    const size_t most_;
    std::mutex mutex_;
    uint64_t last_ = 0;
    std::vector<Entry> ring_;
};

} // namespace kolo_torch
