// SPDX-License-Identifier: Apache-2.0
// covers: transports/tcp/speed.c
/* The speed of an interface, of a device that is made here, in a network of its own. */
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/ethtool.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

extern "C" double kolo_tcp_interface_gbs(const char *name);

namespace
{

constexpr char kName[] = "tap-of-a-test";

struct ifreq Named()
{
    struct ifreq ask = {};
    memcpy(ask.ifr_name, kName, sizeof kName);
    return ask;
}

/* Set the device's speed in Mbit/s. */
bool SetSpeed(uint32_t mbit)
{
    struct ethtool_cmd command = {};
    struct ifreq ask = Named();
    ask.ifr_data = reinterpret_cast<char *>(&command);
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    command.cmd = ETHTOOL_GSET;
    bool set = ioctl(fd, SIOCETHTOOL, &ask) == 0;
    command.cmd = ETHTOOL_SSET;
    ethtool_cmd_speed_set(&command, mbit);
    set = set && ioctl(fd, SIOCETHTOOL, &ask) == 0;
    close(fd);
    return set;
}

TEST(InterfaceSpeed, IsThatOfTheDevice)
{
    bool allowed = false, there = false, made = false;
    double fast = -1, slow = -1, virtual_one = -1, unknown = -1;
    std::thread([&] {
        struct ifreq ask = Named();
        ask.ifr_flags = IFF_TAP | IFF_NO_PI;
        allowed = unshare(CLONE_NEWNET) == 0;
        const int fd = allowed ? open("/dev/net/tun", O_RDWR) : -1;
        there = fd >= 0;
        made = there && ioctl(fd, TUNSETIFF, &ask) == 0 && SetSpeed(100000);
        fast = kolo_tcp_interface_gbs(kName);
        made = made && SetSpeed(1000);
        slow = kolo_tcp_interface_gbs(kName);
        made = made && SetSpeed(10);
        virtual_one = kolo_tcp_interface_gbs(kName);
        made = made && SetSpeed(static_cast<uint32_t>(SPEED_UNKNOWN));
        unknown = kolo_tcp_interface_gbs(kName);
        close(fd);
    }).join();
    if (!allowed) {
        GTEST_SKIP() << "unshare(2) gives this user no network namespace";
    }
    if (!there) {
        GTEST_SKIP() << "/dev/net/tun does not open";
    }
    ASSERT_TRUE(made) << "the device was not made, or took no speed";
    EXPECT_DOUBLE_EQ(12.5, fast);
    EXPECT_DOUBLE_EQ(0.125, slow);
    EXPECT_EQ(0, virtual_one) << "devices of tun(4) say 10 Mbit/s";
    EXPECT_EQ(0, unknown);
}

TEST(InterfaceSpeed, IsNotKnownOfTheLoopbackNorOfNoDevice)
{
    EXPECT_EQ(0, kolo_tcp_interface_gbs("lo"));
    EXPECT_EQ(0, kolo_tcp_interface_gbs("no-such-device"));
}

} // namespace
