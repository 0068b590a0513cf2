# SPDX-License-Identifier: Apache-2.0
# covers: src/core/setup/layout_live.c src/gpu/hier
"""Ranks on GPUs of two hosts: one plan for both, if they are alike.

usage: gpus_test.py KOLO LIVE NVML CUDA KERNELS   (the kolo tool, the program live of tests/topology, the fake
libraries, a file of any bytes)
"""
import os
import sys

import live_job
from hosts import need, tails
from live_job import buses, check_plan
from tap import check, done

KOLO, LIVE, NVML, CUDA, KERNELS = map(os.path.abspath, sys.argv[1:])
HOSTS = need(2)


def job(first, second):
    """Four ranks a host, on these GPUs."""
    script = 'if [ $KOLO_RANK -lt 4 ]; then b=$1; else b=$2; fi; FAKE_CUDA_BUSES=$b exec "$3" 0,1,2,3,0,1,2,3'
    ends = HOSTS.run([0] * 4 + [1] * 4, ["sh", "-c", script, "sh", buses(first), buses(second), LIVE],
                     KOLO_DEBUG="INFO", KOLO_DEBUG_SUBSYS="INIT,GRAPH", KOLO_CUDA_PATH=CUDA, KOLO_NVML_PATH=NVML,
                     KOLO_CUDA_KERNELS=KERNELS, KOLO_FAKE_NVML="dgx1v", KOLO_TUNE_FILE="none")
    ran = live_job.Job("\n".join(out or "" for _, out in ends))
    ran.ended_well = all(status == 0 for status, _ in ends)
    check(ran.ended_well, "ranks on GPUs of two hosts call and end well", *tails(ends))
    return ran


four = [0, 1, 2, 3]
wanted = live_job.planned(KOLO, NVML, "dgx1v", four, 2, lambda command: HOSTS.inside(0, command))
check_plan("two hosts", job(four, four), wanted, [[rank] for rank in range(8)])
other = [0, 1, 3, 4]
said = job(four, other).said("no rings are planned on GPUs")
check(len(said) == 1 and "2 hosts differ in the GPUs that ranks are on" in said[0],
      "hosts whose ranks are on other GPUs are not planned for", said)
done()
