// SPDX-License-Identifier: Apache-2.0
// covers: src/gpu/path.c src/gpu/context src/gpu/fused src/gpu/proxy src/gpu/memory.c
// Communicators of a GPU through the public interface, over the driver of fake_cuda.cc: ranks as
// threads with streams of their own, or all calls in one thread's group. Where there is a GPU all
// runs on it but the suites named Fake..., which use what only that driver has.
#include "calls.h"
#include "exec/gpu/fused/fused.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <unistd.h>

namespace
{

using namespace calls;

// ---- communicators -----------------------------------------------------------------------------

struct Team {
    explicit Team(int ranks, int timeout_ms = 20000) : comm(static_cast<size_t>(ranks))
    {
        kolo_config config = KOLO_CONFIG_INIT;
        config.device = 0;
        config.timeout_ms = timeout_ms;
        status = kolo_comm_create_local(ranks, &config, comm.data());
        for (int r = 0; r < ranks; r++) {
            stream.push_back(std::make_unique<Stream>());
        }
    }
    ~Team()
    {
        for (kolo_comm *c : comm) {
            kolo_comm_destroy(c);
        }
    }
    // body(rank) in a thread for each rank.
    void Threads(const std::function<void(int)> &body)
    {
        std::vector<std::thread> threads;
        for (size_t r = 0; r < comm.size(); r++) {
            threads.emplace_back(body, static_cast<int>(r));
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        gpu::FreeLeft();
    }
    kolo_comm *Comm(int r) const
    {
        return comm[static_cast<size_t>(r)];
    }
    const Stream &At(int r) const
    {
        return *stream[static_cast<size_t>(r)];
    }
    std::vector<std::unique_ptr<Stream>> stream; // before comm: what is queued ends first
    std::vector<kolo_comm *> comm;
    kolo_status status;
};

// From its making on, the test takes less time than any time-out, on a busy machine, too.
class SoonOver
{
  public:
    ~SoonOver()
    {
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start_;
        EXPECT_LT(took.count(), 20);
    }

  private:
    const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void SyncStream(void *stream)
{
    const Context context;
    Do("cuStreamSynchronize", stream);
}

// A thread that frees memory. The driver lets no other call of the process pass until the GPU has
// done all work. So if a stream waits for a rank that never comes, an end of its communicator that
// needs the driver never comes either.
class Freer
{
  public:
    Freer()
        : memory_(Allocate()), thread_([this] {
              const Context context;
              Do("cuMemFree_v2", memory_);
          })
    {
        std::this_thread::sleep_for(std::chrono::milliseconds(100)); // now it has the lock
    }
    ~Freer()
    {
        thread_.join();
    }

