# SPDX-License-Identifier: Apache-2.0
# covers: src/core/setup src/core/board src/core/health src/core/failure src/boot
"""Ranks are killed, stopped and paused in every phase of a communicator, from its start to its end: no
survivor hangs, all results are right, all agree, and either all or none have a new communicator.

usage: members_test.py MEMBERS   (the program of members.c)
"""
import os
import subprocess
import sys

from tap import check, run_tests

MEMBERS = sys.argv[1]
FULL = bool(os.environ.get("KOLO_TEST_FULL"))
SHORT = bool(os.environ.get("KOLO_TEST_SHORT"))
TRIALS = 120 if FULL else 15 if SHORT else 60
SEED = 11
STOPS = max(2, TRIALS // 30)
COSTS = "cores=2,latency_us=0.2,copy_gbs=10,reduce_gbs=10,step_us=0.01,switch_us=1"
RANKS = ("KOLO_RANK", "KOLO_NRANKS", "KOLO_JOB")


def test_survivors_go_on_together():
    """Kills in one program, and stops and pauses, which mostly wait, in others beside it."""
    environment = {name: value for name, value in os.environ.items() if name not in RANKS}
    environment |= {"KOLO_TUNE_FILE": "none", "KOLO_COSTS": COSTS}  # less work at the start of a rank
    runs = [(TRIALS, SEED, "kill"), (STOPS // 2, SEED + 1, "stop"), (STOPS - STOPS // 2, SEED + 2, "stop"),
            (TRIALS // 4, SEED + 3, "pause")]
    processes = [subprocess.Popen([MEMBERS, str(trials), str(seed), how], env=environment, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for trials, seed, how in runs]
    for (_, seed, how), process in zip(runs, processes):
        said = process.communicate()[0].strip().splitlines() or [""]
        check(process.returncode == 0 and " 0 wrong" in said[-1], f"{how}, seed {seed}: {said[-1]}", *said[:-1])


run_tests(globals())
