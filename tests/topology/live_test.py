# SPDX-License-Identifier: Apache-2.0
"""Ranks on GPUs: their log's rings, trees and channels are those that `kolo topo` plans on these GPUs.
Machines are those of fake_nvml.c, GPUs those of fake_cuda.cc on the same bus addresses.

usage: live_test.py KOLO LIVE NVML CUDA SOURCE   (the kolo tool, the program live, the fake libraries,
the source folder)
"""
import json
import os
import re
import subprocess
import sys
import tempfile

from tap import check, done, machine_env

KOLO, LIVE, NVML, CUDA, SOURCE = map(os.path.abspath, sys.argv[1:])
MACHINES = {"dgx1v": 8, "dgxa100": 8, "dgxh100": 8, "vm": 8, "h200nvl": 4, "pcie": 4}
FIRST_BUS = 0x10
KERNELS = os.path.join(SOURCE, "meson.build")  # any bytes


def buses(gpus):
    """What FAKE_CUDA_BUSES is where a process sees these GPUs, in this order."""
    return ",".join(f"{FIRST_BUS + gpu:x}" for gpu in gpus)


def planned(machine, gpus=None):
    chosen = [] if gpus is None else ["--gpus", ",".join(map(str, gpus))]
    ran = subprocess.run([KOLO, "topo", "--json", *chosen], capture_output=True, text=True, timeout=60,
                         check=True, env=machine_env(KOLO_NVML_PATH=NVML, KOLO_FAKE_NVML=machine))
    return json.loads(ran.stdout)["plan"]


class Job:
    """Ranks on `devices` of those that processes see; `threads` of one process, or processes."""

    def __init__(self, devices, threads=False, own=None, **env):
        devices = list(map(str, devices))
        with tempfile.TemporaryDirectory(prefix="kolo-live-") as folder:
            log = os.path.join(folder, "log")
            opened = os.path.join(folder, "opened")
            command = [LIVE, ",".join(devices)]
            if own is not None:  # each process sees a GPU of its own
                cases = " ".join(f"{r}) b={buses([gpu])};;" for r, gpu in enumerate(own))
                command = ["sh", "-c", f'case $KOLO_RANK in {cases} esac; FAKE_CUDA_BUSES=$b exec "$@"', "sh", *command]
            if not threads:
                command = [KOLO, "run", "-n", str(len(devices)), "--", *command]
            self.ran = subprocess.run(
                command, capture_output=True, text=True, timeout=120, check=False,
                env=machine_env(**{"KOLO_DEBUG": "INFO", "KOLO_DEBUG_FILE": log, "KOLO_DEBUG_SUBSYS": "INIT,GRAPH",
                                   "KOLO_CUDA_PATH": CUDA, "KOLO_CUDA_KERNELS": KERNELS, "KOLO_NVML_PATH": NVML,
                                   "KOLO_FAKE_NVML_LOG": opened, "KOLO_CUDA_P2P": "0", "KOLO_TUNE_FILE": "none",
                                   **env}))
            with open(log, encoding="utf-8") as file:
                self.log = file.read()
            self.opened = os.path.exists(opened) and open(opened, encoding="utf-8").read().count("\n")
        last = self.last_lines()
        self.rings = {int(m[1]): list(map(int, m[3].split()))
                      for m in re.finditer(r"Channel (\d+)/(\d+) :((?: +\d+)+)$", last, re.M)}
        self.channels = {int(total) for total in re.findall(r"Channel \d+/(\d+) :", last)}
        self.parents = {(int(tree), int(rank)): int(up)
                        for tree, rank, up in re.findall(r" \[(\d+)\] \S+?->(\d+)->(-?\d+)", last)}

    def last_lines(self):
        """What each rank says of its last communicator to come up: a relay's, on host memory, comes before."""
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
    """`rank_of`: of each GPU of the plan its ranks."""
    check(job.ran.returncode == 0, f"{name}: ranks call and end well", job.ran.stderr[-800:], job.log[-800:])
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
    check(len(job.said(": plan over ")) == 1, f"{name}: the log says how good the plan is", job.log[-800:])


def test_machines():
    for machine, gpus in MACHINES.items():
        job = Job(range(gpus), FAKE_CUDA_BUSES=buses(range(gpus)), KOLO_FAKE_NVML=machine)
        check_plan(machine, job, planned(machine), [[r] for r in range(gpus)])
        check(job.opened == 1, f"{machine}: rank 0 alone opens NVML", job.opened)
    job = Job(range(8), threads=True, FAKE_CUDA_BUSES=buses(range(8)), KOLO_FAKE_NVML="dgx1v")
    check_plan("dgx1v, threads", job, planned("dgx1v"), [[r] for r in range(8)])


