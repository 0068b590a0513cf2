// SPDX-License-Identifier: Apache-2.0
// CUDA tensors in a torch that is built for CPUs, on the driver of tests/device/fake_cuda.cc, which
// KOLO_CUDA_PATH names.
//
// c10's guard of the device and an allocator are registered here as a torch for CUDA does it; so
// the plug-in's own code runs, with real streams and events. Copies and delays are queued in
// streams. All other operations wait for the current stream and run on the CPU. A freed block is
// spoiled in the order of the stream that it was allocated in, and is the next one that this stream
// gives: what is let go of too early shows.
#include <ATen/EmptyTensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <atomic>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <chrono>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <torch/csrc/Storage.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>
#include <torch/extension.h>
#include <torch/library.h>

namespace
{

namespace py = pybind11;
constexpr c10::DeviceType kType = c10::DeviceType::CUDA;
constexpr int kDevices = 2, kPool = 4, kNotReady = 600;
using Handle = void *; // a CUstream, CUevent or CUgraphExec

// ---- the driver ----

void *Library()
{
    static void *library = dlopen(getenv("KOLO_CUDA_PATH"), RTLD_NOW);
    TORCH_CHECK(library != nullptr, "no driver: ", dlerror());
    return library;
}

thread_local c10::DeviceIndex device_now = 0;
std::atomic<int> events_made;

template <class... Args> int Call(const char *name, Args... args)
{
    auto *const function = reinterpret_cast<int (*)(Args...)>(dlsym(Library(), name));
    TORCH_CHECK(function != nullptr, name, " is not in the driver");
    return function(args...);
}

// Calls of the driver in the context of a device.
template <class... Args> int CallOn(c10::DeviceIndex device, const char *name, Args... args)
{
    Handle context = reinterpret_cast<Handle>(static_cast<intptr_t>(device + 1)), popped = nullptr;
    Call("cuCtxPushCurrent_v2", context);
    const int error = Call(name, args...);
    Call("cuCtxPopCurrent_v2", &popped);
    return error;
}

template <class... Args> void DoOn(c10::DeviceIndex device, const char *name, Args... args)
{
    const int error = CallOn(device, name, args...);
    TORCH_CHECK(error == 0, name, " failed: ", error);
}

// ---- streams: the number of one is its handle, 0 the default stream ----

thread_local Handle streams_now[kDevices];

Handle &StreamNow(c10::DeviceIndex device)
{
    TORCH_CHECK(device >= 0 && device < kDevices, "there is no device ", int{device});
    return streams_now[device];
}

Handle HandleOf(const c10::Stream &stream)
{
    return reinterpret_cast<Handle>(stream.id());
}

c10::Stream StreamOf(c10::DeviceIndex device, Handle handle)
{
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, device),
                       reinterpret_cast<intptr_t>(handle));
}

// "cuda" is the current device.
c10::DeviceIndex IndexOf(c10::Device device)
{
    return device.has_index() ? device.index() : device_now;
}

Handle NewStream(c10::DeviceIndex device)
{
    Handle made = nullptr;
    DoOn(device, "cuStreamCreate", &made, 1u);
    return made;
}

// The pool's streams are made with the first use of their device, as PyTorch makes them: later, a
// stream that waits would hold up cuStreamCreate().
const Handle *PoolOf(c10::DeviceIndex device)
{
    static std::once_flag once[kDevices];
    static Handle pool[kDevices][kPool];
    std::call_once(once[device], [device] {
        for (Handle &handle : pool[device]) {
            handle = NewStream(device);
        }
    });
    return pool[device];
}

bool IsCapturing(c10::DeviceIndex device, Handle stream)
{
    int capturing = 0;
    DoOn(device, "cuStreamIsCapturing", stream, &capturing);
    return capturing != 0;
}

// Queue in a stream. In a graph, which may run it again, it is never freed.
void Queue(c10::DeviceIndex device, Handle stream, std::function<void()> work)
{
    const bool again = IsCapturing(device, stream);
    auto *kept = new std::function<void()>([=] { work(); });
    void (*run)(void *) = again ? +[](void *arg) { (*static_cast<std::function<void()> *>(arg))(); }
                                : +[](void *arg) {
                                      const std::unique_ptr<std::function<void()>> once(
                                          static_cast<std::function<void()> *>(arg));
                                      (*once)();
                                  };
    DoOn(device, "cuLaunchHostFunc", stream, run, static_cast<void *>(kept));
}

