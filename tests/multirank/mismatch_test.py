# SPDX-License-Identifier: Apache-2.0
# covers: src/core/call src/core/health/look.c src/core/board src/exec/cpu transports/shm
"""Ranks of one host that make different calls: all of them hear it, with both calls, within a second.

usage: mismatch_test.py MISMATCH   (the program of mismatch.c)
"""
import os
import subprocess
import sys

from ranks import output_of
from tap import check, run_tests

MISMATCH, = sys.argv[1:]
WHOLE = bool(os.environ.get("KOLO_TEST_WHOLE"))
SHORT = bool(os.environ.get("KOLO_TEST_SHORT"))
SEED = os.environ.get("KOLO_TEST_SEED", "1")
CASES = 500 if WHOLE else 8 if SHORT else 24
LIMIT_S = 600


def run(nranks, cases, **more):
    env = {**os.environ, **more, "KOLO_NRANKS": str(nranks), "KOLO_JOB": f"mismatch-{os.getpid()}-{nranks}"}
    ranks = [subprocess.Popen([MISMATCH, SEED, "0", str(cases)], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, env={**env, "KOLO_RANK": str(rank)})
             for rank in range(nranks)]
    said = [output_of(process, LIMIT_S) for process in ranks]
    return [process.returncode for process in ranks], said


def test_shared_memory():
    """Over lines and slots of shared memory."""
    for nranks in (2, 3):
        statuses, said = run(nranks, CASES)
        check(statuses == [0] * nranks, f"{nranks} ranks: {CASES} mismatches are named by all ranks",
              statuses, *said)


def test_messages():
    """Over connections, as between hosts, but with a board."""
    statuses, said = run(3, CASES // 2, KOLO_TRANSPORT="tcp")
    check(statuses == [0] * 3, f"3 ranks over tcp: {CASES // 2} mismatches are named by all ranks",
          statuses, *said)


run_tests(globals())
