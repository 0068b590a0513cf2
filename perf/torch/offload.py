#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training a model larger than memory with --offload disk, and its speed beside the disk's.

usage: offload.py [-n RANKS] [--limit MIB] [--layers LAYERS] [--width WIDTH] [--steps STEPS] [--build FOLDER]   (as root)

A control group of cgroup v1 holds all ranks to --limit, the page cache included; there must be no swap. Shown are
the state of the model by the formula (16 bytes a parameter) beside the limit, the most that was in use, the most
without the page cache, and the milliseconds of a step. Then the bytes that the optimizer's steps read and wrote a
second, pages of parameters and gradients included, beside those of one process that reads a file as large once and
writes it once, past the page cache, in pieces as large.
"""
import argparse
import json
import mmap
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
GROUP = pathlib.Path("/sys/fs/cgroup/memory") / f"kolo-offload-{os.getpid()}"
PIECE = 6 << 20


class Limited:
    """A control group of this size, as long as it is entered; the most that was in use in it."""

    def __init__(self, limit):
        self.limit, self.anonymous, self.ends = limit, 0, threading.Event()

    def __enter__(self):
        GROUP.mkdir()
        (GROUP / "memory.limit_in_bytes").write_text(str(self.limit))
        self.watcher = threading.Thread(target=self._watch)
        self.watcher.start()
        return self

    def _watch(self):
        while not self.ends.wait(0.05):
            stat = dict(line.split() for line in (GROUP / "memory.stat").read_text().splitlines())
            self.anonymous = max(self.anonymous, int(stat["rss"]))

    @staticmethod
    def enter_here():
        (GROUP / "cgroup.procs").write_text(str(os.getpid()))

    def __exit__(self, *_):
        self.ends.set()
        self.watcher.join()
        self.most = int((GROUP / "memory.max_usage_in_bytes").read_text())
        while left := (GROUP / "cgroup.procs").read_text().split():
            for number in left:
                os.kill(int(number), signal.SIGKILL)
            time.sleep(0.05)
        (GROUP / "memory.force_empty").write_text("0")
        GROUP.rmdir()


def train(args, report):
    command = [sys.executable, "-m", "kolo_train", "-n", str(args.ranks), "--parallel", "zero3", "--offload", "disk",
               "--layers", str(args.layers), "--width", str(args.width), "--context", "16", "--batch", str(args.ranks),
               "--recompute", "--steps", str(args.steps), "--json", report]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}/train:{args.build.resolve()}/torch"}
    with Limited(args.limit << 20) as limited:
        process = subprocess.Popen(command, env=environment, preexec_fn=limited.enter_here)
        try:
            status = process.wait(args.timeout)
        except subprocess.TimeoutExpired:
            status = f"not after {args.timeout:g} s"
    if status:
        raise SystemExit(f"kolo_train did not end well: {status}")
    return limited


def sequential(size):
    """Bytes a second of reading so much in pieces, and of writing it."""
    buffer = mmap.mmap(-1, PIECE)
    buffer.write(os.urandom(PIECE))
    file = os.open(tempfile.gettempdir(), os.O_TMPFILE | os.O_RDWR | os.O_DIRECT, 0o600)
    pieces = size // PIECE
    for number in range(pieces):  # the first pass makes the file
        os.pwritev(file, [buffer], number * PIECE)
    start = time.perf_counter()
    for call in (os.preadv, os.pwritev):
        for number in range(pieces):
            call(file, [buffer], number * PIECE)
    seconds = time.perf_counter() - start
    os.close(file)
    return 2 * pieces * PIECE / seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", dest="ranks", type=int, default=2)
    parser.add_argument("--limit", type=int, default=1024, help="MiB of memory for all ranks together")
    parser.add_argument("--layers", type=int, default=86)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--timeout", type=float, default=170, help="seconds")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.json")
        limited = train(args, path)
        with open(path, encoding="utf-8") as file:
            run = json.load(file)
    state = 16 * run["parameters"]
    print(f"state {state / 2**20:,.0f} MiB, {state / (args.limit << 20):.2f} times the limit of {args.limit} MiB")
    print(f"most in use {limited.most / 2**20:,.0f} MiB, without the page cache {limited.anonymous / 2**20:,.0f} MiB")
    print(f"a step {run['step_seconds'] * 1e3:,.0f} ms, losses {run['losses'][0]:.4f} -> {run['losses'][-1]:.4f}")
    rates = [re.search(r"([\d,]+) MiB of optimizer .* at ([\d,]+) MB/s", note).groups() for note in run["notes"]]
    sizes, rates = ([int(text.replace(",", "")) for text in column] for column in zip(*rates))
    plain = sorted(sequential(sum(sizes) << 20) / 1e6 for _ in range(3))[1]
    print(f"the optimizer's steps {sum(rates):,} MB/s on {args.ranks} ranks, "
          f"a sequential program {plain:,.0f} MB/s: {sum(rates) / plain:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
