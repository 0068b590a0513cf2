# SPDX-License-Identifier: Apache-2.0
# covers: src/core/failure src/core/health src/core/setup src/core/p2p
"""Ranks that die together, die while the others shrink, leave in order, or abort: the others know
all of them, shrink as often as it takes, and wait for nobody whose end is known.

usage: gone_test.py GONE   (the program of gone.c)
"""
import itertools
import os
import random
import signal
import subprocess
import sys
import time

from hosts import made
from tap import check, run_tests

GONE = sys.argv[1]
WHOLE = bool(os.environ.get("KOLO_TEST_WHOLE"))
LIMIT_S = 30
SOON_MS = 2500  # and not the 20 s of the time-out
TCP = {"KOLO_TRANSPORT": "tcp"}
SEED = 11
TRIALS = 100 if WHOLE else 24
LATE_S = 1.2  # some sweeps of probes
_jobs = itertools.count()


class Job:
    """Ranks of one host, or of `hosts` at `places`: `plans` has the arguments of each."""

    def __init__(self, plans, env=None, hosts=None, places=()):
        name = f"gone-{os.getpid()}-{next(_jobs)}"
        if hosts:
            hosts.port = 20000 + (os.getpid() * 31 + next(_jobs)) % 10000
        self.since = time.time()
        self.ranks = [
            subprocess.Popen(
                hosts.inside(places[rank], [GONE, *plan]) if hosts else [GONE, *plan],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                env=hosts.environment(rank, len(plans), **(env or {})) if hosts else
                {**os.environ, **(env or {}), "KOLO_RANK": str(rank),
                 "KOLO_NRANKS": str(len(plans)), "KOLO_JOB": name})
            for rank, plan in enumerate(plans)]
        self.said = [[] for _ in plans]

    def wait_until_at_work(self):
        for process in self.ranks:
            process.stdout.readline()

    def ends(self):
        """The lines of each rank, as lists of words; the seconds that it took."""
        for rank, process in enumerate(self.ranks):
            try:
                rest = process.communicate(timeout=LIMIT_S)[0]
            except subprocess.TimeoutExpired:
                process.kill()
                rest = process.communicate()[0] + "hung\n"
            self.said[rank] = rest.splitlines()
        return time.time() - self.since

    def line(self, rank, what):
        """The words behind `what` in the last line of the rank that begins so."""
        found = [line.split(maxsplit=3) for line in self.said[rank] if line.split()[:1] == [what]]
        return found[-1][1:] if found else None


def is_soon(line, status, text=""):
    return (line is not None and line[0] == status and float(line[1]) < SOON_MS and
            text in (line[2] if len(line) > 2 else ""))


def went_on(job, dead, survivors):
    """All of them went on, and had been told of the dead and of nobody else: all the same ranks,
    after each shrink that succeeded, too."""
    told = [{int(name) for line in job.said[rank] for name in line.split()[1:]
             if line.startswith("failed")} for rank in survivors]
    slow = [line for rank in survivors for line in job.said[rank]
            if line.startswith("shrink") and float(line.split()[2]) > SOON_MS]
    lost = [[line for line in job.said[rank] if line.startswith("lost")] for rank in survivors]
    return (all(names == set(dead) for names in told) and not slow and
            all(lines and lines == lost[0] for lines in lost) and
            all((job.line(rank, "done") or [""])[0] == "KOLO_OK" for rank in survivors))


def shrinks(plans, end):
    return [("shrink", str(end), plan) for plan in plans]


def test_two_deaths():
    """Two ranks are killed at once: all survivors are told of both, and shrink without them."""
    for nranks, dead, env in ((4, (1, 3), {}), (4, (0, 1), {}), (5, (0, 4), {}), (3, (1, 2), {}),
                              (4, (0, 2), TCP), (4, (2, 3), TCP)):
        job = Job(shrinks(["-"] * nranks, nranks - 2), env)
        job.wait_until_at_work()
        for victim in dead:
            job.ranks[victim].send_signal(signal.SIGKILL)
        job.ends()
        check(went_on(job, dead, [rank for rank in range(nranks) if rank not in dead]),
              f"{nranks} ranks, {env or 'shm'}: {dead} are killed at once: the others are told of "
              "both, and shrink", *job.said)


def test_death_in_shrink():
    """A second one dies while the survivors shrink: they are told of it, and shrink again."""
    delays = (0, 300, 1000, 2000, 4000, 8000)
    for number, us in enumerate(delays * 4 if WHOLE else delays):
        first, second = ((3, 1), (0, 1), (2, 0), (1, 3))[number % 4]
        plans = ["-"] * 4
        plans[first], plans[second] = "0:20000", f"1:{us}"
        job = Job(shrinks(plans, 2), TCP if number % 3 == 2 else {})
        job.ends()
        survivors = [rank for rank in range(4) if rank not in (first, second)]
        check(went_on(job, (first, second), survivors),
              f"rank {first} dies, then {second} {us} us into the shrink: the others shrink again",
              *job.said)


