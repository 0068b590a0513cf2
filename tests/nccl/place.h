// SPDX-License-Identifier: Apache-2.0
// Where the buffers of these tests are: memory of a device where there is a driver (which may be
// that of fake_cuda.cc), else of the host.
#ifndef KOLO_TESTS_NCCL_PLACE_H
#define KOLO_TESTS_NCCL_PLACE_H

#include "../device/gpu.h"

#include <memory>
#include <mutex>
#include <nccl.h>
#include <optional>
#include <unistd.h>

namespace place
{

inline bool OnDevice()
{
    return gpu::Library() != nullptr;
}

inline void Must(ncclResult_t result, const char *what)
{
    if (result != ncclSuccess) {
        fprintf(stderr, "%s: %s: %s\n", what, ncclGetErrorString(result),
                ncclGetLastError(nullptr));
        _exit(2);
    }
}

// A device that is current in this thread, and a stream of it; on the host, nothing.
class Place
{
  public:
    explicit Place(int device = 0)
    {
        if (OnDevice()) {
            stream_.emplace(device);
        }
    }
    cudaStream_t Stream() const
    {
        return stream_ ? static_cast<cudaStream_t>(stream_->Get()) : nullptr;
    }
    void Sync() const
    {
        if (stream_) {
            stream_->Sync();
        }
    }

  private:
    std::optional<gpu::Stream> stream_; // which keeps its device's context current
};

// Buffers that threads of ranks have left. To free one, the driver waits for all work of the GPU and
// lets no other call pass, so another rank's call might never come.
inline std::mutex left_lock;
inline std::vector<void *> left;

// When the ranks have come to an end.
inline void FreeLeft()
{
    std::lock_guard<std::mutex> hold(left_lock);
    for (void *buffer : left) {
        Must(ncclMemFree(buffer), "ncclMemFree");
    }
    left.clear();
}

// Memory of ncclMemAlloc().
class Buffer
{
  public:
    explicit Buffer(size_t bytes) : bytes_(bytes)
    {
        Must(ncclMemAlloc(&at_, bytes), "ncclMemAlloc");
    }
    ~Buffer()
    {
        std::lock_guard<std::mutex> hold(left_lock);
        left.push_back(at_);
    }
    Buffer(const Buffer &) = delete;
    void *Get(size_t offset = 0) const
    {
        return static_cast<char *>(at_) + offset;
    }
    template <class T> void Put(const std::vector<T> &values, size_t offset = 0) const
    {
        const size_t bytes = values.size() * sizeof(T);
        if (OnDevice()) {
            gpu::Do("cuMemcpyHtoD_v2", reinterpret_cast<unsigned long long>(Get(offset)),
                    static_cast<const void *>(values.data()), bytes);
            // The copy may return early, and the ranks' streams do not wait for it.
            gpu::Do("cuStreamSynchronize", static_cast<void *>(nullptr));
        } else {
            memcpy(Get(offset), values.data(), bytes);
        }
    }
    template <class T> std::vector<T> Take() const
    {
        std::vector<T> values(bytes_ / sizeof(T));
        if (OnDevice()) {
            gpu::Do("cuMemcpyDtoH_v2", static_cast<void *>(values.data()),
                    reinterpret_cast<unsigned long long>(at_), values.size() * sizeof(T));
        } else {
            memcpy(values.data(), at_, values.size() * sizeof(T));
        }
        return values;
    }

  private:
    size_t bytes_;
    void *at_ = nullptr;
};

} // namespace place

#endif
