// SPDX-License-Identifier: Apache-2.0
/* The last calls of this process, for whoever asks what a rank was doing when it got stuck: what
 * torch's flight recorder keeps for nccl and gloo (its own cannot be reached from outside before
 * torch 2.14). TORCH_FR_BUFFER_SIZE says how many; 0: none. */
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
        const char *name; /* static */
        uint64_t collective, message;
        std::vector<Shape> inputs, outputs;
        int64_t timeout_ms;
        Clock::time_point began, ended;
        State state;
    };

    static Recorder &get();

    bool enabled() const
    {
        return most_ > 0;
    }
    /* The entry's id; its id, began and state are set here. */
    uint64_t begin(Entry &&entry);
    void end(uint64_t id, bool well);
    /* In order of their beginning. */
    std::vector<Entry> entries();

  private:
    Recorder();

    const size_t most_;
    std::mutex mutex_;
    uint64_t last_ = 0;
    std::vector<Entry> ring_;
};

} // namespace kolo_torch
