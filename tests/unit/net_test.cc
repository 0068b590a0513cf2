// SPDX-License-Identifier: Apache-2.0
// covers: src/util/net.c
/* Connections as TCP makes them. */
extern "C" {
#include "util/net.h"
}

#include <arpa/inet.h>
#include <cerrno>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace
{

// The kernel may give a socket that connects the very port that it connects to.
TEST(Connected, ASocketThatMeetsItselfIsRefused)
{
    struct sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    auto *const address = reinterpret_cast<struct sockaddr *>(&at);
    socklen_t len = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(0, bind(fd, address, len));
    ASSERT_EQ(0, getsockname(fd, address, &len));
    ASSERT_EQ(0, connect(fd, address, len));
    EXPECT_EQ(ECONNREFUSED, kolo_net_connected(fd, 0));
    close(fd);
}

TEST(Connected, AListenerThatTakesTheConnectionIsMet)
{
    kolo_interface at = {};
    int listener = -1;
    ASSERT_EQ(KOLO_OK, kolo_net_choose(true, nullptr, &at)) << kolo_error_text();
    ASSERT_EQ(KOLO_OK, kolo_net_listen(&at, &listener)) << kolo_error_text();
    const int fd = kolo_net_connect(&at.place, &at);
    EXPECT_EQ(0, kolo_net_connected(fd, 1000));
    close(fd);
    close(listener);
}

} // namespace