  private:
    static unsigned long long Allocate()
    {
        const Context context;
        unsigned long long memory;
        Do("cuMemAlloc_v2", &memory, size_t{64});
        return memory;
    }
    unsigned long long memory_;
    std::thread thread_;
};

// ---- results -----------------------------------------------------------------------------------

TEST(DeviceCollectives, OfThreadsWithAStreamEachGiveTheReferencesBits)
{
    for (const int ranks : {1, 2, 3}) {
        Team team(ranks);
        ASSERT_EQ(KOLO_OK, team.status) << kolo_error_text();
        const std::vector<Call> calls = EveryCall(77, ranks - 1);
        std::vector<Data> data;
        for (size_t i = 0; i < calls.size(); i++) {
            data.emplace_back(calls[i], static_cast<size_t>(ranks), 1000 * i);
        }
        team.Threads([&](int r) { // all of them queued before any is looked at
            for (size_t i = 0; i < calls.size(); i++) {
                const auto at = static_cast<size_t>(r);
                EXPECT_EQ(KOLO_OK, Make(calls[i], data[i].in[at].Get(), data[i].out[at].Get(),
                                        team.Comm(r), team.At(r).Get()))
                    << kolo_error_text();
            }
            team.At(r).Sync();
            for (size_t i = 0; i < calls.size(); i++) {
                data[i].Check(calls[i], r);
            }
        });
    }
}

TEST(DeviceCollectives, OfOneThreadsGroupShareAStreamOrHaveTheirOwn)
{
    constexpr int kRanks = 4;
    Team team(kRanks);
    ASSERT_EQ(KOLO_OK, team.status) << kolo_error_text();
    for (const int way : {0, 1, 2}) { // the default stream, one stream, a stream each
        for (const Call &call : {Call{kAllReduce, KOLO_FLOAT32, KOLO_SUM, 5000, 0},
                                 Call{kAllToAll, KOLO_INT16, KOLO_SUM, 300, 0},
                                 Call{kBroadcast, KOLO_FLOAT64, KOLO_SUM, 700, 2}}) {
            const Data data(call, kRanks, 17);
            ASSERT_EQ(KOLO_OK, kolo_group_begin());
            for (int r = 0; r < kRanks; r++) {
                void *stream = way == 0 ? nullptr : team.At(way == 1 ? 0 : r).Get();
                ASSERT_EQ(KOLO_OK,
                          Make(call, data.in[static_cast<size_t>(r)].Get(),
                               data.out[static_cast<size_t>(r)].Get(), team.Comm(r), stream));
            }
            const size_t before = Launches();
            ASSERT_EQ(KOLO_OK, kolo_group_end()) << kolo_error_text();
            EXPECT_EQ(before + (gpu::IsFake() ? 1 : 0), Launches()) << "one kernel for all ranks";
            for (int r = 0; r < kRanks; r++) {
                SyncStream(way == 0 ? nullptr : team.At(r).Get());
                if (way == 1) {
                    team.At(0).Sync();
                }
                data.Check(call, r);
            }
        }
    }
}

// Each event is a write of the GPU.
TEST(FakeDeviceCollectives, RecordOneEventBehindTheKernelOfAllRanks)
{
    ASSERT_TRUE(gpu::IsFake()) << "KOLO_CUDA_PATH is not the driver of tests/device";
    constexpr int kRanks = 4;
    Team team(kRanks);
    ASSERT_EQ(KOLO_OK, team.status) << kolo_error_text();
    const Call call = {kAllReduce, KOLO_FLOAT32, KOLO_SUM, 50, 0};
    const Data data(call, kRanks, 17);
    for (const bool shared : {true, false}) {
        const size_t before = Find<size_t()>("FakeCudaRecords")();
        ASSERT_EQ(KOLO_OK, kolo_group_begin());
        for (int r = 0; r < kRanks; r++) {
            const auto at = static_cast<size_t>(r);
            ASSERT_EQ(KOLO_OK, Make(call, data.in[at].Get(), data.out[at].Get(), team.Comm(r),
                                    team.At(shared ? 0 : r).Get()));
        }
        ASSERT_EQ(KOLO_OK, kolo_group_end()) << kolo_error_text();
        const size_t streams = shared ? 0 : kRanks; // each joins the kernel's, which forks
        EXPECT_EQ(before + 1 + streams, Find<size_t()>("FakeCudaRecords")());
        for (int r = 0; r < kRanks; r++) {
            team.At(shared ? 0 : r).Sync();
            data.Check(call, r);
        }
    }
}

TEST(DeviceCollectives, TakeEffectInTheirOrderWhateverTheirStreams)
{
    constexpr int kRanks = 3;
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 2000, 0};
    Team team(kRanks);
    ASSERT_EQ(KOLO_OK, team.status);
    std::vector<std::unique_ptr<Stream>> more;
    for (int r = 0; r < kRanks; r++) {
        more.push_back(std::make_unique<Stream>());
    }
    const Data data(call, kRanks, 5);
    team.Threads([&](int r) { // in place, so that each call works on what the last one left
        void *buffer = data.in[static_cast<size_t>(r)].Get();
        for (int i = 0; i < 6; i++) {
            void *stream = i % 2 == 0 ? team.At(r).Get() : more[static_cast<size_t>(r)]->Get();
            EXPECT_EQ(KOLO_OK, Make(call, buffer, buffer, team.Comm(r), stream));
        }
        more[static_cast<size_t>(r)]->Sync();
    });
    const Bytes got = data.in[1].Take(4 * call.count);
    for (size_t i = 0; i < call.count; i++) {
        uint32_t sum = 0;
        for (const Bytes &host : data.host) {
            sum += reduce_reference::Get<uint32_t>(&host[4 * i]);
        }
        for (int again = 1; again < 6; again++) {
            sum *= kRanks;
        }
        ASSERT_EQ(sum, reduce_reference::Get<uint32_t>(&got[4 * i])) << i;
    }
}

TEST(DeviceCollectives, PremultiplyByEachRanksOwnFactor)
{
    Team team(2);
    ASSERT_EQ(KOLO_OK, team.status);
    const Call call = {kAllReduce, KOLO_FLOAT32, KOLO_SUM, 100, 0};
    const Data data(call, 2, 3);
    team.Threads([&](int r) {
        const float factor = r == 0 ? 2.0f : -0.5f;
        const Memory &in = data.in[static_cast<size_t>(r)];
        float values[100];
        for (int i = 0; i < 100; i++) {
            values[i] = static_cast<float>(i * (r + 1));
        }
        in.Put(values, sizeof values);
        kolo_op op;
        ASSERT_EQ(KOLO_OK, kolo_op_create_premulsum(&factor, KOLO_FLOAT32, team.Comm(r), &op));
        ASSERT_EQ(KOLO_OK, kolo_all_reduce(in.Get(), data.out[static_cast<size_t>(r)].Get(), 100,
                                           KOLO_FLOAT32, op, team.Comm(r), team.At(r).Get()));
        team.At(r).Sync();
        kolo_op_destroy(op, team.Comm(r));
    });
    for (int i = 0; i < 100; i++) { // 2 i - (2 i) / 2
        EXPECT_EQ(static_cast<float>(i), data.out[1].At<float>(static_cast<size_t>(i)));
    }
}

TEST(DeviceCollectives, OfDifferentBlocksWhereAllRanksKnowThem)
{
    constexpr int kRanks = 3;
    const size_t counts[kRanks] = {4, 0, 9}, displs[kRanks] = {9, 0, 0};
    Team team(kRanks);
    ASSERT_EQ(KOLO_OK, team.status);
    std::vector<Memory> in, all, out;
    for (int r = 0; r < kRanks; r++) {
        in.emplace_back(64);
        all.emplace_back(64);
        out.emplace_back(64);
        for (int i = 0; i < 13; i++) {
            const int32_t value = 100 * r + i;
            in.back().Put(&value, 4, static_cast<size_t>(i) * 4);
        }
    }
    team.Threads([&](int r) {
        const auto at = static_cast<size_t>(r);
        EXPECT_EQ(KOLO_OK, kolo_all_gatherv(in[at].Get(), all[at].Get(), counts, displs, KOLO_INT32,
                                            team.Comm(r), team.At(r).Get()));
        EXPECT_EQ(KOLO_OK, kolo_reduce_scatterv(in[at].Get(), out[at].Get(), counts, KOLO_INT32,
                                                KOLO_SUM, team.Comm(r), team.At(r).Get()));
        team.At(r).Sync();
    });
    for (int r = 0; r < kRanks; r++) {
        const Memory &got = all[static_cast<size_t>(r)];
        EXPECT_EQ(3, got.At<int32_t>(12)) << "the end of rank 0's block";
        EXPECT_EQ(208, got.At<int32_t>(8)) << "the end of rank 2's block";
    }
    EXPECT_EQ(300 + 3 * 3, out[0].At<int32_t>(3));
    EXPECT_EQ(300 + 3 * 4, out[2].At<int32_t>(0));
}

TEST(DeviceBarrier, IsPassedWhenEveryRankHasComeToIt)
{
    Team team(3);
    ASSERT_EQ(KOLO_OK, team.status);
    team.Threads([&](int r) {
        EXPECT_EQ(KOLO_OK, kolo_barrier(team.Comm(r), team.At(r).Get())) << kolo_error_text();
        team.At(r).Sync();
    });
}

// ---- blocks that not all ranks know ------------------------------------------------------------

// Block q of rank r's buffer is (r + 2 q) % 4 elements of 100 r + q, each block after a gap of one.
struct Blocks {
    Blocks(int ranks, int rank)
        : n(static_cast<size_t>(ranks)), me(static_cast<size_t>(rank)), in(Room()), out(Room())
    {
        for (size_t q = 0; q < n; q++) {
            counts.push_back(Count(me, q));
            displs.push_back(5 * q + 1);
            back_counts.push_back(Count(q, me));
            for (size_t i = 0; i < counts[q]; i++) {
                const auto value = static_cast<int32_t>(100 * me + q);
                in.Put(&value, 4, 4 * (displs[q] + i));
            }
        }
        out.Put(Bytes(Room(), 0xff).data(), Room());
    }
    static size_t Count(size_t r, size_t q)
    {
        return (r + 2 * q) % 4;
    }
    size_t Room() const
    {
        return 4 * (5 * n + 1);
    }
    // Block q of the output is `count` elements of `value`, and the gap before it is as it was.
    void Check(size_t q, size_t count, size_t value, const char *what) const
    {
        EXPECT_EQ(-1, out.At<int32_t>(displs[q] - 1)) << what << " rank " << me << " block " << q;
        for (size_t i = 0; i < 4; i++) {
            EXPECT_EQ(i < count ? static_cast<int32_t>(value) : -1, out.At<int32_t>(displs[q] + i))
                << what << " rank " << me << " block " << q;
        }
    }
    size_t n, me;
    std::vector<size_t> counts, displs, back_counts;
    Memory in, out;
};

void CheckAllToAllV(const Blocks &b)
{
    for (size_t q = 0; q < b.n; q++) {
        b.Check(q, Blocks::Count(q, b.me), 100 * q + b.me, "all_to_allv");
    }
}

kolo_status AllToAllV(const Blocks &b, kolo_comm *comm, void *stream)
{
    return kolo_all_to_allv(b.in.Get(), b.counts.data(), b.displs.data(), b.out.Get(),
                            b.back_counts.data(), b.displs.data(), KOLO_INT32, comm, stream);
}

TEST(DeviceBlocks, GoWhereTheyBelongWhoeverKnowsThem)
{
    for (const int ranks : {1, 2, 3, 5}) {
        Team team(ranks);
        ASSERT_EQ(KOLO_OK, team.status) << kolo_error_text();
        const int root = ranks / 2;
        const auto at_root = static_cast<size_t>(root);
        team.Threads([&](int r) {
            const Blocks scatter(ranks, r), gather(ranks, r), all(ranks, r);
            kolo_comm *comm = team.Comm(r);
            void *stream = team.At(r).Get();
            for (int again = 0; again < 20; again++) { // nothing is waited for between them
                EXPECT_EQ(KOLO_OK, kolo_scatterv(scatter.in.Get(), scatter.counts.data(),
                                                 scatter.displs.data(), scatter.out.Get(4),
                                                 Blocks::Count(at_root, scatter.me), KOLO_INT32,
                                                 root, comm, stream))
                    << kolo_error_text();
                EXPECT_EQ(KOLO_OK, kolo_gatherv(gather.in.Get(4 * gather.displs[at_root]),
                                                gather.counts[at_root], gather.out.Get(),
                                                gather.back_counts.data(), gather.displs.data(),
                                                KOLO_INT32, root, comm, stream))
                    << kolo_error_text();
                EXPECT_EQ(KOLO_OK, AllToAllV(all, comm, stream)) << kolo_error_text();
            }
            team.At(r).Sync();
            scatter.Check(0, Blocks::Count(at_root, scatter.me), 100 * at_root + scatter.me,
                          "scatterv");
            for (size_t q = 0; q < gather.n; q++) {
                gather.Check(q, r == root ? Blocks::Count(q, at_root) : 0, 100 * q + at_root,
                             "gatherv");
            }
            CheckAllToAllV(all);
        });
    }
}

TEST(DeviceBlocks, OfOneThreadsGroupShareAStreamOrHaveTheirOwn)
{
    constexpr int kRanks = 3;
    for (const int way : {0, 1, 2}) { // the default stream, one stream, a stream each
        Team team(kRanks);
        ASSERT_EQ(KOLO_OK, team.status) << kolo_error_text();
        std::vector<std::unique_ptr<Blocks>> all;
        ASSERT_EQ(KOLO_OK, kolo_group_begin());
        for (int r = 0; r < kRanks; r++) {
            all.push_back(std::make_unique<Blocks>(kRanks, r));
            void *stream = way == 0 ? nullptr : team.At(way == 1 ? 0 : r).Get();
            ASSERT_EQ(KOLO_OK, AllToAllV(*all.back(), team.Comm(r), stream));
        }
        ASSERT_EQ(KOLO_OK, kolo_group_end()) << kolo_error_text();
        for (int r = 0; r < kRanks; r++) {
            SyncStream(way == 0 ? nullptr : team.At(way == 1 ? 0 : r).Get());
        }
        for (const auto &blocks : all) {
            CheckAllToAllV(*blocks);
        }
    }
}

TEST(DeviceBlocks, OfDifferentLengthsAtTheirEndsEndTheCommunicator)
{
    Team team(2);
    ASSERT_EQ(KOLO_OK, team.status);
    const Memory a(64), b(64);
    const size_t counts[2] = {1, 3}, displs[2] = {0, 1};
    team.Threads([&](int r) {
        EXPECT_EQ(KOLO_ERR_MISMATCH,
                  r == 0 ? kolo_scatterv(a.Get(), counts, displs, b.Get(), 1, KOLO_INT32, 0,
                                         team.Comm(0), team.At(0).Get())
                         : kolo_scatterv(nullptr, nullptr, nullptr, b.Get(8), 2, KOLO_INT32, 0,
                                         team.Comm(1), team.At(1).Get()));
        EXPECT_NE(nullptr, strstr(kolo_error_text(),
                                  "rank 0 sends 12 bytes to rank 1, which has room for 8"))
            << kolo_error_text();
    });
    team.At(0).Sync();
}

// ---- messages ----------------------------------------------------------------------------------

int32_t Word(const Memory &memory, size_t at)
{
    return memory.At<int32_t>(at);
}

void PutWord(const Memory &memory, size_t at, int32_t value)
{
    memory.Put(&value, 4, 4 * at);
}

TEST(DeviceMessages, InAGroupGoRoundARingInBothDirectionsWithoutWaitingForEachOther)
{
    for (const int ranks : {1, 2, 3, 4}) {
        Team team(ranks);
        ASSERT_EQ(KOLO_OK, team.status) << kolo_error_text();
        team.Threads([&](int r) {
            constexpr size_t kLong = 30000;
            const int next = (r + 1) % ranks, last = (r + ranks - 1) % ranks;
            const Memory out(4 * kLong), in(8 * kLong + 4);
            kolo_comm *comm = team.Comm(r);
            void *stream = team.At(r).Get();
            for (int32_t round = 1; round <= 20; round++) {
                kolo_recv_info info = {sizeof info, -1, -1, 0};
                PutWord(out, 0, 100 * round + r);
                PutWord(out, kLong - 1, round);
                PutWord(in, 2 * kLong, -1);
                EXPECT_EQ(KOLO_OK, kolo_group_begin());
                EXPECT_EQ(KOLO_OK, kolo_send(out.Get(), kLong, KOLO_INT32, next, comm, stream));
                EXPECT_EQ(KOLO_OK, kolo_recv(in.Get(), kLong, KOLO_INT32, last, comm, stream));
                EXPECT_EQ(KOLO_OK,
                          kolo_send_tag(out.Get(), kLong, KOLO_INT32, last, 7, comm, stream));
                EXPECT_EQ(KOLO_OK,
                          kolo_recv_tag(in.Get(4 * kLong), kLong + 1, KOLO_INT32, KOLO_ANY_SOURCE,
                                        KOLO_ANY_TAG, &info, comm, stream));
                EXPECT_EQ(KOLO_OK, kolo_group_end()) << kolo_error_text();
                team.At(r).Sync();
                EXPECT_EQ(100 * round + last, Word(in, 0));
                EXPECT_EQ(100 * round + next, Word(in, kLong));
                EXPECT_EQ(round, Word(in, 2 * kLong - 1));
                EXPECT_EQ(-1, Word(in, 2 * kLong)) << "a short message wrote on";
                EXPECT_TRUE(info.source == next && info.tag == 7 && info.bytes == 4 * kLong);
            }
        });
    }
}

TEST(DeviceMessages, MatchInTheOrderOfTheCallsBySourceAndTagWhoeverComesFirst)
{
    for (const bool receiver_first : {false, true}) {
        Team team(3);
        ASSERT_EQ(KOLO_OK, team.status);
        const Memory out(16), more(16), in(32);
        kolo_recv_info any = {sizeof any, -1, -1, 0};
        for (size_t i = 0; i < 4; i++) {
            PutWord(out, i, static_cast<int32_t>(10 + i));
            PutWord(more, i, static_cast<int32_t>(20 + i));
        }
        const auto send = [&] {
            EXPECT_EQ(KOLO_OK, kolo_group_begin());
            EXPECT_EQ(KOLO_OK, kolo_send_tag(out.Get(0), 1, KOLO_INT32, 2, 5, team.Comm(0),
                                             team.At(0).Get()));
            EXPECT_EQ(KOLO_OK,
                      kolo_send(out.Get(4), 1, KOLO_INT32, 2, team.Comm(0), team.At(0).Get()));
            EXPECT_EQ(KOLO_OK, kolo_send_tag(out.Get(8), 1, KOLO_INT32, 2, 6, team.Comm(0),
                                             team.At(0).Get()));
            EXPECT_EQ(KOLO_OK, kolo_send_tag(out.Get(12), 1, KOLO_INT32, 2, 5, team.Comm(0),
                                             team.At(0).Get()));
            EXPECT_EQ(KOLO_OK, kolo_group_end());
        };
        const auto send_more = [&] {
            EXPECT_EQ(KOLO_OK, kolo_group_begin());
            EXPECT_EQ(KOLO_OK, kolo_send_tag(more.Get(), 1, KOLO_INT32, 2, 6, team.Comm(1),
                                             team.At(1).Get()));
            EXPECT_EQ(KOLO_OK, kolo_group_end());
        };
        const auto recv = [&] {
            const auto one = [&](size_t at, int peer, int tag, kolo_recv_info *info) {
                EXPECT_EQ(KOLO_OK, kolo_recv_tag(in.Get(4 * at), 1, KOLO_INT32, peer, tag, info,
                                                 team.Comm(2), team.At(2).Get()));
            };
            EXPECT_EQ(KOLO_OK, kolo_group_begin());
            one(0, 0, 6, nullptr);
            one(1, KOLO_ANY_SOURCE, 6, nullptr);
            one(2, 0, KOLO_ANY_TAG, &any);
            one(3, KOLO_ANY_SOURCE, 5, nullptr);
            EXPECT_EQ(KOLO_OK,
                      kolo_recv(in.Get(16), 1, KOLO_INT32, 0, team.Comm(2), team.At(2).Get()));
            EXPECT_EQ(KOLO_OK, kolo_group_end());
        };
        team.Threads([&](int r) {
            if ((r == 2) != receiver_first) { // the others are there, most likely
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
            }
            r == 0 ? send() : r == 1 ? send_more() : recv();
        });
        team.At(2).Sync();
        EXPECT_EQ(12, Word(in, 0)) << "the first with tag 6 of rank 0";
        EXPECT_EQ(20, Word(in, 1)) << "the next with tag 6 is rank 1's";
        EXPECT_EQ(10, Word(in, 2)) << "the first with a tag that is left";
        EXPECT_EQ(13, Word(in, 3));
        EXPECT_EQ(11, Word(in, 4)) << "without a tag, matched apart";
        EXPECT_TRUE(any.source == 0 && any.tag == 5 && any.bytes == 4);
    }
}

TEST(DeviceMessages, StandInTheOrderOfTheCallsAmongCollectivesAndStreams)
{
    constexpr int kRanks = 3, kRounds = 30;
    Team team(kRanks);
    ASSERT_EQ(KOLO_OK, team.status);
    std::vector<std::unique_ptr<Stream>> more;
    for (int r = 0; r < kRanks; r++) {
        more.push_back(std::make_unique<Stream>());
    }
    team.Threads([&](int r) { // a token goes round and is doubled by a sum each time
        const Memory token(4), none(4);
        PutWord(token, 0, r == 0 ? 1 : 0);
        for (int i = 0; i < kRounds; i++) {
            void *stream = i % 2 == 0 ? team.At(r).Get() : more[static_cast<size_t>(r)]->Get();
            kolo_comm *comm = team.Comm(r);
            if (r == i % kRanks) {
                EXPECT_EQ(KOLO_OK,
                          kolo_send(token.Get(), 1, KOLO_UINT32, (r + 1) % kRanks, comm, stream));
            } else if (r == (i + 1) % kRanks) {
                EXPECT_EQ(KOLO_OK,
                          kolo_recv(token.Get(), 1, KOLO_UINT32, i % kRanks, comm, stream));
            }
            EXPECT_EQ(KOLO_OK, kolo_all_reduce(token.Get(), token.Get(), 1, KOLO_UINT32, KOLO_MAX,
                                               comm, stream));
            EXPECT_EQ(KOLO_OK,
                      kolo_broadcast(token.Get(), none.Get(), 1, KOLO_UINT32, 0, comm, stream));
            EXPECT_EQ(KOLO_OK, kolo_all_reduce(token.Get(), token.Get(), 1, KOLO_UINT32, KOLO_SUM,
                                               comm, stream));
        }
        more[static_cast<size_t>(r)]->Sync();
        uint32_t expected = 1;
        for (int i = 0; i < kRounds; i++) {
            expected *= kRanks;
        }
        EXPECT_EQ(expected, token.At<uint32_t>(0));
    });
}

TEST(DeviceMessages, OfOneThreadsGroupMayShareAStreamEvenTheDefaultOne)
{
    constexpr int kRanks = 3;
    for (const int way : {0, 1, 2}) {
        Team team(kRanks);
        ASSERT_EQ(KOLO_OK, team.status);
        const Memory out(16), in(16);
        ASSERT_EQ(KOLO_OK, kolo_group_begin());
        for (int r = 0; r < kRanks; r++) {
            void *stream = way == 0 ? nullptr : team.At(way == 1 ? 0 : r).Get();
            const auto at = static_cast<size_t>(r);
            PutWord(out, at, 50 + r);
            ASSERT_EQ(KOLO_OK, kolo_recv(in.Get(4 * at), 1, KOLO_INT32, (r + 1) % kRanks,
                                         team.Comm(r), stream));
            ASSERT_EQ(KOLO_OK, kolo_send(out.Get(4 * at), 1, KOLO_INT32, (r + kRanks - 1) % kRanks,
                                         team.Comm(r), stream));
        }
        ASSERT_EQ(KOLO_OK, kolo_group_end()) << kolo_error_text();
        for (int r = 0; r < kRanks; r++) {
            SyncStream(way == 0 ? nullptr : team.At(way == 1 ? 0 : r).Get());
        }
        for (int r = 0; r < kRanks; r++) {
            EXPECT_EQ(50 + (r + 1) % kRanks, Word(in, static_cast<size_t>(r)));
        }
    }
}

TEST(DeviceMessages, InGraphsBringNewDataEachTimeAndMixWithOthers)
{
    constexpr int kRanks = 3;
    Team team(kRanks);
    ASSERT_EQ(KOLO_OK, team.status);
    team.Threads([&](int r) {
        const int next = (r + 1) % kRanks, last = (r + kRanks - 1) % kRanks;
        const Memory out(4), in(4);
        const Blocks blocks(kRanks, r);
        kolo_comm *comm = team.Comm(r);
        void *stream = team.At(r).Get(), *captured, *graph;
        const Context context;
        const auto exchange = [&] {
            EXPECT_EQ(KOLO_OK, kolo_group_begin());
            EXPECT_EQ(KOLO_OK, kolo_send(out.Get(), 1, KOLO_INT32, next, comm, stream));
            EXPECT_EQ(KOLO_OK, kolo_recv(in.Get(), 1, KOLO_INT32, last, comm, stream));
            EXPECT_EQ(KOLO_OK, kolo_group_end()) << kolo_error_text();
        };
        Do("cuStreamBeginCapture_v2", stream, 1 /* this thread's */);
        exchange();
        EXPECT_EQ(KOLO_OK, AllToAllV(blocks, comm, stream)) << kolo_error_text();
        Do("cuStreamEndCapture", stream, &captured);
        Do("cuGraphInstantiateWithFlags", &graph, captured, 0ull);
        for (int32_t round = 1; round <= 50; round++) {
            PutWord(out, 0, 10 * round + r);
            PutWord(in, 0, -1);
            if (round % 3 == 0) {
                exchange();
            } else {
                Do("cuGraphLaunch", graph, stream);
            }
            team.At(r).Sync();
            EXPECT_EQ(10 * round + last, Word(in, 0));
        }
        CheckAllToAllV(blocks);
        Do("cuGraphExecDestroy", graph);
        Do("cuGraphDestroy", captured);
    });
}

// A thread that makes one end of a message of rank r. When this object is there, so is that end.
class Poster
{
  public:
    Poster(const Team &team, int r, const std::function<kolo_status()> &post)
    {
        PutWord(own_, 0, 1);
        PutWord(own_, 1, 0);
        thread_ = std::thread([this, &team, r, post] {
            EXPECT_EQ(KOLO_OK, kolo_group_begin());
            EXPECT_EQ(KOLO_OK, kolo_send_tag(own_.Get(), 1, KOLO_INT32, r, 99, team.Comm(r),
                                             team.At(r).Get()));
            EXPECT_EQ(KOLO_OK, kolo_recv_tag(own_.Get(4), 1, KOLO_INT32, r, 99, nullptr,
                                             team.Comm(r), team.At(r).Get()));
            EXPECT_EQ(KOLO_OK, post());
            status_ = kolo_group_end();
            text_ = kolo_error_text();
        });
        while (Word(own_, 1) == 0) { // the group copies when all its ends are posted
            std::this_thread::yield();
        }
    }
    ~Poster()
    {
        Join();
    }
    kolo_status Join()
    {
        if (thread_.joinable()) {
            thread_.join();
        }
        return status_;
    }
    const std::string &Text() const
    {
        return text_;
    }