void Synchronize(c10::DeviceIndex device)
{
    DoOn(device, "cuStreamSynchronize", StreamNow(device));
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
    c10::DeviceType type() const override
    {
        return kType;
    }
    c10::Device exchangeDevice(c10::Device device) const override
    {
        const c10::Device before = getDevice();
        setDevice(device);
        return before;
    }
    c10::Device getDevice() const override
    {
        return {kType, device_now};
    }
    void setDevice(c10::Device device) const override
    {
        uncheckedSetDevice(device);
    }
    void uncheckedSetDevice(c10::Device device) const noexcept override
    {
        device_now = IndexOf(device);
    }
    c10::DeviceIndex deviceCount() const noexcept override
    {
        return kDevices;
    }
    c10::Stream getStream(c10::Device device) const override
    {
        (void)PoolOf(IndexOf(device));
        return StreamOf(IndexOf(device), StreamNow(IndexOf(device)));
    }
    c10::Stream getDefaultStream(c10::Device device) const override
    {
        return StreamOf(IndexOf(device), nullptr);
    }
    c10::Stream getNewStream(c10::Device device, int) const override
    {
        return StreamOf(IndexOf(device), NewStream(IndexOf(device)));
    }
    c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override
    {
        static std::atomic<unsigned> next;
        return StreamOf(IndexOf(device), PoolOf(IndexOf(device))[next++ % kPool]);
    }
    c10::Stream exchangeStream(c10::Stream stream) const override
    {
        const c10::Stream before = getStream(stream.device());
        StreamNow(stream.device_index()) = HandleOf(stream);
        return before;
    }
    void *getStreamNativeHandle(const c10::Stream stream) const override
    {
        return HandleOf(stream);
    }
    bool isStreamCapturing(const c10::Stream &stream) const override
    {
        return IsCapturing(stream.device_index(), HandleOf(stream));
    }
    bool queryStream(const c10::Stream &stream) const override
    {
        return CallOn(stream.device_index(), "cuStreamQuery", HandleOf(stream)) == 0;
    }
    void synchronizeDevice(const c10::DeviceIndex device) const override
    {
        DoOn(device, "cuStreamSynchronize", StreamNow(device));
    }
    void synchronizeStream(const c10::Stream &stream) const override
    {
        DoOn(stream.device_index(), "cuStreamSynchronize", HandleOf(stream));
    }

    void record(void **event, const c10::Stream &stream, const c10::DeviceIndex,
                const c10::EventFlag) const override
    {
        if (*event == nullptr) {
            events_made++;
            DoOn(stream.device_index(), "cuEventCreate", event, 2u);
        }
        DoOn(stream.device_index(), "cuEventRecord", *event, HandleOf(stream));
    }
    void block(void *event, const c10::Stream &stream) const override
    {
        if (event != nullptr) {
            DoOn(stream.device_index(), "cuStreamWaitEvent", HandleOf(stream), event, 0u);
        }
    }
    bool queryEvent(void *event) const override
    {
        const int error = event != nullptr ? CallOn(0, "cuEventQuery", event) : 0;
        TORCH_CHECK(error == 0 || error == kNotReady, "cuEventQuery failed: ", error);
        return error == 0;
    }
    void synchronizeEvent(void *event) const override
    {
        while (!queryEvent(event)) {
            std::this_thread::yield();
        }
    }
    void destroyEvent(void *event, const c10::DeviceIndex) const noexcept override
    {
        if (event != nullptr) {
            CallOn(0, "cuEventDestroy_v2", event);
        }
    }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

// That there is such a device at all, which torch asks a class of this name.
struct CUDAHooks final : at::CUDAHooksInterface {
    explicit CUDAHooks(at::CUDAHooksArgs) {}
    void init() const override {}
    bool hasCUDA() const override
    {
        return true;
    }
    bool isBuilt() const override
    {
        return true;
    }
    bool isAvailable() const override
    {
        return true;
    }
    bool hasPrimaryContext(c10::DeviceIndex) const override
    {
        return true;
    }
    c10::DeviceIndex deviceCount() const override
    {
        return kDevices;
    }
    int getNumGPUs() const override
    {
        return kDevices;
    }
    c10::DeviceIndex current_device() const override
    {
        return device_now;
    }
    c10::DeviceIndex getCurrentDevice() const override
    {
        return device_now;
    }
    void setCurrentDevice(c10::DeviceIndex device) const override
    {
        device_now = device;
    }
    c10::Allocator *getPinnedMemoryAllocator() const override
    {
        return c10::GetDefaultCPUAllocator();
    }
};
using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
REGISTER_CUDA_HOOKS(CUDAHooks)

struct Timer final : c10d::Timer { // DistributedDataParallel measures with events
    explicit Timer(c10::Device) {}
    std::optional<int64_t> measureDifference(Event, Event) override
    {
        return std::nullopt;
    }
};
using c10d::RegistererTimerRegistry;
using c10d::TimerRegistry;
C10_REGISTER_TYPED_CLASS(TimerRegistry, kType, Timer)

// ---- memory ----

struct Block {
    unsigned long long at;
    size_t bytes;
    c10::DeviceIndex device;
    Handle stream; // that it was allocated in
    bool captured; // a graph may use it for ever
};

std::mutex blocks_lock;
std::multimap<std::tuple<c10::DeviceIndex, Handle, size_t>, Block *> free_blocks;

void Free(void *context)
{
    auto *block = static_cast<Block *>(context);
    if (block->captured || IsCapturing(block->device, block->stream)) {
        return;
    }
    auto *at = reinterpret_cast<void *>(block->at);
    Queue(block->device, block->stream,
          [at, bytes = block->bytes] { std::memset(at, 0xa5, bytes); });
    const std::lock_guard<std::mutex> hold(blocks_lock);
    free_blocks.emplace(std::make_tuple(block->device, block->stream, block->bytes), block);
}

struct Memory final : c10::Allocator {
    c10::DataPtr allocate(size_t bytes) override
    {
        const c10::Device device(kType, device_now);
        const Handle stream = StreamNow(device_now);
        const size_t whole = (bytes + 511) / 512 * 512;
        if (whole == 0) {
            return {nullptr, device};
        }
        Block *block = Reuse(device_now, stream, whole);
        if (block == nullptr) {
            block = new Block{0, whole, device_now, stream, false};
            int relaxed = 2; // as torch's own allocator
            Call("cuThreadExchangeStreamCaptureMode", &relaxed);
            DoOn(device_now, "cuMemAlloc_v2", &block->at, whole);
            Call("cuThreadExchangeStreamCaptureMode", &relaxed);
        }
        block->captured = block->captured || IsCapturing(device_now, stream);
        return {reinterpret_cast<void *>(block->at), block, Free, device};
    }
    c10::DeleterFnPtr raw_deleter() const override
    {
        return nullptr;
    }
    void copy_data(void *to, const void *from, size_t bytes) const override
    {
        std::memcpy(to, from, bytes);
    }
    static Block *Reuse(c10::DeviceIndex device, Handle stream, size_t bytes)
    {
        const std::lock_guard<std::mutex> hold(blocks_lock);
        const auto found = free_blocks.find(std::make_tuple(device, stream, bytes));
        if (found == free_blocks.end()) {
            return nullptr;
        }
        Block *block = found->second;
        free_blocks.erase(found);
        return block;
    }
} memory;

// ---- operations ----

at::Tensor Empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format)
{
    const c10::DeviceGuard guard(device.value_or(at::Device(kType)));
    return at::detail::empty_generic(size, &memory, c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                     c10::dtype_or_default(dtype), format);
}

