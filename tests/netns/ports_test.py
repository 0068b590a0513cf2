# SPDX-License-Identifier: Apache-2.0
# covers: src/util/net.c transports/tcp
"""Which ports ranks listen at, and interfaces that are named by their subnets.

usage: ports_test.py PERF   (all_reduce_perf)
"""
import re
import sys

from hosts import ip, need, tails
from tap import check, run_tests

PERF = sys.argv[1]
HOSTS = need(2)
COMMAND = [PERF, "-b", "8", "-e", "64K", "-f", "64", "-n", "5"]


def right(ends):
    return all(status == 0 for status, _ in ends) and "Out of bounds values : 0 OK" in ends[0][1]


def refused(ends, word):
    return all(status not in (0, None) for status, _ in ends) and any(word in out for _, out in ends)


def ports(ends):
    """The ports that ranks were connected at, as the log names them."""
    return [int(port) for _, out in ends for port in re.findall(r"socket 0 of .*<(\d+)>", out)]


def test_range():
    """Two ranks of a host share a range of the least size: 2 ports for each of them and of their two
    communicators, and one where a split meets. Ports of the jobs before are free again."""
    for _ in range(3):
        ends = HOSTS.run([0, 1, 0], COMMAND, KOLO_PORT_RANGE="30100-30108", KOLO_DEBUG="INFO",
                         KOLO_TRANSPORT="tcp")
        used = ports(ends)
        check(right(ends) and used and all(30100 <= port <= 30108 for port in used),
              "every connection is made to a port of KOLO_PORT_RANGE", f"ports {used}", *tails(ends))


def test_range_without_room():
    ends = HOSTS.run([0, 1], COMMAND, KOLO_PORT_RANGE="30100-30100", KOLO_TIMEOUT_MS="5000")
    check(refused(ends, 'no port of KOLO_PORT_RANGE "30100-30100"'),
          "a range with too few ports is an error that names it", *tails(ends))


def test_range_that_is_none():
    for text in ("30100", "30100-30000", "0-5", "30000-70000", "a-b"):
        ends = HOSTS.run([0, 1], COMMAND, KOLO_PORT_RANGE=text, KOLO_TIMEOUT_MS="5000")
        check(refused(ends, f'KOLO_PORT_RANGE is "{text}"'), f"{text} is no range of ports", *tails(ends))


def test_subnet():
    """Each host has a second address, which the subnet chooses; 10.77.0.0/16 covers the other."""
    for i, name in enumerate(HOSTS.names):
        why = ip("-n", name, "addr", "add", f"10.78.64.{i + 1}/24", "dev", "eth0")
        check(not why, "the host gets a second address", why)
    for wish in ("10.78.64.0/19", "lo0,10.78.0.0/16", "^10.77.0.0/16,lo", "10.78.64.0/18,fd00::/8"):
        ends = HOSTS.run([0, 1], COMMAND, KOLO_SOCKET_IFNAME=wish, KOLO_DEBUG="INFO")
        check(right(ends) and "eth0:10.78.64.1<" in ends[0][1],
              f"KOLO_SOCKET_IFNAME={wish} chooses the address", *tails(ends),
              *re.findall(r".*NET/Socket.*", ends[0][1]))


def test_subnet_without_address():
    ends = HOSTS.run([0, 1], COMMAND, KOLO_SOCKET_IFNAME="10.78.96.0/19", KOLO_TIMEOUT_MS="5000")
    check(refused(ends, "no interface that is up fits KOLO_SOCKET_IFNAME"),
          "a subnet next to the host's is refused", *tails(ends))
    ends = HOSTS.run([0, 1], COMMAND, KOLO_SOCKET_IFNAME="10.78.0.0/33", KOLO_TIMEOUT_MS="5000")
    check(refused(ends, "which is no subnet"), "a subnet with too long a prefix is refused", *tails(ends))


run_tests(globals())