  private:
    const Memory own_{8};
    std::thread thread_;
    kolo_status status_ = KOLO_ERR_INTERNAL;
    std::string text_;
};

TEST(DeviceMessages, ThatCannotBeAreRefusedAndChangeNothing)
{
    Team team(2);
    ASSERT_EQ(KOLO_OK, team.status);
    const Memory a(64), b(64);
    PutWord(a, 0, 5);
    EXPECT_EQ(KOLO_ERR_INVALID,
              kolo_send(a.Get(), 1, KOLO_INT32, 0, team.Comm(0), team.At(0).Get()));
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "waits for a message with itself"))
        << kolo_error_text();
    Poster send(team, 0, [&] {
        return kolo_send(a.Get(), 3, KOLO_INT32, 1, team.Comm(0), team.At(0).Get());
    });
    EXPECT_EQ(KOLO_ERR_INVALID,
              kolo_recv(b.Get(), 2, KOLO_INT32, 0, team.Comm(1), team.At(1).Get()));
    EXPECT_NE(nullptr,
              strstr(kolo_error_text(), "rank 0 sends 12 bytes to rank 1, which has room for 8"))
        << kolo_error_text();
    {
        const Context context;
        void *graph;
        Do("cuStreamBeginCapture_v2", team.At(1).Get(), 1);
        EXPECT_EQ(KOLO_ERR_INVALID,
                  kolo_recv(b.Get(), 3, KOLO_INT32, 0, team.Comm(1), team.At(1).Get()));
        EXPECT_NE(nullptr, strstr(kolo_error_text(), "holds one end")) << kolo_error_text();
        Do("cuStreamEndCapture", team.At(1).Get(), &graph);
        Do("cuGraphDestroy", graph);
    }
    EXPECT_EQ(KOLO_OK, kolo_recv(b.Get(), 4, KOLO_INT32, 0, team.Comm(1), nullptr))
        << "also in the default stream: " << kolo_error_text();
    EXPECT_EQ(KOLO_OK, send.Join());
    team.At(0).Sync();
    SyncStream(nullptr);
    EXPECT_EQ(5, Word(b, 0)) << "none of these was in the way";
}

TEST(DeviceMessages, LongerThanTheRoomThatWaitsForThemEndTheCommunicator)
{
    Team team(2);
    ASSERT_EQ(KOLO_OK, team.status);
    const Memory a(64), b(64);
    Poster recv(team, 1, [&] {
        return kolo_recv(b.Get(), 1, KOLO_INT32, 0, team.Comm(1), team.At(1).Get());
    });
    EXPECT_EQ(KOLO_ERR_MISMATCH,
              kolo_send(a.Get(), 2, KOLO_INT32, 1, team.Comm(0), team.At(0).Get()));
    EXPECT_NE(KOLO_OK, recv.Join());
    team.At(1).Sync();
    EXPECT_NE(KOLO_OK, kolo_comm_error(team.Comm(1)));
}

