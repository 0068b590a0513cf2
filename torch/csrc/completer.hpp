// SPDX-License-Identifier: Apache-2.0
/* Where calls end whose end somebody wants to hear of (a future, a profiler, a device).
 *
 * kolo tells of an end on the thread that makes its progress, which must not run what a user has
 * hung on a future: that may take Python's lock, start other calls, and even wait for them. So ends
 * are queued for threads of their own: one by one, in the order they came, so that calls which
 * callbacks start come in the same order on all ranks. What a callback itself started ends on the
 * next lane: the callback may wait for it. Where one blocks for other reasons, another thread goes
 * on with its lane after a while. */
#pragma once

#include <functional>

namespace kolo_torch
{

/* The lane on which calls end that this thread starts. */
int completionLane();
/* Run `job` soon, on a thread of a lane. Never blocks. */
void complete(int lane, std::function<void()> job);

} // namespace kolo_torch
