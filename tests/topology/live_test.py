# SPDX-License-Identifier: Apache-2.0
# covers: src/core/setup/layout_live.c topology/machine/nvml.c topology/machine/nvml_graph.c
"""Ranks on GPUs: their log's rings, trees and channels are those that `kolo topo` plans on these GPUs.
Machines are those of fake_nvml.c, GPUs those of fake_cuda.cc on the same bus addresses.

usage: live_test.py KOLO LIVE NVML CUDA SOURCE   (the kolo tool, the program live, the fake libraries,
the source folder)
"""
import os
import re
import subprocess
import sys
import tempfile

import live_job
from live_job import buses, check_plan
from tap import check, done, machine_env

KOLO, LIVE, NVML, CUDA, SOURCE = map(os.path.abspath, sys.argv[1:])
MACHINES = {"dgx1v": 8, "dgxa100": 8, "dgxh100": 8, "vm": 8, "h200nvl": 4, "pcie": 4}
KERNELS = os.path.join(SOURCE, "meson.build")  # any bytes


def planned(machine, gpus=None):
    return live_job.planned(KOLO, NVML, machine, gpus)


class Job(live_job.Job):
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
                super().__init__(file.read())
            self.ended_well = self.ran.returncode == 0
            self.opened = os.path.exists(opened) and open(opened, encoding="utf-8").read().count("\n")


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
    check(job.ended_well, f"{name}: ranks call and end well", job.ran.stderr[-800:], job.log[-800:])
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
    memory = {}
    for machine, link in (("dgxh100", "NVSwitch (NVML)"), ("dgx1v", "NVLink (NVML)"), ("pcie", "PCIe (NVML)"),
                          ("h200nvl", "PCIe (NVML)"), ("broken", "NVLink (by native atomics)")):
        job = Job("0123", threads=True, FAKE_CUDA_BUSES=buses(range(4)), KOLO_FAKE_NVML=machine, KOLO_CUDA_P2P="1")
        said = [re.search(r"over ([^,]*),", line)[1] for line in job.said("ranks on a GPU each")]
        check(job.ran.returncode == 0 and said == [link] * 4, f"{machine}: GPUs are joined by {link}", said,
              job.ran.stderr[-800:], job.log[-800:])
        memory[machine] = {int(kib) for kib in re.findall(r"(\d+) KiB of each GPU", job.log)}
    most, least = max(memory["dgxh100"]), max(memory["pcie"])
    check(len(memory["pcie"]) == 1 and 5 * least < most, "over PCIe, which four blocks fill, a communicator takes "
          "the memory of four blocks", memory)
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