TEST(DeviceMessages, ThatNobodyTakesEndWithAnAbortOrATimeout)
{
    for (const bool aborts : {true, false}) {
        Team team(3, aborts ? 20000 : 200);
        ASSERT_EQ(KOLO_OK, team.status);
        const Memory a(64), b(64);
        PutWord(b, 0, -1);
        const SoonOver soon;
        Poster both(team, 0, [&] {
            const kolo_status st =
                kolo_send(a.Get(), 1, KOLO_INT32, 1, team.Comm(0), team.At(0).Get());
            return st != KOLO_OK
                       ? st
                       : kolo_recv(b.Get(), 1, KOLO_INT32, 2, team.Comm(0), team.At(0).Get());
        });
        if (aborts) {
            kolo_comm_abort(team.Comm(2));
        }
        EXPECT_EQ(aborts ? KOLO_ERR_ABORTED : KOLO_ERR_TIMEOUT, both.Join());
        EXPECT_TRUE(aborts ||
                    both.Text().find("rank 0 waited 200 ms for the other end of a message "
                                     "to rank 1") != std::string::npos)
            << both.Text();
        team.At(0).Sync();
        EXPECT_EQ(-1, Word(b, 0));
    }
}

TEST(DeviceMessages, OfGraphsThatNobodyTakesEndWithAnAbort)
{
    Team team(3, 200);
    ASSERT_EQ(KOLO_OK, team.status);
    const Memory a(64), b(64);
    PutWord(b, 0, -1);
    const Context context;
    void *stream = team.At(0).Get(), *graph = nullptr, *made = nullptr;
    Do("cuStreamBeginCapture_v2", stream, 1);
    EXPECT_EQ(KOLO_OK, kolo_group_begin());
    EXPECT_EQ(KOLO_OK, kolo_send(a.Get(), 1, KOLO_INT32, 1, team.Comm(0), stream));
    EXPECT_EQ(KOLO_OK, kolo_recv(b.Get(), 1, KOLO_INT32, 2, team.Comm(0), stream));
    EXPECT_EQ(KOLO_OK, kolo_group_end());
    Do("cuStreamEndCapture", stream, &made);
    Do("cuGraphInstantiateWithFlags", &graph, made, 0ull);
    Do("cuGraphLaunch", graph, stream);
    Do("cuGraphLaunch", graph, stream);
    Do("cuGraphExecDestroy", graph);
    Do("cuGraphDestroy", made);
    const SoonOver soon;
    kolo_comm_abort(team.Comm(2));
    team.At(0).Sync();
    EXPECT_EQ(-1, Word(b, 0));
}

// Between the ends of a message nothing is queued that would hold up the driver.
TEST(DeviceMessages, AThreadMayFreeMemoryBetweenASendAndItsReceive)
{
    Team team(2);
    ASSERT_EQ(KOLO_OK, team.status);
    const Memory a(64), b(64);
    PutWord(a, 0, 7);
    team.Threads([&](int r) {
        if (r == 0) {
            EXPECT_EQ(KOLO_OK,
                      kolo_send(a.Get(), 1, KOLO_INT32, 1, team.Comm(0), team.At(0).Get()));
        } else { // rank 0 is there
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            const Freer freer;
            EXPECT_EQ(KOLO_OK,
                      kolo_recv(b.Get(), 1, KOLO_INT32, 0, team.Comm(1), team.At(1).Get()));
        }
        team.At(r).Sync();
    });
    EXPECT_EQ(7, Word(b, 0));
}

// A stream has room for about 1024 entries. The call that finds none lets no other pass.
TEST(DeviceMessages, MayBeMoreThanAStreamHasRoomForBeforeTheirOtherEndsCome)
{
    constexpr int kMessages = 1200;
    Team team(2);
    ASSERT_EQ(KOLO_OK, team.status);
    const Memory a(64), b(64);
    team.Threads([&](int r) {
        if (r == 1) { // rank 0 goes as far ahead as it can
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
        }
        for (int i = 0; i < kMessages; i++) {
            EXPECT_EQ(KOLO_OK,
                      r == 0
                          ? kolo_send(a.Get(), 1, KOLO_INT32, 1, team.Comm(0), team.At(0).Get())
                          : kolo_recv(b.Get(), 1, KOLO_INT32, 0, team.Comm(1), team.At(1).Get()));
        }
        team.At(r).Sync();
    });
}

TEST(DeviceMessages, OfGraphsThatAreGoneLeaveRoomForOthers)
{
    constexpr int kGraphs = 90, kMessages = 100; // more than the 8192 of a communicator
    Team team(2);
    ASSERT_EQ(KOLO_OK, team.status);
    const Memory a(64), b(64);
    const Context context;
    for (int i = 0; i < kGraphs; i++) {
        void *graph[2];
        for (int r = 0; r < 2; r++) {
            Do("cuStreamBeginCapture_v2", team.At(r).Get(), 1);
        }
        for (int m = 0; m < kMessages; m++) {
            ASSERT_EQ(KOLO_OK, kolo_send(a.Get(), 1, KOLO_INT32, 1, team.Comm(0), team.At(0).Get()))
                << i << ": " << kolo_error_text();
            if (i % 2 == 0) { // else the other ends never come
                ASSERT_EQ(KOLO_OK,
                          kolo_recv(b.Get(), 1, KOLO_INT32, 0, team.Comm(1), team.At(1).Get()));
            }
        }
        for (int r = 0; r < 2; r++) {
            Do("cuStreamEndCapture", team.At(r).Get(), &graph[r]);
            Do("cuGraphDestroy", graph[r]);
        }
    }
}

// ---- graphs ------------------------------------------------------------------------------------

TEST(DeviceGraphs, GiveNewResultsEachTimeTheyAreLaunched)
{
    constexpr int kRanks = 3;
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 500, 0};
    Team team(kRanks);
    ASSERT_EQ(KOLO_OK, team.status);
    const Data data(call, kRanks, 9);
    team.Threads([&](int r) {
        const auto at = static_cast<size_t>(r);
        void *stream = team.At(r).Get();
        const Context context;
        void *in = data.in[at].Get(), *out = data.out[at].Get(), *captured, *graph;
        EXPECT_EQ(KOLO_OK, Make(call, in, out, team.Comm(r), stream)); // not captured
        team.At(r).Sync();
        Do("cuStreamBeginCapture_v2", stream, 1 /* this thread's */);
        EXPECT_EQ(KOLO_OK, Make(call, in, out, team.Comm(r), stream)) << kolo_error_text();
        EXPECT_EQ(KOLO_OK, kolo_barrier(team.Comm(r), stream)) << kolo_error_text();
        Do("cuStreamEndCapture", stream, &captured);
        Do("cuGraphInstantiateWithFlags", &graph, captured, 0ull);
        for (uint32_t round = 1; round <= 20; round++) {
            const uint32_t value = round * (static_cast<uint32_t>(r) + 1);
            data.in[at].Put(&value, 4, 7 * 4);
            Do("cuGraphLaunch", graph, stream);
            team.At(r).Sync();
            EXPECT_EQ(round * 6, data.out[at].At<uint32_t>(7));
        }
        EXPECT_EQ(KOLO_OK, Make(call, in, out, team.Comm(r), stream)); // once more
        team.At(r).Sync();
        Do("cuGraphExecDestroy", graph);
        Do("cuGraphDestroy", captured);
    });
}

// No count of calls is kept where a graph could bring it again, so nothing wraps, however many.
TEST(DeviceGraphs, AreLaunchedAsOftenAsOneLikesAmongOtherCalls)
{
    constexpr int kRanks = 2;
    const uint32_t rounds = getenv("KOLO_TEST_WHOLE") != nullptr ? 100000 : 2000;
    Team team(kRanks);
    ASSERT_EQ(KOLO_OK, team.status);
    team.Threads([&](int r) {
        const Memory counter(8);
        const uint32_t start[2] = {r == 0 ? 1u : 0u, 0};
        kolo_comm *comm = team.Comm(r);
        void *stream = team.At(r).Get(), *captured, *graph;
        const Context context;
        counter.Put(start, 8);
        const auto turn =
            [&] { // rank 0's number goes to rank 1 and back, and what both have is summed
                kolo_status st = r == 0 ? kolo_send(counter.Get(), 1, KOLO_UINT32, 1, comm, stream)
                                        : kolo_recv(counter.Get(), 1, KOLO_UINT32, 0, comm, stream);
                st = st == KOLO_OK ? kolo_all_reduce(counter.Get(), counter.Get(), 1, KOLO_UINT32,
                                                     KOLO_SUM, comm, stream)
                                   : st;
                EXPECT_EQ(KOLO_OK, st) << kolo_error_text();
            };
        Do("cuStreamBeginCapture_v2", stream, 1 /* this thread's */);
        turn();
        Do("cuStreamEndCapture", stream, &captured);
        Do("cuGraphInstantiateWithFlags", &graph, captured, 0ull);
        uint32_t expected = 1;
        for (uint32_t round = 1; round <= rounds; round++) {
            if (round % 7 == 0) {
                turn();
            } else {
                Do("cuGraphLaunch", graph, stream);
            }
            expected *= 2;
            if (round % 30 == 0) { // before it is 0
                team.At(r).Sync();
                ASSERT_EQ(expected, counter.At<uint32_t>(0)) << round;
                expected = round;
                counter.Put(&expected, 4);
                EXPECT_EQ(KOLO_OK, kolo_barrier(comm, stream));
            }
        }
        team.At(r).Sync();
        EXPECT_EQ(expected, counter.At<uint32_t>(0));
        Do("cuGraphExecDestroy", graph);
        Do("cuGraphDestroy", captured);
    });
}

// ---- what is refused ---------------------------------------------------------------------------

TEST(FakeDeviceErrors, NameTheKindsOfBuffersThatDoNotGoTogether)
{
    ASSERT_TRUE(gpu::IsFake()) << "KOLO_CUDA_PATH is not the driver of tests/device";
    Team team(1);
    ASSERT_EQ(KOLO_OK, team.status);
    const Memory here(64), there(64, 1);
    float host[4] = {1, 2, 3, 4};
    EXPECT_EQ(KOLO_ERR_INVALID,
              kolo_all_reduce(host, here.Get(), 4, KOLO_FLOAT32, KOLO_SUM, team.Comm(0), nullptr));
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "is host memory, recv")) << kolo_error_text();
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "is memory of GPU 0")) << kolo_error_text();
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_all_reduce(here.Get(), there.Get(), 4, KOLO_FLOAT32, KOLO_SUM,
                                                team.Comm(0), nullptr));
    EXPECT_NE(nullptr,
              strstr(kolo_error_text(), "memory of GPU 1; the communicator's device is GPU 0"))
        << kolo_error_text();
    EXPECT_EQ(KOLO_ERR_INVALID,
              kolo_send(there.Get(), 4, KOLO_FLOAT32, 0, team.Comm(0), team.At(0).Get()));
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "is memory of GPU 1")) << kolo_error_text();
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_all_reduce(host, host, 4, KOLO_FLOAT32, KOLO_SUM, team.Comm(0),
                                                team.At(0).Get()));
    EXPECT_EQ(KOLO_OK, kolo_comm_error(team.Comm(0))) << "none of these ends the communicator";
}

