# SPDX-License-Identifier: Apache-2.0
# covers: transports/verbs
"""The guest itself, and the shortest look at everything that is to work in it.

usage: first_test.py KOLO PERF FAULTS   (the tool, all_reduce_perf, the program of tests/multirank/faults.c)
"""
import re
import sys
import time

from guest import RAILS, Guest, left_over, netem, resources, tcp_netem
from hosts import tails
from ranks import Ranks, survivors_name
from tap import check, run_tests

KOLO, PERF, FAULTS = sys.argv[1:]
GUEST = Guest()
AT_FIRST = resources()


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


def test_verbs():
    """By verbs, without being told; with losses; and when a rank dies with work posted."""
    ends = GUEST.run([0, 1], [PERF, "-b", "8", "-e", "256K", "-f", "32", "-n", "3", "-w", "1"], KOLO_DEBUG="INFO")
    edges = set(re.findall(r"(\d)\[\d+\] -> (\d)\[\d+\] via NET/IB/\d", "".join(out or "" for _, out in ends)))
    check(right(ends) and {("0", "1"), ("1", "0")} <= edges, "two ranks on two hosts take verbs and are right", edges,
          *tails(ends))
    with netem([each for rail in RAILS for each in rail], "loss", "1%"):
        ends = GUEST.run([0, 1], [PERF, "-b", "8", "-e", "32K", "-f", "64", "-n", "3", "-w", "1"], KOLO_TRANSPORT="verbs")
    check(right(ends), "with 1 % loss they are right, too", *tails(ends))
    job = Ranks(GUEST.start([0, 1], [FAULTS, "small"], KOLO_TRANSPORT="verbs"))
    job.wait_until_at_work()
    since = time.time() * 1e3
    job.ranks[1].kill()
    reports = job.ends()
    check(survivors_name(1, reports, since, 10000), "a rank that is killed at work is named at once", *reports, *job.said)
    check(not left_over(AT_FIRST), "no queue pair, registration or completion queue is left", left_over(AT_FIRST))


run_tests(globals())