def test_some_gpus():
    order = [3, 0, 7, 5, 1, 6, 2, 4]
    job = Job(range(8), FAKE_CUDA_BUSES=buses(order), KOLO_FAKE_NVML="dgx1v")
    check_plan("dgx1v in another order", job, planned("dgx1v"), [[order.index(gpu)] for gpu in range(8)])
    for chosen in ([0, 1, 2, 3], [6, 2, 1], [4, 0]):
        job = Job(range(len(chosen)), FAKE_CUDA_BUSES=buses(chosen), KOLO_FAKE_NVML="dgx1v")
        check_plan(f"dgx1v's GPUs {chosen}", job, planned("dgx1v", chosen),
                   [[chosen.index(gpu)] for gpu in sorted(chosen)])
    job = Job([0] * 8, own=order, KOLO_FAKE_NVML="dgxh100")
    check_plan("dgxh100, each rank sees its GPU alone", job, planned("dgxh100"),
               [[order.index(gpu)] for gpu in range(8)])
    devices = [0, 1, 1, 2, 0, 3]
    job = Job(devices, FAKE_CUDA_BUSES=buses(range(4)), KOLO_FAKE_NVML="dgx1v")
    check_plan("dgx1v, some ranks share a GPU", job, planned("dgx1v", range(4)),
               [[r for r, d in enumerate(devices) if d == gpu] for gpu in range(4)])


def check_unplanned(name, job, why, *opened):
    check(job.ran.returncode == 0, f"{name}: ranks call and end well", job.ran.stderr[-800:], job.log[-800:])
    check(job.channels == {2} and job.opened in opened, f"{name}: ranks are in their usual order", job.channels,
          job.opened)
    said = job.said("no rings are planned on GPUs")
    check(len(said) == (why is not None) and (why is None or why in said[0]),
          f"{name}: one line says why, if there is a reason", said)


def test_no_plan():
    four = {"FAKE_CUDA_BUSES": buses(range(4))}
    check_unplanned("host memory", Job("----", **four, KOLO_FAKE_NVML="dgx1v"), None, False)
    check_unplanned("one GPU", Job("111", **four, KOLO_FAKE_NVML="dgx1v"), None, False)
    check_unplanned("an NVML that fails", Job("0123", **four, KOLO_FAKE_NVML="broken"),
                    "GPU 0000:10:00.0 of rank 0 is not among the 0 of this machine: Driver/library version mismatch", 1)
    check_unplanned("no NVML", Job("0123", **four, KOLO_NVML_PATH="/no/such/library.so"),
                    "the library of KOLO_NVML_PATH cannot be loaded", False)
    check_unplanned("another machine's NVML", Job("0123", **four, KOLO_FAKE_NVML="pair"),
                    "GPU 0000:10:00.0 of rank 0 is not among the 2 of this machine", 1)
    job = Job("012", FAKE_CUDA_BUSES="10,-,12", KOLO_FAKE_NVML="dgx1v")
    check_unplanned("a GPU without an address", job, "GPU 1: no bus address", False)
    data = os.path.join(SOURCE, "tests", "data", "smi-4gpu.txt")
    job = Job("0123", **four, KOLO_FAKE_NVML="broken", KOLO_TOPO_FILE=data)
    check(job.ran.returncode == 0 and job.channels == {12} and job.said(data + ": plan over"),
          "a file's machine is planned on where the ranks' GPUs are not found", job.channels, job.log[-800:])


def test_links():
    """What joins the GPUs, where kernels store to each other's memory."""
    for machine, link in (("dgxh100", "NVSwitch (NVML)"), ("dgx1v", "NVLink (NVML)"), ("pcie", "PCIe (NVML)"),
                          ("h200nvl", "PCIe (NVML)"), ("broken", "NVLink (by native atomics)")):
        job = Job("0123", threads=True, FAKE_CUDA_BUSES=buses(range(4)), KOLO_FAKE_NVML=machine, KOLO_CUDA_P2P="1")
        said = [re.search(r"over ([^,]*),", line)[1] for line in job.said("ranks on a GPU each")]
        check(job.ran.returncode == 0 and said == [link] * 4, f"{machine}: GPUs are joined by {link}", said,
              job.ran.stderr[-800:], job.log[-800:])
    job = Job("0123", threads=True, FAKE_CUDA_BUSES=buses([0, 1, 2, 5]), KOLO_FAKE_NVML="dgx1v", KOLO_CUDA_P2P="1")
    check(len(job.said("over PCIe (NVML)")) == 4, "a pair without NVLink makes PCIe of all", job.log[-800:])


def test_wrong_lists():
    for text in ("8", "x", "", "0,-1"):
        ran = subprocess.run([KOLO, "topo", "--gpus", text], capture_output=True, text=True, timeout=60,
                             check=False, env=machine_env(KOLO_NVML_PATH=NVML, KOLO_FAKE_NVML="dgx1v"))
        check(ran.returncode == 1 and "--gpus" in ran.stderr, f"kolo topo refuses --gpus \"{text}\"", ran.stderr)


for test in (test_machines, test_some_gpus, test_no_plan, test_links, test_wrong_lists):
    test()
done()
