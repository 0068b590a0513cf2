// SPDX-License-Identifier: Apache-2.0
#include "events.hpp"

#include <mutex>
#include <unordered_map>
#include <vector>

namespace kolo_torch
{

namespace
{

struct Pool {
    std::mutex mutex;
    std::unordered_map<c10::Device, std::vector<c10::Event>> free;
};

/* It is never destroyed: the driver may be gone before. */
Pool &thePool()
{
    static Pool *const pool = new Pool;
    return *pool;
}

c10::Event take(const c10::Device &device)
{
    const std::lock_guard<std::mutex> lock(thePool().mutex);
    std::vector<c10::Event> &free = thePool().free[device];
    if (free.empty()) {
        return c10::Event(device.type());
    }
    c10::Event event = std::move(free.back());
    free.pop_back();
    return event;
}

} // namespace

UsedEvent::UsedEvent(const c10::Device &device) : device_(device), event_(take(device)) {}

UsedEvent::~UsedEvent()
{
    if (!is_kept_) {
        const std::lock_guard<std::mutex> lock(thePool().mutex);
        thePool().free[device_].push_back(std::move(event_));
    }
}

} // namespace kolo_torch
