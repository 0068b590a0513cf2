# SPDX-License-Identifier: Apache-2.0
# covers: src/util/net.c transports/tcp
"""Hosts that have IPv6 addresses only.

usage: ipv6_test.py COLLECTIVES PERF   (the ranks' checks; all_reduce_perf)
"""
import os
import re
import sys
import tempfile

from hosts import need, tails
from tap import check, run_tests

COLLECTIVES, PERF = sys.argv[1:]
HOSTS = need(3, family=6)
COMMAND = [PERF, "-b", "8", "-e", "64K", "-f", "64", "-n", "5"]


def right(ends):
    return all(status == 0 for status, _ in ends) and "Out of bounds values : 0 OK" in ends[0][1]


def test_collectives():
    """Every collective, type and operation, met by [address]:port; a host has two of the ranks."""
    ends = HOSTS.run([0, 1, 2, 0], [COLLECTIVES], KOLO_TEST_SHORT="1")
    said = ends[0][1] or ""
    good = len(re.findall(r"^ok ", said, re.M))
    check(all(status == 0 for status, _ in ends) and good > 0 and "not ok" not in said,
          "over IPv6 alone every collective is right", f"{good} were", *tails(ends),
          *re.findall(r"^not ok.*", said, re.M)[:5])


def test_what_is_used():
    """The log tells the address; several connections a pair, and sums, are no other matter."""
    ends = HOSTS.run([0, 1], COMMAND, KOLO_DEBUG="INFO", KOLO_NSOCKS_PERTHREAD="2", KOLO_CRC="1")
    check(right(ends) and re.search(r"NET/Socket : Using \[0\]eth0:\[?fd77::1", ends[0][1]),
          "the log names the IPv6 address that is used", *tails(ends),
          *re.findall(r".*NET/Socket.*", ends[0][1]))


def test_family():
    """KOLO_SOCKET_FAMILY: the one that is there, and the one that is not."""
    ends = HOSTS.run([0, 1], COMMAND, KOLO_SOCKET_FAMILY="AF_INET6")
    check(right(ends), "KOLO_SOCKET_FAMILY=AF_INET6 takes them", *tails(ends))
    ends = HOSTS.run([0, 1], COMMAND, KOLO_SOCKET_FAMILY="AF_INET", KOLO_TIMEOUT_MS="5000")
    check(all(status not in (0, None) for status, _ in ends) and
          any("AF_INET" in out for _, out in ends),
          "KOLO_SOCKET_FAMILY=AF_INET, which no host has, is an error that says so", *tails(ends))


def test_subnet():
    """KOLO_SOCKET_IFNAME with a subnet of 10 bits; the one next to it does not have the address."""
    ends = HOSTS.run([0, 1], COMMAND, KOLO_SOCKET_IFNAME="fd40::/10", KOLO_PORT_RANGE="30100-30109")
    check(right(ends), "KOLO_SOCKET_IFNAME=fd40::/10 takes them", *tails(ends))
    ends = HOSTS.run([0, 1], COMMAND, KOLO_SOCKET_IFNAME="fd80::/10", KOLO_TIMEOUT_MS="5000")
    check(all(status not in (0, None) for status, _ in ends) and
          any("KOLO_SOCKET_IFNAME" in out for _, out in ends),
          "KOLO_SOCKET_IFNAME=fd80::/10 is an error that says so", *tails(ends))


def test_file():
    """An id carries an IPv6 address, too."""
    with tempfile.TemporaryDirectory(prefix="kolo-netns-") as folder:
        ends = HOSTS.run([0, 1], COMMAND, KOLO_ID_FILE=os.path.join(folder, "id"), KOLO_ROOT="", KOLO_SECRET="")
        check(right(ends), "KOLO_ID_FILE joins hosts with IPv6 alone", *tails(ends))


run_tests(globals())
