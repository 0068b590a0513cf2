// SPDX-License-Identifier: Apache-2.0
/* Ranks as threads of the test, and what they complain about. */
#ifndef KOLO_TESTS_COLLECTIVES_TEAM_H
#define KOLO_TESTS_COLLECTIVES_TEAM_H

#include "collectives_case.h"

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace collectives
{

/* KOLO_TEST_SEED, else the time; printed once, so that a failure can be repeated. */
uint64_t TestSeed();
/* KOLO_TEST_SHORT=1 leaves out what is too long for it. */
std::vector<int> RankCounts();

/* Complaints of several threads; the first few are kept. */
class Report
{
  public:
    void Add(const std::string &complaint); /* "" is none */
    /* "" when there were none. */
    std::string Text() const;

  private:
    mutable std::mutex lock_;
    std::vector<std::string> lines_;
    size_t count_ = 0;
};

/* A communicator of n threads. */
class Team
{
  public:
    explicit Team(int n, const std::string &algo = "", int deterministic = 0,
                  int timeout_ms = 20000);
    ~Team();
    Team(const Team &) = delete;
    Team &operator=(const Team &) = delete;
    /* Run `body` on every rank's thread and wait for all. */
    void Run(const std::function<void(kolo_comm *, int)> &body);
    const std::string &why() const
    {
        return why_;
    } /* "" when it was made */
    kolo_comm *comm(int rank) const
    {
        return comms_[static_cast<size_t>(rank)];
    }
    /* The test destroys this rank's communicator itself. */
    void Forget(int rank)
    {
        comms_[static_cast<size_t>(rank)] = nullptr;
    }
    int size() const
    {
        return static_cast<int>(comms_.size());
    }

  private:
    std::vector<kolo_comm *> comms_;
    std::string why_;
};

/* Run the cases on n threads, one after the other without a pause between. Returns complaints. */
std::string PlayAll(Team *team, const std::vector<Case> &cases, Memory memory = Memory::kPrivate,
                    size_t offset_elems = 0);

} // namespace collectives

#endif
