// SPDX-License-Identifier: Apache-2.0
/* The threads on which calls with a listener end (a future, a profiler, a device).
 *
 * kolo reports an end on its progress thread. That thread must not run a user's callback, which may
 * take Python's lock, start other calls, and even wait for them. So ends are queued for threads of
 * their own:
 * - Ends run one by one, in the order of their arrival. So calls that callbacks start have the same
 *   order on all ranks.
 * - A call that a callback starts ends on the next lane, because the callback may wait for it.
 * - If a callback blocks for another reason, another thread continues its lane after a while. */
#pragma once

#include <functional>

namespace kolo_torch
{

/* The lane on which the calls of this thread end. */
int completionLane();
/* Run `job` soon, on a thread of a lane. Never blocks. */
void complete(int lane, std::function<void()> job);

} // namespace kolo_torch
