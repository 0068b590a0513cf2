# SPDX-License-Identifier: Apache-2.0
"""Ranks on one GPU, one of which is killed or stopped: the streams of the others go on, and the
communicator says whose fault it was.

usage: lost_test.py LOST   (the program of lost.cc)
"""
import os
import signal
import subprocess
import sys

from tap import check, run_tests

LOST, = sys.argv[1:]
RANKS = 3
LIMIT_S = 60


def lose(victim, how, timeout_ms):
    """What each rank said: whether all worked together, then how the calls of the others ended."""
    env = {**os.environ, "KOLO_NRANKS": str(RANKS), "KOLO_JOB": f"lost-{os.getpid()}-{victim}-{how}"}
    ranks = [subprocess.Popen([LOST, str(victim), str(timeout_ms)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**env, "KOLO_RANK": str(rank)}) for rank in range(RANKS)]
    worked = [process.stdout.readline() for process in ranks]
    ranks[victim].send_signal(how)
    ends = []
    for rank, process in enumerate(ranks):
        if rank != victim:
            try:
                ends.append(process.communicate(timeout=LIMIT_S)[0])
            except subprocess.TimeoutExpired:
                ends.append("it hung")
    for process in ranks:
        process.kill()
        process.communicate()
    return worked, ends


def test_lost():
    for victim in (0, 1):
        for how, timeout_ms, status in ((signal.SIGKILL, 50000, "KOLO_ERR_PEER"),
                                        (signal.SIGSTOP, 4000, "KOLO_ERR_TIMEOUT")):
            worked, ends = lose(victim, how, timeout_ms)
            check(worked == ["KOLO_OK\n"] * RANKS, "ranks on a GPU work together", *worked)
            check(ends == [f"{status} {victim}\n"] * (RANKS - 1),
                  f"{how.name} of rank {victim} ends the others' calls with {status}", *ends)


run_tests(globals())
