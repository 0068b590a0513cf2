# SPDX-License-Identifier: Apache-2.0
# covers: src/boot/launch.c src/boot/launch_hosts.c
"""Each launcher over two hosts: the ranks that it starts find each other.

usage: launchers_test.py PERF PYTHON   (all_reduce_perf; a Python with torch, or any)
"""
import os
import shutil
import stat
import subprocess
import sys
import tempfile

from hosts import finish, need, tails
from tap import check, run_tests

PERF, PYTHON = sys.argv[1:]
HOSTS = need(2)
COMMAND = [PERF, "-b", "8", "-e", "64K", "-f", "64", "-n", "5"]
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def right(out):
    """Whether a table is there, of ranks on two hosts, without a wrong result."""
    return "Out of bounds values : 0 OK" in (out or "")


def test_by_hand():
    """KOLO_RANK, KOLO_NRANKS, KOLO_ROOT and KOLO_SECRET."""
    ends = HOSTS.run([0, 1], COMMAND)
    check(all(status == 0 for status, _ in ends) and right(ends[0][1]), "KOLO_ROOT joins two hosts", *tails(ends))


def test_file():
    """KOLO_ID_FILE: made for its user alone, and gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="kolo-netns-") as folder:
        path = os.path.join(folder, "id")
        env = {"KOLO_ID_FILE": path, "KOLO_ROOT": "", "KOLO_SECRET": ""}
        ends = HOSTS.run([0, 1], COMMAND, **env)
        check(all(status == 0 for status, _ in ends) and right(ends[0][1]), "KOLO_ID_FILE joins two hosts",
              *tails(ends))
        check(not os.listdir(folder), "the file is gone once all have met", *os.listdir(folder))
        with open(path, "w", encoding="utf-8"):
            pass
        ends = HOSTS.run([0], [*COMMAND], KOLO_NRANKS="2", KOLO_TIMEOUT_MS="3000", **env)
        check(ends[0][0] != 0 and "is there already" in ends[0][1], "a file that is there already is refused",
              ends[0][1][-300:])


def test_torchrun():
    """Two agents, one a host, with KOLO_PORT and KOLO_SECRET."""
    probe = subprocess.run([PYTHON, "-c", "import torch.distributed.run"], capture_output=True, check=False)
    if probe.returncode != 0:
        print("# torchrun: skipped, this Python has no torch")
        return
    processes = []
    for host in (0, 1):
        run = [PYTHON, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "2", "--node-rank",
               str(host), "--master-addr", HOSTS.address(0), "--master-port", str(HOSTS.port + 1), "--no-python",
               *COMMAND]
        env = {**os.environ, "KOLO_PORT": str(HOSTS.port), "KOLO_SECRET": HOSTS.secret, "OMP_NUM_THREADS": "1"}
        processes.append(subprocess.Popen(HOSTS.inside(host, run), stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT, text=True, env=env))
    ends = finish(processes, 120)
    check(all(status == 0 for status, _ in ends) and right(ends[0][1]),
          "torchrun joins two hosts of two ranks each", *tails(ends))


def test_mpirun():
    """Open MPI's mpirun on the first host, whose remote shell enters the other's namespace."""
    mpirun = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    if mpirun is None:
        print("# mpirun: skipped, there is none")
        return
    with tempfile.TemporaryDirectory(prefix="kolo-netns-") as folder:
        agent = os.path.join(folder, "agent")
        with open(agent, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n# HOST COMMAND...: the host is an address of a namespace\nshift\n"
                       f'exec ip netns exec {HOSTS.names[1]} sh -c "$*"\n')
        os.chmod(agent, stat.S_IRWXU)
        run = [mpirun, "-n", "4", "--host", f"{HOSTS.address(0)}:2,{HOSTS.address(1)}:2", "--oversubscribe",
               "--bind-to", "none", "--mca", "plm_rsh_agent", agent, "--mca", "plm_rsh_no_tree_spawn", "1",
               "--mca", "oob_tcp_if_include", "eth0", *COMMAND]
        env = {**os.environ, **AS_ROOT, "TMPDIR": folder}
        ends = finish([subprocess.Popen(HOSTS.inside(0, run), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        text=True, env=env)], 120)
        check(ends[0][0] == 0 and right(ends[0][1]), "mpirun joins two hosts of two ranks each by PMIx", *tails(ends),
              (ends[0][1] or "")[-600:])


run_tests(globals())
