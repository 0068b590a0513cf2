// SPDX-License-Identifier: Apache-2.0
// What programs of `kolo run` have that test ranks as processes on GPUs: TAP from rank 0; every
// rank's complaints go to its standard error and into the result.
#ifndef KOLO_TESTS_JOB_H
#define KOLO_TESTS_JOB_H

#include "calls.h"

#include <chrono>
#include <string>

namespace job
{

using namespace calls;

inline int tests, failures;
inline kolo_comm *world; // on host memory: counts complaints

struct Job {
    int rank, ranks;
    kolo_comm *comm;
    void *stream;
    int complaints;
};

inline void Expect(Job &job, bool holds, const std::string &what)
{
    if (!holds) {
        job.complaints++;
        fprintf(stderr, "rank %d: %s: %s\n", job.rank, what.c_str(), kolo_error_text());
    }
}

// Whether rank r is on GPU r, not on the one that all share.
inline bool Spreads()
{
    return getenv("KOLO_TEST_GPUS") != nullptr;
}

inline int Gpu(int rank)
{
    return Spreads() ? rank : 0;
}

inline double Seconds()
{
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
}

inline kolo_comm *Join(int device)
{
    kolo_config config = KOLO_CONFIG_INIT;
    kolo_comm *comm = nullptr;
    config.device = device;
    config.timeout_ms = 60000;
    if (kolo_comm_create_env(&config, &comm) != KOLO_OK) {
        fprintf(stderr, "no communicator: %s\n", kolo_error_text());
        exit(2);
    }
    return comm;
}

inline void Say(Job &job, const char *name)
{
    int all = 0;
    if (kolo_all_reduce(&job.complaints, &all, 1, KOLO_INT32, KOLO_SUM, world, nullptr) !=
        KOLO_OK) {
        fprintf(stderr, "no result: %s\n", kolo_error_text());
        exit(2);
    }
    tests++;
    failures += all != 0;
    job.complaints = 0;
    if (job.rank == 0) {
        printf("%s %d - %s\n", all == 0 ? "ok" : "not ok", tests, name);
        fflush(stdout);
    }
}

inline void Sync(const Job &job)
{
    const Context context(Gpu(job.rank));
    Do("cuStreamSynchronize", job.stream);
}

// All ranks' inputs, which each rank knows.
inline std::vector<Bytes> Inputs(const Call &c, int ranks, uint64_t seed)
{
    const bool one = c.coll == kAllReduce || c.coll == kReduce || c.coll == kBroadcast ||
                     c.coll == kGather || c.coll == kAllGather;
    std::vector<Bytes> in;
    for (int q = 0; q < ranks; q++) {
        in.push_back(Fill(c.type, c.count * static_cast<size_t>(one ? 1 : ranks),
                          seed + static_cast<uint64_t>(q)));
    }
    return in;
}

} // namespace job

#endif
