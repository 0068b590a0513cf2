# SPDX-License-Identifier: Apache-2.0
"""Hosts that are network namespaces of this machine, each behind a NIC with a rate and a delay."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/netns"))
import hosts  # noqa: E402

BURST = "16k"  # so much passes at the speed of memory; with less, tbf halves the rate of long messages
BURST_FAST = "64k"  # the same from FAST_MBIT on
FAST_MBIT = 2000
MTU = 9000
MEETING_PLACE = "10.77.0.254"  # the address of the bridge, where a launcher of all hosts runs


def _do(*command):
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def shape(net, mbit, burst=BURST):
    """Hold the NIC of each host to a rate, by tbf(8)."""
    for name in net.names:
        _do("tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{mbit}mbit", "burst", burst,
            "latency", "100ms")


def delay(net, microseconds):
    """Let packets wait for the next tick of a clock at the host that receives them, as behind a NIC that moderates
    its interrupts: half a tick in the mean. Packets are no longer than a frame, so that each waits."""
    settings = {"gro_flush_timeout": microseconds * 1000, "napi_defer_hard_irqs": 10**9}
    for i, name in enumerate(net.names):
        for place, device in ((name, "eth0"), (net.bridge, f"port{i}")):
            _do("ip", "-n", place, "link", "set", device, "mtu", str(MTU))
            _do("ip", "netns", "exec", place, "ethtool", "-K", device, "tso", "off", "gso", "off", "gro", "on")
        _do("ip", "netns", "exec", name, "sh", "-c",
            "; ".join(f"echo {value} > /sys/class/net/eth0/{key}" for key, value in settings.items()))
        for state in ("down", "up"):  # the settings count from here on
            _do("ip", "-n", name, "link", "set", "eth0", state)


def linked(count, mbit, microseconds):
    """Hosts with NICs of such a rate and tick (0: none), and an address at their bridge. Raises OSError or
    CalledProcessError where they cannot be made."""
    net = hosts.Hosts(count)
    if net.why:
        raise OSError(net.why)
    _do("ip", "-n", net.bridge, "addr", "add", f"{MEETING_PLACE}/24", "dev", "br0")
    _do("ip", "-n", net.bridge, "link", "set", "lo", "up")
    if microseconds:
        delay(net, microseconds)
    if mbit:
        shape(net, mbit, BURST_FAST if mbit >= FAST_MBIT else BURST)
    return net