def draw_deaths(rng):
    """Places of four to seven ranks on four hosts, and who dies: all ranks of two or three hosts, or
    one of each; by a signal from here, or after a time of their own, or the last in a shrink."""
    nranks = rng.randint(4, 7)
    places = [0, 1, 2, 3] + [rng.randrange(4) for _ in range(nranks - 4)]
    struck = rng.sample(range(4), rng.choice((2, 2, 3)))
    whole = rng.random() < 0.5
    dead = [rank for rank in range(nranks) if places[rank] in struck and
            (whole or places.index(places[rank]) == rank)]
    after_us = rng.choice((0, 0, rng.randint(20000, 40000)))
    later_us = rng.choice((0, 0, 500, 3000))
    into_us = rng.choice((None, None, rng.randint(0, 8000)))
    return places, dead, after_us, later_us, into_us


def four_hosts():
    return made(4, "skipped")


def run_deaths(places, dead, after_us, later_us, into_us):
    """One trial; what is wrong with it."""
    plans = ["-"] * len(places)
    first = dead if into_us is None else dead[:-1]
    if into_us is not None:
        plans[dead[-1]] = f"1:{into_us}"
    for number, victim in enumerate(first if after_us else ()):
        plans[victim] = f"0:{after_us + number * later_us}"
    job = Job(shrinks(plans, len(places) - len(dead)), None, four_hosts(), places)
    job.wait_until_at_work()
    for victim in () if after_us else first:
        job.ranks[victim].send_signal(signal.SIGKILL)
        time.sleep(later_us / 1e6)
    took = job.ends()
    right = went_on(job, dead, [rank for rank in range(len(places)) if rank not in dead])
    return took, [] if right else [
        f"hosts {places}, dead {dead}: {after_us} us, {later_us} us apart, {into_us} us into",
        *(str(said) for said in job.said)]


def test_deaths_on_hosts():
    """Ranks of different hosts die at the same moment: the survivors agree on all of them."""
    rng = random.Random(SEED)
    bad, slowest = [], 0
    for _ in range(TRIALS if four_hosts() else 0):
        took, wrong = run_deaths(*draw_deaths(rng))
        slowest = max(slowest, took)
        bad += wrong
    check(not bad, f"{TRIALS} times ranks of several hosts die at once: the others agree on all of "
          "them, and shrink", f"seed {SEED}, at most {slowest:.1f} s", *bad)


def test_leaving_and_late_on_hosts():
    """A rank of another host that leaves instead of shrinking is waited for by nobody; one that is
    stopped for a while is waited for, whether it is the first of the survivors or not."""
    if not four_hosts():
        return
    job = Job(shrinks(["-", "0:20000", "1:-1", "-"], 2), None, four_hosts(), range(4))
    job.ends()
    check(went_on(job, (1, 2), (0, 3)), "rank 1 dies and rank 2 leaves, each on its host: the others "
          "shrink without both", *job.said)
    plans = shrinks(["-"] * 4, 2)
    plans[2] += ("forks",)
    job = Job(plans, None, four_hosts(), range(4))
    job.wait_until_at_work()
    for victim in (1, 2):
        job.ranks[victim].send_signal(signal.SIGKILL)
    job.ends()
    check(went_on(job, (1, 2), (0, 3)), "ranks 1 and 2 die, and a forked child of rank 2 lives: the "
          "others shrink without both", *job.said)
    for late in (0, 3):
        job = Job(shrinks(["-"] * 4, 3), None, four_hosts(), range(4))
        job.wait_until_at_work()
        job.ranks[late].send_signal(signal.SIGSTOP)
        job.ranks[1].send_signal(signal.SIGKILL)
        time.sleep(LATE_S)
        job.ranks[late].send_signal(signal.SIGCONT)
        job.ends()
        check(went_on(job, (1,), (0, 2, 3)), f"rank 1 dies while rank {late} is stopped: the others "
              "wait for that one", *job.said)


def test_loop_until_alone():
    """One after the other dies, mostly while the others shrink, until one is left."""
    for env in ({}, TCP):
        plans = ["0:20000", "1:700", "2:0", "2:1500", "3:400", "-"]
        job = Job(shrinks(plans, 1), env)
        took = job.ends()
        check(went_on(job, range(5), [5]) and took < 10,
              f"{env or 'shm'}: six ranks shrink until one is left", f"{took:.1f} s", *job.said)