at::Tensor EmptyStrided(at::IntArrayRef size, at::IntArrayRef stride,
                        std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                        std::optional<at::Device> device, std::optional<bool>)
{
    const c10::DeviceGuard guard(device.value_or(at::Device(kType)));
    return at::detail::empty_strided_generic(size, stride, &memory,
                                             c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                             c10::dtype_or_default(dtype));
}

// The same elements as a tensor of the CPU.
at::Tensor OnCpu(const at::Tensor &t)
{
    return t.is_cpu() ? t
                      : at::from_blob(t.mutable_data_ptr(), t.sizes(), t.strides(),
                                      at::TensorOptions().dtype(t.scalar_type()));
}

at::Tensor &Copy(at::Tensor &self, const at::Tensor &source, bool non_blocking)
{
    const c10::DeviceIndex device = self.is_cpu() ? source.device().index() : self.device().index();
    const at::Tensor to = OnCpu(self), from = OnCpu(source.expand_as(self));
    Queue(device, StreamNow(device), [to, from] {
        const c10::NoGradGuard quiet;
        to.copy_(from);
    });
    if (!non_blocking && (self.is_cpu() || source.is_cpu())) {
        Synchronize(device);
    }
    return self;
}

at::Tensor CopyFromAndResize(const at::Tensor &self, const at::Tensor &to)
{
    at::Tensor resized = to;
    resized.resize_(self.sizes());
    return resized.copy_(self);
}

