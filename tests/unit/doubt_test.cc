// SPDX-License-Identifier: Apache-2.0
// covers: transports/doubt.c
/* Whether a peer has died: knocks at listeners that keep connections, close them, or go away. */
extern "C" {
#include "transports/doubt.h"
#include "util/util.h"
}

#include <arpa/inet.h>
#include <atomic>
#include <cerrno>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace
{

// A listener on the loopback. It closes the first `closes` connections at once, and keeps the others.
class Peer
{
  public:
    explicit Peer(int closes) : closes_(closes)
    {
        EXPECT_EQ(KOLO_OK, kolo_net_choose(true, nullptr, &at_)) << kolo_error_text();
        EXPECT_EQ(KOLO_OK, kolo_net_listen(&at_, &listener_)) << kolo_error_text();
        thread_ = std::thread([this] { Accept(); });
    }
    ~Peer()
    {
        Leave();
    }
    Peer(const Peer &) = delete;
    Peer &operator=(const Peer &) = delete;
    // As a process that ends: the listener closes, and with it what it has not accepted.
    void Leave()
    {
        ends_ = true;
        if (thread_.joinable()) {
            thread_.join();
        }
        close(listener_);
        listener_ = -1;
    }
    // What the doubt ends with. The peer leaves once it has `leaves_after` connections, and not before
    // that time is over.
    int Settle(bool met, int leaves_after = -1, int leaves_after_ms = 0)
    {
        kolo_doubt doubt = {};
        int error = 0;
        const double since_us = kolo_now_us();
        kolo_doubt_begin(&doubt, &at_.place, &at_, met);
        while ((error = kolo_doubt_step(&doubt)) == 0) {
            if (leaves_after >= 0 && seen_ >= leaves_after && listener_ >= 0 &&
                kolo_now_us() - since_us > leaves_after_ms * 1e3) {
                Leave();
            }
            usleep(200);
        }
        kolo_doubt_end(&doubt);
        return error;
    }
    int Seen() const
    {
        return seen_;
    }

  private:
    void Accept()
    {
        std::vector<int> kept;
        while (!ends_) {
            struct pollfd soon = {listener_, POLLIN, 0};
            const int fd = poll(&soon, 1, 1) > 0 ? accept(listener_, nullptr, nullptr) : -1;
            if (fd >= 0 && ++seen_ <= closes_) {
                close(fd);
            } else if (fd >= 0) {
                kept.push_back(fd);
            }
        }
        for (const int fd : kept) {
            close(fd);
        }
    }
    const int closes_;
    kolo_interface at_ = {};
    int listener_ = -1;
    std::atomic<bool> ends_{false};
    std::atomic<int> seen_{0};
    std::thread thread_;
};

TEST(Doubt, AConnectionThatStandsIsLife)
{
    Peer peer(0);
    EXPECT_EQ(ENOLINK, peer.Settle(true));
    EXPECT_EQ(1, peer.Seen());
}

TEST(Doubt, ARefusalIsDeath)
{
    Peer peer(0);
    peer.Leave();
    EXPECT_EQ(ECONNRESET, peer.Settle(true));
    EXPECT_EQ(ECONNREFUSED, peer.Settle(false));
}

TEST(Doubt, AListenerThatClosesItsGuestsIsKnockedAtAgain)
{
    Peer peer(3);
    EXPECT_EQ(ENOLINK, peer.Settle(true));
    EXPECT_EQ(4, peer.Seen());
}

TEST(Doubt, AProcessThatEndsAfterItHasAcceptedIsDead)
{
    Peer peer(1 << 20);
    EXPECT_EQ(ECONNRESET, peer.Settle(true, 3));
}

TEST(Doubt, AProcessThatIsSlowToEndIsDead)
{
    Peer peer(0);
    EXPECT_EQ(ECONNRESET, peer.Settle(true, 1, 700));
}

// Where a listener closes while the handshake ends, Linux leaves a connection without another end.
TEST(Doubt, AConnectionWithoutAnotherEndIsDeath)
{
    kolo_interface at = {};
    int listener = -1, error = 0;
    const int on = 1;
    ASSERT_EQ(KOLO_OK, kolo_net_choose(true, nullptr, &at)) << kolo_error_text();
    ASSERT_EQ(KOLO_OK, kolo_net_listen(&at, &listener)) << kolo_error_text();
    kolo_doubt doubt = {};
    kolo_doubt_begin(&doubt, &at.place, &at, true);
    struct pollfd soon = {listener, POLLIN, 0};
    ASSERT_EQ(1, poll(&soon, 1, 1000));
    const int end = accept(listener, nullptr, nullptr);
    const bool silent = setsockopt(end, IPPROTO_TCP, TCP_REPAIR, &on, sizeof on) == 0;
    close(end);
    close(listener);
    while ((error = kolo_doubt_step(&doubt)) == 0) {
        usleep(200);
    }
    kolo_doubt_end(&doubt);
    if (!silent) {
        GTEST_SKIP() << "a socket ends without a word (TCP_REPAIR) by CAP_NET_ADMIN only";
    }
    EXPECT_EQ(ECONNRESET, error);
}

TEST(Doubt, AListenerThatKeepsNobodyProvesNothing)
{
    Peer peer(1 << 20);
    EXPECT_EQ(ETIMEDOUT, peer.Settle(true));
    EXPECT_LT(10, peer.Seen());
}

} // namespace
