# SPDX-License-Identifier: Apache-2.0
# covers: train/kolo_train/elastic.py train/kolo_train/elastic_server.py train/kolo_train/ways/parameter_server.py
# covers: torch/kolo_torch/elastic.py tools/run/elastic.c
"""Training that loses a rank and gets another: the same losses, and every sample once. A parameter server goes
on without a worker, and its own death ends the job.

usage: elastic_test.py SOURCE_ROOT KOLO   (the kolo tool)
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from python_of import add_to_path, python_with
from tap import check, done

ROOT, KOLO = Path(sys.argv[1]), sys.argv[2]
PYTHON = python_with(ROOT, "torch", "kolo_torch")
add_to_path(ROOT)

LIMIT_S = 100
STOP_S = 25  # less than the time-out, after which the others go on without it
STEPS = 210
# 118 of 2718 windows are left for an epoch's last step, which 3 ranks divide unequally.
WORDS = ["--layers", "1", "--width", "16", "--heads", "2", "--context", "32", "--batch", "130"]


def ranks_of(launcher):
    """The pids of the ranks that it runs, in the order of their start."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children")
    return [int(pid) for pid in children.read_text(encoding="ascii").split()]


def trained(folder, ranks, steps, kill=None, way="ddp"):
    """The figures of a run, what it said, and its status; `kill` gets the launcher once it trains."""
    figures = Path(folder) / "figures.json"
    figures.unlink(missing_ok=True)
    command = [KOLO, "run", "--elastic", ranks, PYTHON, "-m", "kolo_train", "--elastic", ranks,
               "--parallel", way, "--steps", str(steps), "--json", str(figures), *WORDS]
    with (Path(folder) / "log").open("w+b") as log:
        job = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "TMPDIR": str(folder)})
        said = Path(log.name)
        try:
            while kill and job.poll() is None and b"samples/s" not in said.read_bytes():
                time.sleep(0.05)
            if kill and job.poll() is None:
                kill(job.pid)
            status = job.wait(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            job.terminate()
            status = f"still running after {LIMIT_S} s"
            job.wait()
    text = said.read_text(encoding="utf-8")
    return json.loads(figures.read_text(encoding="utf-8")) if figures.exists() else {}, text, status


def first_of(launcher):
    """The rank that reports, which is the group's rank 0."""
    log = (Path(FOLDER) / "log").read_text(encoding="utf-8")
    reports = re.search(r"^\[(\d)\] \[#.*samples/s", log, re.MULTILINE)
    return ranks_of(launcher)[int(reports[1]) if reports else 0]


def kill_first(launcher):
    """Nobody tells the others."""
    os.kill(first_of(launcher), signal.SIGKILL)


def replace_first(launcher):
    """The job goes on without the group's rank 0, until another one enters."""
    replace(launcher, first_of(launcher))


def replace_worker(launcher):
    """The same with a rank that is not the group's rank 0."""
    first = first_of(launcher)
    replace(launcher, next(rank for rank in ranks_of(launcher) if rank != first), first)


def replace(launcher, victim, goes_on=None):
    """Kill a rank. Another one is stopped until the next rank waits to be taken in, however long its start
    takes: so it comes before the end."""
    ranks = ranks_of(launcher)
    stopped = next(rank for rank in ranks if rank not in (victim, goes_on))
    os.kill(stopped, signal.SIGSTOP)
    os.kill(victim, signal.SIGKILL)
    deadline = time.monotonic() + STOP_S
    while not list(Path(FOLDER).glob("kolo-elastic-*/wait.*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(stopped, signal.SIGCONT)


with tempfile.TemporaryDirectory(prefix="kolo-train-test-") as FOLDER:
    disturbed, out, status = trained(FOLDER, "1:3", STEPS, replace_first)
    check(status == 0 and "killed by signal 9" in out, "a job goes on without the rank that was killed", status, out)
    check("elastic: 1 ranks lost, 1 taken in" in out, "another one enters while it runs", out)
    epochs = re.search(r"data: (\d+) whole epochs of 2718 samples, each sample exactly once in each", out)
    check(epochs and int(epochs[1]) == STEPS // 21, "every epoch has each sample exactly once", out)
    check(not list(Path(FOLDER).glob("kolo-elastic-*")), "the folder where ranks meet is gone")
    alone, out, status = trained(FOLDER, "1:1", 60)
    check(status == 0 and len(alone.get("losses", [])) == 60, "an elastic job may have one rank", status, out)
    losses = list(zip(disturbed.get("losses", []), alone.get("losses", []), strict=False))
    check(losses and max(abs(one - other) for one, other in losses) < 1e-3,
          "the losses are those of one rank that nothing disturbed", losses[-3:])
    served, out, status = trained(FOLDER, "2:3", 100, replace_worker, "ps-sync")
    losses = served.get("losses", [])
    check(status == 0 and "elastic: 1 ranks lost, 1 taken in" in out and len(losses) == 100,
          "a parameter server goes on without a worker, and takes another in", status, out)
    check(losses and losses[-1] < losses[0] - 0.1, "its model learns through that", losses[:3], losses[-3:])
    served, out, status = trained(FOLDER, "2:3", 5000, kill_first, "ps-async")
    named = re.search(r"the parameter server, rank (\d) of kolo run, process (\d+), has died", out)
    dead = re.search(r"rank (\d) \(pid (\d+)\) was killed by signal 9", out)
    check(status == 1 and named and dead and named.groups() == dead.groups() and not served,
          "a parameter server that dies ends the job with its name", status, out)
done()
