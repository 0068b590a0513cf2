// SPDX-License-Identifier: Apache-2.0
/* Ranks as threads; see collectives_team.h. */
#include "collectives_team.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace collectives
{

static uint64_t MakeSeed()
{
    const char *given = std::getenv("KOLO_TEST_SEED");
    const uint64_t seed =
        given != nullptr
            ? std::strtoull(given, nullptr, 10)
            : static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count() /
                                    1000 % 1000000);
    std::printf("KOLO_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
    return seed;
}

uint64_t TestSeed()
{
    static const uint64_t seed = MakeSeed();
    return seed;
}

std::vector<int> RankCounts()
{
    return TestEffort() == Effort::kShort ? std::vector<int>{1, 2, 3, 5}
                                          : std::vector<int>{1, 2, 3, 4, 5, 8};
}

/* ---- complaints ---- */

void Report::Add(const std::string &complaint)
{
    const std::lock_guard<std::mutex> guard(lock_);
    if (!complaint.empty() && ++count_ <= 12) {
        lines_.push_back(complaint);
    }
}

std::string Report::Text() const
{
    const std::lock_guard<std::mutex> guard(lock_);
    std::string text;
    for (const std::string &line : lines_) {
        text += line + "\n";
    }
    if (count_ > lines_.size()) {
        text += "and " + std::to_string(count_ - lines_.size()) + " more\n";
    }
    return text;
}

/* ---- teams ---- */

Team::Team(int n, const std::string &algo, int deterministic, int timeout_ms)
    : comms_(static_cast<size_t>(n))
{
    kolo_config config = KOLO_CONFIG_INIT;
    config.algo = algo.c_str();
    config.deterministic = deterministic;
    config.timeout_ms = timeout_ms;
    const kolo_status st = kolo_comm_create_local(n, &config, comms_.data());
    if (st != KOLO_OK) {
        why_ = std::string(kolo_status_name(st)) + ": " + kolo_error_text();
        comms_.clear();
    }
}

/* destroy waits until the others have taken what was sent, so every rank has its own thread. */
Team::~Team()
{
    Run([](kolo_comm *comm, int) { kolo_comm_destroy(comm); });
}

void Team::Run(const std::function<void(kolo_comm *, int)> &body)
{
    std::vector<std::thread> threads;
    for (size_t r = 0; r < comms_.size(); r++) {
        threads.emplace_back(body, comms_[r], static_cast<int>(r));
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
}

std::string PlayAll(Team *team, const std::vector<Case> &cases, Memory memory, size_t offset_elems)
{
    Report report;
    if (!team->why().empty()) {
        return team->why();
    }
    team->Run([&](kolo_comm *comm, int) {
        Player player(comm, memory, offset_elems);
        for (size_t i = 0; i < cases.size() && !player.Ended(); i++) {
            const std::string wrong = player.Play(cases[i]);
            if (!wrong.empty()) {
                report.Add(wrong);
            }
        }
    });
    return report.Text();
}

} // namespace collectives
