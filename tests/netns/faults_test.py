# SPDX-License-Identifier: Apache-2.0
# covers: src/core/health/gossip.c src/core/failure src/core/link
"""What ranks of several hosts say when one of them dies or stops, or a host is cut off.

usage: faults_test.py FAULTS   (the program of tests/multirank/faults.c)
"""
import os
import signal
import subprocess
import sys
import time

from hosts import ip, need
from ranks import LIMIT_S, Ranks, latest, survivors_name
from tap import check, run_tests

FAULTS, = sys.argv[1:]
WHOLE = bool(os.environ.get("KOLO_TEST_WHOLE"))
HOSTS = need(4)
TIMEOUT_MS = 1000
PLACES = {2: [0, 1], 4: [0, 0, 1, 1], 8: [0, 1, 2, 3, 0, 1, 2, 3]}


def start(places, *args, **more):
    job = Ranks(HOSTS.start(places, [FAULTS, *args], **more))
    job.wait_until_at_work()
    return job


def test_death():
    """A rank is killed, idle or at work, alone on its host or not: all others say so."""
    for nranks, places in PLACES.items():
        for what in ("idle", "small", "large", "all"):
            for victim in sorted({0, nranks // 2, nranks - 1}) if WHOLE or nranks == 4 else (nranks - 1,):
                job = start(places, what)
                since = time.time() * 1e3
                job.ranks[victim].kill()
                reports = job.ends()
                check(survivors_name(victim, reports, since, 2000),
                      f"{nranks} ranks on {max(places) + 1} hosts, {what}: all name rank {victim}, "
                      "which was killed, within 2 s",
                      f"the last after {latest(reports, since):.0f} ms", *reports, *job.said)


def hold(reads, writes):
    """Bytes that sockets of the first two hosts hold from now on: least, at first, most."""
    for host in range(2):
        subprocess.run(HOSTS.inside(host, ["sh", "-c", f"cd /proc/sys/net/ipv4 && echo {reads} > tcp_rmem && "
                                                       f"echo {writes} > tcp_wmem"]), check=True)


def unsent(process):
    """Bytes that the host of the process has not delivered."""
    with open(f"/proc/{process.pid}/net/tcp", encoding="ascii") as file:
        return sum(int(line.split()[4].split(":")[0], 16) for line in list(file)[1:])


def wait_until_full(process):
    """Wait until the process cannot send: what waits in its sockets stays the same. False: nothing does."""
    same, before = 0, 0
    until = time.monotonic() + 2
    while same < 10 and time.monotonic() < until:
        time.sleep(0.01)
        now = unsent(process)
        same = same + 1 if now == before > 0 else 0
        before = now
    return same == 10


def stop_receiving(job):
    """Stop rank 0, and wait until rank 1 cannot send; whether it comes to that. Where rank 0 was stopped while
    all of a message had arrived, rank 1 waits for the next one: then rank 0 goes on for a moment."""
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until:
        job.ranks[0].send_signal(signal.SIGSTOP)
        if wait_until_full(job.ranks[1]):
            return True
        job.ranks[0].send_signal(signal.SIGCONT)
        time.sleep(0.02)
    return False


def test_death_while_sending():
    """A rank is killed with half a message, and half an encrypted record, on its way: the other names it."""
    hold("4096 262144 262144", "4096 262144 262144")
    for encrypt in ("0", "1"):
        for again in range(10 if WHOLE else 2):
            job = start([0, 1], "large", KOLO_ENCRYPT=encrypt)
            full = stop_receiving(job)
            job.ranks[1].kill()
            job.ranks[1].wait(LIMIT_S)
            since = time.time() * 1e3
            job.ranks[0].send_signal(signal.SIGCONT)
            reports = job.ends()
            check(full and survivors_name(1, reports, since, 2000),
                  f"KOLO_ENCRYPT={encrypt}, round {again}: rank 0 names rank 1, which was killed while it sent",
                  f"full: {full}", *reports, *job.said)
    hold("4096 131072 6291456", "4096 16384 4194304")


def test_stop():
    """A rank that stays stopped is named by all at the time-out, whoever they wait for."""
    for nranks, what in ((2, "small"), (4, "small"), (4, "all"), (4, "large"), (8, "small")):
        victim = nranks - 1
        job = start(PLACES[nranks], what, str(TIMEOUT_MS))
        since = time.time() * 1e3
        job.ranks[victim].send_signal(signal.SIGSTOP)
        for rank in range(nranks - 1):
            job.ranks[rank].wait(LIMIT_S)
        job.ranks[victim].kill()
        reports = job.ends()
        check(survivors_name(victim, reports, since, TIMEOUT_MS + 1000, "KOLO_ERR_TIMEOUT"),
              f"{nranks} ranks on {max(PLACES[nranks]) + 1} hosts, {what}: all name rank {victim}, "
              "which is stopped, at the time-out",
              f"the last after {latest(reports, since):.0f} ms", *reports, *job.said)


def cut(host, way):
    """Cut a host off: its link down, or what it sends (or what is sent to it) lost without a word."""
    if way == "down":
        return ip("-n", HOSTS.bridge, "link", "set", f"port{host}", "down")
    if way == "sends nothing":
        return ip("-n", HOSTS.names[host], "route", "add", "blackhole", "10.77.0.0/25")
    whys = [ip("-n", name, "route", "add", "blackhole", f"{HOSTS.address(host)}/32")
            for other, name in enumerate(HOSTS.names) if other != host]
    return "".join(whys)


def join(host, way):
    """Undo that; what the kernels have learned of each other's absence, too."""
    if way == "down":
        ip("-n", HOSTS.bridge, "link", "set", f"port{host}", "up")
    elif way == "sends nothing":
        ip("-n", HOSTS.names[host], "route", "del", "blackhole", "10.77.0.0/25")
    else:
        for other, name in enumerate(HOSTS.names):
            if other != host:
                ip("-n", name, "route", "del", "blackhole", f"{HOSTS.address(host)}/32")
    for name in HOSTS.names:
        ip("-n", name, "neigh", "flush", "all")


def is_about(report, victims):
    """It names one of them, or repeats what one of them said."""
    return report[1] in victims or any(f"rank {rank} ended" in report[2] for rank in victims)


def test_partition():
    """A host is cut off, one way or both: ranks of the others name one of its ranks at the time-out."""
    for places in ([0, 1], [0, 0, 1, 1], [0, 1, 2]):
        gone = max(places)
        victims = [rank for rank, host in enumerate(places) if host == gone]
        for way in ("down", "sends nothing", "hears nothing"):
            for what in ("small", "large"):
                job = start(places, what, str(TIMEOUT_MS))
                since = time.time() * 1e3
                why = cut(gone, way)
                reports = job.ends()
                join(gone, way)
                others = [report for rank, report in enumerate(reports) if rank not in victims]
                check(not why and all(report and report[3] - since < TIMEOUT_MS + 1000 and
                                      report[0] in ("KOLO_ERR_TIMEOUT", "KOLO_ERR_LINK")
                                      for report in reports) and
                      all(is_about(report, victims) for report in others),
                      f"{len(places)} ranks, {what}, the last of {gone + 1} hosts ({way}): the others "
                      "name a rank of it at the time-out",
                      why, f"the last after {latest(reports, since):.0f} ms", *reports, *job.said)


run_tests(globals())
