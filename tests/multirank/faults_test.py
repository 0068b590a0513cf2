# SPDX-License-Identifier: Apache-2.0
# covers: src/core/health src/core/failure src/core/link
"""What the ranks of a job say when one of them dies, stops, leaves or makes another call.

usage: faults_test.py FAULTS KOLO   (the program of faults.c, and the kolo tool)
"""
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import time

from ranks import LIMIT_S, Ranks, latest, survivors_name
from tap import check, run_tests

FAULTS, KOLO = sys.argv[1:]
WHOLE = bool(os.environ.get("KOLO_TEST_WHOLE"))
SEED = 21
_jobs = itertools.count()


class Job(Ranks):
    """Ranks of one host."""

    def __init__(self, nranks, *args, env=None):
        name = f"faults-{os.getpid()}-{next(_jobs)}"
        super().__init__([
            subprocess.Popen([FAULTS, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, env={**os.environ, **(env or {}), "KOLO_RANK": str(rank),
                                             "KOLO_NRANKS": str(nranks), "KOLO_JOB": name})
            for rank in range(nranks)])


def test_death():
    """A rank is killed, idle or at work: all others say so."""
    for nranks in (2, 4, 8):
        for what in ("idle", "small", "large", "all"):
            for victim in sorted({0, nranks // 2, nranks - 1}) if WHOLE or nranks == 4 else (0,):
                job = Job(nranks, what)
                job.wait_until_at_work()
                since = time.time() * 1e3
                job.ranks[victim].kill()
                reports = job.ends()
                check(survivors_name(victim, reports, since, 2000),
                      f"{nranks} ranks, {what}: all name rank {victim}, which was killed, within "
                      "2 s", f"the last after {latest(reports, since):.0f} ms", *reports, *job.said)


def is_told(report, victim, since, timeout_ms):
    """It names the victim within 2 s, by itself or in its text; or it waited for one that had not
    even come. The victim may have done all of its part."""
    if report is None or report[0] != "KOLO_ERR_START":
        return report is None or (report[1] == victim and report[3] - since < 2000)
    if "had not joined" in report[2] or "nobody answered" in report[2]:
        return report[3] - since < timeout_ms + 2000
    return f"rank {victim} " in report[2] and report[3] - since < 2000


def test_death_at_start():
    """A rank is killed at some moment of its start, which follows from a seed."""
    rng = random.Random(SEED)
    early = 0
    for number in range(40 if WHOLE else 12):
        victim = number % 4
        env = {"KOLO_TRANSPORT": "tcp"} if number % 3 == 2 else {}
        job = Job(4, "small", "3000", env=env)
        time.sleep(rng.uniform(0, 0.2))
        since = time.time() * 1e3
        job.ranks[victim].kill()
        reports = job.ends()
        survivors = [report for rank, report in enumerate(reports) if rank != victim]
        early += any(report and report[0] == "KOLO_ERR_START" for report in survivors)
        check(all(report and is_told(report, victim, since, 3000) for report in survivors),
              f"rank {victim} is killed while it starts ({env or 'shm'}, {number}): the others say so, "
              "within 2 s if it had joined", f"seed {SEED}",
              f"the last after {latest(reports, since):.0f} ms", *reports, *job.said)
    check(early > 0, "some of these were killed before all had started", early)


def test_death_in_shrink():
    """One more is killed while the survivors shrink: they say so, or had done so before."""
    rng = random.Random(SEED)
    for number in range(20 if WHOLE else 6):
        job = Job(4, "shrink", "3000")
        job.wait_until_at_work()
        job.ranks[3].kill()
        time.sleep(rng.uniform(0, 0.05))
        since = time.time() * 1e3
        job.ranks[1].kill()
        job.ends()
        for rank in (0, 2):
            last = next((line for line in reversed(job.said[rank]) if line), "")
            match = re.fullmatch(r"\d+ ([\d.]+) (KOLO_\w+) (-?\d+) (.*)", last)
            report = match and (match[2], int(match[3]), match[4], float(match[1]))
            check(last == "the survivors go on" or (report and report[1] == 3) or
                  is_told(report, 1, since, 3000),
                  f"rank 1 is killed while the others shrink ({number}): rank {rank} says so",
                  f"seed {SEED}", *job.said)


def test_death_over_tcp():
    """Without shared memory it is the end of a connection that tells."""
    for nranks, what, victim in ((2, "small", 0), (4, "large", 0), (4, "small", 3), (4, "all", 2)):
        job = Job(nranks, what, env={"KOLO_TRANSPORT": "tcp"})
        job.wait_until_at_work()
        since = time.time() * 1e3
        job.ranks[victim].kill()
        reports = job.ends()
        check(survivors_name(victim, reports, since, 2000),
              f"tcp, {nranks} ranks, {what}: all name rank {victim}, which was killed, within 2 s",
              f"the last after {latest(reports, since):.0f} ms", *reports, *job.said)


def test_death_of_a_parent():
    """The victim's forked children live on, and hold its descriptors."""
    job = Job(3, "forks")
    job.wait_until_at_work()
    since = time.time() * 1e3
    job.ranks[1].kill()
    reports = job.ends()
    check(survivors_name(1, reports, since, 2000),
          "a rank whose forked child lives on is dead all the same", *reports, *job.said)


def test_other_communicators():
    """Those without the dead rank go on."""
    job = Job(4, "halves")
    job.wait_until_at_work()
    job.ranks[3].kill()
    job.ends()
    check(all("the other communicator goes on" in job.said[rank] for rank in (0, 1)),
          "communicators without the dead rank go on", *job.said)


def test_shrink():
    """The survivors make a communicator of their own, whoever died."""
    for victim in (0, 1, 3):
        job = Job(4, "shrink")
        job.wait_until_at_work()
        job.ranks[victim].kill()
        job.ends()
        check(all("the survivors go on" in job.said[rank] for rank in range(4) if rank != victim),
              f"rank {victim} dies: the others shrink, and their sums are right", *job.said)


def test_stop():
    """A stopped rank is waited for; at the time-out it is named by all, whoever waits for it."""
    job = Job(4, "small", "20000", env={"KOLO_DEBUG": "WARN"})
    job.wait_until_at_work()
    job.ranks[2].send_signal(signal.SIGSTOP)
    time.sleep(1)
    job.ranks[2].send_signal(signal.SIGCONT)
    time.sleep(0.3)
    check(all(process.poll() is None for process in job.ranks),
          "a rank that is stopped for a second delays the others, and that is all", *job.said)
    for process in job.ranks:
        process.kill()
    job.ends()
    warned = [line for lines in job.said for line in lines if "is stopped" in line]
    check(warned and all("for rank 2 " in line for line in warned),
          "those who wait for a stopped rank warn, and name it", *job.said)
    for what in ("small", "all"):
        job = Job(4, what, "1000")
        job.wait_until_at_work()
        since = time.time() * 1e3
        job.ranks[2].send_signal(signal.SIGSTOP)
        for rank in (0, 1, 3):
            job.ranks[rank].wait(LIMIT_S)
        job.ranks[2].kill()
        reports = job.ends()
        check(survivors_name(2, reports, since, 2500, "KOLO_ERR_TIMEOUT") and
              "is stopped" in reports[0][2],
              f"{what}: a rank that stays stopped is named by all at the time-out",
              f"the last after {latest(reports, since):.0f} ms", *reports, *job.said)


def test_seen_from_outside():
    """`kolo ps` tells who waits for whom, and asks nobody."""
    job = Job(3, "small")
    job.wait_until_at_work()
    pids = [process.pid for process in job.ranks]
    job.ranks[1].send_signal(signal.SIGSTOP)
    time.sleep(0.5)
    ran = subprocess.run([KOLO, "ps", str(pids[0])], capture_output=True, text=True, check=False,
                         timeout=LIMIT_S)
    lines = ran.stdout.splitlines() + [""] * 6
    rows = [line.split()[:3] for line in lines[2:5]]
    check(ran.returncode == 0 and ": 3 of 3 ranks are on this host" in lines[0] and
          rows == [["0", str(pids[0]), "waits"], ["1", str(pids[1]), "stopped"],
                   ["2", str(pids[2]), "waits"]] and
          "allreduce of 2 float32, sum - for rank 1 since" in lines[2] and
          f"2 wait in the end for rank 1 (pid {pids[1]}: stopped)" in lines[5],
          "kolo ps names the rank that all wait for", ran.stdout, ran.stderr, *job.said)
    for process in job.ranks:
        process.kill()
    job.ends()
    ran = subprocess.run([KOLO, "ps", str(os.getpid())], capture_output=True, text=True,
                         check=False, timeout=LIMIT_S)
    check(ran.returncode == 1 and "no communicator" in ran.stderr,
          "where nothing is found kolo ps says so", ran.stdout, ran.stderr)


def test_leaving():
    """A member that has done its part and left is no death."""
    job = Job(3, "leave")
    reports = job.ends()
    check(reports == [None] * 3 and all(process.returncode == 0 for process in job.ranks),
          "a root that destroys its communicator and exits early is no death", *reports, *job.said)


def test_mismatch():
    """Other calls on some rank: both are named within a second, also where nobody waits."""
    for what, words in (("roots", ("reduce of 4 float32, sum, root", "broadcast of 4 float32, root")),
                        ("count", ("allreduce of 4 float32, sum", "allreduce of 5 float32, sum")),
                        ("op", ("4 float32, sum", "4 float32, max")),
                        ("type", ("4 float32, sum", "4 int32, sum")),
                        ("root", ("4 float32, root 0", "4 float32, root 1")),
                        ("zero", ("0 float32, sum", "0 float32, max")),
                        ("barrier", ("barrier", "allreduce of 4 float32"))):
        for nranks in (2, 4):
            job = Job(nranks, f"not-{what}")
            since = time.time() * 1e3
            reports = job.ends()
            check(all(report is not None and report[0] == "KOLO_ERR_MISMATCH" and
                      all(word in report[2] for word in words) for report in reports) and
                  latest(reports, since) < 2000,
                  f"{nranks} ranks: another {what} on one of them is told to all, with both calls",
                  f"the last after {latest(reports, since):.0f} ms", *reports, *job.said)


def test_crossed():
    """Two communicators used in another order wait for each other for ever."""
    job = Job(2, "crossed")
    since = time.time() * 1e3
    reports = job.ends()
    check(all(report is not None and report[0] == "KOLO_ERR_MISMATCH" and
              "another order" in report[2] for report in reports) and latest(reports, since) < 3000,
          "two communicators used in another order: both calls are named",
          f"the last after {latest(reports, since):.0f} ms", *reports, *job.said)


run_tests(globals())
