// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include "util/util.h"

#include <atomic>
#include <cstdio>
#include <dirent.h>
#include <fstream>
#include <sched.h>
#include <string>
#include <thread>
#include <unistd.h>

namespace
{

constexpr double kDeadlineUs = 20e6;

void Log(const char *text)
{
    (void)text;
}

kolo_status Fail(kolo_status status, const char *text)
{
    return kolo_fail(status, "%s", text);
}

void Said(void *owner, int rank, uint64_t word)
{
    static_cast<Rank *>(owner)->notified.emplace_back(rank, word);
}

void Lost(void *owner, int rank, const char *, int)
{
    static_cast<Rank *>(owner)->lost.push_back(rank);
}

uint64_t NextComm()
{
    static std::atomic<uint64_t> last{0};
    return ((uint64_t)getpid() << 20) + ++last;
}

int CountEntries(const char *folder)
{
    int count = 0;
    DIR *dir = opendir(folder);
    for (const dirent *entry = readdir(dir); entry != nullptr; entry = readdir(dir)) {
        count += entry->d_name[0] != '.' ? 1 : 0;
    }
    closedir(dir);
    return count;
}

} // namespace

bool AllDone(const std::vector<kolo_req *> &reqs)
{
    for (const kolo_req *req : reqs) {
        if (req->status == KOLO_INPROGRESS) {
            return false;
        }
    }
    return true;
}

bool WaitFor(const std::function<bool()> &done)
{
    const double deadline = kolo_now_us() + kDeadlineUs;
    while (!done()) {
        if (kolo_now_us() > deadline) {
            return false;
        }
        sched_yield();
    }
    return true;
}

kolo_status World::Open(const kolo_transport *transport, Rank &rank, int index, int nranks,
                        uint64_t comm)
{
    rank.self = {sizeof(kolo_peer), index, (int)getpid(), 1, (uint64_t)getpid(), nullptr, 0};
    rank.env.size = sizeof(struct kolo_env);
    rank.env.rank = index;
    rank.env.nranks = nranks;
    rank.env.comm = comm;
    rank.env.self = &rank.self;
    rank.env.log = Log;
    rank.env.fail = Fail;
    rank.env.aborted = &rank.aborted;
    rank.env.owner = &rank;
    rank.env.timeout_ms = timeout_ms;
    rank.env.on_notify = Said;
    rank.env.on_peer_lost = Lost;
    const kolo_status status = transport->open(&rank.env, &rank.endpoint);
    if (status != KOLO_OK) {
        return status;
    }
    size_t len = 256;
    rank.address.resize(len);
    const kolo_status named = transport->address(rank.endpoint, rank.address.data(), &len);
    rank.address.resize(len);
    rank.self.address = rank.address.data();
    rank.self.address_len = len;
    return named;
}

kolo_status World::Connect(const kolo_transport *transport, Rank &rank, bool to_itself)
{
    rank.links.assign(rank.peers.size(), nullptr);
    for (const kolo_peer &peer : rank.peers) {
        kolo_reach reach{};
        reach.size = sizeof reach;
        kolo_status status = transport->probe(rank.endpoint, &peer, &reach);
        if (status == KOLO_OK && (peer.rank != rank.self.rank || to_itself)) {
            status = transport->connect(rank.endpoint, &peer, &rank.links[(size_t)peer.rank]);
        }
        if (status != KOLO_OK) {
            return status;
        }
    }
    return KOLO_OK;
}

void World::Disconnect(const kolo_transport *transport, Rank &rank)
{
    for (kolo_link *link : rank.links) {
        if (link != nullptr) {
            transport->disconnect(link);
        }
    }
    rank.links.clear();
    if (rank.endpoint != nullptr) {
        transport->close(rank.endpoint);
        rank.endpoint = nullptr;
    }
}

