# SPDX-License-Identifier: Apache-2.0
# covers: src/boot/pmi.c examples/cluster
"""srun of Slurm starts the ranks: a controller and a node daemon of our own, on this machine, in a
folder of their own, with auth/none.

usage: srun_test.py ALL_REDUCE SOURCE_ROOT TORCH   (all_reduce_perf; the folder of the built kolo_torch)
"""
import ctypes
import getpass
import glob
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from tap import check, done

ALL_REDUCE, ROOT, TORCH = map(os.path.abspath, sys.argv[1:])
NEEDS = ("slurmctld", "slurmd", "srun", "sbatch", "scontrol", "sinfo", "squeue", "scancel")
START_S, LIMIT_S, SCRIPT_S = 30, 60, 600
CONF = """
ClusterName=kolo
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SrunPortRange={ports[2]}-{ports[3]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
PlugStackConfig={folder}/plugstack.conf
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/linear
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def free_ports(count):
    """Ports that nobody has at the moment, the last 30 of them in a row."""
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return [*ports, 61000 + os.getpid() % 4000, 61000 + os.getpid() % 4000 + 30]


class Slurm:
    """A cluster of this machine."""

    def __init__(self, folder):
        self.folder = folder
        host = socket.gethostname().split(".")[0]
        for name in ("state", "spool"):
            os.mkdir(os.path.join(folder, name))
        open(os.path.join(folder, "plugstack.conf"), "w", encoding="utf-8").close()
        conf = os.path.join(folder, "slurm.conf")
        with open(conf, "w", encoding="utf-8") as file:
            file.write(CONF.format(host=host, user=getpass.getuser(), ports=free_ports(2), folder=folder))
        self.env = {**os.environ, "SLURM_CONF": conf}
        self.daemons = [self.daemon("slurmctld", "-D", "-f", conf), self.daemon("slurmd", "-D", "-f", conf, "-N", host)]

    def daemon(self, *command):
        with open(os.path.join(self.folder, command[0] + ".out"), "w", encoding="utf-8") as out:
            return subprocess.Popen(command, stdout=out, stderr=out, env=self.env, start_new_session=True)

    def is_ready(self):
        """The node is idle within the time, and the daemons run."""
        until = time.monotonic() + START_S
        while time.monotonic() < until and all(daemon.poll() is None for daemon in self.daemons):
            ran = self.run(["sinfo", "-h", "-o", "%T"])
            if ran.stdout.strip() == "idle":
                return True
            time.sleep(0.2)
        return False

    def run(self, command, limit_s=LIMIT_S, **more):
        try:
            return subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit_s,
                                  env={**self.env, **more})
        except subprocess.TimeoutExpired as error:
            return subprocess.CompletedProcess(command, -1, (error.stdout or b"").decode(), "it did not end")

    def said(self):
        """The ends of the logs."""
        lines = []
        for name in ("slurmctld.log", "slurmd.log", "slurmctld.out", "slurmd.out"):
            path = os.path.join(self.folder, name)
            if os.path.exists(path):
                with open(path, encoding="utf-8", errors="replace") as file:
                    lines += [f"{name}: {line.rstrip()}" for line in file.readlines()[-4:]]
        return lines

    def wait_for_jobs(self):
        """None is left, or they are ended."""
        until = time.monotonic() + 10
        while self.run(["squeue", "-h"]).stdout.strip() and time.monotonic() < until:
            time.sleep(0.2)
        self.run(["scancel", "--full", f"--user={getpass.getuser()}"])

    def stop(self):
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(daemon.pid, signal.SIGKILL)
                daemon.wait()
        end_orphans()


def adopt_orphans():
    """Processes whose parents end become this one's children: slurmd's steps are no exception."""
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def end_orphans():
    """Those that are left."""
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                pid, parent = int(path.split("/")[2]), int(file.read().rsplit(")", 1)[1].split()[1])
            if parent == os.getpid():
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        except (OSError, ValueError):
            pass  # it ended by itself


def is_right(ran):
    return ran.returncode == 0 and "Out of bounds values : 0 OK" in ran.stdout


def check_jobs(slurm):
    sweep = [ALL_REDUCE, "-b", "8", "-e", "64K", "-f", "64", "-n", "5"]
    ran = slurm.run(["srun", "-n", "4", "--mpi=pmi2", *sweep], KOLO_DEBUG="INFO")
    check(is_right(ran) and "started by srun: rank 0 of 4" in ran.stdout,
          "srun -n 4 --mpi=pmi2: the ranks find each other, and their sums are right",
          *ran.stdout.splitlines()[-8:], ran.stderr[-600:], *slurm.said())
    ran = slurm.run(["srun", "-n", "3", "--mpi=none", *sweep])
    check(is_right(ran), "srun --mpi=none: on one host the job's and the step's number are enough",
          *ran.stdout.splitlines()[-8:], ran.stderr[-600:])
    # As if the step had another host: what rank 0 knows goes through PMI-2.
    ran = slurm.run(["srun", "-n", "4", "--mpi=pmi2", "env", "SLURM_STEP_NUM_NODES=2", *sweep])
    check(is_right(ran), "ranks that may be on several hosts meet through srun's PMI-2",
          *ran.stdout.splitlines()[-8:], ran.stderr[-600:])
    ran = slurm.run(["srun", "-n", "2", "--mpi=pmi2", "sh", "-c", '[ "$SLURM_PROCID" = 1 ] && exit 7; exec "$@"', "sh", *sweep],
                    KOLO_TIMEOUT_MS="3000")
    check(ran.returncode != 0 and "had not joined" in ran.stdout + ran.stderr,
          "a rank that exits before it joins is named by the other", ran.stdout[-500:], ran.stderr[-500:])


def python_that_trains(slurm):
    """One with torch and kolo_torch; None, after a line that says so, where there is none."""
    for python in (os.path.join(ROOT, ".venv/bin/python3"), sys.executable):
        probe = [python, "-c", "import torch.distributed.run, kolo_torch"]
        if os.path.exists(python) and slurm.run(probe, PYTHONPATH=TORCH).returncode == 0:
            return python
    print("# slurm.sh: skipped, no Python here has torch and kolo_torch")
    return None


def check_script(slurm):
    """examples/cluster/slurm.sh as it is, but on one node and for a few steps."""
    python = python_that_trains(slurm)
    if python is None:
        return
    path = os.path.join(slurm.folder, "bin")
    os.mkdir(path)
    os.symlink(ALL_REDUCE, os.path.join(path, "all_reduce_perf"))
    with open(os.path.join(path, "torchrun"), "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec {python} -m torch.distributed.run "$@"\n')
    os.chmod(file.name, 0o755)
    with open(os.path.join(ROOT, "examples/cluster/slurm.sh"), encoding="utf-8") as file:
        script = file.read()
    # The machine's own name may be known to Slurm alone.
    short = script.replace("-e 4M", "-e 4K -n 2").replace('head=$(scontrol', 'head=127.0.0.1 nodes=$(scontrol').replace(
        "--steps 200", "--steps 3 --layers 1 --width 32 --batch 8 --check")
    copy, out = os.path.join(slurm.folder, "slurm.sh"), os.path.join(slurm.folder, "slurm.out")
    with open(copy, "w", encoding="utf-8") as file:
        file.write(short)
    ran = slurm.run(["sbatch", "--wait", "--nodes=1", f"--output={out}", copy], limit_s=SCRIPT_S,
                    PATH=f"{path}:{os.environ['PATH']}", PYTHONPATH=f"{TORCH}:{ROOT}/train", OMP_NUM_THREADS="1")
    said = ""
    if os.path.exists(out):
        with open(out, encoding="utf-8", errors="replace") as file:
            said = file.read()
    check(ran.returncode == 0 and "Out of bounds values : 0 OK" in said and "2 ranks over kolo" in said and "EQUAL" in said,
          "the script of examples/cluster measures and trains", *said.splitlines()[-12:], ran.stderr[-300:], *slurm.said())


def main():
    missing = [name for name in NEEDS if shutil.which(name) is None]
    if missing:
        print(f"1..0 # SKIP no {missing[0]}: Debian has it in the package slurm-wlm (./setup --dev)")
        return
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="kolo-srun-") as folder:
        slurm = Slurm(folder)
        try:
            if not slurm.is_ready():
                print("1..0 # SKIP Slurm does not start here:", *slurm.said()[-2:])
                return
            check_jobs(slurm)
            check_script(slurm)
            slurm.wait_for_jobs()
        finally:
            slurm.stop()
    done()


main()