TEST(DeviceErrors, StreamsOfAGraphThatWouldWaitForThemselvesAreRefused)
{
    Team team(2);
    ASSERT_EQ(KOLO_OK, team.status);
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 10, 0};
    const Data data(call, 2, 1);
    const auto make = [&](int r, void *stream) {
        return Make(call, data.in[static_cast<size_t>(r)].Get(),
                    data.out[static_cast<size_t>(r)].Get(), team.Comm(r), stream);
    };
    const Context context;
    void *const stream[] = {team.At(0).Get(), team.At(1).Get()}, *graph[2], *launched[2];
    Do("cuStreamBeginCapture_v2", stream[0], 1 /* this thread's */);
    EXPECT_EQ(KOLO_OK, make(0, stream[0]));
    EXPECT_EQ(KOLO_ERR_INVALID, make(1, stream[0]));
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "rank 0's in this call, too"))
        << kolo_error_text();
    EXPECT_EQ(KOLO_ERR_INVALID, make(1, stream[1]));
    EXPECT_NE(nullptr,
              strstr(kolo_error_text(), "rank 0's call is in a graph, and rank 1's is not"))
        << kolo_error_text();
    Do("cuStreamBeginCapture_v2", stream[1], 1 /* this thread's */);
    EXPECT_EQ(KOLO_OK, make(1, stream[1])) << "which changed nothing";
    for (int r = 0; r < 2; r++) {
        Do("cuStreamEndCapture", stream[r], &graph[r]);
    }
    for (int r = 0; r < 2; r++) { // which a thread may not do while it captures
        Do("cuGraphInstantiateWithFlags", &launched[r], graph[r], 0ull);
        Do("cuGraphLaunch", launched[r], stream[r]);
    }
    for (int r = 0; r < 2; r++) {
        team.At(r).Sync();
        Do("cuGraphExecDestroy", launched[r]);
        Do("cuGraphDestroy", graph[r]);
        data.Check(call, r);
    }
}

TEST(DeviceErrors, DifferentCallsEndTheCommunicatorOnEveryRank)
{
    Team team(3);
    ASSERT_EQ(KOLO_OK, team.status);
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 10, 0};
    const Call other = {kAllReduce, KOLO_INT32, KOLO_SUM, 11, 0};
    const Data data(other, 3, 1);
    const auto make = [&](const Call &c, int r) {
        return Make(c, data.in[static_cast<size_t>(r)].Get(),
                    data.out[static_cast<size_t>(r)].Get(), team.Comm(r), team.At(r).Get());
    };
    team.Threads([&](int r) {
        EXPECT_EQ(KOLO_OK, make(call, r));
        EXPECT_EQ(KOLO_ERR_MISMATCH, make(r == 2 ? other : call, r));
        EXPECT_NE(nullptr, strstr(kolo_error_text(), "of 10 int32 on rank")) << kolo_error_text();
        EXPECT_NE(nullptr, strstr(kolo_error_text(), "of 11 int32 on rank 2")) << kolo_error_text();
        team.At(r).Sync();
        EXPECT_NE(KOLO_OK, make(call, r));
    });
}

TEST(DeviceErrors, AnAbortReleasesAThreadThatWaitsForARankThatNeverComes)
{
    Team team(2);
    ASSERT_EQ(KOLO_OK, team.status);
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 10, 0};
    const Data data(call, 2, 1);
    const SoonOver soon;
    std::thread waits([&] {
        EXPECT_EQ(KOLO_ERR_ABORTED,
                  Make(call, data.in[1].Get(), data.out[1].Get(), team.Comm(1), team.At(1).Get()));
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    kolo_comm_abort(team.Comm(1));
    waits.join();
    team.At(1).Sync();
    EXPECT_EQ(0x5a, data.out[1].At<uint8_t>(0)) << "no kernel ran";
}

TEST(DeviceErrors, AnAbortReleasesStreamsOfGraphsThatWaitForARankThatNeverComes)
{
    Team team(2);
    ASSERT_EQ(KOLO_OK, team.status);
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 10, 0};
    const Data data(call, 2, 1);
    const Context context;
    void *graph, *launched;
    Do("cuStreamBeginCapture_v2", team.At(1).Get(), 1 /* this thread's */);
    EXPECT_EQ(KOLO_OK,
              Make(call, data.in[1].Get(), data.out[1].Get(), team.Comm(1), team.At(1).Get()));
    Do("cuStreamEndCapture", team.At(1).Get(), &graph);
    Do("cuGraphInstantiateWithFlags", &launched, graph, 0ull);
    for (int i = 0; i < 5; i++) {
        Do("cuGraphLaunch", launched, team.At(1).Get());
    }
    const SoonOver soon;
    kolo_comm_abort(team.Comm(1));
    team.At(1).Sync();
    EXPECT_EQ(0x5a, data.out[1].At<uint8_t>(0)) << "no kernel ran";
    Do("cuGraphExecDestroy", launched);
    Do("cuGraphDestroy", graph);
}

// Before the other ranks have come, nothing is queued that would hold up the driver.
TEST(DeviceErrors, AThreadMayFreeMemoryAndMakeStreamsWhileTheOthersWaitForItsCall)
{
    Team team(3);
    ASSERT_EQ(KOLO_OK, team.status);
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 10, 0};
    const Data data(call, 3, 1);
    team.Threads([&](int r) {
        if (r == 1) { // the others are there
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            const Freer freer;
            const Stream stream;
        }
        const auto at = static_cast<size_t>(r);
        EXPECT_EQ(KOLO_OK, Make(call, data.in[at].Get(), data.out[at].Get(), team.Comm(r),
                                r == 1 ? nullptr : team.At(0).Get()))
            << "ranks may share a stream, and it may be the default one";
        SyncStream(r == 1 ? nullptr : team.At(0).Get());
        data.Check(call, r);
    });
}

TEST(DeviceErrors, ALostRankDoesNotHoldUpDestroying)
{
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 10, 0};
    const Data data(call, 2, 1);
    {
        Team team(2, 200);
        ASSERT_EQ(KOLO_OK, team.status);
        EXPECT_EQ(KOLO_ERR_TIMEOUT,
                  Make(call, data.in[0].Get(), data.out[0].Get(), team.Comm(0), team.At(0).Get()));
        EXPECT_NE(nullptr, strstr(kolo_error_text(), "rank 0 waited 200 ms for rank 1"))
            << kolo_error_text();
    }
    EXPECT_EQ(0x5a, data.out[0].At<uint8_t>(0));
}

TEST(DeviceErrors, AMessageOfALostRankDoesNotHoldUpDestroyingWhileAThreadFreesMemory)
{
    Team team(2, 200);
    ASSERT_EQ(KOLO_OK, team.status);
    const Memory a(64);
    std::thread sends([&] {
        EXPECT_EQ(KOLO_ERR_TIMEOUT,
                  kolo_send(a.Get(), 3, KOLO_INT32, 1, team.Comm(0), team.At(0).Get()));
    });
    const Freer freer;
    sends.join();
    kolo_comm_destroy(team.comm[0]);
    team.comm[0] = nullptr;
}

TEST(DeviceHost, MemoryWorksOnTheSameCommunicatorAndItCanBeSplit)
{
    Team team(4);
    ASSERT_EQ(KOLO_OK, team.status);
    team.Threads([&](int r) {
        float mine = static_cast<float>(r), sum = 0;
        for (int i = 0; i < 3; i++) { // also by what is remembered of calls
            EXPECT_EQ(KOLO_OK, kolo_all_reduce(&mine, &sum, 1, KOLO_FLOAT32, KOLO_SUM, team.Comm(r),
                                               nullptr));
            EXPECT_EQ(6.0f, sum);
        }
        kolo_comm *part = nullptr;
        ASSERT_EQ(KOLO_OK, kolo_comm_split(team.Comm(r), r % 2, 0, nullptr, &part))
            << kolo_error_text();
        const Memory in(4), out(4);
        in.Put(&mine, 4);
        EXPECT_EQ(KOLO_OK, kolo_all_reduce(in.Get(), out.Get(), 1, KOLO_FLOAT32, KOLO_SUM, part,
                                           team.At(r).Get()));
        team.At(r).Sync();
        EXPECT_EQ(r % 2 == 0 ? 2.0f : 4.0f, out.At<float>(0));
        kolo_comm_destroy(part);
    });
}

TEST(FakeDeviceMemory, IsAllocatedOnTheDeviceThatIsNamedAndFreed)
{
    ASSERT_TRUE(gpu::IsFake()) << "KOLO_CUDA_PATH is not the driver of tests/device";
    const size_t live = Find<size_t()>("FakeCudaLive")();
    void *memory = nullptr;
    ASSERT_EQ(KOLO_OK, kolo_mem_alloc_on(1, 100, &memory)) << kolo_error_text();
    Team team(1);
    ASSERT_EQ(KOLO_OK, team.status);
    EXPECT_EQ(KOLO_ERR_INVALID,
              kolo_all_reduce(memory, memory, 4, KOLO_FLOAT32, KOLO_SUM, team.Comm(0), nullptr));
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "memory of GPU 1")) << kolo_error_text();
    kolo_mem_free(memory);
    ASSERT_EQ(KOLO_OK, kolo_mem_alloc_on(KOLO_HOST, 100, &memory));
    memset(memory, 1, 100);
    kolo_mem_free(memory);
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_mem_alloc_on(2, 100, &memory));
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_mem_alloc_on(0, 0, &memory));
    for (long nth = 1;; nth++) {
        Find<void(long)>("FakeCudaFailNth")(nth);
        const kolo_status st = kolo_mem_alloc_on(0, 64, &memory);
        Find<void(long)>("FakeCudaFailNth")(0);
        if (st == KOLO_OK) {
            EXPECT_GT(nth, 4);
            break;
        }
        EXPECT_EQ(KOLO_ERR_SYSTEM, st);
    }
    kolo_mem_free(memory);
    for (kolo_comm *&comm : team.comm) {
        kolo_comm_destroy(comm);
        comm = nullptr;
    }
    team.stream.clear();
    EXPECT_EQ(live, Find<size_t()>("FakeCudaLive")());
}

// ---- ranks on several GPUs ---------------------------------------------------------------------

