# SPDX-License-Identifier: Apache-2.0
# covers: src/core/agree src/core/setup
"""Ranks on 2 and 3 hosts are killed, stopped and paused in every phase of a communicator: no survivor hangs,
all results are right, all agree, and either all or none have a new communicator.

usage: members_test.py MEMBERS   (the program of multirank/members.c)
"""
import os
import subprocess
import sys

from hosts import need
from tap import check, run_tests

MEMBERS = sys.argv[1]
FULL, SHORT = (bool(os.environ.get(f"KOLO_TEST_{name}")) for name in ("FULL", "SHORT"))
TRIALS = 40 if FULL else 5 if SHORT else 12
SEED = 21
HOSTS = need(3)
COSTS = "cores=2,latency_us=0.2,copy_gbs=10,reduce_gbs=10,step_us=0.01,switch_us=1"
RANKS = ("KOLO_RANK", "KOLO_NRANKS", "KOLO_JOB")


def test_survivors_go_on_together():
    """The stops mostly wait, so they run beside the kills."""
    environment = {name: value for name, value in os.environ.items() if name not in RANKS}
    environment |= {"KOLO_TUNE_FILE": "none", "KOLO_COSTS": COSTS}  # less work at the start of a rank
    runs = [(2, TRIALS, SEED, "kill"), (3, TRIALS, SEED + 1, "kill"), (2, max(1, TRIALS // 30), SEED + 2, "stop"),
            (3, max(2, TRIALS // 4), SEED + 3, "pause")]
    processes = [subprocess.Popen([MEMBERS, str(trials), str(seed), how,
                                   *(f"{HOSTS.names[i]}={HOSTS.address(i)}" for i in range(hosts))],
                                  env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                 for hosts, trials, seed, how in runs]
    for (hosts, _, seed, how), process in zip(runs, processes):
        said = process.communicate()[0].strip().splitlines() or [""]
        check(process.returncode == 0 and " 0 wrong" in said[-1], f"{hosts} hosts, {how}, seed {seed}: {said[-1]}",
              *said[:-1])


run_tests(globals())
