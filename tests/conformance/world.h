// SPDX-License-Identifier: Apache-2.0
/* A few ranks joined by one transport, without a communicator: what the conformance suite drives.
 *
 * Ranks live in one process. The tests drive all of them from one thread, so that what they see
 * does not depend on scheduling; connecting uses a thread a rank, because connect may wait for the
 * other side. Every wait has a deadline. */
#ifndef KOLO_TESTS_WORLD_H
#define KOLO_TESTS_WORLD_H

#include "plugin/catalogue.h"

#include <kolo/plugin.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

/* One rank's end. Not copied or moved: transports keep pointers to env and self. */
struct Rank {
    kolo_peer self{};
    struct kolo_env env {
    };
    int aborted = 0;
    std::vector<std::pair<int, uint64_t>> notified; /* by whom, and the word */
    std::vector<int> lost;                          /* peers, as the transport told */
    std::vector<unsigned char> address;
    kolo_endpoint *endpoint = nullptr;
    std::vector<kolo_peer> peers;
    std::vector<kolo_link *> links; /* by peer rank; to itself too */
};

/* A message in flight, with its bytes. */
struct Message {
    kolo_req req{};
    kolo_bytes data{};
};

class World
{
  public:
    /* Of the environments made from here on: the longest wait without progress; 0: not known. */
    static inline int timeout_ms = 0;
    World(const kolo_transport *transport, int nranks);
    ~World();
    World(const World &) = delete;
    World &operator=(const World &) = delete;

    /* Fill a rank's env, open its device, take its address. */
    static kolo_status Open(const kolo_transport *transport, Rank &rank, int index, int nranks,
                            uint64_t comm);
    static kolo_status Connect(const kolo_transport *transport, Rank &rank, bool to_itself);
    static void Disconnect(const kolo_transport *transport, Rank &rank);

    kolo_link *Link(int from, int to)
    {
        return ranks_[(size_t)from]->links[(size_t)to];
    }
    kolo_endpoint *Endpoint(int rank)
    {
        return ranks_[(size_t)rank]->endpoint;
    }
    Rank &At(int rank)
    {
        return *ranks_[(size_t)rank];
    }
    const kolo_transport *Transport() const
    {
        return transport_;
    }
    int Size() const
    {
        return (int)ranks_.size();
    }

    kolo_status Send(int from, int to, uint32_t channel, const kolo_bytes &src, kolo_req &req);
    kolo_status Recv(int at, int from, uint32_t channel, const kolo_bytes &dst, kolo_req &req,
                     bool exclusive = true);
    /* The same on channel 0 with a request that has its call already. */
    kolo_status SendAs(int from, int to, const kolo_bytes &src, kolo_req &req);
    kolo_status RecvAs(int at, int from, const kolo_bytes &dst, kolo_req &req);
    /* Let every rank advance until `done`; false if that takes longer than 20 s. */
    bool Until(const std::function<bool()> &done);
    /* Until all of these have a status. */
    bool Finish(const std::vector<kolo_req *> &reqs);
    /* The same where only `rank` advances: for a thread of its own. */
    bool FinishAt(int rank, const std::vector<kolo_req *> &reqs);
    /* Let every rank advance until nothing moves for `rounds` rounds. */
    void Settle(int rounds = 200);
    /* End everything now, as the destructor would. */
    void Close();
    /* End one rank's links and device. */
    void CloseRank(int rank);

  private:
    const kolo_transport *transport_;
    std::vector<std::unique_ptr<Rank>> ranks_;
};

/* Wait with sched_yield until `done`; false after 20 s. */
bool WaitFor(const std::function<bool()> &done);

bool AllDone(const std::vector<kolo_req *> &reqs);

/* Contiguous bytes, and bytes in runs. */
kolo_bytes Flat(void *at, size_t bytes);
kolo_bytes Runs(void *at, size_t bytes, size_t count, size_t stride);

/* Bytes that differ by position and by `seed`. */
std::vector<unsigned char> Pattern(size_t bytes, unsigned seed);

/* What this process holds: to see that closing leaves nothing. */
struct Holdings {
    int descriptors, mappings, threads;
};
Holdings Count();

/* The transports that join ranks of one process or host; named for parameterised tests. */
std::vector<const kolo_transport *> HostTransports();

#endif