// Rank r is a thread on GPU r % 2; kernels that store to other GPUs are peers_test.cc's.
struct Several {
    explicit Several(int ranks, int timeout_ms = 20000) : comm(static_cast<size_t>(ranks))
    {
        kolo_id id;
        setenv("KOLO_CUDA_P2P", "0", 1);
        status.resize(comm.size(), kolo_id_create(&id));
        Threads([&](int r) {
            kolo_config config = KOLO_CONFIG_INIT;
            config.device = r % 2;
            config.timeout_ms = timeout_ms;
            status[static_cast<size_t>(r)] =
                kolo_comm_create(&id, ranks, r, &config, &comm[static_cast<size_t>(r)]);
        });
        unsetenv("KOLO_CUDA_P2P");
    }
    ~Several()
    {
        Threads([&](int r) { kolo_comm_destroy(comm[static_cast<size_t>(r)]); });
    }
    bool IsUp() const
    {
        return std::all_of(status.begin(), status.end(),
                           [](kolo_status st) { return st == KOLO_OK; });
    }
    void Threads(const std::function<void(int)> &body)
    {
        std::vector<std::thread> threads;
        for (size_t r = 0; r < comm.size(); r++) {
            threads.emplace_back(body, static_cast<int>(r));
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
        gpu::FreeLeft();
    }
    std::vector<kolo_comm *> comm;
    std::vector<kolo_status> status;
};

// Buffers of rank r on its GPU, with the marks of Data.
struct Spread {
    Spread(const Call &c, size_t ranks, uint64_t seed)
    {
        for (size_t r = 0; r < ranks; r++) {
            const size_t bytes = c.count * ranks * kBytes[c.type];
            host.push_back(Fill(c.type, c.count * ranks, seed + r));
            in.emplace_back(bytes, static_cast<int>(r % 2));
            out.emplace_back(bytes, static_cast<int>(r % 2));
            in[r].Put(host[r].data(), bytes);
        }
    }
    bool IsRight(const Call &c, int r) const
    {
        const Bytes expected = Expected(c, host, r);
        return expected == out[static_cast<size_t>(r)].Take(expected.size());
    }
    std::vector<Bytes> host;
    std::vector<Memory> in, out;
};

TEST(FakeDeviceSeveral, RanksInOneProcessAreServedThroughTheHostWithTheSameBits)
{
    ASSERT_TRUE(gpu::IsFake()) << "KOLO_CUDA_PATH is not the driver of tests/device";
    constexpr int kRanks = 3;
    Several several(kRanks);
    ASSERT_TRUE(several.IsUp()) << kolo_error_text();
    const size_t before = Launches();
    const Stream streams[kRanks]; // while a rank waits, the driver makes none
    several.Threads([&](int r) {
        const Stream &stream = streams[r];
        for (const Call &call : EveryCall(19, 1)) {
            const Spread data(call, kRanks, 40); // each thread its own, for its own rank
            const auto at = static_cast<size_t>(r);
            EXPECT_EQ(KOLO_OK, Make(call, data.in[at].Get(), data.out[at].Get(), several.comm[at],
                                    stream.Get()))
                << kolo_error_text();
            stream.Sync();
            EXPECT_TRUE(data.IsRight(call, r))
                << call.coll << kolo_type_name(call.type) << kolo_op_name(call.op);
        }
    });
    EXPECT_EQ(before, Launches());
}

TEST(FakeDeviceSeveral, CallsOnDifferentStreamsTakeEffectInTheirOrderAndAreQueuedWithoutWaiting)
{
    ASSERT_TRUE(gpu::IsFake()) << "KOLO_CUDA_PATH is not the driver of tests/device";
    constexpr int kRanks = 2, kCalls = 20;
    Several several(kRanks);
    ASSERT_TRUE(several.IsUp());
    const Call call = {kAllReduce, KOLO_UINT32, KOLO_SUM, 300, 0};
    const Spread data(call, kRanks, 1);
    const Stream stream[kRanks][2];
    for (size_t r = 0; r < kRanks; r++) { // one thread, one rank after the other
        void *buffer = data.in[r].Get();
        for (int i = 0; i < kCalls; i++) {
            ASSERT_EQ(KOLO_OK, Make(call, buffer, buffer, several.comm[r], stream[r][i % 2].Get()));
        }
    }
    for (size_t r = 0; r < kRanks; r++) {
        stream[r][(kCalls - 1) % 2].Sync();
        const uint32_t sum = reduce_reference::Get<uint32_t>(&data.host[0][0]) +
                             reduce_reference::Get<uint32_t>(&data.host[1][0]);
        EXPECT_EQ(sum << (kCalls - 1), data.in[r].At<uint32_t>(0));
    }
}

// One call of each rank, in a thread; how many waits for streams the library made.
size_t SyncsOf(Several &several, const Call &call)
{
    const Spread data(call, several.comm.size(), 3);
    std::vector<std::unique_ptr<Stream>> stream;
    for (size_t r = 0; r < several.comm.size(); r++) {
        stream.push_back(std::make_unique<Stream>());
    }
    const size_t before = Find<size_t()>("FakeCudaSyncs")();
    several.Threads([&](int r) {
        const auto at = static_cast<size_t>(r);
        EXPECT_EQ(KOLO_OK, Make(call, data.in[at].Get(), data.out[at].Get(), several.comm[at],
                                stream[at]->Get()))
            << kolo_error_text();
        const Context context;
        while (Find<int(void *)>("cuStreamQuery")(stream[at]->Get()) != 0) {
            std::this_thread::yield();
        }
    });
    const size_t syncs = Find<size_t()>("FakeCudaSyncs")() - before;
    for (size_t r = 0; r < several.comm.size(); r++) {
        EXPECT_TRUE(data.IsRight(call, static_cast<int>(r))) << call.coll << " of " << call.count;
    }
    return syncs;
}

TEST(FakeDeviceSeveral, LongCallsCopyBothWaysAtOnceAndWaitForStreamsAsOftenAsShortOnes)
{
    ASSERT_TRUE(gpu::IsFake()) << "KOLO_CUDA_PATH is not the driver of tests/device";
    Several several(2);
    ASSERT_TRUE(several.IsUp());
    for (const Coll coll : {kAllReduce, kReduceScatter, kAllToAll, kBroadcast}) {
        const size_t few = SyncsOf(several, {coll, KOLO_INT32, KOLO_SUM, 5, 0});
        EXPECT_EQ(few, SyncsOf(several, {coll, KOLO_INT32, KOLO_SUM, (1 << 20) + 5, 0}));
    }
    Find<int(int)>("FakeCudaSlowCopies")(3);
    SyncsOf(several, {kAllReduce, KOLO_INT32, KOLO_SUM, 12 << 16, 0});
    EXPECT_EQ(2, Find<int(int)>("FakeCudaSlowCopies")(0)) << "one to the GPU while one is from it";
}

TEST(FakeDeviceSeveral, BlocksOfDifferentLengthsGoInTilesToo)
{
    ASSERT_TRUE(gpu::IsFake()) << "KOLO_CUDA_PATH is not the driver of tests/device";
    Several several(3);
    ASSERT_TRUE(several.IsUp());
    const size_t counts[3] = {1000000, 3, 700001}, displs[3] = {700101, 700050, 10};
    const Stream streams[3];
    several.Threads([&](int r) {
        const auto at = static_cast<size_t>(r);
        const Memory in(4 * 1700200, r % 2), all(4 * 1700200, r % 2), sum(4 * 1000000, r % 2);
        const Stream &stream = streams[r];
        std::vector<uint32_t> mine(1700200, static_cast<uint32_t>(r + 1)), none(1700200, 0);
        mine[1000000 + 3] = 7; // the first of block 2, of whose sum it is the start
        in.Put(mine.data(), 4 * mine.size());
        all.Put(none.data(), 4 * none.size());
        EXPECT_EQ(KOLO_OK, kolo_all_gatherv(in.Get(), all.Get(), counts, displs, KOLO_UINT32,
                                            several.comm[at], stream.Get()));
        EXPECT_EQ(KOLO_OK, kolo_reduce_scatterv(in.Get(), sum.Get(), counts, KOLO_UINT32, KOLO_SUM,
                                                several.comm[at], stream.Get()));
        stream.Sync();
        for (size_t q = 0; q < 3; q++) {
            const size_t end = displs[q] + counts[q];
            EXPECT_EQ(0u, all.At<uint32_t>(displs[q] - 1)) << q;
            EXPECT_EQ(q + 1, all.At<uint32_t>(displs[q])) << q;
            EXPECT_EQ(q + 1, all.At<uint32_t>(end - 1)) << q;
            EXPECT_EQ(0u, all.At<uint32_t>(end)) << q;
        }
        EXPECT_EQ(r == 2 ? 21u : 6u, sum.At<uint32_t>(0));
        EXPECT_EQ(6u, sum.At<uint32_t>(counts[at] - 1));
    });
}

TEST(FakeDeviceSeveral, ALostRankOrAnAbortDoesNotHoldUpTheOthers)
{
    ASSERT_TRUE(gpu::IsFake()) << "KOLO_CUDA_PATH is not the driver of tests/device";
    const Call call = {kAllReduce, KOLO_UINT32, KOLO_SUM, 5 << 16, 0}; // of several tiles
    const Spread data(call, 2, 1);
    for (const bool aborts : {false, true}) {
        const Stream stream;
        Several several(2, aborts ? 20000 : 300);
        ASSERT_TRUE(several.IsUp());
        for (int i = 0; i < 3; i++) {
            EXPECT_EQ(KOLO_OK, Make(call, data.in[0].Get(), data.out[0].Get(), several.comm[0],
                                    stream.Get()));
        }
        const SoonOver soon;
        if (aborts) {
            kolo_comm_abort(several.comm[1]);
        }
        stream.Sync();
        EXPECT_NE(KOLO_OK, kolo_comm_error(several.comm[0]));
        EXPECT_NE(KOLO_OK,
                  Make(call, data.in[0].Get(), data.out[0].Get(), several.comm[0], stream.Get()));
    }
}

// The driver lets no other call pass while one waits for room in a stream, and the proxy's thread,
// which shall make room, needs the driver.
TEST(FakeDeviceSeveral, ARankMayMakeMoreCallsThanAStreamHasRoomForBeforeTheOthersMakeTheirs)
{
    ASSERT_TRUE(gpu::IsFake()) << "KOLO_CUDA_PATH is not the driver of tests/device";
    constexpr int kCalls = 400;
    const Call call = {kAllReduce, KOLO_UINT32, KOLO_MAX, 10, 0};
    const Spread data(call, 2, 1);
    const Stream stream[2];
    Several several(2);
    ASSERT_TRUE(several.IsUp());
    std::atomic<int> made = 0;
    several.Threads([&](int r) {
        const auto at = static_cast<size_t>(r);
        if (r == 1) { // when rank 0 has come as far as it can
            while (made < 64) {
                std::this_thread::yield();
            }
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
        }
        for (int i = 0; i < kCalls; i++, made += r == 0) {
            ASSERT_EQ(KOLO_OK, Make(call, data.in[at].Get(), data.out[at].Get(), several.comm[at],
                                    stream[at].Get()))
                << i << kolo_error_text();
        }
        stream[at].Sync();
        EXPECT_TRUE(data.IsRight(call, r));
    });
}

// A host function that holds a stream until the gate is open.
void HoldStream(const Stream &stream, int device, std::atomic<bool> *open)
{
    const Context context(device);
    void (*wait)(void *) = [](void *gate) {
        while (!*static_cast<std::atomic<bool> *>(gate)) {
            std::this_thread::yield();
        }
    };
    Do("cuLaunchHostFunc", stream.Get(), wait, static_cast<void *>(open));
}

// The proxy's thread, which shall serve the call, is inside the driver.
TEST(FakeDeviceSeveral, ALostRankOrAnAbortDoesNotHoldUpAThreadThatFreesMemory)
{
    ASSERT_TRUE(gpu::IsFake()) << "KOLO_CUDA_PATH is not the driver of tests/device";
    const Call call = {kAllReduce, KOLO_UINT32, KOLO_SUM, 10, 0};
    const Spread data(call, 2, 1);
    for (const bool aborts : {false, true}) {
        const Stream stream;
        Several several(2, aborts ? 20000 : 300);
        ASSERT_TRUE(several.IsUp());
        std::atomic<bool> open = false;
        HoldStream(stream, 0, &open);
        for (int i = 0; i < 3; i++) {
            EXPECT_EQ(KOLO_OK, Make(call, data.in[0].Get(), data.out[0].Get(), several.comm[0],
                                    stream.Get()));
        }
        const Freer freer;
        open = true;
        if (aborts) {
            kolo_comm_abort(several.comm[0]);
        } else {
            kolo_comm_destroy(several.comm[0]);
            several.comm[0] = nullptr;
        }
    }
}

// What of a process waits in the driver until the GPU is idle, and lets no other call pass.
void FreeMemory()
{
    unsigned long long memory;
    Do("cuMemAlloc_v2", &memory, size_t{64});
    Do("cuMemFree_v2", memory);
}
void MakeStream()
{
    void *stream;
    Do("cuStreamCreate", &stream, 1u);
    Do("cuStreamDestroy_v2", stream);
}
void LoadModule()
{
    void *module, *kernel;
    Do("cuModuleLoadData", &module, static_cast<const void *>("any"));
    Do("cuModuleGetFunction", &kernel, module, "kolo_fused_copy_1");
    Do("cuFuncLoad", kernel); // as the first launch does
    Do("cuModuleUnload", module);
}

// The proxy's thread works while the streams wait for it, so it may not need the driver.
TEST(FakeDeviceSeveral, AThreadMayFreeMemoryLoadKernelsAndMakeStreamsDuringACall)
{
    ASSERT_TRUE(gpu::IsFake()) << "KOLO_CUDA_PATH is not the driver of tests/device";
    constexpr size_t kLong = 5 << 18, kRoom = 4 * kLong; // elements: of several tiles; bytes
    Several several(2);
    ASSERT_TRUE(several.IsUp()) << kolo_error_text();
    for (void (*what)() : {FreeMemory, MakeStream, LoadModule}) {
        const Memory in[2] = {Memory(kRoom, 0), Memory(kRoom, 1)};
        const Memory sum[2] = {Memory(kRoom, 0), Memory(kRoom, 1)};
        const Memory all[2] = {Memory(kRoom, 0), Memory(kRoom, 1)};
        const Memory sent[2] = {Memory(kRoom, 0), Memory(kRoom, 1)};
        const Stream stream[2] = {Stream(0), Stream(1)};
        std::atomic<bool> open = false;
        for (int r = 0; r < 2; r++) {
            const std::vector<int32_t> data(kLong, r + 5);
            in[r].Put(data.data(), kRoom);
            all[r].Put(std::vector<int32_t>(kLong, 0).data(), kRoom);
            HoldStream(stream[r], r, &open);
        }
        several.Threads([&](int r) {
            kolo_comm *comm = several.comm[static_cast<size_t>(r)];
            const size_t counts[2] = {kLong / 2 - 1, kLong / 2 - 1}, at[2] = {0, kLong / 2};
            void *s = stream[r].Get();
            EXPECT_EQ(KOLO_OK, kolo_all_reduce(in[r].Get(), sum[r].Get(), kLong, KOLO_INT32,
                                               KOLO_SUM, comm, s));
            EXPECT_EQ(KOLO_OK, kolo_all_to_allv(in[r].Get(), counts, at, all[r].Get(), counts, at,
                                                KOLO_INT32, comm, s));
            EXPECT_EQ(KOLO_OK, kolo_group_begin());
            EXPECT_EQ(KOLO_OK, kolo_send(sum[r].Get(), kLong, KOLO_INT32, 1 - r, comm, s));
            EXPECT_EQ(KOLO_OK, kolo_recv(sent[r].Get(), kLong, KOLO_INT32, 1 - r, comm, s));
            EXPECT_EQ(KOLO_OK, kolo_group_end());
        });
        std::thread waits([what] {
            const Context context;
            what();
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(100)); // now it has the lock
        open = true;
        waits.join();
        for (int r = 0; r < 2; r++) {
            stream[r].Sync();
            for (const size_t i : {size_t{0}, kLong / 2 - 2, kLong - 2}) {
                EXPECT_EQ(11, sum[r].At<int32_t>(i)) << i;
                EXPECT_EQ(i < kLong / 2 ? 5 : 6, all[r].At<int32_t>(i)) << i;
                EXPECT_EQ(11, sent[r].At<int32_t>(i)) << i;
            }
            EXPECT_EQ(0, all[r].At<int32_t>(kLong / 2 - 1)) << "between two blocks";
            EXPECT_EQ(0, all[r].At<int32_t>(kLong - 1)) << "behind the last block";
        }
    }
}

TEST(FakeDeviceSeveral, SayWhatFailedWhicheverCallOfTheDriverItIsAndLeakNothing)
{
    ASSERT_TRUE(gpu::IsFake()) << "KOLO_CUDA_PATH is not the driver of tests/device";
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 3 << 16, 0}; // of several tiles
    const size_t live = Find<size_t()>("FakeCudaLive")();
    long nth = 1;
    for (bool failed = true; failed; nth += NextFailure()) {
        {
            const Spread data(call, 2, 1);
            const Stream stream[2];
            Find<void(long)>("FakeCudaFailNth")(nth);
            Several several(2, 500);
            bool good = several.IsUp();
            for (size_t r = 0; r < 2 && good; r++) {
                good = Make(call, data.in[r].Get(), data.out[r].Get(), several.comm[r],
                            stream[r].Get()) == KOLO_OK;
            }
            for (size_t r = 0; r < 2 && !good; r++) { // one may wait for one that did not come
                if (several.comm[r] != nullptr) {
                    kolo_comm_abort(several.comm[r]);
                }
            }
            Find<void()>("FakeCudaDrain")();
            failed = Find<bool()>("FakeCudaHasFailed")();
            Find<void(long)>("FakeCudaFailNth")(0);
            for (int r = 0; r < 2 && good; r++) {
                EXPECT_TRUE(data.IsRight(call, r) ||
                            kolo_comm_error(several.comm[static_cast<size_t>(r)]) != KOLO_OK)
                    << "call " << nth << " of the driver";
            }
            EXPECT_TRUE(good || failed) << nth;
        }
        ASSERT_EQ(live, Find<size_t()>("FakeCudaLive")()) << "call " << nth << " of the driver";
        ASSERT_LT(nth, 1000);
    }
    EXPECT_GT(nth, 40);
}

// ---- coming up ---------------------------------------------------------------------------------

TEST(FakeDeviceStart, RefusesDevicesAndKernelsThatAreNotThere)
{
    ASSERT_TRUE(gpu::IsFake()) << "KOLO_CUDA_PATH is not the driver of tests/device";
    kolo_config config = KOLO_CONFIG_INIT;
    kolo_comm *comm = nullptr;
    config.device = 7;
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_comm_create_local(1, &config, &comm));
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "CUDA has 2 devices")) << kolo_error_text();
    config.device = -5;
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_comm_create_local(1, &config, &comm));
    config.device = 0;
    const std::string kernels = getenv("KOLO_CUDA_KERNELS");
    setenv("KOLO_CUDA_KERNELS", "/no/such/file", 1);
    EXPECT_EQ(KOLO_ERR_SYSTEM, kolo_comm_create_local(1, &config, &comm));
    for (const std::string image : {"another GPU's", "a newer nvcc's"}) {
        char other[] = "/tmp/kolo-kernels-XXXXXX";
        const int fd = mkstemp(other);
        ASSERT_EQ(static_cast<ssize_t>(image.size()), write(fd, image.data(), image.size()));
        close(fd);
        setenv("KOLO_CUDA_KERNELS", other, 1);
        EXPECT_EQ(KOLO_ERR_UNSUPPORTED, kolo_comm_create_local(1, &config, &comm)) << image;
        EXPECT_NE(nullptr, strstr(kolo_error_text(), "CUDA 12.4")) << kolo_error_text();
        unlink(other);
    }
    unsetenv("KOLO_CUDA_KERNELS");
    if (kolo_fused_image() == nullptr) {
        EXPECT_EQ(KOLO_ERR_UNSUPPORTED, kolo_comm_create_local(1, &config, &comm));
        EXPECT_NE(nullptr, strstr(kolo_error_text(), "built without nvcc")) << kolo_error_text();
    } else {
        EXPECT_EQ(KOLO_OK, kolo_comm_create_local(1, &config, &comm)) << kolo_error_text();
        kolo_comm_destroy(comm);
    }
    setenv("KOLO_CUDA_KERNELS", kernels.c_str(), 1);
}

