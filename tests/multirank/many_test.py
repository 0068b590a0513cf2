# SPDX-License-Identifier: Apache-2.0
# covers: src/core/health src/core/board src/core/failure
"""Deaths among many ranks of one host, where each process watches a few others only.

usage: many_test.py MANY   (the program of many.c)
"""
import os
import signal
import subprocess
import sys

from tap import check, run_tests

MANY = sys.argv[1]
LIMIT_S = 60
RING = 8  # processes that each one watches: KOLO_RING_WATCHED


class Job:
    def __init__(self, nranks, *arguments):
        env = {**os.environ, "KOLO_NRANKS": str(nranks), "KOLO_TIMEOUT_MS": "15000",
               "KOLO_JOB": f"many-{os.getpid()}-{'-'.join(arguments)}"}
        self.ranks = [subprocess.Popen([MANY, *arguments], stdin=subprocess.PIPE, text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       env={**env, "KOLO_RANK": str(rank)})
                      for rank in range(nranks)]

    def end_of(self, rank):
        try:
            return self.ranks[rank].communicate(timeout=LIMIT_S)[0].strip()
        except subprocess.TimeoutExpired:
            return "hung"

    def clear(self):
        for process in self.ranks:
            process.kill()
            process.communicate()


def test_a_chain_of_deaths_is_known_to_all():
    nranks, first, count = 96, 30, 3 * RING
    job = Job(nranks, "chain", str(first), str(count))
    dead = range(first, first + count)
    ends = {job.end_of(rank) for rank in range(nranks) if rank not in dead}
    job.clear()
    named = [f"KOLO_ERR_PEER {rank} {nranks - count}" for rank in dead]
    check(len(ends) == 1 and ends <= set(named), "all survivors of a chain of deaths name the same one, and go on without the chain",
          *sorted(ends)[:6])


def test_a_rank_whose_watchers_are_stopped_is_missed_by_who_waits_for_it():
    nranks, victim = 2 * RING + 2, RING + 1
    job = Job(nranks, "stopped", str(victim))
    here = [process.stdout.readline() == "here\n" for process in job.ranks]
    watchers = job.ranks[victim - RING:victim]
    for process in watchers:
        process.send_signal(signal.SIGSTOP)
    job.ranks[victim].kill()
    said = job.end_of(victim + 1)
    job.clear()
    check(all(here) and said == f"KOLO_ERR_PEER {victim} 0", "a rank sees the death that it waits for, though all that watch are stopped", said)


def test_the_next_ranks_are_watched_in_place_of_those_that_have_left():
    nranks, victim = 2 * RING, RING + 4
    job = Job(nranks, "left", str(victim))
    said = [job.end_of(rank) for rank in range(nranks) if rank == 0 or rank > victim]
    job.clear()
    check(said == [f"KOLO_ERR_PEER {victim} 0"] * len(said), "the death of a rank is seen whose watchers have all left", *said)


run_tests(globals())
