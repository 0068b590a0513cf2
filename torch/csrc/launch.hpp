// SPDX-License-Identifier: Apache-2.0
/* The ranks that a launcher started (mpirun, srun), before they have a store. */
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace kolo_torch
{

constexpr size_t kCardBytes = 512;

struct Launch {
    int rank;
    std::vector<std::string> cards; /* of all ranks */
};

/* Give every rank's card to all ranks. card(rank) makes the card of this rank, of less than
 * kCardBytes. A rank that does not come within `timeout` is an error. Errors: as check(). */
Launch meetAtLaunch(const std::function<std::string(int rank)> &card,
                    std::chrono::milliseconds timeout);

} // namespace kolo_torch