TEST(FakeDeviceStart, RefusesWrongValuesOfTheVariablesForGpus)
{
    struct Wrong {
        const char *name, *value, *text;
    };
    const Wrong cases[] = {
        {"KOLO_CUDA_IPC", "no", "KOLO_CUDA_IPC is \"no\"; it must be 0 to 1"},
        {"KOLO_CUDA_P2P", "off", "KOLO_CUDA_P2P is \"off\"; it must be 0 to 1"},
        {"KOLO_CUDA_DIRECT", "2", "KOLO_CUDA_DIRECT is \"2\"; it must be 0 to 1"},
        {"KOLO_CUDA_HIER", "-1", "KOLO_CUDA_HIER is \"-1\"; it must be 0 to 1"},
        {"KOLO_DMABUF_ENABLE", "on", "KOLO_DMABUF_ENABLE is \"on\"; it must be 0 to 1"},
        {"KOLO_CUDA_HIER_BYTES", "64kb",
         "KOLO_CUDA_HIER_BYTES is \"64kb\"; it must be bytes, such as 64k"},
        {"KOLO_CUDA_LL_BYTES", "-1",
         "KOLO_CUDA_LL_BYTES is \"-1\"; it must be bytes, such as 64k"}};
    for (const Wrong &wrong : cases) {
        kolo_config config = KOLO_CONFIG_INIT;
        kolo_comm *comm = nullptr;
        config.device = 0;
        setenv(wrong.name, wrong.value, 1);
        EXPECT_EQ(KOLO_ERR_INVALID, kolo_comm_create_local(1, &config, &comm)) << wrong.name;
        EXPECT_STREQ(wrong.text, kolo_error_text());
        config.device = KOLO_HOST; // which does not read them
        ASSERT_EQ(KOLO_OK, kolo_comm_create_local(1, &config, &comm)) << kolo_error_text();
        kolo_comm_destroy(comm);
        unsetenv(wrong.name);
    }
}

TEST(NoDriver, IsSaidAndHostMemoryIsAsEver)
{
    ASSERT_EQ(nullptr, gpu::Library()) << "there is a driver";
    kolo_config config = KOLO_CONFIG_INIT;
    kolo_comm *comm = nullptr;
    config.device = 0;
    EXPECT_EQ(KOLO_ERR_UNSUPPORTED, kolo_comm_create_local(1, &config, &comm));
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "cannot be loaded")) << kolo_error_text();
    config.device = KOLO_HOST;
    ASSERT_EQ(KOLO_OK, kolo_comm_create_local(1, &config, &comm));
    float mine = 3, sum = 0;
    EXPECT_EQ(KOLO_OK, kolo_all_reduce(&mine, &sum, 1, KOLO_FLOAT32, KOLO_SUM, comm, nullptr));
    EXPECT_EQ(3.0f, sum);
    kolo_comm_destroy(comm);
}

