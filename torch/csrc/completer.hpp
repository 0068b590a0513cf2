// SPDX-License-Identifier: Apache-2.0
/* Where calls end whose end somebody wants to hear of (a future, a profiler, a device).
 *
 * kolo tells of an end on the thread that makes its progress, which must not run what a user has
 * hung on a future: that may take Python's lock, or even wait for another call. So ends are queued
 * for a thread of this pool. It has one thread until a callback blocks and more ends come: then a
 * second, and so on. */
#pragma once

#include <functional>

namespace kolo_torch
{

/* Run `job` soon, on another thread. Never blocks. Jobs start in the order they came. */
void complete(std::function<void()> job);

} // namespace kolo_torch
