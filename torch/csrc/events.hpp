// SPDX-License-Identifier: Apache-2.0
/* Events of works, used again: the driver makes one only where more works than before are pending. */
#pragma once

#include <c10/core/Event.h>

namespace kolo_torch
{

/* The event of a work on the same device that has ended, or a new one. */
class UsedEvent
{
  public:
    explicit UsedEvent(const c10::Device &device);
    /* The event goes to the next work, unless keepFromOthers() was called. */
    ~UsedEvent();
    UsedEvent(const UsedEvent &) = delete;
    UsedEvent &operator=(const UsedEvent &) = delete;

    c10::Event *operator->()
    {
        return &event_;
    }
    /* To be called if a graph has recorded the event. */
    void keepFromOthers()
    {
        is_kept_ = true;
    }

  private:
    const c10::Device device_;
    c10::Event event_;
    bool is_kept_ = false;
};

} // namespace kolo_torch
