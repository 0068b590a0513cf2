// SPDX-License-Identifier: Apache-2.0
/* A ring of the last calls. */
#include "recorder.hpp"

#include <torch/csrc/distributed/c10d/Utils.hpp>

namespace kolo_torch
{

Recorder::Recorder()
    : most_(static_cast<size_t>(std::max(
          0, c10d::getCvarInt({"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"}, 2000))))
{
}

/* The recorder is never freed: works may outlive everything. */
Recorder &Recorder::get()
{
    static Recorder *const recorder = new Recorder;
    return *recorder;
}

Recorder::Entry &Recorder::next()
{
    const uint64_t id = ++last_;
    const size_t at = (id - 1) % most_;
    if (at == ring_.size()) {
        ring_.emplace_back();
    }
    Entry &entry = ring_[at];
    entry.id = id;
    entry.state = State::kStarted;
    entry.ended = entry.waited = Clock::time_point();
    return entry;
}

void Recorder::end(uint64_t id, bool well, Clock::time_point ended)
{
    if (id == 0) {
        return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    Entry &entry = ring_[(id - 1) % most_];
    if (entry.id == id) {
        entry.ended = ended;
        entry.state = well ? State::kCompleted : State::kFailed;
    }
}

void Recorder::wait(uint64_t id)
{
    if (id == 0) {
        return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    Entry &entry = ring_[(id - 1) % most_];
    if (entry.id == id && entry.waited == Clock::time_point()) {
        entry.waited = Clock::now();
    }
}

std::vector<Recorder::Entry> Recorder::entries()
{
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Entry> all;
    const size_t oldest = ring_.empty() || ring_.size() < most_ ? 0 : last_ % most_;
    for (size_t i = 0; i < ring_.size(); i++) {
        all.push_back(ring_[(oldest + i) % ring_.size()]);
    }
    return all;
}

} // namespace kolo_torch
