# SPDX-License-Identifier: Apache-2.0
# covers: src/gpu/fused src/gpu/proxy
"""Ranks on one GPU, one of which is killed or stopped: the streams of the others go on, and the
communicator says whose fault it was.

usage: lost_test.py LOST   (the program of lost.cc)
"""
import os
import signal
import subprocess
import sys
import time

from tap import check, run_tests

LOST, = sys.argv[1:]
RANKS = 3
LIMIT_S = 60
SOON_S = 20  # on a busy machine, too; well before the 50 s of the time-out


def lose(victim, how, timeout_ms, opens):
    """What each rank said: whether all worked together, then how the calls of the others ended, and
    how many seconds that took."""
    env = {**os.environ, "KOLO_CUDA_IPC": opens, "KOLO_NRANKS": str(RANKS), "KOLO_JOB": f"lost-{os.getpid()}-{victim}-{how}"}
    ranks = [subprocess.Popen([LOST, str(victim), str(timeout_ms)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**env, "KOLO_RANK": str(rank)}) for rank in range(RANKS)]
    worked = [process.stdout.readline() for process in ranks]
    start = time.monotonic()
    ranks[victim].send_signal(how)
    ends = []
    for rank, process in enumerate(ranks):
        if rank != victim:
            try:
                ends.append(process.communicate(timeout=LIMIT_S)[0])
            except subprocess.TimeoutExpired:
                ends.append("it hung")
    took_s = time.monotonic() - start
    for process in ranks:
        process.kill()
        process.communicate()
    return worked, ends, took_s


def check_lost(victim, how, opens):
    timeout_ms, status = {signal.SIGKILL: (50000, "KOLO_ERR_PEER"),
                          signal.SIGSTOP: (4000, "KOLO_ERR_TIMEOUT")}[how]
    way = "one kernel" if opens == "1" else "the host"
    worked, ends, took_s = lose(victim, how, timeout_ms, opens)
    check(worked == ["KOLO_OK\n"] * RANKS, f"ranks on a GPU work together, by {way}", *worked)
    check(ends == [f"{status} {victim}\n"] * (RANKS - 1),
          f"{how.name} of rank {victim} ends the others' calls by {way} with {status}", *ends)
    if how == signal.SIGKILL:
        check(took_s < SOON_S, f"which takes less than {SOON_S} s", f"{took_s:.1f} s")


def test_lost():
    for victim in (0, 1):
        for how in (signal.SIGKILL, signal.SIGSTOP):
            check_lost(victim, how, "1")


def test_lost_where_calls_go_through_the_host():
    check_lost(0, signal.SIGKILL, "0")
    check_lost(1, signal.SIGKILL, "0")


run_tests(globals())
