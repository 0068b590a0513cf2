// SPDX-License-Identifier: Apache-2.0
/* The speed of a network interface, as its driver tells it (ethtool(8)). A file of /sys tells it,
 * too, but of the network namespace in which /sys was mounted. */
#include "transports/tcp/tcp.h"

#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LEAST_MBIT = 100 }; /* a device of tun(4) says 10, whatever lies behind it */

double kolo_tcp_interface_gbs(const char *name)
{
    struct ethtool_cmd told = {.cmd = ETHTOOL_GSET};
    struct ifreq ask = {.ifr_data = (void *)&told};
    (void)snprintf(ask.ifr_name, sizeof ask.ifr_name, "%s", name);
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool answered = fd >= 0 && ioctl(fd, SIOCETHTOOL, &ask) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    /* ethtool_cmd_speed() shifts an int into its sign. */
    const uint32_t mbit = (uint32_t)told.speed_hi << 16 | told.speed;
    return answered && mbit >= LEAST_MBIT && mbit != (uint32_t)SPEED_UNKNOWN ? mbit / 8e3 : 0;
}
