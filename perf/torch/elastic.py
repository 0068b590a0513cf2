#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Elastic training whose ranks are killed, beside a run of one rank that nothing disturbs.

usage: elastic.py [-n RANKS] [--seconds S] [--every S] [--way WAY] [--kolo FILE]   (options of kolo_train may follow --)

A rank, chosen at random, is killed each --every seconds; `kolo run` starts another in its place. It prints
how long a step took through a death, the first try included, beside the other steps; how many steps one rank
makes with the same losses; and both curves of the loss.
"""
import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODEL = ["--layers", "2", "--width", "64", "--heads", "4", "--context", "64", "--batch", "32"]
FOREVER = "1000000"


def start(args, ranks, steps, checkpoint):
    command = [args.kolo, "run", "--elastic", ranks, "--max-restarts", "1000", sys.executable, "-m", "kolo_train",
               "--elastic", ranks, "--parallel", args.way, "--steps", steps, "--checkpoint", checkpoint, *MODEL, *args.more]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def ranks_of(launcher):
    children = Path(f"/proc/{launcher}/task/{launcher}/children")
    return [int(pid) for pid in children.read_text(encoding="ascii").split()]


def disturbed(args, checkpoint):
    """The figures of the run so far, and the number of kills."""
    job = start(args, f"2:{args.ranks}", FOREVER, checkpoint)
    while not Path(checkpoint).exists() and job.poll() is None:
        time.sleep(0.1)
    end, kills = time.monotonic() + args.seconds, 0
    try:
        while time.monotonic() < end - args.every and job.poll() is None:
            time.sleep(args.every)
            os.kill(random.choice(ranks_of(job.pid)), signal.SIGKILL)
            kills += 1
        time.sleep(max(0.0, end - time.monotonic()))
        alive = job.poll() is None
    finally:
        job.terminate()
        job.wait()
    if not alive:
        raise SystemExit("the job ended before its time")
    return told_in(checkpoint), kills


def undisturbed(args, steps, checkpoint):
    job = start(args, "1:1", steps, checkpoint)
    try:
        job.wait()
    finally:
        job.terminate()
        job.wait()


def told_in(checkpoint):
    import torch

    return torch.load(checkpoint, weights_only=True)["told"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-n", "--ranks", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--every", type=float, default=20)
    parser.add_argument("--way", default="ddp")
    parser.add_argument("--kolo", default=str(ROOT / "build/tools/kolo"))
    parser.add_argument("more", nargs="*")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the ranks end, too
    with tempfile.TemporaryDirectory() as folder:
        told, kills = disturbed(args, f"{folder}/disturbed")
        seconds, gaps, losses = told["seconds"], sorted(told["gaps"]), told["losses"]
        print(f"{args.way}, {args.ranks} ranks: {kills} killed, {told['lost']} lost, {told['taken_in']} taken in; {len(losses)} steps")
        print(f"a step: {statistics.median(seconds):.3f} s (median), {max(seconds):.3f} at most")
        print("a step through a death: " + ", ".join(f"{gap:.3f}" for gap in gaps))
        print(f"to take a rank in: {max(told['seconds_to_take_in'], default=0):.3f} s at most", flush=True)
        alone = f"{folder}/alone"
        if not args.way.startswith("ps-"):
            undisturbed(args, str(len(losses)), alone)
            other = told_in(alone)["losses"]
            print(f"losses differ by {max(abs(a - b) for a, b in zip(losses, other, strict=True)):.2g} at most")
            for step in (len(losses) // 8, len(losses) // 2, len(losses)):
                print(f"step {step}: {mean(losses, step):.4f}, undisturbed {mean(other, step):.4f} (means of 50)")


def mean(losses, step):
    tail = losses[max(0, step - 50):step]
    return sum(tail) / len(tail)


if __name__ == "__main__":
    main()
