# SPDX-License-Identifier: Apache-2.0
# covers: train/kolo_train/elastic.py train/kolo_train/restarted.py
"""Training whose ranks are all started again: it goes on from its checkpoint.

usage: restarted_test.py SOURCE_ROOT KOLO   (the kolo tool)
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

LIMIT_S = 150
STEPS = 150
WORDS = ["--parallel", "ddp", "--layers", "1", "--width", "16", "--heads", "2", "--context", "32", "--batch", "130"]
# torchrun would look up the machine's own name, which a bare system may not know.
TORCHRUN = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--max-restarts", "2"]


def elastic(launcher, ranks, steps, checkpoint, *words):
    return [*launcher, "-m", "kolo_train", "--elastic", f"{ranks}:{ranks}", "--steps", str(steps), *WORDS,
            "--json", str(FIGURES), *(["--checkpoint", str(checkpoint)] if checkpoint else []), *words]


def end(job):
    """What the job said, its losses, and its status."""
    try:
        said, _ = job.communicate(timeout=LIMIT_S)
        status = job.returncode
    except subprocess.TimeoutExpired:
        job.terminate()
        said, status = job.communicate()[0], f"still running after {LIMIT_S} s"
    losses = json.loads(FIGURES.read_text(encoding="utf-8"))["losses"] if FIGURES.exists() else []
    FIGURES.unlink(missing_ok=True)
    return said, losses, status


def start(command):
    """torchrun leaves a folder of logs where temporary files are."""
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, "TMPDIR": str(FIGURES.parent)})


def alone(steps, checkpoint=None, *words):
    """A job of one rank by kolo run."""
    return end(start(elastic([KOLO, "run", "--elastic", "1:1", PYTHON], 1, steps, checkpoint, *words)))


def last_rank_of(agent):
    children = Path(f"/proc/{agent}/task/{agent}/children").read_text(encoding="ascii").split()
    return max(int(pid) for pid in children)


def wait_for(path):
    deadline = time.monotonic() + LIMIT_S
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


with tempfile.TemporaryDirectory(prefix="kolo-train-test-") as folder:
    FIGURES, KEPT = Path(folder) / "figures.json", Path(folder) / "kept"
    job = start(elastic([*TORCHRUN, "--nproc-per-node", "2"], 2, STEPS, KEPT))
    wait_for(KEPT)
    victim = last_rank_of(job.pid)
    os.kill(victim, signal.SIGKILL)
    said, losses, status = end(job)
    check(status == 0 and len(losses) == STEPS, "torchrun starts the ranks again, and training ends", status, said)
    check("1 times resumed from" in said and f"pid: {victim}" in said, "it goes on from the checkpoint", said)
    epochs = re.search(r"data: (\d+) whole epochs of 2718 samples, each sample exactly once in each", said)
    check(epochs and int(epochs[1]) == STEPS // 21, "every epoch has each sample exactly once", said)

    said, whole, status = alone(STEPS)
    pairs = list(zip(losses, whole, strict=False))
    check(len(whole) == STEPS and max(abs(one - other) for one, other in pairs) < 1e-3,
          "the losses are those of one rank that nothing disturbed", status, pairs[-3:])

    KEPT.unlink()
    said, first, status = alone(30, KEPT)
    check(status == 0 and KEPT.exists(), "the last step leaves a checkpoint", status, said)
    said, further, status = alone(50, KEPT)
    check(status == 0 and "1 times resumed" in said and further[:30] == first and len(further) == 50,
          "a job whose ranks have all ended goes on from it", status, said)
    said, _, status = alone(60, KEPT, "--lr", "0.5")
    check(status != 0 and "is of --lr 0.001, not 0.5" in said, "one of other options is refused", status, said)
    KEPT.write_bytes(b"no checkpoint")
    said, _, status = alone(60, KEPT)
    check(status != 0 and "cannot be read" in said, "and so is a file that is none", status, said)
done()