TEST(FakeDeviceStart, AndCallsSayWhatFailedWhicheverCallOfTheDriverItIsAndLeakNothing)
{
    ASSERT_TRUE(gpu::IsFake()) << "KOLO_CUDA_PATH is not the driver of tests/device";
    const size_t live = Find<size_t()>("FakeCudaLive")();
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 10, 0};
    long failures = 0;
    bool done = false;
    for (long nth = 1; !done; nth += NextFailure()) {
        kolo_config config = KOLO_CONFIG_INIT;
        kolo_comm *comm[2] = {};
        config.device = 0;
        kolo_status st = KOLO_OK;
        {
            const Data data(call, 2, 1);
            const Stream stream;
            Find<void(long)>("FakeCudaFailNth")(nth);
            st = kolo_comm_create_local(2, &config, comm);
            if (st == KOLO_OK) {
                EXPECT_EQ(KOLO_OK, kolo_group_begin());
                for (int r = 0; r < 2 && st == KOLO_OK; r++) {
                    st = Make(call, data.in[static_cast<size_t>(r)].Get(),
                              data.out[static_cast<size_t>(r)].Get(), comm[r], stream.Get());
                }
                const kolo_status ended = kolo_group_end();
                st = st == KOLO_OK ? ended : st;
            }
            const bool failed = Find<bool()>("FakeCudaHasFailed")();
            Find<void(long)>("FakeCudaFailNth")(0);
            const std::string text = kolo_error_text();
            stream.Sync();
            for (kolo_comm *c : comm) {
                kolo_comm_destroy(c);
            }
            if (st == KOLO_OK) { // what was asked only to plan rings may fail
                data.Check(call, 0);
                done = !failed;
            } else {
                failures++;
                EXPECT_EQ(KOLO_ERR_SYSTEM, st) << nth;
                EXPECT_NE(std::string::npos, text.find("CUDA_ERROR_OUT_OF_MEMORY: out of memory"))
                    << nth << ": " << text;
            }
        }
        ASSERT_EQ(live, Find<size_t()>("FakeCudaLive")()) << "call " << nth << " of the driver";
        ASSERT_LT(nth, 1000);
    }
    EXPECT_GT(failures, 100 / NextFailure());
}

TEST(FakeDeviceMessages, SayWhatFailedWhicheverCallOfTheDriverItIsAndEndOnEveryRank)
{
    ASSERT_TRUE(gpu::IsFake()) << "KOLO_CUDA_PATH is not the driver of tests/device";
    long nth = 1;
    for (bool failed = true; failed; nth += NextFailure()) {
        Team team(2);
        ASSERT_EQ(KOLO_OK, team.status);
        const Blocks blocks[2] = {{2, 0}, {2, 1}};
        const Memory out[2] = {Memory(4), Memory(4)}, in[2] = {Memory(4), Memory(4)};
        kolo_status of[2] = {};
        std::string text[2];
        Find<void(long)>("FakeCudaFailNth")(nth);
        team.Threads([&](int r) {
            kolo_comm *comm = team.Comm(r);
            void *stream = team.At(r).Get();
            EXPECT_EQ(KOLO_OK, kolo_group_begin());
            of[r] = kolo_send(out[r].Get(), 1, KOLO_INT32, 1 - r, comm, stream);
            of[r] = of[r] == KOLO_OK ? kolo_recv(in[r].Get(), 1, KOLO_INT32, 1 - r, comm, stream)
                                     : of[r];
            const kolo_status ended = kolo_group_end();
            of[r] = of[r] == KOLO_OK ? ended : of[r];
            text[r] = kolo_error_text();
            if (of[r] != KOLO_OK) { // as a program does that cannot go on
                kolo_comm_abort(comm);
            }
        });
        const int who =
            of[0] == KOLO_ERR_SYSTEM && text[0].find("CUDA_") != std::string::npos ? 0 : 1;
        kolo_status st = of[0] == KOLO_OK ? of[1] : of[who];
        EXPECT_EQ(KOLO_OK, kolo_group_begin());
        for (int r = 0; r < 2 && st == KOLO_OK; r++) {
            st = AllToAllV(blocks[r], team.Comm(r), team.At(r).Get());
        }
        const kolo_status ended = kolo_group_end();
        st = st == KOLO_OK ? ended : st;
        text[who] = of[0] == KOLO_OK && of[1] == KOLO_OK ? kolo_error_text() : text[who];
        failed = Find<bool()>("FakeCudaHasFailed")();
        Find<void(long)>("FakeCudaFailNth")(0);
        if (failed) {
            EXPECT_EQ(KOLO_ERR_SYSTEM, st) << nth;
            EXPECT_NE(std::string::npos, text[who].find("CUDA_ERROR_OUT_OF_MEMORY"))
                << nth << ": " << text[0] << "; " << text[1];
            EXPECT_NE(KOLO_OK, kolo_comm_error(team.Comm(0))) << nth;
            EXPECT_NE(KOLO_OK, kolo_comm_error(team.Comm(1))) << nth;
        } else {
            EXPECT_EQ(KOLO_OK, st) << kolo_error_text();
        }
        team.At(0).Sync(); // whichever it was, they end
        team.At(1).Sync();
        ASSERT_LT(nth, 1000);
    }
    EXPECT_GT(nth, 20);
}

// ---- what a call costs, and what others may do meanwhile -----------------------------------------

TEST(FakeDeviceCollectives, OfAGroupAskTheDriverLittle)
{
    ASSERT_TRUE(gpu::IsFake()) << "KOLO_CUDA_PATH is not the driver of tests/device";
    constexpr int kRanks = 4, kCalls = 24; // five for each rank, and those for the kernel
    Team team(kRanks);
    ASSERT_EQ(KOLO_OK, team.status) << kolo_error_text();
    const Call call = {kAllReduce, KOLO_FLOAT32, KOLO_SUM, 50, 0};
    const Data data(call, kRanks, 17);
    for (const bool first : {true, false}) {
        Find<void(long)>("FakeCudaFailNth")(first ? 0 : kCalls + 1);
        ASSERT_EQ(KOLO_OK, kolo_group_begin());
        for (int r = 0; r < kRanks; r++) {
            const auto at = static_cast<size_t>(r);
            ASSERT_EQ(KOLO_OK, Make(call, data.in[at].Get(), data.out[at].Get(), team.Comm(r),
                                    team.At(0).Get()));
        }
        EXPECT_EQ(KOLO_OK, kolo_group_end()) << kolo_error_text();
        EXPECT_EQ(first, Find<bool()>("FakeCudaHasFailed")()) << "more calls of the driver";
    }
    Find<void(long)>("FakeCudaFailNth")(0);
    team.At(0).Sync();
    for (int r = 0; r < kRanks; r++) {
        data.Check(call, r);
    }
}

TEST(DeviceErrors, TheStreamOfAThreadIsRefusedWhereAnotherThreadEnqueues)
{
    Team team(2);
    ASSERT_EQ(KOLO_OK, team.status);
    const Memory a(64);
    void *const stream = reinterpret_cast<void *>(uintptr_t{2}); // cudaStreamPerThread
    EXPECT_EQ(KOLO_ERR_INVALID,
              kolo_all_reduce(a.Get(), a.Get(), 3, KOLO_INT32, KOLO_SUM, team.Comm(0), stream));
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "cudaStreamPerThread")) << kolo_error_text();
}

// Its pinned memory, its streams and its kernels are the driver's business, which waits for all
// work of the GPU, and so for the call.
TEST(FakeDeviceSeveral, CommunicatorsMayComeAndGoWhileACallOfAnotherIsPending)
{
    ASSERT_TRUE(gpu::IsFake()) << "KOLO_CUDA_PATH is not the driver of tests/device";
    const Call call = {kAllReduce, KOLO_INT32, KOLO_SUM, 10, 0};
    Several several(2);
    ASSERT_TRUE(several.IsUp()) << kolo_error_text();
    const Spread data(call, 2, 1);
    const Stream stream[] = {Stream(0), Stream(1)};
    kolo_config config = KOLO_CONFIG_INIT;
    config.device = 0;
    kolo_comm *shares[2] = {};
    ASSERT_EQ(KOLO_OK, kolo_comm_create_local(2, &config, shares)) << kolo_error_text();
    EXPECT_EQ(KOLO_OK,
              Make(call, data.in[0].Get(), data.out[0].Get(), several.comm[0], stream[0].Get()));
    {
        Several another(2);
        EXPECT_TRUE(another.IsUp()) << kolo_error_text();
    }
    for (kolo_comm *comm : shares) {
        kolo_comm_destroy(comm);
    }
    EXPECT_EQ(KOLO_OK,
              Make(call, data.in[1].Get(), data.out[1].Get(), several.comm[1], stream[1].Get()));
    for (int r = 0; r < 2; r++) {
        stream[r].Sync();
        EXPECT_TRUE(data.IsRight(call, r));
    }
}

// A process of its own, because the log reads its variables once.
TEST(FakeDeviceStart, WarnsOfMoreRanksThanHardwareQueues)
{
    ASSERT_TRUE(gpu::IsFake()) << "KOLO_CUDA_PATH is not the driver of tests/device";
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    for (const bool enough : {false, true}) {
        setenv("CUDA_DEVICE_MAX_CONNECTIONS", enough ? "32" : "8", 1);
        setenv("KOLO_DEBUG", "WARN", 1);
        setenv("KOLO_DEBUG_FILE", "/dev/stderr", 1);
        EXPECT_EXIT(
            {
                const Team team(9);
                fprintf(stderr, "end");
                exit(team.status == KOLO_OK ? 0 : 1);
            },
            testing::ExitedWithCode(0),
            enough ? "version [0-9.]+\nend" : "9 ranks .* share 8 hardware queues");
    }
    unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
    unsetenv("KOLO_DEBUG");
    unsetenv("KOLO_DEBUG_FILE");
}

// ---- a fault: in a process of its own, as all calls of the driver fail from then on -------------

// A float at an odd address is the application's mistake, which ends its context.
TEST(FakeDeviceFault, OfAKernelFailsLaterCallsOnEveryRankAndHoldsUpNoEnd)
{
    constexpr int kMisaligned = 716;
    Team team(2);
    Several pending(2); // rank 0's call waits for that of rank 1, which never comes
    const Memory in(4096), out(4096);
    const Stream stream;
    ASSERT_TRUE(team.status == KOLO_OK && pending.IsUp()) << kolo_error_text();
    ASSERT_EQ(KOLO_OK, kolo_all_reduce(in.Get(), in.Get(), 9, KOLO_FLOAT32, KOLO_SUM,
                                       pending.comm[0], stream.Get()));
    const auto call = [&] {
        EXPECT_EQ(KOLO_OK, kolo_group_begin());
        kolo_status st = KOLO_OK;
        for (int r = 0; r < 2 && st == KOLO_OK; r++) {
            st = kolo_all_reduce(in.Get(1), out.Get(1), 64, KOLO_FLOAT32, KOLO_SUM, team.Comm(r),
                                 team.At(0).Get());
        }
        const kolo_status ended = kolo_group_end();
        return st == KOLO_OK ? ended : st;
    };
    const auto is_fault = [](kolo_status st) {
        return st == KOLO_ERR_SYSTEM &&
               strstr(kolo_error_text(), "CUDA_ERROR_MISALIGNED_ADDRESS") != nullptr;
    };
    const kolo_status first = call(); // its kernel may run before the call records its event
    ASSERT_TRUE(first == KOLO_OK || is_fault(first)) << kolo_error_text();
    {
        const Context context;
        EXPECT_EQ(kMisaligned, Find<int(void *)>("cuStreamSynchronize")(team.At(0).Get()));
    }
    EXPECT_TRUE(is_fault(call())) << kolo_error_text();
    EXPECT_NE(KOLO_OK, kolo_comm_error(team.Comm(0)));
    EXPECT_NE(KOLO_OK, kolo_comm_error(team.Comm(1)));
}

} // namespace
