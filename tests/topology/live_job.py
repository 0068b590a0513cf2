# SPDX-License-Identifier: Apache-2.0
"""Jobs on the GPUs of fake_nvml.c and fake_cuda.cc: what their log says of rings and trees, against what
`kolo topo` plans on these GPUs."""
import json
import re
import subprocess

from tap import check, machine_env

FIRST_BUS = 0x10


def buses(gpus):
    """What FAKE_CUDA_BUSES is where a process sees these GPUs, in this order."""
    return ",".join(f"{FIRST_BUS + gpu:x}" for gpu in gpus)


def planned(kolo, nvml, machine, gpus=None, hosts=1, inside=lambda command: command):
    chosen = [] if gpus is None else ["--gpus", ",".join(map(str, gpus))]
    ran = subprocess.run(inside([kolo, "topo", "--json", "--hosts", str(hosts), *chosen]), capture_output=True,
                         text=True, timeout=60, check=True, env=machine_env(KOLO_NVML_PATH=nvml, KOLO_FAKE_NVML=machine))
    return json.loads(ran.stdout)["plan"]


class Job:
    """What a log of all ranks says: rings and trees of each rank's last communicator to come up (a relay's,
    on host memory, comes before)."""

    def __init__(self, log):
        self.log = log
        last = self.last_lines()
        self.rings = {int(m[1]): list(map(int, m[2].split()))
                      for m in re.finditer(r"Channel (\d+)/\d+ :((?: +\d+)+)$", last, re.M)}
        self.channels = {int(total) for total in re.findall(r"Channel \d+/(\d+) :", last)}
        self.parents = {(int(tree), int(rank)): int(up)
                        for tree, rank, up in re.findall(r" \[(\d+)\] \S+?->(\d+)->(-?\d+)", last)}

    def last_lines(self):
        saying, said = {}, {}
        for line in self.log.splitlines():
            who = line.split(" ")[0]
            saying.setdefault(who, []).append(line)
            if "Init COMPLETE" in line:
                said[who] = saying.pop(who)
        return "\n".join(line for lines in said.values() for line in lines)

    def said(self, text):
        return [line for line in self.log.splitlines() if text in line]


def cycle(ring):
    return ring[ring.index(0):] + ring[:ring.index(0)]


def check_plan(name, job, plan, rank_of):
    """`rank_of`: of each place of the plan its ranks."""
    check(job.ended_well, f"{name}: ranks call and end well", job.log[-800:])
    ranks = lambda ring: cycle([rank for gpu in ring for rank in rank_of[gpu]])
    wanted = [ranks(ring["ranks"]) for ring in plan["rings"]]
    check(job.channels == {plan["channels"]} and [job.rings[c] for c in sorted(job.rings)] == wanted,
          f"{name}: the log's rings are those of kolo topo", job.rings, wanted)
    # Those of a GPU are a chain, whose first hangs from the last of the GPU above.
    parents = {}
    for t, tree in enumerate(plan["trees"]):
        for gpu, up in enumerate(tree):
            above = rank_of[up][-1] if up >= 0 else -1
            for rank in rank_of[gpu]:
                parents[t, rank] = above
                above = rank
    check(job.parents == parents, f"{name}: the log's trees are those of kolo topo", job.parents, parents)
    # Once for the communicator, and where that has layers once for each group of GPUs.
    plans = {line.split("this machine: ")[-1] for line in job.said(": plan over ")}
    check(len(plans) == 1, f"{name}: the log says how good the plan is", plans)
