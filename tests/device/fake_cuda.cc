// SPDX-License-Identifier: Apache-2.0
// A CUDA driver without a GPU: as much of the driver API as kolo and its tests call.
//
// Device memory is the host's, so tests see it. A stream is a thread that runs its operations in
// order, events and waits on memory included, so what one stream may do before another one it does
// sometimes, and the thread sanitizer sees what nothing orders. Kernels are run by their emulation.
// Strict where the real one is: nothing works without a context, and while a stream captures, what
// would invalidate the capture is an error.
#include "fake_cuda.h"

#include "cuda/driver.h"
#include "emulator.h"
#include "fake_queues.h"
#include "fake_strict.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace
{

constexpr int kMostDevices = 8;
std::vector<int> Buses()
{
    std::vector<int> buses;
    const char *list = getenv("FAKE_CUDA_BUSES");
    for (std::istringstream text(list != nullptr ? list : ""); text.good();) {
        std::string word;
        std::getline(text, word, ',');
        if (!word.empty()) {
            buses.push_back(word == "-" ? -1 : std::stoi(word, nullptr, 16));
        }
    }
    const char *count = getenv("FAKE_CUDA_DEVICES");
    for (int i = 0; list == nullptr && i < (count != nullptr ? atoi(count) : 2); i++) {
        buses.push_back(0x1b + 0x10 * i);
    }
    return buses;
}
const std::vector<int> bus_of = Buses();
const int devices = static_cast<int>(bus_of.size());
constexpr int kInvalidContext = 201, kInvalidHandle = 400;
constexpr int kCaptureUnsupported = 900, kCaptureInvalidated = 901, kCaptureUnjoined = 904;
constexpr int kCaptureIsolation = 905, kCapturedEvent = 907;
constexpr int kGlobalMode = 0, kRelaxedMode = 2;
constexpr int kMisalignedAddress = 716;
constexpr int kPeerUnsupported = 217, kPeerNotEnabled = 705;

using Work = std::function<void()>;
enum Kind { kRuns, kWaits }; // whether work holds up what is behind it in its hardware queue
struct Item {
    Work work;
    Kind kind;
    uint64_t entry; // of the hardware queue
};
using Token = std::shared_ptr<std::atomic<bool>>;

struct Stream;

// Ends with the last graph, executable or launch that has it.
struct UserObject {
    void *at;
    void (*destroy)(void *);
    ~UserObject()
    {
        destroy(at);
    }
};
struct Graph {
    std::vector<std::pair<Work, Kind>> work;
    std::vector<std::shared_ptr<UserObject>> objects;
};

// What one stream captures, and those that joined it by waiting for its events, in the order of the
// calls. A stream that joined must be waited for by the first one behind its last work.
struct Capture {
    std::mutex lock;
    Stream *first = nullptr;
    int mode = kGlobalMode;
    const std::thread::id thread = std::this_thread::get_id(); // that began it
    Graph *graph = new Graph;
    std::map<Stream *, size_t> last, joined; // of a stream: how much there was behind its last work
    bool invalid = false, over = false;
};

// The error that all calls give once an access was wrong; 0: none was.
std::atomic<int> fault{0};
__attribute__((constructor)) void KeepFaults()
{
    if (strict::On()) {
        emulator::OnFault([] { fault = kMisalignedAddress; });
    }
}

struct Stream {
    inline static std::atomic<unsigned long long> made{0};
    std::mutex pushing; // by one caller at a time
    std::mutex lock;
    std::condition_variable changed;
    std::deque<Item> work;
    bool busy = false, stop = false;
    const int device;
    const unsigned long long id = ++made;
    const bool blocking; // ordered with the legacy default stream
    strict::QueueList &queues;
    strict::HardwareQueue *const queue;
    Token newest; // of the work that was pushed last; of streams in that order only
    std::shared_ptr<Capture> capture;
    std::thread thread{[this] { Serve(); }};

    explicit Stream(int on, bool blocks, bool urgent = false)
        : device(on), blocking(blocks), queues(strict::QueuesOf(on, urgent)), queue(queues.Take())
    {
    }
    ~Stream()
    {
        {
            std::lock_guard<std::mutex> hold(lock);
            stop = true;
        }
        changed.notify_all();
        thread.join();
        queues.Give(queue);
    }
    void Serve()
    {
        std::unique_lock<std::mutex> hold(lock);
        for (;;) {
            changed.wait(hold, [this] { return stop || !work.empty(); });
            if (work.empty()) {
                return;
            }
            const Item next = std::move(work.front());
            work.pop_front();
            busy = true;
            hold.unlock();
            Run(next);
            hold.lock();
            busy = false;
            changed.notify_all();
        }
    }
    void Run(const Item &next)
    {
        if (!strict::On()) {
            next.work();
            return;
        }
        queue->Await(next.entry);
        if (next.kind == kRuns) {
            queue->Begin();
        }
        if (fault == 0) {
            next.work();
        }
        if (next.kind == kWaits) {
            queue->Begin();
        }
    }
    void Push(Work next, Kind kind)
    {
        std::lock_guard<std::mutex> in_order(pushing);
        std::unique_lock<std::mutex> hold(lock);
        if (capture != nullptr) {
            std::lock_guard<std::mutex> all(capture->lock);
            capture->graph->work.emplace_back(std::move(next), kind);
            capture->last[this] = capture->graph->work.size();
            return;
        }
        hold.unlock();
        const uint64_t entry = strict::On() ? queue->Enter(device) : 0;
        hold.lock();
        work.push_back({std::move(next), kind, entry});
        changed.notify_all();
    }
    std::shared_ptr<Capture> Capturing()
    {
        std::lock_guard<std::mutex> hold(lock);
        return capture;
    }
    void Drain()
    {
        std::unique_lock<std::mutex> hold(lock);
        changed.wait(hold, [this] { return work.empty() && !busy; });
    }
    bool IsIdle(std::chrono::milliseconds most)
    {
        std::unique_lock<std::mutex> hold(lock);
        return changed.wait_for(hold, most, [this] { return work.empty() && !busy; });
    }
};

struct Event {
    Token recorded;
    std::shared_ptr<Capture>
        capture; // in which it was recorded last: by this stream, behind so much
    Stream *stream = nullptr;
    size_t behind = 0;
};

struct Allocation {
    size_t bytes;
    int device;
    unsigned long long id;
    bool managed;
    int fd;            // of shared memory that other processes open; -1: none
    int physical = -1; // of what is mapped there by virtual memory management; -1: nothing is
    bool exports = false;
    bool pooled = false;
};
struct Physical { // memory of virtual memory management
    int fd;
    size_t bytes;
    bool exports;
    ~Physical()
    {
        close(fd);
    }
};
struct Handle { // in a kolo_cuda_ipc_handle
    int pid, fd;
    kolo_cuda_address base;
    size_t bytes;
    ino_t file; // that descriptor may be another one's by now
};

ino_t FileOf(int fd)
{
    struct stat found = {};
    return fstat(fd, &found) == 0 ? found.st_ino : 0;
}

std::mutex lock;
// The two are never destroyed: what a caller leaves to the driver is no leak of its own.
auto &allocations = *new std::map<kolo_cuda_address, Allocation>;
struct Opened { // memory of other processes, or reserved addresses
    size_t bytes;
    int pid = 0; // the rest is of an IPC handle
    kolo_cuda_address base = 0;
    ino_t file = 0;
    int times = 1;
};
std::map<kolo_cuda_address, Opened> opened;
unsigned long long ids;
struct Object { // a stream, an event, a module, pinned memory
    int device;
    size_t bytes; // of pinned memory
    Work destroy;
};
auto &objects = *new std::map<const void *, Object>;
auto &streams = *new std::map<Stream *, std::shared_ptr<Stream>>; // with those that end

// Give memory back, and forget it; the caller has `lock`.
std::map<kolo_cuda_address, Allocation>::iterator
Erase(std::map<kolo_cuda_address, Allocation>::iterator at)
{
    void *memory = reinterpret_cast<void *>(at->first);
    const Allocation &gone = at->second;
    if (gone.physical >= 0) { // the addresses stay reserved
        mmap(memory, gone.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        close(gone.physical);
    } else if (gone.fd >= 0) {
        munmap(memory, gone.bytes);
        close(gone.fd);
    } else {
        free(memory);
    }
    return allocations.erase(at);
}
std::set<std::pair<int, int>> peers; // (GPU, the one whose memory it may reach)
int retained, retained_of[kMostDevices];
std::atomic<long> fail_in{0};
std::atomic<size_t> launches{0}, launches_low{0}, launches_direct{0}, launches_lanes{0}, syncs{0},
    records{0}, copied{0}, flushes{0};
std::atomic<int> copy_ms{0};
std::atomic<int> copying[kMostDevices], copied_at_once{0}; // by a GPU; the most so far
thread_local std::vector<int> contexts;                    // of devices, 1 + ordinal
thread_local int capture_mode = kGlobalMode;
auto &captures = *new std::set<std::shared_ptr<Capture>>; // that are under way

// What peer access comes to: a word of FakeCudaPeers().
struct PeerWord {
    std::mutex lock;
    std::string word = getenv("FAKE_CUDA_PEERS") != nullptr ? getenv("FAKE_CUDA_PEERS") : "work";
    std::string Get()
    {
        std::lock_guard<std::mutex> hold(lock);
        return word;
    }
} peer_word, direct_word{{}, "work"};

bool Fails()
{
    return fail_in.load() > 0 && fail_in.fetch_sub(1) == 1;
}
int Current()
{
    return contexts.empty() ? -1 : contexts.back() - 1;
}

Stream *NullStream(int device)
{
    static std::mutex making;
    static std::map<int, std::unique_ptr<Stream>> made;
    std::lock_guard<std::mutex> hold(making);
    std::unique_ptr<Stream> &stream = made[device];
    if (stream == nullptr) {
        stream = std::make_unique<Stream>(device, true);
    }
    return stream.get();
}

// Wait for a while until a GPU has done all work that is queued. Returns whether it has.
bool IsIdle(int device)
{
    std::vector<std::shared_ptr<Stream>> all;
    {
        std::lock_guard<std::mutex> hold(lock);
        for (const auto &[handle, stream] : streams) {
            if (stream->device == device) {
                all.push_back(stream);
            }
        }
    }
    constexpr std::chrono::milliseconds kPatience(20);
    return NullStream(device)->IsIdle(kPatience) &&
           std::all_of(all.begin(), all.end(),
                       [](const auto &stream) { return stream->IsIdle(kPatience); });
}

// From here on the call has the lock of its context.
#define TAKE_CONTEXT(alone) strict::Entered entered(Current(), alone, __func__, IsIdle)

#define ENTER()                                                                                    \
    do {                                                                                           \
        if (Fails()) {                                                                             \
            return KOLO_CUDA_OUT_OF_MEMORY;                                                        \
        }                                                                                          \
    } while (0)
// Calls that might wait for what is captured: they invalidate global captures, whoever calls, and
// those of the calling thread.
bool Spoils()
{
    std::lock_guard<std::mutex> hold(lock);
    bool spoils = false;
    for (const auto &capture : captures) {
        const bool own =
            capture->mode != kRelaxedMode && capture->thread == std::this_thread::get_id();
        if (capture_mode != kRelaxedMode && (own || capture->mode == kGlobalMode)) {
            std::lock_guard<std::mutex> all(capture->lock);
            capture->invalid = spoils = true;
        }
    }
    return spoils;
}
#define ENTER_CONTEXT_AS(alone)                                                                    \
    ENTER();                                                                                       \
    if (contexts.empty()) {                                                                        \
        return kInvalidContext;                                                                    \
    }                                                                                              \
    if (fault != 0) {                                                                              \
        return fault;                                                                              \
    }                                                                                              \
    TAKE_CONTEXT(alone)
#define ENTER_CONTEXT() ENTER_CONTEXT_AS(false)
#define ENTER_UNSAFE()                                                                             \
    ENTER_CONTEXT();                                                                               \
    if (Spoils()) {                                                                                \
        return kCaptureUnsupported;                                                                \
    }
// Whoever uses an object that is gone, by itself or with its context, may crash.
void MustLive(const void *object, const char *what)
{
    std::lock_guard<std::mutex> hold(lock);
    if (strict::On() && objects.count(object) == 0) {
        fprintf(stderr, "the driver crashes: this %s is gone\n", what);
        abort();
    }
}
// cudaStreamPerThread, which ends with its thread.
Stream *OwnStream(int device)
{
    struct Own {
        std::map<int, std::shared_ptr<Stream>> made;
        ~Own()
        {
            for (const auto &[on, stream] : made) {
                stream->Drain();
                std::lock_guard<std::mutex> hold(lock);
                streams.erase(stream.get());
            }
        }
    };
    static thread_local Own own;
    std::shared_ptr<Stream> &stream = own.made[device];
    if (stream == nullptr) {
        stream = std::make_shared<Stream>(device, true);
        std::lock_guard<std::mutex> hold(lock);
        streams[stream.get()] = stream;
    }
    return stream.get();
}
Stream *StreamOf(kolo_cuda_stream stream)
{
    constexpr uintptr_t kLegacy = 1, kPerThread = 2;
    if (reinterpret_cast<uintptr_t>(stream) <= kLegacy) {
        return NullStream(std::max(Current(), 0));
    }
    if (reinterpret_cast<uintptr_t>(stream) == kPerThread) {
        return OwnStream(std::max(Current(), 0));
    }
    MustLive(stream, "stream");
    return reinterpret_cast<Stream *>(stream);
}
Event *EventOf(kolo_cuda_event event)
{
    MustLive(event, "event");
    return reinterpret_cast<Event *>(event);
}

// Naps get longer, because what it waits for needs the core that many waiting streams would take.
template <class Holds> void WaitUntil(const Holds &holds)
{
    constexpr int kYields = 20, kNaps = 8, kLongest = 5;
    for (int polls = 0; !holds() && fault == 0; polls++) {
        if (polls < kYields) {
            std::this_thread::yield();
        } else {
            const int doubled = std::min((polls - kYields) / kNaps, kLongest);
            std::this_thread::sleep_for(std::chrono::microseconds(50 << doubled));
        }
    }
}

// Queue work of a call. In strict mode the legacy default stream and the blocking streams wait for
// each other.
void Queue(Stream *stream, Work work, Kind kind = kRuns)
{
    static std::mutex ordering;
    if (!strict::On() || !stream->blocking || stream->Capturing() != nullptr) {
        stream->Push(std::move(work), kind);
        return;
    }
    std::lock_guard<std::mutex> in_order(ordering);
    std::vector<Token> before;
    Stream *legacy = NullStream(stream->device);
    if (stream != legacy) {
        before.push_back(legacy->newest);
    } else {
        std::lock_guard<std::mutex> hold(lock);
        for (const auto &[handle, other] : streams) {
            if (other->device == stream->device && other->blocking) {
                before.push_back(other->newest);
            }
        }
    }
    const Token over = std::make_shared<std::atomic<bool>>(false);
    stream->newest = over;
    const auto order = [=] {
        for (const Token &token : before) {
            WaitUntil([&] { return token == nullptr || token->load(); });
        }
    };
    stream->Push(order, kWaits);
    stream->Push(
        [=] {
            work();
            over->store(true);
        },
        kind);
}

// An object of the current context.
template <class T> T *Made(T *object, Work destroy, size_t bytes = 0)
{
    std::lock_guard<std::mutex> hold(lock);
    objects[object] = {Current(), bytes, std::move(destroy)};
    return object;
}
template <class T> T *Made(T *object)
{
    return Made(object, [object] { delete object; });
}
int Unmade(const void *object)
{
    std::unique_lock<std::mutex> hold(lock);
    const auto found = objects.find(object);
    if (found == objects.end()) {
        return kInvalidHandle;
    }
    const Work destroy = std::move(found->second.destroy);
    objects.erase(found);
    hold.unlock();
    destroy();
    return KOLO_CUDA_OK;
}
bool IsPinned(const void *at, size_t bytes)
{
    std::lock_guard<std::mutex> hold(lock);
    const auto next = objects.upper_bound(at);
    if (next == objects.begin()) {
        return false;
    }
    const auto *first = static_cast<const char *>(std::prev(next)->first);
    return static_cast<const char *>(at) + bytes <= first + std::prev(next)->second.bytes;
}

// A stream ends when its work is done. In strict mode nobody waits for that.
void EndStream(Stream *stream)
{
    const auto end = [stream] {
        stream->Drain();
        std::unique_lock<std::mutex> hold(lock);
        const std::shared_ptr<Stream> last = streams[stream];
        streams.erase(stream);
        hold.unlock();
    };
    if (strict::On() && !stream->IsIdle(std::chrono::milliseconds(0))) {
        std::thread(end).detach();
    } else {
        end();
    }
}

void Apply(const kolo_cuda_stream_op &op)
{
    auto *word = reinterpret_cast<uint32_t *>(op.at);
    auto *words = reinterpret_cast<uint64_t *>(op.at);
    const auto value = static_cast<uint32_t>(op.value);
    switch (op.kind) {
    case KOLO_CUDA_WAIT_32:
        WaitUntil([=] { return __atomic_load_n(word, __ATOMIC_ACQUIRE) == value; });
        break;
    case KOLO_CUDA_WAIT_64: // that or later
        WaitUntil([=] {
            return static_cast<int64_t>(__atomic_load_n(words, __ATOMIC_ACQUIRE) - op.value) >= 0;
        });
        break;
    case KOLO_CUDA_WRITE_32:
        __atomic_store_n(word, value, __ATOMIC_RELEASE);
        break;
    default:
        __atomic_store_n(words, op.value, __ATOMIC_RELEASE);
        break;
    }
}

} // namespace

bool LoadsAtOnce()
{
    const char *way = getenv("CUDA_MODULE_LOADING");
    return way != nullptr && strcmp(way, "EAGER") == 0;
}
struct CUfunc_st {
    std::string name;
    const CUmod_st *of = nullptr;
    std::atomic<bool> loaded{LoadsAtOnce()};
};
struct CUmod_st {
    std::map<std::string, CUfunc_st> functions;
};

// A launch, whose argument is a copy of what the caller has.
template <class Launch>
void PushKernel(kolo_cuda_stream stream, const std::string &name, unsigned blocks, unsigned threads,
                const void *argument)
{
    Launch launch;
    memcpy(&launch, argument, sizeof launch);
    Queue(StreamOf(stream), [=] { emulator::Run(name.c_str(), launch, blocks, threads); });
}

// The kernel that copies between the host and a GPU counts as the copies that it makes, not as a
// launch.
static void BeginCopies(int device, int count, size_t bytes)
{
    const int at_once = copying[device].fetch_add(count) + count;
    copied += bytes;
    for (int most = copied_at_once; most < at_once && copied_at_once != at_once;
         most = copied_at_once) {
        copied_at_once.compare_exchange_weak(most, at_once);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(copy_ms));
}
static void PushCopies(kolo_cuda_stream stream, unsigned blocks, unsigned threads,
                       const void *argument)
{
    kolo_copies_launch launch;
    memcpy(&launch, argument, sizeof launch);
    const int by = Current();
    Queue(StreamOf(stream), [=] {
        const auto *batch = reinterpret_cast<const kolo_copy_batch *>(launch.batch);
        const auto *copy = reinterpret_cast<const kolo_copy *>(batch + 1);
        const auto *stop = reinterpret_cast<const uint32_t *>(launch.stop);
        const bool runs = __atomic_load_n(stop, __ATOMIC_ACQUIRE) == 0;
        size_t bytes = 0;
        for (uint64_t i = 0; runs && i < batch->count; i++) {
            bytes += copy[i].bytes;
        }
        const int count = runs ? static_cast<int>(batch->count) : 0;
        BeginCopies(by, count, bytes);
        emulator::Run(launch, blocks, threads);
        copying[by].fetch_sub(count);
    });
}

extern "C" {

// ---- for tests ----

KOLO_EXPORT
int FakeCudaDevices()
{
    return devices;
}
KOLO_EXPORT
size_t FakeCudaLive()
{
    std::lock_guard<std::mutex> hold(lock);
    return allocations.size() + opened.size() + objects.size() + peers.size() +
           static_cast<size_t>(retained);
}
KOLO_EXPORT
void FakeCudaFailNth(long n)
{
    fail_in = n;
}
KOLO_EXPORT
void FakeCudaDrain()
{
    std::unique_lock<std::mutex> hold(lock);
    const std::map<Stream *, std::shared_ptr<Stream>> all = streams;
    hold.unlock();
    for (const auto &[handle, stream] : all) {
        stream->Drain();
    }
}
KOLO_EXPORT
bool FakeCudaHasFailed()
{
    return fail_in <= 0;
}
KOLO_EXPORT
void FakeCudaPeers(const char *word)
{
    std::lock_guard<std::mutex> hold(peer_word.lock);
    peer_word.word = word;
}
KOLO_EXPORT
size_t FakeCudaSyncs()
{
    return syncs;
}
KOLO_EXPORT
size_t FakeCudaRecords()
{
    return records;
}
KOLO_EXPORT
int FakeCudaSlowCopies(int ms)
{
    copy_ms = ms;
    return copied_at_once.exchange(0);
}
KOLO_EXPORT
size_t FakeCudaCopied()
{
    return copied;
}
KOLO_EXPORT
void FakeCudaDirect(const char *word)
{
    std::lock_guard<std::mutex> hold(direct_word.lock);
    direct_word.word = word;
}
KOLO_EXPORT
size_t FakeCudaFlushes()
{
    return flushes;
}
KOLO_EXPORT
size_t FakeCudaLaunches()
{
    return launches;
}
KOLO_EXPORT
size_t FakeCudaLaunchesDirect()
{
    return launches_direct;
}
KOLO_EXPORT
size_t FakeCudaLaunchesLow()
{
    return launches_low;
}
KOLO_EXPORT
size_t FakeCudaLaunchesLanes()
{
    return launches_lanes;
}

KOLO_EXPORT
size_t FakeCudaOpened()
{
    std::lock_guard<std::mutex> hold(lock);
    return opened.size();
}

// ---- the driver, devices and contexts ----

KOLO_EXPORT
int cuInit(unsigned)
{
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuDriverGetVersion(int *version)
{
    *version = 12040;
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuGetErrorName(int error, const char **name)
{
    *name = error == KOLO_CUDA_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
            : error == KOLO_CUDA_NOT_FOUND   ? "CUDA_ERROR_NOT_FOUND"
            : error == kCaptureIsolation     ? "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"
            : error == kInvalidContext       ? "CUDA_ERROR_INVALID_CONTEXT"
            : error == kPeerUnsupported      ? "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"
            : error == kMisalignedAddress    ? "CUDA_ERROR_MISALIGNED_ADDRESS"
                                             : NULL;
    return *name != NULL ? KOLO_CUDA_OK : KOLO_CUDA_INVALID_VALUE;
}
KOLO_EXPORT
int cuGetErrorString(int error, const char **text)
{
    *text = error == KOLO_CUDA_OUT_OF_MEMORY ? "out of memory" : "an error";
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuDeviceGetCount(int *count)
{
    ENTER();
    *count = devices;
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuDeviceGet(int *device, int ordinal)
{
    ENTER();
    *device = ordinal;
    return ordinal < devices ? KOLO_CUDA_OK : KOLO_CUDA_INVALID_DEVICE;
}
KOLO_EXPORT
int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
    ENTER();
    memset(uuid, bus_of[static_cast<size_t>(device)], 16);
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuDeviceGetAttribute(int *value, int attribute, int)
{
    ENTER();
    const std::string word = direct_word.Get();
    const bool ordered = word != "unordered" && word != "unflushed";
    switch (attribute) {
    case KOLO_CUDA_MULTIPROCESSORS:
        *value = getenv("FAKE_CUDA_SMS") != nullptr ? atoi(getenv("FAKE_CUDA_SMS")) : 4;
        break;
    case KOLO_CUDA_DMA_BUFS:
        *value = word != "no dma-bufs" ? 1 : 0;
        break;
    case KOLO_CUDA_RDMA_ORDERING:
        *value = ordered ? KOLO_CUDA_RDMA_OWNER : 0;
        break;
    case KOLO_CUDA_RDMA_FLUSHES:
        *value = word != "unflushed" ? KOLO_CUDA_RDMA_FLUSHED_BY_HOST : 0;
        break;
    default:
        *value = 1;
        break;
    }
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuDeviceGetPCIBusId(char *out, int room, int device)
{
    ENTER();
    const int bus = bus_of[static_cast<size_t>(device)];
    snprintf(out, static_cast<size_t>(room), "0000:%02X:00.0", static_cast<unsigned>(bus));
    return bus < 0 ? KOLO_CUDA_INVALID_DEVICE : KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuDeviceCanAccessPeer(int *can, int device, int peer)
{
    ENTER();
    *can = device != peer && peer_word.Get() != "none" ? 1 : 0;
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuDeviceGetP2PAttribute(int *value, int, int, int)
{
    ENTER();
    *value = peer_word.Get() != "slow" ? 1 : 0;
    return KOLO_CUDA_OK;
}
// What is released with a primary context.
static void DestroyAll(int device)
{
    std::vector<Work> destroy;
    std::unique_lock<std::mutex> hold(lock);
    for (auto at = allocations.begin(); at != allocations.end();) {
        at = at->second.device == device ? Erase(at) : std::next(at);
    }
    for (auto at = objects.begin(); at != objects.end();) {
        if (at->second.device == device) {
            destroy.push_back(std::move(at->second.destroy));
            at = objects.erase(at);
        } else {
            at++;
        }
    }
    hold.unlock();
    for (const Work &one : destroy) {
        one();
    }
}
KOLO_EXPORT
int cuDevicePrimaryCtxRetain(kolo_cuda_context *context, int device)
{
    ENTER();
    std::lock_guard<std::mutex> hold(lock);
    retained++;
    retained_of[device]++;
    *context = reinterpret_cast<kolo_cuda_context>(static_cast<uintptr_t>(device + 1));
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuDevicePrimaryCtxRelease_v2(int device)
{
    std::unique_lock<std::mutex> hold(lock);
    retained--;
    const bool last = --retained_of[device] == 0;
    hold.unlock();
    if (last && strict::On()) {
        DestroyAll(device);
    }
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuCtxPushCurrent_v2(kolo_cuda_context context)
{
    ENTER();
    contexts.push_back(static_cast<int>(reinterpret_cast<uintptr_t>(context)));
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuCtxPopCurrent_v2(kolo_cuda_context *context)
{
    if (contexts.empty()) {
        return kInvalidContext;
    }
    *context = reinterpret_cast<kolo_cuda_context>(static_cast<uintptr_t>(contexts.back()));
    contexts.pop_back();
    return KOLO_CUDA_OK;
}

KOLO_EXPORT
int cuCtxGetDevice(int *device)
{
    ENTER_CONTEXT();
    *device = contexts.back() - 1;
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuCtxEnablePeerAccess(kolo_cuda_context peer, unsigned)
{
    ENTER_CONTEXT();
    if (peer_word.Get() == "refuse") {
        return kPeerUnsupported;
    }
    std::lock_guard<std::mutex> hold(lock);
    const int to = static_cast<int>(reinterpret_cast<uintptr_t>(peer)) - 1;
    return peers.insert({contexts.back() - 1, to}).second ? KOLO_CUDA_OK
                                                          : KOLO_CUDA_PEER_ALREADY_ENABLED;
}
KOLO_EXPORT
int cuCtxDisablePeerAccess(kolo_cuda_context peer)
{
    std::lock_guard<std::mutex> hold(lock);
    const int to = static_cast<int>(reinterpret_cast<uintptr_t>(peer)) - 1;
    return contexts.empty() || peers.erase({contexts.back() - 1, to}) == 0 ? kPeerNotEnabled
                                                                           : KOLO_CUDA_OK;
}

// ---- memory ----

static int Allocate(kolo_cuda_address *at, size_t bytes, bool managed)
{
    // Shared memory is the kernel's, whole pages that no sanitizer watches: on demand only.
    const bool shares = getenv("FAKE_CUDA_SHARES") != nullptr && !managed;
    Allocation made = {bytes, contexts.back() - 1, 0, managed, -1};
    void *memory = nullptr;
    if (shares) {
        made.fd = memfd_create("kolo-fake-cuda", MFD_CLOEXEC);
        if (made.fd < 0 || ftruncate(made.fd, static_cast<off_t>(bytes)) != 0) {
            return KOLO_CUDA_OUT_OF_MEMORY;
        }
        memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made.fd, 0);
    } else { // managed memory has pages of its own, as dma-bufs are of whole pages
        const size_t unit = managed ? static_cast<size_t>(sysconf(_SC_PAGESIZE)) : 256;
        memory = aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
    }
    std::lock_guard<std::mutex> hold(lock);
    made.id = ++ids;
    *at = reinterpret_cast<kolo_cuda_address>(memory);
    allocations[*at] = made;
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuMemAlloc_v2(kolo_cuda_address *at, size_t bytes)
{
    ENTER_UNSAFE();
    return Allocate(at, bytes, false);
}
KOLO_EXPORT
int cuMemAllocManaged(kolo_cuda_address *at, size_t bytes, unsigned)
{
    ENTER_CONTEXT();
    return Allocate(at, bytes, true);
}
KOLO_EXPORT
int cuMemFree_v2(kolo_cuda_address at)
{
    TAKE_CONTEXT(true);
    std::lock_guard<std::mutex> hold(lock);
    const auto found = allocations.find(at);
    if (contexts.empty() || found == allocations.end()) {
        return KOLO_CUDA_INVALID_VALUE;
    }
    Erase(found);
    return KOLO_CUDA_OK;
}
// Of a pool whose memory may be exported, by calls of its own.
KOLO_EXPORT
int cuMemAllocAsync(kolo_cuda_address *at, size_t bytes, kolo_cuda_stream)
{
    ENTER_CONTEXT();
    void *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    std::lock_guard<std::mutex> hold(lock);
    Allocation made = {bytes, contexts.back() - 1, ++ids, false, -1};
    made.exports = made.pooled = true;
    *at = reinterpret_cast<kolo_cuda_address>(memory);
    allocations[*at] = made;
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuMemHostAlloc(void **at, size_t bytes, unsigned)
{
    ENTER_UNSAFE();
    void *made = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    *at = Made(
        made, [made] { free(made); }, bytes);
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuMemHostGetDevicePointer_v2(kolo_cuda_address *out, void *at, unsigned)
{
    ENTER_CONTEXT();
    *out = reinterpret_cast<kolo_cuda_address>(at);
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuMemFreeHost(void *at)
{
    TAKE_CONTEXT(true);
    return Unmade(at) == KOLO_CUDA_OK ? KOLO_CUDA_OK : KOLO_CUDA_INVALID_VALUE;
}
KOLO_EXPORT
int cuMemGetAddressRange_v2(kolo_cuda_address *base, size_t *bytes, kolo_cuda_address at)
{
    ENTER_CONTEXT();
    std::lock_guard<std::mutex> hold(lock);
    const auto next = allocations.upper_bound(at);
    if (next == allocations.begin()) {
        return KOLO_CUDA_INVALID_VALUE;
    }
    *base = std::prev(next)->first;
    *bytes = std::prev(next)->second.bytes;
    return KOLO_CUDA_OK;
}
// A file that says which memory it is of; for tests/verbs/fake_verbs.cc.
KOLO_EXPORT
int cuMemGetHandleForAddressRange(int *out, kolo_cuda_address at, size_t bytes, int,
                                  unsigned long long)
{
    ENTER_CONTEXT();
    const auto page = static_cast<kolo_cuda_address>(sysconf(_SC_PAGESIZE));
    std::lock_guard<std::mutex> hold(lock);
    const auto next = allocations.upper_bound(at + bytes - 1);
    const bool managed = next == allocations.begin() || std::prev(next)->second.managed;
    if (managed || direct_word.Get() == "refuse" || at % page != 0 || bytes % page != 0) {
        return KOLO_CUDA_INVALID_VALUE;
    }
    const int fd = memfd_create("kolo-fake-dma-buf", MFD_CLOEXEC);
    if (fd < 0 || pwrite(fd, &at, sizeof at, 0) != static_cast<ssize_t>(sizeof at) ||
        ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
        return KOLO_CUDA_OUT_OF_MEMORY;
    }
    *out = fd;
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuFlushGPUDirectRDMAWrites(int target, int scope)
{
    ENTER_CONTEXT();
    flushes++;
    return target == 0 && scope == KOLO_CUDA_RDMA_OWNER ? KOLO_CUDA_OK : KOLO_CUDA_INVALID_VALUE;
}
// Words are copied whole: another GPU may store to them meanwhile.
static void CopyWords(void *to, const void *from, size_t bytes)
{
    auto *words = static_cast<uint32_t *>(to);
    const auto *read = static_cast<const uint32_t *>(from);
    for (size_t i = 0; i < bytes / sizeof *words; i++) {
        __atomic_store_n(&words[i], __atomic_load_n(&read[i], __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
    }
}
static bool IsWords(const void *at, size_t bytes)
{
    return (reinterpret_cast<uintptr_t>(at) | bytes) % sizeof(uint32_t) == 0 && bytes <= 4096;
}
static void CopyBytes(void *to, const void *from, size_t bytes)
{
    if (IsWords(to, bytes) && IsWords(from, bytes)) {
        CopyWords(to, from, bytes);
    } else {
        memcpy(to, from, bytes);
    }
}
static void Copy(void *to, const void *from, size_t bytes, int device)
{
    BeginCopies(device, 1, bytes);
    CopyBytes(to, from, bytes);
    copying[device].fetch_sub(1);
}
KOLO_EXPORT
int cuMemcpyDtoHAsync_v2(void *to, kolo_cuda_address from, size_t bytes, kolo_cuda_stream stream)
{
    ENTER_CONTEXT();
    const int by = contexts.back() - 1;
    Stream *s = StreamOf(stream);
    Queue(s, [=] { Copy(to, reinterpret_cast<const void *>(from), bytes, by); });
    if (strict::On() && s->Capturing() == nullptr && !IsPinned(to, bytes)) {
        entered.Leave();
        s->Drain();
        return fault;
    }
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuMemcpyHtoDAsync_v2(kolo_cuda_address to, const void *from, size_t bytes,
                         kolo_cuda_stream stream)
{
    ENTER_CONTEXT();
    const int by = contexts.back() - 1;
    auto *onto = reinterpret_cast<void *>(to);
    if (strict::On() && StreamOf(stream)->Capturing() == nullptr && !IsPinned(from, bytes)) {
        const auto *first = static_cast<const char *>(from);
        const std::vector<char> taken(first, first + bytes);
        Queue(StreamOf(stream), [=] { Copy(onto, taken.data(), bytes, by); });
    } else {
        Queue(StreamOf(stream), [=] { Copy(onto, from, bytes, by); });
    }
    return KOLO_CUDA_OK;
}

KOLO_EXPORT
int cuMemcpyDtoDAsync_v2(kolo_cuda_address to, kolo_cuda_address from, size_t bytes,
                         kolo_cuda_stream stream)
{
    ENTER_CONTEXT();
    const int by = contexts.back() - 1;
    Queue(StreamOf(stream), [=] {
        Copy(reinterpret_cast<void *>(to), reinterpret_cast<const void *>(from), bytes, by);
    });
    return KOLO_CUDA_OK;
}

// Between peers by the word; without peer access through the host, which is always right.
KOLO_EXPORT
int cuMemcpyPeerAsync(kolo_cuda_address to, kolo_cuda_context to_context, kolo_cuda_address from,
                      kolo_cuda_context from_context, size_t bytes, kolo_cuda_stream stream)
{
    ENTER_CONTEXT();
    const int by = contexts.back() - 1;
    const int onto = static_cast<int>(reinterpret_cast<uintptr_t>(to_context)) - 1;
    const int of = static_cast<int>(reinterpret_cast<uintptr_t>(from_context)) - 1;
    std::unique_lock<std::mutex> hold(lock);
    const bool direct = peers.count({by, by == of ? onto : of}) != 0;
    hold.unlock();
    const std::string word = direct ? peer_word.Get() : "work";
    if (word == "die") {
        _exit(1);
    }
    Queue(StreamOf(stream), [=] {
        while (word == "hang" && peer_word.Get() == "hang") {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        auto *out = reinterpret_cast<unsigned char *>(to);
        if (word != "lose" && !(word == "lose reads of 1" && by == 1 && onto == 1)) {
            memcpy(out, reinterpret_cast<const void *>(from), bytes);
        }
        if (word == "spoil") {
            out[bytes - 1] ^= 1;
        }
    });
    return KOLO_CUDA_OK;
}

// ---- memory of other processes ----

KOLO_EXPORT
int cuIpcGetMemHandle(kolo_cuda_ipc_handle *out, kolo_cuda_address base)
{
    ENTER_CONTEXT();
    std::lock_guard<std::mutex> hold(lock);
    const auto found = allocations.find(base);
    if (found == allocations.end() || found->second.fd < 0) {
        return KOLO_CUDA_INVALID_VALUE;
    }
    const Handle handle = {getpid(), found->second.fd, base, found->second.bytes,
                           FileOf(found->second.fd)};
    memcpy(out, &handle, sizeof handle);
    return KOLO_CUDA_OK;
}
// NOT_FOUND: nothing of that process is open at these addresses.
static int OpenAgain(const Handle &handle, kolo_cuda_address *at)
{
    std::lock_guard<std::mutex> hold(lock);
    for (auto &[address, open] : opened) {
        if (open.pid == handle.pid && open.base == handle.base && open.file == handle.file) {
            open.times++;
            *at = address;
            return KOLO_CUDA_OK;
        }
        if (open.pid == handle.pid && open.base < handle.base + handle.bytes &&
            handle.base < open.base + open.bytes) {
            return strict::kAlreadyMapped;
        }
    }
    return KOLO_CUDA_NOT_FOUND;
}
KOLO_EXPORT
int cuIpcOpenMemHandle_v2(kolo_cuda_address *at, kolo_cuda_ipc_handle given, unsigned)
{
    ENTER_UNSAFE();
    Handle handle;
    memcpy(&handle, &given, sizeof handle);
    if (handle.pid == getpid()) {
        return kInvalidContext; // as the real one
    }
    const int again = strict::On() ? OpenAgain(handle, at) : KOLO_CUDA_NOT_FOUND;
    if (again != KOLO_CUDA_NOT_FOUND) {
        return again;
    }
    const std::string path =
        "/proc/" + std::to_string(handle.pid) + "/fd/" + std::to_string(handle.fd);
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    void *memory = FileOf(fd) == handle.file && fd >= 0
                       ? mmap(nullptr, handle.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                       : MAP_FAILED;
    close(fd);
    if (memory == MAP_FAILED) {
        return KOLO_CUDA_INVALID_VALUE;
    }
    std::lock_guard<std::mutex> hold(lock);
    *at = reinterpret_cast<kolo_cuda_address>(memory);
    opened[*at] = {handle.bytes, handle.pid, handle.base, handle.file};
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuIpcCloseMemHandle(kolo_cuda_address at)
{
    TAKE_CONTEXT(true);
    std::lock_guard<std::mutex> hold(lock);
    const auto found = opened.find(at);
    if (found == opened.end()) {
        return KOLO_CUDA_INVALID_VALUE;
    }
    if (--found->second.times == 0) {
        munmap(reinterpret_cast<void *>(at), found->second.bytes);
        opened.erase(found);
    }
    return KOLO_CUDA_OK;
}
// Work in the legacy default stream, as the calls without a stream queue it.
static int QueueLegacy(const char *name, const Work &work, bool waits)
{
    Stream *stream = NullStream(std::max(Current(), 0));
    {
        strict::Entered entered(Current(), false, name, IsIdle);
        Queue(stream, work);
    }
    if (waits) {
        stream->Drain();
    }
    return fault;
}
KOLO_EXPORT
int cuMemsetD8_v2(kolo_cuda_address at, unsigned char value, size_t bytes)
{
    ENTER();
    if (contexts.empty()) {
        return kInvalidContext;
    }
    const auto set = [=] { memset(reinterpret_cast<void *>(at), value, bytes); };
    if (!strict::On()) {
        set();
        return KOLO_CUDA_OK;
    }
    return QueueLegacy(
        __func__,
        [=] {
            std::this_thread::sleep_for(std::chrono::milliseconds(strict::kQueueMs));
            set();
        },
        false);
}
KOLO_EXPORT
int cuMemsetD8Async(kolo_cuda_address at, unsigned char value, size_t bytes,
                    kolo_cuda_stream stream)
{
    ENTER_CONTEXT();
    Queue(StreamOf(stream), [=] { memset(reinterpret_cast<void *>(at), value, bytes); });
    return KOLO_CUDA_OK;
}
// Copies as the applications of tests make them.
static int CopyPlain(void *to, const void *from, size_t bytes)
{
    const auto copy = [=] { CopyBytes(to, from, bytes); };
    if (strict::On()) {
        return QueueLegacy("cuMemcpy", copy, true);
    }
    copy();
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuMemcpy(kolo_cuda_address to, kolo_cuda_address from, size_t bytes)
{
    ENTER();
    if (contexts.empty()) {
        return kInvalidContext;
    }
    return CopyPlain(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes);
}
KOLO_EXPORT
int cuMemcpyHtoD_v2(kolo_cuda_address at, const void *from, size_t bytes)
{
    if (!strict::On() || bytes > strict::kPageable) {
        return CopyPlain(reinterpret_cast<void *>(at), from, bytes);
    }
    const auto *first = static_cast<const char *>(from);
    const std::vector<char> kept(first, first + bytes);
    return QueueLegacy(
        __func__,
        [=] {
            std::this_thread::sleep_for(std::chrono::milliseconds(strict::kQueueMs));
            memcpy(reinterpret_cast<void *>(at), kept.data(), kept.size());
        },
        false);
}
KOLO_EXPORT
int cuMemcpyDtoH_v2(void *to, kolo_cuda_address at, size_t bytes)
{
    return CopyPlain(to, reinterpret_cast<const void *>(at), bytes);
}
KOLO_EXPORT
int cuPointerGetAttribute(void *value, int attribute, kolo_cuda_address at)
{
    ENTER_CONTEXT();
    std::lock_guard<std::mutex> hold(lock);
    const auto next = allocations.upper_bound(at);
    if (next == allocations.begin() ||
        at >= std::prev(next)->first + std::prev(next)->second.bytes) {
        return KOLO_CUDA_INVALID_VALUE;
    }
    const Allocation &found = std::prev(next)->second;
    switch (attribute) {
    case KOLO_CUDA_POINTER_TYPE:
        *static_cast<unsigned *>(value) = KOLO_CUDA_TYPE_DEVICE;
        break;
    case KOLO_CUDA_POINTER_ID:
        *static_cast<unsigned long long *>(value) = found.id;
        break;
    case KOLO_CUDA_POINTER_MANAGED:
        *static_cast<bool *>(value) = found.managed;
        break;
    case KOLO_CUDA_POINTER_IPC:
        *static_cast<bool *>(value) = found.fd >= 0;
        break;
    case KOLO_CUDA_POINTER_HANDLES:
        *static_cast<int *>(value) = found.exports ? KOLO_CUDA_HANDLE_FD : 0;
        break;
    case KOLO_CUDA_POINTER_POOL:
        *static_cast<const void **>(value) = found.pooled ? &allocations : nullptr;
        break;
    default:
        *static_cast<int *>(value) = found.device;
        break;
    }
    return KOLO_CUDA_OK;
}

// ---- streams and events ----

static void MakeStream(kolo_cuda_stream *stream, unsigned flags, bool urgent)
{
    const auto owner =
        std::make_shared<Stream>(Current(), (flags & KOLO_CUDA_NON_BLOCKING) == 0, urgent);
    Stream *made = Made(owner.get(), [made = owner.get()] { EndStream(made); });
    std::lock_guard<std::mutex> hold(lock);
    streams[made] = owner;
    *stream = reinterpret_cast<kolo_cuda_stream>(made);
}
KOLO_EXPORT
int cuStreamCreate(kolo_cuda_stream *stream, unsigned flags)
{
    ENTER_CONTEXT_AS(true);
    MakeStream(stream, flags, false);
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuStreamCreateWithPriority(kolo_cuda_stream *stream, unsigned flags, int priority)
{
    ENTER_CONTEXT_AS(true);
    MakeStream(stream, flags, priority < 0);
    return KOLO_CUDA_OK;
}
// No call to fail: who asks may as well order by an event. In a capture it is an error, which driver
// 580.159 does not document.
KOLO_EXPORT
int cuStreamGetId(kolo_cuda_stream stream, unsigned long long *id)
{
    if (const auto capture = StreamOf(stream)->Capturing()) {
        std::lock_guard<std::mutex> all(capture->lock);
        capture->invalid = true;
        return kCaptureUnsupported;
    }
    *id = StreamOf(stream)->id;
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuThreadExchangeStreamCaptureMode(int *mode)
{
    ENTER();
    std::swap(*mode, capture_mode);
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuLaunchHostFunc(kolo_cuda_stream stream, void (*fn)(void *), void *arg)
{
    ENTER_CONTEXT();
    Queue(
        StreamOf(stream), [=] { fn(arg); }, kWaits);
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuStreamDestroy_v2(kolo_cuda_stream stream)
{
    TAKE_CONTEXT(false);
    entered.Leave(); // its work may go on
    return Unmade(stream);
}
KOLO_EXPORT
int cuStreamQuery(kolo_cuda_stream stream)
{
    TAKE_CONTEXT(false);
    Stream *s = StreamOf(stream);
    if (fault != 0) {
        return fault;
    }
    {
        std::lock_guard<std::mutex> hold(s->lock);
        if (!s->work.empty() || s->busy) { // no call to fail: how many there are is chance
            return KOLO_CUDA_NOT_READY;
        }
    }
    ENTER();
    if (contexts.empty()) {
        return kInvalidContext;
    }
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuStreamSynchronize(kolo_cuda_stream stream)
{
    ENTER_CONTEXT();
    syncs++;
    if (StreamOf(stream)->Capturing() != nullptr) {
        return kCaptureUnsupported;
    }
    entered.Leave();
    StreamOf(stream)->Drain();
    return fault;
}
KOLO_EXPORT
int cuStreamIsCapturing(kolo_cuda_stream stream, int *status)
{
    ENTER();
    *status = StreamOf(stream)->Capturing() != nullptr ? 1 : 0;
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuStreamBatchMemOp_v2(kolo_cuda_stream stream, unsigned count, kolo_cuda_stream_op *ops,
                          unsigned)
{
    ENTER_CONTEXT();
    if (count > KOLO_CUDA_STREAM_OPS) {
        return KOLO_CUDA_INVALID_VALUE;
    }
    const std::vector<kolo_cuda_stream_op> kept(ops, ops + count);
    const bool waits = std::any_of(kept.begin(), kept.end(), [](const kolo_cuda_stream_op &op) {
        return op.kind == KOLO_CUDA_WAIT_32 || op.kind == KOLO_CUDA_WAIT_64;
    });
    const auto apply = [kept] {
        for (const kolo_cuda_stream_op &op : kept) {
            Apply(op);
        }
    };
    Queue(StreamOf(stream), apply, waits ? kWaits : kRuns);
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuEventCreate(kolo_cuda_event *event, unsigned)
{
    ENTER_CONTEXT();
    *event = reinterpret_cast<kolo_cuda_event>(Made(new Event));
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuEventDestroy_v2(kolo_cuda_event event)
{
    TAKE_CONTEXT(false);
    return Unmade(event);
}
KOLO_EXPORT
int cuEventRecord(kolo_cuda_event event, kolo_cuda_stream stream)
{
    ENTER_CONTEXT();
    records++;
    auto *e = EventOf(event);
    Stream *s = StreamOf(stream);
    e->capture = s->Capturing();
    if (e->capture != nullptr) {
        std::lock_guard<std::mutex> all(e->capture->lock);
        e->stream = s;
        e->behind = e->capture->graph->work.size();
        return KOLO_CUDA_OK;
    }
    const Token token = std::make_shared<std::atomic<bool>>(false);
    e->recorded = token;
    Queue(s, [token] { token->store(true); });
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuEventSynchronize(kolo_cuda_event event)
{
    ENTER_CONTEXT();
    const Token token = EventOf(event)->recorded;
    entered.Leave();
    while (token != nullptr && !token->load() && fault == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return fault;
}
KOLO_EXPORT
int cuEventQuery(kolo_cuda_event event)
{
    ENTER_UNSAFE();
    const auto *e = EventOf(event);
    if (e->capture != nullptr) {
        return kCapturedEvent;
    }
    const Token token = e->recorded;
    return token == nullptr || token->load() ? KOLO_CUDA_OK : KOLO_CUDA_NOT_READY;
}

// A stream that waits for a captured event joins the capture.
static int Join(Stream *s, const Event *e)
{
    std::lock_guard<std::mutex> hold(s->lock);
    std::lock_guard<std::mutex> all(e->capture->lock);
    if (e->capture->over || (s->capture != nullptr && s->capture != e->capture)) {
        return kCapturedEvent;
    }
    s->capture = e->capture;
    if (s == e->capture->first) {
        size_t &joined = e->capture->joined[e->stream];
        joined = std::max(joined, e->behind);
    } else {
        e->capture->last[s] = std::max(e->capture->last[s], e->behind);
    }
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuStreamWaitEvent(kolo_cuda_stream stream, kolo_cuda_event event, unsigned)
{
    ENTER_CONTEXT();
    const auto *e = EventOf(event);
    if (e->capture != nullptr) {
        return Join(StreamOf(stream), e);
    }
    if (StreamOf(stream)->Capturing() != nullptr) {
        return kCaptureIsolation;
    }
    const Token token = e->recorded;
    const auto wait = [token] { WaitUntil([&] { return token == nullptr || token->load(); }); };
    Queue(StreamOf(stream), wait, kWaits);
    return KOLO_CUDA_OK;
}

// ---- graphs: what was captured, in the order of the calls ----

KOLO_EXPORT
int cuStreamBeginCapture_v2(kolo_cuda_stream stream, int mode)
{
    Stream *s = StreamOf(stream);
    const auto capture = std::make_shared<Capture>();
    capture->first = s;
    capture->mode = mode;
    {
        std::lock_guard<std::mutex> hold(lock);
        captures.insert(capture);
    }
    std::lock_guard<std::mutex> hold(s->lock);
    s->capture = capture;
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuStreamEndCapture(kolo_cuda_stream stream, Graph **graph)
{
    const auto capture = StreamOf(stream)->Capturing();
    if (capture == nullptr || capture->first != StreamOf(stream)) {
        return kInvalidHandle;
    }
    capture->last[capture->first] = 0;
    bool unjoined = false;
    for (const auto &[member, last] : capture->last) {
        std::lock_guard<std::mutex> hold(member->lock);
        member->capture = nullptr;
        unjoined = unjoined || capture->joined[member] < last;
    }
    {
        std::lock_guard<std::mutex> hold(lock);
        captures.erase(capture);
    }
    std::lock_guard<std::mutex> all(capture->lock);
    capture->over = true;
    *graph = nullptr;
    if (capture->invalid || unjoined) {
        delete capture->graph;
        return capture->invalid ? kCaptureInvalidated : kCaptureUnjoined;
    }
    *graph = capture->graph;
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuGraphInstantiateWithFlags(Graph **executable, Graph *graph, unsigned long long)
{
    if (Spoils()) {
        return kCaptureUnsupported;
    }
    *executable = new Graph(*graph);
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuGraphLaunch(Graph *graph, kolo_cuda_stream stream)
{
    TAKE_CONTEXT(false);
    for (const auto &[work, kind] : graph->work) {
        Queue(StreamOf(stream), work, kind);
    }
    if (!graph->objects.empty()) { // they outlive the launch
        Queue(StreamOf(stream), [objects = graph->objects] {});
    }
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuGraphDestroy(Graph *graph)
{
    delete graph;
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuGraphExecDestroy(Graph *executable)
{
    TAKE_CONTEXT(false);
    delete executable;
    return KOLO_CUDA_OK;
}

// As many references as are not given to graphs; the object ends with the last one.
struct CUuserObject_st {
    std::shared_ptr<UserObject> object;
    unsigned references;
};
KOLO_EXPORT
int cuUserObjectCreate(CUuserObject_st **out, void *at, void (*destroy)(void *), unsigned count,
                       unsigned)
{
    ENTER();
    *out = new CUuserObject_st{std::shared_ptr<UserObject>(new UserObject{at, destroy}), count};
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuUserObjectRelease(CUuserObject_st *object, unsigned count)
{
    object->references -= count;
    if (object->references == 0) {
        delete object;
    }
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuGraphRetainUserObject(Graph *graph, CUuserObject_st *object, unsigned count, unsigned flags)
{
    ENTER();
    constexpr unsigned kMove = 1;
    graph->objects.push_back(object->object);
    return (flags & kMove) != 0 ? cuUserObjectRelease(object, count) : KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuStreamGetCaptureInfo_v2(kolo_cuda_stream stream, int *status, unsigned long long *id,
                              Graph **graph, const void ***dependencies, size_t *count)
{
    ENTER();
    const auto capture = StreamOf(stream)->Capturing();
    *status = capture == nullptr ? 0 : capture->invalid ? 2 : 1;
    if (capture != nullptr && graph != nullptr) {
        *graph = capture->graph;
    }
    if (capture != nullptr && id != nullptr) {
        *id = reinterpret_cast<uintptr_t>(capture.get());
    }
    if (dependencies != nullptr) { // nodes are not modelled
        *dependencies = nullptr;
    }
    if (count != nullptr) {
        *count = 0;
    }
    return KOLO_CUDA_OK;
}

// ---- kernels ----

KOLO_EXPORT
int cuModuleLoadData(kolo_cuda_module *module, const void *image)
{
    ENTER_CONTEXT_AS(true);
    if (strcmp(static_cast<const char *>(image), "another GPU's") == 0) {
        return KOLO_CUDA_NO_BINARY_FOR_GPU;
    }
    if (strcmp(static_cast<const char *>(image), "a newer nvcc's") == 0) {
        return KOLO_CUDA_UNSUPPORTED_PTX_VERSION;
    }
    *module = Made(new CUmod_st);
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuModuleUnload(kolo_cuda_module module)
{
    TAKE_CONTEXT(true);
    return Unmade(module);
}
KOLO_EXPORT
int cuModuleGetFunction(kolo_cuda_function *function, kolo_cuda_module module, const char *name)
{
    ENTER_CONTEXT();
    if (!emulator::Has(name)) {
        return KOLO_CUDA_NOT_FOUND;
    }
    CUfunc_st &found = module->functions[name];
    found.name = name;
    found.of = module;
    *function = &found;
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuFuncLoad(kolo_cuda_function function)
{
    ENTER_CONTEXT_AS(!function->loaded);
    function->loaded = true;
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuFuncGetAttribute(int *value, int, kolo_cuda_function function)
{
    ENTER_CONTEXT_AS(!function->loaded);
    function->loaded = true;
    *value = 64;
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuLaunchKernel(kolo_cuda_function function, unsigned grid_x, unsigned, unsigned,
                   unsigned block_x, unsigned, unsigned, unsigned, kolo_cuda_stream stream,
                   void **arguments, void **)
{
    ENTER_CONTEXT_AS(!function->loaded);
    MustLive(function->of, "module");
    function->loaded = true;
    const std::string &name = function->name;
    const size_t bytes = emulator::ArgumentBytes(name.c_str());
    if (bytes == sizeof(kolo_copies_launch)) {
        PushCopies(stream, grid_x, block_x, arguments[0]);
        return KOLO_CUDA_OK;
    }
    launches++;
    if (bytes == sizeof(kolo_program_launch)) {
        const auto *launch = static_cast<const kolo_program_launch *>(arguments[0]);
        launches_direct += launch->meets != 0 && launch->reached != 0;
        launches_lanes += launch->lanes > 1;
        PushKernel<kolo_program_launch>(stream, name, grid_x, block_x, arguments[0]);
    } else if (bytes == sizeof(kolo_ll_launch)) {
        launches_low++;
        PushKernel<kolo_ll_launch>(stream, name, grid_x, block_x, arguments[0]);
    } else {
        PushKernel<kolo_fused_launch>(stream, name, grid_x, block_x, arguments[0]);
    }
    return KOLO_CUDA_OK;
}

// ---- virtual memory management ----

KOLO_EXPORT
int cuMemCreate(unsigned long long *out, size_t bytes, const int *properties, unsigned long long)
{
    ENTER_CONTEXT();
    const int fd = memfd_create("kolo-fake-cuda", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
        return KOLO_CUDA_OUT_OF_MEMORY;
    }
    const bool exports = (properties[1] & KOLO_CUDA_HANDLE_FD) != 0; // requestedHandleTypes
    *out = reinterpret_cast<uintptr_t>(Made(new Physical{fd, bytes, exports}));
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuMemGetAllocationGranularity(size_t *out, const void *, int)
{
    ENTER_CONTEXT();
    *out = 65536;
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuMemRetainAllocationHandle(unsigned long long *out, void *at)
{
    ENTER_CONTEXT();
    std::unique_lock<std::mutex> hold(lock);
    const auto next = allocations.upper_bound(reinterpret_cast<uintptr_t>(at));
    if (next == allocations.begin() || std::prev(next)->second.physical < 0) {
        return KOLO_CUDA_INVALID_VALUE;
    }
    const Allocation &found = std::prev(next)->second;
    auto *made = new Physical{dup(found.physical), found.bytes, found.exports};
    hold.unlock();
    *out = reinterpret_cast<uintptr_t>(Made(made));
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuMemRelease(unsigned long long handle)
{
    TAKE_CONTEXT(false);
    return Unmade(reinterpret_cast<Physical *>(handle));
}
KOLO_EXPORT
int cuMemExportToShareableHandle(int *out, unsigned long long handle, int, unsigned long long)
{
    ENTER_CONTEXT();
    const auto *physical = reinterpret_cast<Physical *>(handle);
    if (!physical->exports) {
        return KOLO_CUDA_INVALID_VALUE;
    }
    *out = dup(physical->fd);
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuMemImportFromShareableHandle(unsigned long long *out, void *handle, int)
{
    ENTER_CONTEXT();
    const int fd = dup(static_cast<int>(reinterpret_cast<intptr_t>(handle)));
    const off_t bytes = lseek(fd, 0, SEEK_END);
    if (bytes < 0) {
        return KOLO_CUDA_INVALID_VALUE;
    }
    *out = reinterpret_cast<uintptr_t>(Made(new Physical{fd, static_cast<size_t>(bytes), true}));
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuMemAddressReserve(kolo_cuda_address *out, size_t bytes, size_t, kolo_cuda_address,
                        unsigned long long)
{
    ENTER_CONTEXT();
    void *at = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::lock_guard<std::mutex> hold(lock);
    *out = reinterpret_cast<kolo_cuda_address>(at);
    opened[*out] = {bytes};
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuMemAddressFree(kolo_cuda_address at, size_t)
{
    TAKE_CONTEXT(false);
    return cuIpcCloseMemHandle(at);
}
KOLO_EXPORT
int cuMemMap(kolo_cuda_address at, size_t bytes, size_t, unsigned long long handle,
             unsigned long long)
{
    ENTER_CONTEXT();
    const auto *physical = reinterpret_cast<Physical *>(handle);
    if (bytes > physical->bytes || mmap(reinterpret_cast<void *>(at), bytes, PROT_NONE,
                                        MAP_SHARED | MAP_FIXED, physical->fd, 0) == MAP_FAILED) {
        return KOLO_CUDA_INVALID_VALUE;
    }
    std::lock_guard<std::mutex> hold(lock);
    Allocation made = {bytes, contexts.back() - 1, ++ids, false, -1};
    made.physical = dup(physical->fd);
    made.exports = physical->exports;
    allocations[at] = made;
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuMemSetAccess(kolo_cuda_address at, size_t bytes, const kolo_cuda_access *access, size_t)
{
    ENTER_CONTEXT();
    if (access->kind != KOLO_CUDA_LOCATION_DEVICE || access->flags != KOLO_CUDA_READ_WRITE) {
        return KOLO_CUDA_INVALID_VALUE;
    }
    mprotect(reinterpret_cast<void *>(at), bytes, PROT_READ | PROT_WRITE);
    return KOLO_CUDA_OK;
}
KOLO_EXPORT
int cuMemUnmap(kolo_cuda_address at, size_t bytes)
{
    TAKE_CONTEXT(false);
    std::lock_guard<std::mutex> hold(lock);
    const auto found = allocations.find(at);
    if (found == allocations.end() || found->second.physical < 0) {
        return KOLO_CUDA_INVALID_VALUE;
    }
    if (bytes != found->second.bytes) {
        return KOLO_CUDA_INVALID_VALUE;
    }
    Erase(found);
    return KOLO_CUDA_OK;
}

} // extern "C"
