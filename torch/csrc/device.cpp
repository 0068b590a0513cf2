// SPDX-License-Identifier: Apache-2.0
/* CUDA's stream handle, capture state and capture mode, asked of the driver by name at run time. */
#include "device.hpp"

#include <c10/core/StreamGuard.h>
#include <cstdint>
#include <dlfcn.h>

namespace kolo_torch
{

namespace
{

/* A function of a loaded library; NULL: the library is not loaded, or has no such function. */
template <typename Function> Function *loaded(const char *library, const char *name)
{
    void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    return handle != nullptr ? reinterpret_cast<Function *>(dlsym(handle, name)) : nullptr;
}

template <typename Stream>
auto handleOf(const Stream &stream, int /*preferred*/) -> decltype(stream.native_handle())
{
    return stream.native_handle();
}

template <typename Stream> void *handleOf(const Stream &stream, long)
{
    static auto *const current =
        loaded<int32_t(int32_t, void **)>("libtorch_cuda.so", "aoti_torch_get_current_cuda_stream");
    const c10::StreamGuard guard(stream);
    void *handle = nullptr;
    TORCH_CHECK(current != nullptr && current(stream.device_index(), &handle) == 0,
                "kolo: this torch does not tell the stream of ", stream.device());
    return handle;
}

template <typename Stream>
auto capturing(const Stream &stream, int /*preferred*/) -> decltype(stream.is_capturing())
{
    return stream.is_capturing();
}

template <typename Stream> bool capturing(const Stream &stream, long)
{
    constexpr int kActive = 1; /* CU_STREAM_CAPTURE_STATUS_ACTIVE */
    static auto *const ask = loaded<int(void *, int *)>("libcuda.so.1", "cuStreamIsCapturing");
    int status = 0;
    return ask != nullptr && ask(nativeStream(stream), &status) == 0 && status == kActive;
}

/* Exchange the thread's mode of captures. Without CUDA there are no captures. */
void exchangeMode(int *mode)
{
    static auto *const exchange =
        loaded<int(int *)>("libcuda.so.1", "cuThreadExchangeStreamCaptureMode");
    if (exchange != nullptr) {
        exchange(mode);
    }
}

constexpr int kRelaxed = 2; /* CU_STREAM_CAPTURE_MODE_RELAXED */

} // namespace

BesideCaptures::BesideCaptures() : mode_(kRelaxed)
{
    exchangeMode(&mode_);
}

BesideCaptures::~BesideCaptures()
{
    exchangeMode(&mode_);
}

void *nativeStream(const c10::Stream &stream)
{
    return handleOf(stream, 0);
}

bool isCapturing(const c10::Stream &stream)
{
    return capturing(stream, 0);
}

} // namespace kolo_torch
