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
    using Clock = std::chrono::system_clock;
    enum class State : uint8_t { kStarted, kCompleted, kFailed };

    struct Shape {
        at::DimVector sizes;
        at::ScalarType dtype;
    };
    struct Entry {
        uint64_t id; /* from 1 */
        std::string group, description;
        const char *name;     /* static */
        std::string partners; /* of a message: " 0->1", " 1<-0" */
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
    /* Add an entry and return its id. Sets the entry's id, began and state. */
    uint64_t begin(Entry &&entry);
    void end(uint64_t id, bool well);
    /* A thread of the program waits for the call from now on. */
    void wait(uint64_t id);
    /* The entries in the order of their beginning. */
    std::vector<Entry> entries();

  private:
    Recorder();

    const size_t most_;
    std::mutex mutex_;
    uint64_t last_ = 0;
    std::vector<Entry> ring_;
};

} // namespace kolo_torch
