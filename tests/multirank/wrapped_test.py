# SPDX-License-Identifier: Apache-2.0
# covers: src/core/failure src/core/link src/plugin
"""Jobs over a transport in which something goes wrong (tests/plugins/transport_fault.c).

usage: wrapped_test.py FAULT SHORT_JOB   (the plug-in; the program of short_job.c)
"""
import itertools
import os
import re
import subprocess
import sys

from tap import check, run_tests

FAULT, SHORT_JOB = map(os.path.abspath, sys.argv[1:])
WHOLE = bool(os.environ.get("KOLO_TEST_WHOLE"))
LIMIT_S = 40
_jobs = itertools.count()


def run(nranks, fault, timeout_ms=20000, **more):
    """Status and output of each rank of short_job, which looks at its results. `more` is of its environment."""
    name = f"wrapped-{os.getpid()}-{next(_jobs)}"
    ranks = [subprocess.Popen([SHORT_JOB, str(timeout_ms)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, env={**os.environ, "KOLO_PLUGIN": FAULT, "KOLO_TRANSPORT": "fault",
                                              "KOLO_FAULT": fault,
                                              "KOLO_RANK": str(rank), "KOLO_NRANKS": str(nranks),
                                              "KOLO_JOB": name, **more})
             for rank in range(nranks)]
    ends = []
    for process in ranks:
        try:
            ends.append((process.communicate(timeout=LIMIT_S)[0].strip(), process.returncode))
        except subprocess.TimeoutExpired:
            process.kill()
            ends.append((process.communicate()[0].strip() + " (it hung)", None))
    return ends


def test_delay():
    """Messages that are late, and overtake those of other channels, change no result."""
    for seed in range(20 if WHOLE else 6):
        ends = run(3, f"delay:-1:{seed}")
        check(all(end == ("right", 0) for end in ends),
              f"messages that wait and overtake each other change nothing (seed {seed})", *ends)


def test_kill():
    """A rank dies at each of its messages in turn: all others name it."""
    victim, killed = 1, 0
    for number in range(0, 200, 1 if WHOLE else 4):
        ends = run(3, f"kill:{victim}:{number}")
        if ends[victim][1] == 0:
            break
        killed += 1
        others = [end for rank, end in enumerate(ends) if rank != victim]
        check(ends[victim][1] == -9 and all(status in (0, 1) for _, status in others) and
              all(status == 0 or re.search(rf"rank {victim}\b.*(died|had left|left|ended|could not)", text)
                  for text, status in others) and any(status == 1 for _, status in others),
              f"rank {victim} dies as it sends message {number}: the others name it", *ends)
    check(killed >= 5, "the job has as many messages", killed)


def test_drop():
    """What does not come is waited for until the time-out, which names a call and a rank."""
    for number in (0, 3, 8):  # by doubling, an all-reduce is one message of each rank
        ends = run(2, f"drop:1:{number}", timeout_ms=1500, KOLO_ALGO="allreduce:doubling")
        check(all(status == 1 for _, status in ends) and
              any(re.match(r"KOLO_ERR_TIMEOUT rank . waited 1500 ms in call \d+, .* for rank .[ ;]", text)
                  for text, _ in ends),
              f"rank 1 is silent from message {number} on: that is a time-out with call and rank", *ends)


def test_short():
    """Half a message is no message: both ends learn of it."""
    for number in range(0, 8, 1 if WHOLE else 3):
        ends = run(2, f"short:1:{number}", timeout_ms=3000)
        check(all(status == 1 for _, status in ends) and
              any("KOLO_ERR_MISMATCH" in text or "KOLO_ERR_LINK" in text for text, _ in ends),
              f"half of message {number} of rank 1 is an error on both ends", *ends)


run_tests(globals())
