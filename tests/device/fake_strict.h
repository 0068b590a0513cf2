// SPDX-License-Identifier: Apache-2.0
// Where the real driver makes its callers wait for each other. fake_cuda.cc does the same if
// FAKE_CUDA_STRICT is set in the environment. Without it, a call of the fake driver waits for
// nothing that its documentation does not name, so a program that hangs on a GPU can pass.
//
// The lock of a context. Most calls take it shared and for a moment. Some calls take it alone and
// keep it until the GPU has done all work that is queued; all other calls of the process on that
// GPU wait meanwhile. If the queued work waits for one of these calls, nothing ever goes on. The
// calls that take it alone, and the reports of programs that hung in them:
//
//   cuMemFree           github.com/pytorch/pytorch issue 880, ml-explore/mlx issue 2099
//   cuMemFreeHost       github.com/NVIDIA/nccl issue 48
//   cuStreamCreate      github.com/pmodels/yaksa issue 228, while a kernel waited
//   cuModuleLoadData, the first use of a kernel: the CUDA C++ Programming Guide, "Lazy Loading"
//                       (loading a kernel may synchronize the context); pytorch/torchcomms issues
//                       2334 and 2470; microsoft/mscclpp issue 394
//   cuModuleUnload, cuIpcCloseMemHandle: they take memory away, as cuMemFree does
//
// Other traits, by the same variable (the CUDA Driver API reference, "API synchronization behavior"
// and "Stream synchronization behavior", where nothing else is said):
//   - cuMemsetD8 only queues its work, in the legacy default stream.
//   - cuMemcpyHtoD of up to 64 KiB of pageable memory returns when the bytes are in a buffer of the
//     driver.
//   - The legacy default stream waits for the streams without CU_STREAM_NON_BLOCKING, and these for
//     it.
//   - A primary context that nobody retains is destroyed with all that was made in it: memory,
//     streams, events, modules (cuDevicePrimaryCtxRelease). Who uses such an object ends the
//     process.
//   - cuStreamDestroy returns at once; the stream ends when its work is done.
//   - cuMemcpyDtoHAsync to memory that is not pinned returns when the bytes are there;
//     cuMemcpyHtoDAsync from such memory, when the driver has taken them.
//   - An access that is not aligned to its size is an error of the process: all further calls give
//     CUDA_ERROR_MISALIGNED_ADDRESS, no queued work runs, and no function on the host is called
//     (the reference, "CUresult" and cuLaunchHostFunc).
//   - Streams share hardware queues with room for 1024 entries: fake_queues.h.
//   - A handle that is open already gives the same address again (cuIpcOpenMemHandle); a handle of
//     memory whose addresses an older mapping of the same process still has is
//     CUDA_ERROR_ALREADY_MAPPED (pmodels/mpich issue 7821).
#ifndef KOLO_TESTS_FAKE_STRICT_H
#define KOLO_TESTS_FAKE_STRICT_H

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>

namespace strict
{

constexpr int kDevices = 8;
constexpr size_t kPageable = 64 * 1024; // bytes that cuMemcpyHtoD takes over
constexpr int kAlreadyMapped = 208;
constexpr int kQueueMs = 2; // that queued work of a call without a stream takes to begin

// Seconds that a call may wait for the GPU with the lock: FAKE_CUDA_STRICT. 0: nothing is strict.
inline int Limit()
{
    static const int limit = [] {
        const char *text = getenv("FAKE_CUDA_STRICT");
        return text != nullptr ? atoi(text) : 0;
    }();
    return limit;
}
inline bool On()
{
    return Limit() > 0;
}

struct ContextLock {
    std::shared_mutex all;
    std::mutex full; // of a call that waits for room in a hardware queue
    std::mutex names;
    std::multiset<std::string> waiting; // calls that wait for `all`
};

inline ContextLock &LockOf(int device)
{
    static auto *const locks = new ContextLock[kDevices]; // for ever
    return locks[device];
}

// A call waits for ever with the lock of its context: nothing else is worth waiting for.
[[noreturn]] inline void Hang(const char *name, int device)
{
    ContextLock &lock = LockOf(device);
    std::lock_guard<std::mutex> hold(lock.names);
    fprintf(stderr,
            "the driver hangs: %s waits for GPU %d with the context's lock, and for the lock wait:",
            name, device);
    for (const std::string &call : lock.waiting) {
        fprintf(stderr, " %s", call.c_str());
    }
    fprintf(stderr, "%s\n", lock.waiting.empty() ? " no calls" : "");
    abort();
}

inline thread_local int depth; // calls of this thread that are under way, in each other

// A call of the driver.
class Entered
{
  public:
    // On a GPU (-1: none). `idle(device)` says whether the GPU has done its work.
    template <class Idle>
    Entered(int device, bool alone, const char *name, const Idle &idle)
        : device_(On() && depth++ == 0 ? device : -1), alone_(alone), on_(On())
    {
        if (device_ < 0) {
            return;
        }
        Take(name);
        if (alone_) {
            Drain(name, idle);
        }
    }
    ~Entered()
    {
        Leave();
        depth -= on_ ? 1 : 0;
    }
    Entered(const Entered &) = delete;
    Entered &operator=(const Entered &) = delete;
    // The rest of the call needs no lock.
    void Leave()
    {
        if (device_ >= 0) {
            alone_ ? LockOf(device_).all.unlock() : LockOf(device_).all.unlock_shared();
        }
        device_ = -1;
    }

  private:
    void Take(const char *name)
    {
        ContextLock &lock = LockOf(device_);
        {
            std::lock_guard<std::mutex> hold(lock.names);
            lock.waiting.insert(name);
        }
        {
            const std::lock_guard<std::mutex> until_there_is_room(lock.full);
        }
        alone_ ? lock.all.lock() : lock.all.lock_shared();
        std::lock_guard<std::mutex> hold(lock.names);
        lock.waiting.erase(lock.waiting.find(name));
    }
    template <class Idle> void Drain(const char *name, const Idle &idle)
    {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(Limit());
        while (!idle(device_)) {
            if (std::chrono::steady_clock::now() > end) {
                Hang(name, device_);
            }
        }
    }
    int device_;
    bool alone_, on_;
};

} // namespace strict

#endif