World::World(const kolo_transport *transport, int nranks) : transport_(transport)
{
    const uint64_t comm = NextComm();
    std::vector<std::thread> threads;
    std::atomic<int> failed{0};
    for (int i = 0; i < nranks; i++) {
        ranks_.push_back(std::make_unique<Rank>());
        failed += Open(transport, *ranks_.back(), i, nranks, comm) != KOLO_OK;
    }
    for (auto &rank : ranks_) {
        for (auto &peer : ranks_) {
            rank->peers.push_back(peer->self);
        }
    }
    for (auto &rank : ranks_) {
        threads.emplace_back([&] { failed += Connect(transport, *rank, true) != KOLO_OK; });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    if (failed != 0) {
        std::fprintf(stderr, "%s: %d ranks did not come up: %s\n", transport->base.name,
                     failed.load(), kolo_error_text());
        std::abort();
    }
}

World::~World()
{
    Close();
}

void World::Close()
{
    for (int rank = 0; rank < Size(); rank++) {
        CloseRank(rank);
    }
}

void World::CloseRank(int rank)
{
    Disconnect(transport_, At(rank));
}

kolo_status World::Send(int from, int to, uint32_t channel, const kolo_bytes &src, kolo_req &req)
{
    req = kolo_req{};
    req.channel = channel;
    return transport_->send(Link(from, to), &src, &req);
}

kolo_status World::Recv(int at, int from, uint32_t channel, const kolo_bytes &dst, kolo_req &req,
                        bool exclusive)
{
    req = kolo_req{};
    req.channel = channel;
    req.exclusive = exclusive;
    return transport_->recv(Link(at, from), &dst, &req);
}

kolo_status World::SendAs(int from, int to, const kolo_bytes &src, kolo_req &req)
{
    return transport_->send(Link(from, to), &src, &req);
}

kolo_status World::RecvAs(int at, int from, const kolo_bytes &dst, kolo_req &req)
{
    return transport_->recv(Link(at, from), &dst, &req);
}

bool World::Until(const std::function<bool()> &done)
{
    return WaitFor([&] {
        for (auto &rank : ranks_) {
            if (rank->endpoint != nullptr) {
                transport_->progress(rank->endpoint, 64);
            }
        }
        return done();
    });
}

bool World::Finish(const std::vector<kolo_req *> &reqs)
{
    return Until([&] { return AllDone(reqs); });
}

bool World::FinishAt(int rank, const std::vector<kolo_req *> &reqs)
{
    return WaitFor([&] {
        transport_->progress(Endpoint(rank), 64);
        return AllDone(reqs);
    });
}

void World::Settle(int rounds)
{
    for (int quiet = 0; quiet < rounds; quiet++) {
        for (auto &rank : ranks_) {
            if (rank->endpoint != nullptr && transport_->progress(rank->endpoint, 64) > 0) {
                quiet = 0;
            }
        }
        sched_yield();
    }
}

kolo_bytes Flat(void *at, size_t bytes)
{
    return {at, bytes, 1, bytes};
}

kolo_bytes Runs(void *at, size_t bytes, size_t count, size_t stride)
{
    return {at, bytes, count, stride};
}

std::vector<unsigned char> Pattern(size_t bytes, unsigned seed)
{
    std::vector<unsigned char> pattern(bytes);
    uint32_t state = seed * 2654435761u + 1;
    for (unsigned char &byte : pattern) {
        state = state * 1664525u + 1013904223u;
        byte = (unsigned char)(state >> 24);
    }
    return pattern;
}

/* pthread_join() returns a moment before the thread leaves /proc: until none has left for 20 ms, for
 * a second at most. */
static int CountThreads()
{
    int threads = CountEntries("/proc/self/task");
    for (int steady = 0, tries = 0; threads > 1 && steady < 4 && tries < 200; tries++) {
        usleep(5000);
        const int now = CountEntries("/proc/self/task");
        steady = now == threads ? steady + 1 : 0;
        threads = now;
    }
    return threads;
}

Holdings Count()
{
    Holdings holdings{CountEntries("/proc/self/fd"), 0, CountThreads()};
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        holdings.mappings += line.find("/memfd:") != std::string::npos ? 1 : 0;
    }
    return holdings;
}

/* What needs a device that is not there opens nowhere. */
static bool Opens(const kolo_transport *transport)
{
    Rank rank;
    const bool opens = World::Open(transport, rank, 0, 1, 1) == KOLO_OK;
    World::Disconnect(transport, rank);
    return opens;
}

std::vector<const kolo_transport *> HostTransports()
{
    std::vector<const kolo_transport *> found;
    for (int i = 0; i < kolo_transport_count_all(); i++) {
        if ((kolo_transport_at(i)->caps & KOLO_CAP_HOST) != 0 && Opens(kolo_transport_at(i))) {
            found.push_back(kolo_transport_at(i));
        }
    }
    return found;
}
