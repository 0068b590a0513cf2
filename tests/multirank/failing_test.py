# SPDX-License-Identifier: Apache-2.0
# covers: src/core/setup src/core/health/watchdog.c src/core/failure src/core/link
"""One allocation, or one system call, of one rank fails: all ranks end with right results or with an
error, at once, and give back what they took.

usage: failing_test.py FAILING SHORT_JOB   (the library of failing.c, the program of short_job.c)
"""
import concurrent.futures
import itertools
import os
import random
import re
import subprocess
import sys
import time

from ranks import output_of
from tap import check, run_tests

FAILING, SHORT_JOB = sys.argv[1:]
# Of those that may fail: all of the first, some of the rest.
FIRST, SOME = ((20, 60) if os.environ.get("KOLO_TEST_WHOLE") else
               (20, 20) if os.environ.get("KOLO_TEST_FULL") else (10, 10))
AT_A_TIME = 6  # jobs, which mostly wait
SENDS = 12  # a rank of this job makes 8 through shared memory; all may fail
SEED = 22
TIMEOUT_MS = 2000
LIMIT_S = 30
AT_ONCE_S = 1.9  # less than the time-out
TRIES = 3  # of one that is right but late: other programs may have had the cores
_jobs = itertools.count()


def run(rank, fail="", left="", **more):
    """Two ranks, one of which fails; their statuses, what they said, and the seconds they took."""
    begin = time.time()
    name = f"failing-{os.getpid()}-{next(_jobs)}"
    env = {**os.environ, **more, "KOLO_NRANKS": "2", "KOLO_JOB": name, "LD_PRELOAD": FAILING}
    processes = [subprocess.Popen([SHORT_JOB, str(TIMEOUT_MS)], stdout=subprocess.PIPE, text=True,
                                  stderr=subprocess.STDOUT,
                                  env={**env, "KOLO_RANK": str(r), "KOLO_TEST_LEFT": left,
                                       "KOLO_TEST_FAIL": fail if r == rank else ""})
                 for r in range(2)]
    said = [output_of(process, LIMIT_S) for process in processes]
    return [process.returncode for process in processes], said, time.time() - begin


def counts(text):
    """Allocations and descriptors that are left, and how many allocations and calls there were."""
    match = re.search(r"^left (\d+) (\d+) of (\d+) (\d+)$", text, re.M)
    return match and [int(n) for n in match.groups()]


def problem(kind, number, rank, baseline, **more):
    """What is wrong where that one fails; None: nothing."""
    for _ in range(TRIES):
        right, soon, told = try_one(kind, number, rank, baseline, **more)
        if not right or soon:
            break
    return None if right and soon else told


def try_one(kind, number, rank, baseline, **more):
    """Whether both ranks end as they should, whether they do so at once, and all about it."""
    left = f"{baseline[0]} {baseline[1]}"
    statuses, said, seconds = run(rank, f"{kind} {number}", left, **more)
    ends = [re.search(r"^(right|KOLO_ERR_\w+) ?(.*)$", text, re.M) for text in said]
    lefts = [counts(text) for text in said]
    absent = any(re.search("nobody answered|had not joined", text) for text in said)
    right = (all(end and status == (end[1] != "right") for end, status in zip(ends, statuses)) and
             all(l[0] <= baseline[0] and l[1] <= baseline[1] for l in lefts if l))
    soon = seconds < (TIMEOUT_MS / 1e3 if absent else 0) + AT_ONCE_S
    return right, soon, (f"{kind} {number} of rank {rank}", statuses, f"{seconds:.1f} s", *said)


def numbers(most, rng):
    """Which ones fail."""
    if most <= FIRST + SOME:
        return range(1, most + 1)
    return [*range(1, FIRST + 1), *sorted(rng.sample(range(FIRST + 1, most + 1), SOME))]


def test_each():
    """Ranks differ: rank 0 has the meeting point."""
    rng = random.Random(SEED)
    for more in ({}, {"KOLO_TRANSPORT": "tcp"}):
        runs = [run(0, **more)[1] for _ in range(3)]
        made = [[counts(text) for text in said] for said in runs]
        baseline = [max(both[i] for said in made for both in said) for i in range(4)]
        for kind, most in (("alloc", baseline[2]), ("call", baseline[3]), ("send", SENDS)):
            for rank in range(2):
                chosen = numbers(most, rng)
                with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
                    wrong = [found for found in pool.map(
                        lambda number: problem(kind, number, rank, baseline, **more), chosen) if found]
                check(not wrong, f"{more or 'shm'}: any {kind} of rank {rank} may fail",
                      f"seed {SEED}: {len(wrong)} of {len(chosen)} (of {most})",
                      *[line for found in wrong[:5] for line in found])


run_tests(globals())
