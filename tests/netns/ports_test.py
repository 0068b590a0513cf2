# SPDX-License-Identifier: Apache-2.0
# covers: src/util/net.c src/boot/launch_hosts.c transports/tcp
"""Which ports ranks listen at, interfaces named by their subnets, and hosts whose names are late.

usage: ports_test.py PERF   (all_reduce_perf)
"""
import contextlib
import os
import re
import shutil
import sys

from hosts import finish, ip, need, tails
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
    """Two ranks of a host share a range of the least size: 3 ports for each of them and of their two
    communicators, and one where a split meets. Ports of the jobs before are free again."""
    for _ in range(3):
        ends = HOSTS.run([0, 1, 0], COMMAND, KOLO_PORT_RANGE="30100-30112", KOLO_DEBUG="INFO",
                         KOLO_TRANSPORT="tcp")
        used = ports(ends)
        check(right(ends) and used and all(30100 <= port <= 30112 for port in used),
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


def test_late_name():
    """The name of rank 0's host enters the hosts' tables after the ranks have asked for it."""
    folders = [f"/etc/netns/{name}" for name in HOSTS.names]
    try:
        for folder in folders:
            os.makedirs(folder)
            write(f"{folder}/hosts", "127.0.0.1 localhost\n")
            write(f"{folder}/resolv.conf", "nameserver 127.0.0.1\n")  # nobody serves there
        ranks = HOSTS.start([0, 1], COMMAND, KOLO_ROOT=f"late.kolo.test:{HOSTS.port}",
                            KOLO_DEBUG="WARN", KOLO_TIMEOUT_MS="60000")
        said = [next((line for line in rank.stdout if "late.kolo.test" in line), "") for rank in ranks]
        for folder in folders:
            write(f"{folder}/hosts", f"{HOSTS.address(0)} late.kolo.test\n")
        ends = finish(ranks)
        check(all('late.kolo.test" has no address yet' in line for line in said) and right(ends),
              "ranks wait for a name that appears late", *said, *tails(ends))
        ends = HOSTS.run([0, 1], COMMAND, KOLO_ROOT="never.kolo.test:7", KOLO_TIMEOUT_MS="500")
        check(refused(ends, 'never.kolo.test" has no address:'),
              "a name that does not appear in time is an error", *tails(ends))
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # another test's folders are in it
            os.rmdir("/etc/netns")


def write(path, text):
    """In place: the file is mounted inside the host."""
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


run_tests(globals())
