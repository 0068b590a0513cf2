#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time and memory of `kolo sim` itself, from 16 to 131,072 ranks, one rank a host, calls of 64 KiB.

Processor time of one core, the least of some runs: other programs disturb it less than the clock. With
--every no rank stands for others. From 16,384 to 131,072 ranks, n log n grows 9.7 times.

usage: sim_scale.py [--build FOLDER] [-n RANKS,...] [-t TIMES]
"""
import argparse
import os
import subprocess
import sys
import tempfile

MACHINE = "ranks_per_host 1\nnet_latency_us 2\nnet_gbs 12\nnet_message_us 0.3\n"
CASES = (("barrier, dissemination", ("barrier", "-a", "dissemination")),
         ("all-reduce, doubling", ("allreduce", "-a", "doubling")),
         ("the same, every rank", ("allreduce", "-a", "doubling", "--every")),
         ("all-reduce, two trees", ("allreduce", "-a", "tree")),
         ("broadcast, binomial", ("broadcast", "-a", "binomial")))


def cost(command):
    """(seconds, MB) of processor and memory."""
    with open(os.devnull, "w", encoding="utf-8") as null:
        child = subprocess.Popen(command, stdout=null)
        _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        raise RuntimeError(f"{' '.join(command)}: status {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build"))
    parser.add_argument("-n", default="16,128,1024,16384,131072")
    parser.add_argument("-t", type=int, default=3)
    options = parser.parse_args()
    ranks = [int(n) for n in options.n.split(",")]
    print("| ranks | " + " | ".join(name for name, _ in CASES) + " |\n|---" + "|---" * len(CASES) + "|")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as machine:
        machine.write(MACHINE)
        machine.flush()
        for n in ranks:
            cells = []
            for _, words in CASES:
                command = [f"{options.build}/tools/kolo", "sim", *words, "-n", str(n), "-m", machine.name, "-b", "64K"]
                runs = [cost(command) for _ in range(options.t)]
                cells.append(f"{min(run[0] for run in runs):.2f} s, {max(run[1] for run in runs):.0f} MB")
            print(f"| {n} | " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
