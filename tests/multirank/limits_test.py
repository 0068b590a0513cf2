# SPDX-License-Identifier: Apache-2.0
# covers: src/core/setup src/memory
"""Where something is denied or scarce, a job works all the same, or all ranks end at once and name
it. Never a signal, a wait, or a wrong result.

usage: limits_test.py LIMITS SHORT_JOB FAULTS   (the programs of limits.c, short_job.c and faults.c)
"""
import itertools
import os
import signal
import subprocess
import sys
import time

from ranks import Ranks, latest, output_of, survivors_name
from tap import check, run_tests

LIMITS, SHORT_JOB, FAULTS = sys.argv[1:]
WHOLE = bool(os.environ.get("KOLO_TEST_WHOLE"))
NRANKS = 3
LIMIT_S = 20
TIMEOUT_MS = 6000
AT_ONCE_S = 5  # on a busy machine; well before the time-out
_jobs = itertools.count()


def start(what, *program, only=None, **more):
    """The ranks of a job under that limit, or only one of them."""
    name = f"limits-{os.getpid()}-{next(_jobs)}"
    return [subprocess.Popen([LIMITS, what, *program] if only in (None, rank) else program,
                             stdout=subprocess.PIPE, text=True, stderr=subprocess.STDOUT,
                             env={**os.environ, **more, "KOLO_RANK": str(rank), "KOLO_JOB": name,
                                  "KOLO_NRANKS": str(NRANKS)}) for rank in range(NRANKS)]


def run(what, only=None, **more):
    """Statuses and last words of its ranks, and the seconds that it took."""
    begin = time.time()
    processes = start(what, SHORT_JOB, str(TIMEOUT_MS), only=only, **more)
    said = [output_of(process, LIMIT_S).strip() for process in processes]
    return [process.returncode for process in processes], said, time.time() - begin


def test_works():
    """What kolo does without."""
    for what in ("memfd", "pidfd", "futex", "membarrier", "cma", "fallocate", "memlock=0", "noshm",
                 "memfd,pidfd,futex,membarrier,cma,fallocate,memlock=0"):
        for more in ({}, {"KOLO_TRANSPORT": "tcp"}):
            statuses, said, _ = run(what, **more)
            if statuses == [77] * NRANKS:
                print(f"# skipped: {said[0]}")
                continue
            check(statuses == [0] * NRANKS and said == ["right"] * NRANKS,
                  f"without {what} ({more or 'shm'}) results are right", statuses, *said)


def test_one_rank_alone():
    """One rank lacks a part of the system that the others have."""
    for what in ("memfd", "fallocate"):
        for only in (0, 1):
            statuses, said, _ = run(what, only)
            check(statuses == [0] * NRANKS and said == ["right"] * NRANKS,
                  f"with rank {only} alone without {what} results are right", statuses, *said)


def test_no_memory_to_share():
    """Without memfds and without /dev/shm there is none; messages do without."""
    statuses, said, seconds = run("noshm,memfd")
    if statuses == [77] * NRANKS:
        print(f"# skipped: {said[0]}")
        return
    check(statuses == [1] * NRANKS and seconds < AT_ONCE_S and
          all("memfd_create" in text and "/dev/shm" in text for text in said),
          "kolo_mem_alloc() names both that are missing", f"{seconds:.1f} s", statuses, *said)


def test_few_descriptors():
    """From nearly none to as many as are needed."""
    for more in ({}, {"KOLO_TRANSPORT": "tcp"}):
        enough = 0
        for files in range(5, 64, 1 if WHOLE else 2):
            statuses, said, seconds = run(f"files={files}", **more)
            if statuses == [0] * NRANKS:
                enough = enough or files
            else:
                none = any("nobody answered" in text for text in said)  # rank 0 had gone before
                check(all(status in (0, 1) for status in statuses) and
                      any("ulimit -n" in text for text in said) and
                      seconds < (TIMEOUT_MS / 1e3 if none else 0) + AT_ONCE_S,
                      f"with {files} descriptors ({more or 'shm'}) all end, and the limit is named",
                      f"{seconds:.1f} s", statuses, *said)
            if enough and files > enough + 3:
                break
        check(8 < enough < 40, f"{NRANKS} ranks ({more or 'shm'}) need few descriptors", enough)


def test_death_without_pidfd():
    """It is looked for in /proc."""
    job = Ranks(start("pidfd", FAULTS, "small"))
    job.wait_until_at_work()
    since = time.time() * 1e3
    job.ranks[1].send_signal(signal.SIGKILL)
    reports = job.ends()
    check(survivors_name(1, reports, since, 2000), "without pidfds a death is named within 2 s, too",
          f"the last after {latest(reports, since):.0f} ms", *reports, *job.said)


run_tests(globals())
