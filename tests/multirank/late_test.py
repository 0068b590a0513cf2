# SPDX-License-Identifier: Apache-2.0
# covers: src/core/health/diagnose.c
"""A rank that was stopped in the middle of a call, and is woken after the others have given up,
changes nothing of what they got back.

usage: late_test.py LATE   (the program of late.c)
"""
import os
import random
import signal
import subprocess
import sys
import time

from tap import check, run_tests

LATE, = sys.argv[1:]
WHOLE = bool(os.environ.get("KOLO_TEST_WHOLE"))
LIMIT_S = 30
SEED = 20
TRIES = 5  # of a start: its limit is that of the calls, which a machine that stands still exceeds


def start(number, kilobytes):
    """Two ranks that have made 20 calls; and what each has said."""
    env = {**os.environ, "KOLO_NRANKS": "2"}
    for attempt in range(TRIES):
        job = f"late-{os.getpid()}-{number}-{attempt}"
        ranks = [subprocess.Popen([LATE, str(kilobytes), "300"], text=True, stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  env={**env, "KOLO_JOB": job, "KOLO_RANK": str(rank)})
                 for rank in range(2)]
        said = [process.stdout.readline() for process in ranks]
        if said == ["works\n", "works\n"]:
            break
        for process in ranks:
            process.kill()
            said.append(process.communicate()[0])
    return ranks, said


def wake_late(number, kilobytes, delay_s):
    """Whether rank 1's buffers were as it left them; and what both said."""
    ranks, said = start(number, kilobytes)
    if said != ["works\n", "works\n"]:
        return False, said
    time.sleep(delay_s)
    ranks[0].send_signal(signal.SIGSTOP)
    said.append(ranks[1].stdout.readline())
    ranks[0].send_signal(signal.SIGCONT)
    try:
        ranks[0].wait(LIMIT_S)
        said.append(ranks[1].communicate("go on\n", timeout=LIMIT_S)[0])
    except subprocess.TimeoutExpired:
        said.append("it hung")
    for process in ranks:
        process.kill()
        process.communicate()
    return said[2:] == ["mine\n", "unchanged\n"] and ranks[1].returncode == 0, said


def test_late():
    """At moments that follow from a seed; buffers of their own segment, and such as share one."""
    rng = random.Random(SEED)
    for kilobytes in (256, 32 << 10):
        runs = [wake_late(f"{kilobytes}-{i}", kilobytes, rng.uniform(0, 0.02))
                for i in range(60 if WHOLE else 12)]
        wrong = [said for good, said in runs if not good]
        check(not wrong, f"a rank that is woken too late changes no byte of {kilobytes} KiB that "
              "were handed back", f"seed {SEED}: {len(wrong)} of {len(runs)} times", *wrong)


run_tests(globals())
