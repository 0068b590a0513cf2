// SPDX-License-Identifier: Apache-2.0
/* A communicator that lives for one all-gather: kolo finds the other ranks by the launcher's
 * environment. */
#include "launch.hpp"

#include "comm.hpp"

#include <c10/util/Exception.h>
#include <memory>

namespace kolo_torch
{

Launch meetAtLaunch(const std::function<std::string(int rank)> &card,
                    std::chrono::milliseconds timeout)
{
    const char *const where = "init_process_group";
    kolo_comm *made = nullptr;
    kolo_config config = KOLO_CONFIG_INIT;
    config.timeout_ms = milliseconds(timeout);
    check(kolo_comm_create_env(&config, &made), where);
    const std::unique_ptr<kolo_comm, void (*)(kolo_comm *)> comm(
        made, [](kolo_comm *c) { kolo_comm_destroy(c); });
    const int rank = kolo_comm_rank(made), size = kolo_comm_size(made);
    std::string mine = card(rank);
    TORCH_CHECK(mine.size() < kCardBytes, "kolo: ", where, ": a card of ", mine.size(),
                " bytes does not fit");
    mine.resize(kCardBytes);
    std::string all(kCardBytes * static_cast<size_t>(size), '\0');
    check(kolo_all_gather(mine.data(), all.data(), kCardBytes, KOLO_UINT8, made, nullptr), where);
    Launch launch{rank, {}};
    for (size_t r = 0; r < static_cast<size_t>(size); r++) {
        launch.cards.emplace_back(all.c_str() + r * kCardBytes);
    }
    return launch;
}

} // namespace kolo_torch
