# SPDX-License-Identifier: Apache-2.0
"""The guest itself, and the shortest look at everything that is to work in it.

usage: first_test.py KOLO PERF   (the tool, all_reduce_perf)
"""
import sys

from guest import Guest, tcp_netem
from hosts import tails
from tap import check, run_tests

KOLO, PERF = sys.argv[1:]
GUEST = Guest()


def right(ends):
    return all(status == 0 for status, _ in ends) and "Out of bounds values : 0 OK" in (ends[0][1] or "")


def test_devices():
    """Each host has two rails, and kolo's tools find them as they are."""
    for host in (0, 1):
        status, out = GUEST.call(host, KOLO, "topo")
        own, other = ([f"rxe{2 * rail + end}, port 1.25 GB/s" for rail in (0, 1)] for end in (host, 1 - host))
        check(status == 0 and all(each in out for each in own) and not any(each in out for each in other),
              f"kolo topo shows the two rails of host {host} and their rates, and no other", out)
    status, out = GUEST.call(0, KOLO, "doctor")
    check(status == 0 and "ok    rxe2: 1.25 GB/s, RDMA" in out, "kolo doctor finds no fault with them", out)
    status, out = GUEST.call(0, "sh", "-c", f"ulimit -l 64 && {KOLO} doctor")
    check(status == 1 and "FIX   locked memory is limited to 0.0625 MiB" in out,
          "kolo doctor wants more locked memory where there is little", out)


def test_tcp():
    """Over the hosts' own wire, whole and with losses."""
    ends = GUEST.run([0, 1], [PERF, "-b", "8", "-e", "1M", "-f", "8", "-n", "3", "-w", "1"], KOLO_TRANSPORT="tcp")
    check(right(ends), "two ranks on two hosts are right over TCP", *tails(ends))
    for host in (0, 1):
        tcp_netem(host, "loss", "1%", "delay", "5ms")
    ends = GUEST.run([0, 1, 0], [PERF, "-b", "8", "-e", "64K", "-f", "64", "-n", "3", "-w", "1"], KOLO_TRANSPORT="tcp")
    for host in (0, 1):
        tcp_netem(host)
    check(right(ends), "three ranks are right over TCP with 1 % loss and 5 ms", *tails(ends))


run_tests(globals())
