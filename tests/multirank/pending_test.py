# SPDX-License-Identifier: Apache-2.0
# covers: src/core/call/stream.c src/core/call/progress.c src/core/call/queue.c
"""A call that is pending for long takes hardly any processor time, and keeps no other call waiting.

usage: pending_test.py PENDING   (the program of pending.c)
"""
import itertools
import os
import subprocess
import sys

from tap import check, run_tests

PENDING = sys.argv[1]
LIMIT_S = 30
MOST_PERCENT = 5  # of a core; 1 on a quiet machine. A thread that naps 20 us at a time takes 15 to 25
MOST_US = 1500  # a nap of 4 ms is half over, in the middle, when a call comes
LEAST_ENDED = 190  # of 202; the first ones connect. If the progress thread had to end them: hardly any
_jobs = itertools.count()


def run(what, env=None):
    """The words that rank 0 prints, and all output."""
    name = f"pending-{os.getpid()}-{next(_jobs)}"
    ranks = [subprocess.Popen([PENDING, what], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, **(env or {}), "KOLO_RANK": str(rank), "KOLO_JOB": name,
                                   "KOLO_NRANKS": "2"}) for rank in range(2)]
    said = []
    for process in ranks:
        try:
            said.append(process.communicate(timeout=LIMIT_S)[0])
        except subprocess.TimeoutExpired:
            process.kill()
            said.append(process.communicate()[0] + "(it hung)")
    statuses = [process.returncode for process in ranks]
    return said[0].split() if statuses == [0, 0] else ["failed", "0"], [*said, statuses]


def test_processor_time():
    for name, env in (("shm", {}), ("tcp", {"KOLO_TRANSPORT": "tcp"})):
        for what in ("recv", "reduce", "blocking"):
            words, said = run(what, env)
            check(words[:1] == ["cpu"] and float(words[1]) <= MOST_PERCENT,
                  f"{name}: a pending call ({what}) takes hardly any processor time", *said)


def test_other_calls():
    words, said = run("woken")
    check(words[:1] == ["ran"] and float(words[1]) <= MOST_US,
          "a new call does not wait until a thread with a pending call has napped", *said)


def test_short_messages():
    words, said = run("brief")
    check(words[:1] == ["ended"] and int(words[1]) >= LEAST_ENDED,
          "a short message on a stream ends in its call: no other thread needs the core", *said)


run_tests(globals())