def test_leaving_a_shrink():
    """A survivor that leaves instead of shrinking is waited for by nobody."""
    for env in ({}, TCP):
        job = Job(shrinks(["-", "0:20000", "1:-1", "-"], 2), env)
        job.ends()
        check(went_on(job, (1, 2), (0, 3)),
              f"{env or 'shm'}: rank 1 dies and rank 2 leaves: the others shrink without both",
              *job.said)


def test_arguments():
    """What is wrong with the arguments is said, and changes nothing."""
    job = Job([("refuse",)] * 2)
    job.ends()
    for rank in range(2):
        check(is_soon(job.line(rank, "negative"), "KOLO_ERR_INVALID", "nexclude is -1") and
              job.line(rank, "none") == ["KOLO_OK", "0"] and
              is_soon(job.line(rank, "null"), "KOLO_ERR_INVALID", "ranks is NULL") and
              is_soon(job.line(rank, "room"), "KOLO_ERR_INVALID", "room is -1") and
              is_soon(job.line(rank, "sum"), "KOLO_OK"),
              f"rank {rank}: wrong arguments are INVALID, and the communicator goes on", *job.said)


def test_late_threads():
    """A thread whose first call is yet to come may bring the call that others wait for."""
    job = Job([("threads",)] * 2)
    job.ends()
    for rank in range(2):
        check(is_soon(job.line(rank, "first"), "KOLO_OK") and
              is_soon(job.line(rank, "late"), "KOLO_OK"),
              f"rank {rank}: two threads use two communicators in another order, and both end well",
              *job.said)


def test_send_to_one_who_left():
    """What nobody takes any more is not waited for."""
    for env in ({}, TCP):
        job = Job([("send-left",)] * 2, env)
        job.ends()
        check(is_soon(job.line(0, "destroy"), "KOLO_OK"),
              f"{env or 'shm'}: destroy after a send to a rank that has left ends at once", *job.said)


def test_receive_with_nobody_there():
    """A receive from any source ends when no source is left, and only then."""
    for env in ({}, TCP):
        job = Job([("any-left",)] * 3, env)
        job.ends()
        check(is_soon(job.line(0, "any"), "KOLO_ERR_PEER", "left"),
              f"{env or 'shm'}: all others leave: a receive from any source says so", *job.said)
        job = Job([("any-some",)] * 3, env)
        job.ends()
        check(is_soon(job.line(0, "any"), "KOLO_OK") and is_soon(job.line(1, "sent"), "KOLO_OK"),
              f"{env or 'shm'}: one of two leaves: a receive from any source waits for the other",
              *job.said)
        job = Job([("any-self",)] * 2, env)
        job.ends()
        check(is_soon(job.line(0, "any"), "KOLO_OK") and is_soon(job.line(0, "sent"), "KOLO_OK"),
              f"{env or 'shm'}: all others leave: a receive waits for this rank's other thread",
              *job.said)
    job = Job([("any-alone",)])
    job.ends()
    check(is_soon(job.line(0, "any"), "KOLO_ERR_PEER"),
          "the only rank receives from any source: there is nobody", *job.said)


def test_abort_from_another_thread():
    """In whatever state a rank waits, another thread's abort ends the wait."""
    for state in ("collective", "any", "split", "shrink", "destroy"):
        job = Job([("abort", state)] * 2)
        job.ends()
        status = "KOLO_OK" if state == "destroy" else "KOLO_ERR_ABORTED"
        check(is_soon(job.line(0, state), status) and
              is_soon(job.line(0, "error"), "KOLO_ERR_ABORTED") and
              is_soon(job.line(0, "destroyed"), "KOLO_OK"),
              f"an abort from another thread ends the wait: {state}", *job.said)


def test_revoked_and_shrunk():
    """An abort ends the communicator on all ranks, none of which is lost: all of them go on in a new one."""
    for nranks, env, hosts in ((2, {}, None), (4, {}, None), (3, TCP, None), (4, {}, four_hosts())):
        if hosts is None or hosts:
            job = Job([("revoke",)] * nranks, env, hosts, range(nranks))
            job.ends()
            check(all(is_soon(job.line(rank, "ended"), "KOLO_ERR_ABORTED") and
                      job.line(rank, "lost") == ["KOLO_OK", "0"] and is_soon(job.line(rank, "shrink"), "KOLO_OK") and
                      is_soon(job.line(rank, "sum"), "KOLO_OK") for rank in range(nranks)),
                  f"rank 1 of {nranks} aborts, {'four hosts' if hosts else env or 'shm'}: all go on together",
                  *job.said)


run_tests(globals())
