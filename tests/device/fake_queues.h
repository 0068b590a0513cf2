// SPDX-License-Identifier: Apache-2.0
// The hardware queues of a GPU, for FAKE_CUDA_STRICT (fake_strict.h).
//
// The streams of a context share a few queues: CUDA_DEVICE_MAX_CONNECTIONS says how many, 8 unless
// it is set (the CUDA C++ Programming Guide, "CUDA Environment Variables"). Entries of a queue begin
// in the order in which they came, whichever stream they are of. So an entry that waits, for a word
// in memory, an event or a function on the host, holds up what is behind it, also in other streams.
// A kernel or a copy holds up nothing once it has begun.
//
// Judgement, as no document says it: a new stream gets the queue that has the fewest streams;
// streams of another priority than the normal one have queues of their own; a graph is in the queue
// of its stream.
//
// A queue has room for 1024 entries that have not begun (stackoverflow.com/questions/53970187). Who
// finds no room waits inside the call, and no other call of the process on this GPU passes meanwhile
// (NVIDIA/nccl issue 623).
#ifndef KOLO_TESTS_FAKE_QUEUES_H
#define KOLO_TESTS_FAKE_QUEUES_H

#include "fake_strict.h"

#include <algorithm>
#include <condition_variable>
#include <vector>

namespace strict
{

constexpr uint64_t kRoom = 1024; // entries of a queue

class HardwareQueue
{
  public:
    // Take the next place, when there is room.
    uint64_t Enter(int device)
    {
        {
            std::lock_guard<std::mutex> hold(lock_);
            if (next_ - begun_ < kRoom) {
                return next_++;
            }
        }
        const std::lock_guard<std::mutex> nobody_passes(LockOf(device).full);
        std::unique_lock<std::mutex> hold(lock_);
        const bool room = changed_.wait_for(hold, std::chrono::seconds(Limit()),
                                            [this] { return next_ - begun_ < kRoom; });
        if (!room) {
            Hang("a call that queues work, for room in its queue,", device);
        }
        return next_++;
    }
    // Wait until all that came before has begun.
    void Await(uint64_t entry)
    {
        std::unique_lock<std::mutex> hold(lock_);
        changed_.wait(hold, [&] { return begun_ == entry; });
    }
    // The entry has begun, or needs not wait any more.
    void Begin()
    {
        {
            std::lock_guard<std::mutex> hold(lock_);
            begun_++;
        }
        changed_.notify_all();
    }
    int streams = 0; // the list's

  private:
    std::mutex lock_;
    std::condition_variable changed_;
    uint64_t next_ = 0, begun_ = 0;
};

// Those of one GPU for streams of one priority.
class QueueList
{
  public:
    HardwareQueue *Take()
    {
        std::lock_guard<std::mutex> hold(lock_);
        HardwareQueue *least = &*std::min_element(
            queues_.begin(), queues_.end(),
            [](const HardwareQueue &a, const HardwareQueue &b) { return a.streams < b.streams; });
        least->streams++;
        return least;
    }
    void Give(HardwareQueue *queue)
    {
        std::lock_guard<std::mutex> hold(lock_);
        queue->streams--;
    }

  private:
    static size_t Count()
    {
        const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
        const int count = text != nullptr ? atoi(text) : 8;
        return static_cast<size_t>(std::clamp(count, 1, 32));
    }
    std::mutex lock_;
    std::vector<HardwareQueue> queues_ = std::vector<HardwareQueue>(Count());
};

inline QueueList &QueuesOf(int device, bool urgent)
{
    static auto *const lists = new QueueList[kDevices][2]; // for ever
    return lists[device][urgent ? 1 : 0];
}

} // namespace strict

#endif
