// SPDX-License-Identifier: Apache-2.0
/* Two ranks as processes over one transport without a communicator: what a message takes there and
 * back, and how many bytes a second go one way. To be read beside ib_write_lat and ib_write_bw.
 *
 * usage: speed TRANSPORT [BYTES...]   8 64K 1M 8M where none is given */
#include "tests/conformance/processes.h"
#include "util/util.h"

#include <algorithm>
#include <cstdio>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>

namespace
{

constexpr int kFlying = 4; /* messages at a time, one way */
constexpr int kPolls = 200, kYields = 220;

/* A flag at the end tells what the median of rounds is. */
double Median(std::vector<double> &us)
{
    std::sort(us.begin(), us.end());
    return us[us.size() / 2];
}

/* As a call does: spin, yield, then sleep until there is news. */
void Wait(Process &p, kolo_req &req)
{
    for (int spins = 0; req.status == KOLO_INPROGRESS; spins++) {
        if (p.transport->progress(p.rank.endpoint, 64) > 0) {
            spins = 0;
        }
        pollfd news = {p.transport->wait_fd(p.rank.endpoint), POLLIN, 0};
        if (spins > kYields && news.fd >= 0) {
            (void)poll(&news, 1, 10);
        } else if (spins > kPolls) {
            sched_yield();
        }
    }
}

/* Half of what it takes there and back, in us. */
double Ping(Process &p, unsigned char *at, size_t bytes, int rounds)
{
    std::vector<double> us;
    const kolo_bytes data = Flat(at, bytes);
    for (int i = 0; i < rounds; i++) {
        kolo_req send{}, recv{};
        const double begun = kolo_now_us();
        for (int turn = 0; turn < 2; turn++) {
            if (turn == p.index) {
                EXPECT_EQ(KOLO_OK, p.transport->send(p.Link(1 - p.index), &data, &send));
                Wait(p, send);
            } else {
                EXPECT_EQ(KOLO_OK, p.transport->recv(p.Link(1 - p.index), &data, &recv));
                Wait(p, recv);
            }
        }
        us.push_back((kolo_now_us() - begun) / 2);
    }
    return Median(us);
}

/* 1e6 bytes a second from rank 0 to rank 1. */
double Stream(Process &p, unsigned char *at, size_t bytes, int rounds)
{
    const kolo_bytes data = Flat(at, bytes);
    kolo_req req[kFlying] = {};
    const double begun = kolo_now_us();
    for (int i = 0; i < rounds + kFlying; i++) {
        kolo_req &one = req[i % kFlying];
        if (i >= kFlying) {
            Wait(p, one);
        }
        if (i < rounds) {
            one = kolo_req{};
            EXPECT_EQ(KOLO_OK, p.index == 0 ? p.transport->send(p.Link(1), &data, &one)
                                            : p.transport->recv(p.Link(0), &data, &one));
        }
    }
    p.Barrier();
    return (double)bytes * rounds / (kolo_now_us() - begun);
}

void Measure(Process &p, const std::vector<size_t> &sizes)
{
    p.Join();
    for (const size_t bytes : sizes) {
        void *memory = nullptr; /* that stays registered, as theirs does */
        ASSERT_EQ(KOLO_OK, kolo_mem_alloc(bytes, &memory));
        auto *at = (unsigned char *)memory;
        const int rounds = (int)std::clamp<size_t>((4u << 20) / (bytes + 1), 4, 500);
        p.Barrier();
        (void)Ping(p, at, bytes, 4);
        const double us = Ping(p, at, bytes, rounds);
        p.Barrier();
        const double mbs = Stream(p, at, bytes, rounds);
        if (p.index == 0) {
            std::printf("%zu bytes: %.2f us, %.2f MB/s\n", bytes, us, mbs);
            std::fflush(stdout);
        }
        p.Barrier();
        kolo_mem_free(memory);
    }
    p.Barrier();
    p.Leave();
}

} // namespace

int main(int argc, char **argv)
{
    const kolo_transport *transport = argc > 1 ? kolo_transport_find(argv[1]) : nullptr;
    std::vector<size_t> sizes;
    for (int i = 2; i < argc; i++) {
        size_t bytes = 0;
        if (kolo_parse_bytes(argv[i], &bytes)) {
            sizes.push_back(bytes);
        }
    }
    if (transport == nullptr || sizes.size() + 2 != (size_t)argc) {
        std::fprintf(stderr, "usage: speed TRANSPORT [BYTES...]\n");
        return 2;
    }
    if (sizes.empty()) {
        sizes = {8, 64 << 10, 1 << 20, 8 << 20};
    }
    testing::InitGoogleTest();
    RunProcesses(transport, 2, [&](Process &p) { Measure(p, sizes); });
    return testing::Test::HasFailure() ? 1 : 0;
}
