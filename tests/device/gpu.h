// SPDX-License-Identifier: Apache-2.0
// A GPU as an application sees it, for tests and measurements: by the driver of KOLO_CUDA_PATH,
// which may be the one of fake_cuda.cc, else by libcuda.so.1.
#ifndef KOLO_TESTS_GPU_H
#define KOLO_TESTS_GPU_H

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace gpu
{

// The process keeps the primary contexts that it uses, as applications do: the driver destroys a
// context with all its memory when nobody retains it.
inline void KeepContext(void *library, int device)
{
    static std::mutex lock;
    static std::set<int> kept;
    std::lock_guard<std::mutex> hold(lock);
    if (kept.insert(device).second) {
        int (*init)(unsigned), (*retain)(void **, int);
        void *found[] = {dlsym(library, "cuInit"), dlsym(library, "cuDevicePrimaryCtxRetain")};
        void *context;
        memcpy(&init, &found[0], sizeof init);
        memcpy(&retain, &found[1], sizeof retain);
        if (init(0) != 0 || retain(&context, device) != 0) {
            fprintf(stderr, "no context on GPU %d\n", device);
            abort();
        }
    }
}

inline void *Library()
{
    static void *library = [] {
        const char *path = getenv("KOLO_CUDA_PATH");
        void *opened = dlopen(path != nullptr ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        void *count = opened != nullptr ? dlsym(opened, "FakeCudaDevices") : nullptr;
        if (count != nullptr) { // all of them before a test counts what there is
            int (*devices)();
            memcpy(&devices, &count, sizeof devices);
            for (int i = 0; i < devices(); i++) {
                KeepContext(opened, i);
            }
        }
        return opened;
    }();
    return library;
}

inline bool IsFake()
{
    return Library() != nullptr && dlsym(Library(), "FakeCudaLive") != nullptr;
}

// A function of the driver by its name there.
template <class F> F *Find(const char *name)
{
    void *found = Library() != nullptr ? dlsym(Library(), name) : nullptr;
    if (found == nullptr) {
        fprintf(stderr, "the CUDA driver has no %s\n", name);
        abort();
    }
    F *function;
    memcpy(&function, &found, sizeof function);
    return function;
}

// Call a function of the driver, which must succeed.
template <class... Args> void Do(const char *name, Args... args)
{
    const int error = Find<int(Args...)>(name)(args...);
    if (error != 0) {
        fprintf(stderr, "%s: CUDA error %d\n", name, error);
        abort();
    }
}

class Context // of a device, current in this thread
{
  public:
    explicit Context(int device = 0) : device_(device)
    {
        void *context;
        KeepContext(Library(), device);
        Do("cuDevicePrimaryCtxRetain", &context, device);
        Do("cuCtxPushCurrent_v2", context);
    }
    ~Context()
    {
        void *context;
        Do("cuCtxPopCurrent_v2", &context);
        Do("cuDevicePrimaryCtxRelease_v2", device_);
    }
    Context(const Context &) = delete;

  private:
    int device_;
};

// Memory that threads of ranks have left. To free it, the driver waits for all work of the GPU and
// lets no other call pass, so another rank's call might never come: the main thread frees it when
// the ranks have come to an end.
struct Left {
    int device;
    unsigned long long at;
    size_t piece, pieces; // 0, or of virtual memory management
};
inline std::mutex left_lock;
inline std::vector<Left> left;
inline const std::thread::id main_thread = std::this_thread::get_id();

inline void Free(const Left &memory)
{
    const Context context(memory.device);
    for (size_t i = 0; i < memory.pieces; i++) {
        Do("cuMemUnmap", memory.at + i * memory.piece, memory.piece);
    }
    if (memory.pieces > 0) {
        Do("cuMemAddressFree", memory.at, memory.pieces * memory.piece);
    } else {
        Do("cuMemFree_v2", memory.at);
    }
}

inline void FreeLeft()
{
    std::lock_guard<std::mutex> hold(left_lock);
    for (const Left &memory : left) {
        Free(memory);
    }
    left.clear();
}

class Memory
{
  public:
    explicit Memory(size_t bytes, int device = 0, bool managed = false) : device_(device)
    {
        const Context context(device_);
        if (managed) {
            Do("cuMemAllocManaged", &at_, bytes + 64, 1u /* by all */);
        } else {
            Do("cuMemAlloc_v2", &at_, bytes + 64);
        }
    }
    // Of virtual memory management, as allocators with segments that grow have it: in so many
    // pieces, each an allocation of its own.
    static Memory Virtual(size_t bytes, bool exports, int device = 0, size_t pieces = 1)
    {
        struct {
            int type, handles, place, device;
            void *none;
            unsigned long long flags;
        } properties = {
            1 /* pinned */, exports ? 1 : 0 /* a descriptor */, 1 /* a GPU */, device, nullptr, 0};
        struct {
            int place, device, flags;
        } access = {1, device, 3 /* read and write */};
        Memory made;
        made.device_ = device;
        const Context context(made.device_);
        unsigned long long physical;
        size_t unit;
        Do("cuMemGetAllocationGranularity", &unit, &properties, 0 /* the least */);
        made.piece_ = ((bytes + 64) / pieces + unit) / unit * unit;
        made.pieces_ = pieces;
        Do("cuMemAddressReserve", &made.at_, pieces * made.piece_, size_t{0}, 0ull, 0ull);
        for (size_t i = 0; i < pieces; i++) {
            const unsigned long long at = made.at_ + i * made.piece_;
            Do("cuMemCreate", &physical, made.piece_, &properties, 0ull);
            Do("cuMemMap", at, made.piece_, size_t{0}, physical, 0ull);
            Do("cuMemSetAccess", at, made.piece_, &access, size_t{1});
            Do("cuMemRelease", physical);
        }
        return made;
    }
    // Of the device's pool.
    static Memory Pooled(size_t bytes, int device = 0)
    {
        Memory made;
        made.device_ = device;
        const Context context(made.device_);
        Do("cuMemAllocAsync", &made.at_, bytes + 64, static_cast<void *>(nullptr));
        Do("cuStreamSynchronize", static_cast<void *>(nullptr));
        return made;
    }
    Memory(Memory &&other) noexcept
        : device_(other.device_), at_(other.at_), piece_(other.piece_), pieces_(other.pieces_)
    {
        other.at_ = 0;
    }
    ~Memory()
    {
        if (at_ == 0) {
            return;
        }
        const Left memory = {device_, at_, piece_, pieces_};
        if (std::this_thread::get_id() == main_thread) {
            Free(memory);
            return;
        }
        std::lock_guard<std::mutex> hold(left_lock);
        left.push_back(memory);
    }
    void *Get(size_t offset = 0) const
    {
        return reinterpret_cast<void *>(at_ + offset);
    }
    void Put(const void *data, size_t bytes, size_t offset = 0) const
    {
        const Context context(device_);
        Do("cuMemcpyHtoD_v2", at_ + offset, data, bytes);
        Do("cuStreamSynchronize", static_cast<void *>(nullptr)); // short copies only start
    }
    std::vector<uint8_t> Take(size_t bytes, size_t offset = 0) const
    {
        std::vector<uint8_t> data(bytes);
        const Context context(device_);
        if (bytes > 0) {
            Do("cuMemcpyDtoH_v2", static_cast<void *>(data.data()), at_ + offset, bytes);
        }
        return data;
    }
    template <class T> T At(size_t index) const
    {
        T value;
        memcpy(&value, Take(sizeof value, index * sizeof value).data(), sizeof value);
        return value;
    }

  private:
    Memory() = default;
    int device_ = 0;
    unsigned long long at_ = 0;
    size_t piece_ = 0, pieces_ = 0; // by virtual memory management
};

class Stream
{
  public:
    explicit Stream(int device = 0) : device_(device), context_(device)
    {
        Do("cuStreamCreate", &stream_, 1u);
    }
    ~Stream()
    {
        Do("cuStreamDestroy_v2", stream_);
    }
    Stream(const Stream &) = delete;
    void *Get() const
    {
        return stream_;
    }
    void Sync() const
    {
        const Context context(device_);
        Do("cuStreamSynchronize", stream_);
    }

  private:
    int device_;
    Context context_;
    void *stream_ = nullptr;
};

} // namespace gpu

#endif