void ByCpu(const c10::OperatorHandle &op, torch::jit::Stack *stack)
{
    at::native::cpu_fallback(op, stack);
}

const at::Tensor &Resize(const at::Tensor &self, at::IntArrayRef size,
                         std::optional<at::MemoryFormat> format)
{
    const c10::DeviceGuard guard(self.device());
    return at::native::resize_(self, size, format);
}

TORCH_LIBRARY_IMPL(aten, CPU, m)
{
    m.impl("_copy_from_and_resize", &CopyFromAndResize); // which the way by the CPU takes
}

TORCH_LIBRARY_IMPL(_, CUDA, m)
{
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&ByCpu>());
}

TORCH_LIBRARY_IMPL(aten, CUDA, m)
{
    m.impl("empty.memory_format", &Empty);
    m.impl("empty_strided", &EmptyStrided);
    m.impl("copy_", &Copy);
    m.impl("_copy_from_and_resize", &CopyFromAndResize);
    m.impl("as_strided", &at::native::as_strided_tensorimpl);
    m.impl("view",
           static_cast<at::Tensor (*)(const at::Tensor &, at::IntArrayRef)>(&at::native::view));
    m.impl("view_as_real", &at::native::view_as_real);
    m.impl("view_as_complex", &at::native::view_as_complex);
    m.impl("_reshape_alias", &at::native::_reshape_alias);
    m.impl("resize_", &Resize);
    m.impl("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);
}

// What storage.resize_() is on a GPU: FSDP frees its buffers so. What was there is lost.
void ResizeStorage(const py::object &object, size_t bytes)
{
    const c10::Storage &storage = THPStorage_Unpack(object.ptr());
    const c10::DeviceGuard guard(storage.device());
    if (bytes != storage.nbytes()) {
        storage.set_data_ptr_noswap(memory.allocate(bytes));
        storage.set_nbytes(bytes);
    }
}

// ---- for tests ----

intptr_t CurrentStream()
{
    return reinterpret_cast<intptr_t>(StreamNow(device_now));
}

void SetStream(intptr_t stream)
{
    StreamNow(device_now) = reinterpret_cast<Handle>(stream);
}

intptr_t MakeStream()
{
    return reinterpret_cast<intptr_t>(NewStream(device_now));
}

// The current stream goes no further until Release().
std::atomic<int> held, released;

void Hold()
{
    Queue(device_now, StreamNow(device_now), [ticket = ++held] {
        while (released < ticket) {
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
    });
}

void Release()
{
    released = held.load();
}

bool IsIdle()
{
    return CallOn(device_now, "cuStreamQuery", StreamNow(device_now)) == 0;
}

void BeginCapture()
{
    DoOn(device_now, "cuStreamBeginCapture_v2", StreamNow(device_now), 0 /* global */);
}

intptr_t EndCapture()
{
    Handle graph = nullptr, executable = nullptr;
    DoOn(device_now, "cuStreamEndCapture", StreamNow(device_now), &graph);
    DoOn(device_now, "cuGraphInstantiateWithFlags", &executable, graph, 0ull);
    DoOn(device_now, "cuGraphDestroy", graph);
    return reinterpret_cast<intptr_t>(executable);
}

void Launch(intptr_t graph)
{
    DoOn(device_now, "cuGraphLaunch", reinterpret_cast<Handle>(graph), StreamNow(device_now));
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
    const py::call_guard<py::gil_scoped_release> released;
    c10::SetAllocator(kType, &memory, 1);
    m.def("set_device", [](c10::DeviceIndex device) { device_now = device; });
    m.def("current_stream", &CurrentStream);
    m.def("set_stream", &SetStream);
    m.def("make_stream", &MakeStream);
    m.def("resize_storage", &ResizeStorage);
    m.def("hold", &Hold);
    m.def("release", &Release);
    m.def("is_idle", &IsIdle);
    m.def("events_made", [] { return events_made.load(); });
    m.def(
        "synchronize", [] { Synchronize(device_now); }, released);
    m.def("begin_capture", &BeginCapture);
    m.def("end_capture", &EndCapture);
    m.def("launch", &Launch);
}
