#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what `kolo sim --replay` predicts for TCP from a record over shared memory with what is then
measured over TCP, between hosts that are network namespaces of this machine (see sim_tcp.py).

The job makes the calls of a training step: all-reduces of gradients between pieces of computation, then a
reduce-scatter and an all-gather of the optimizer. It computes a fixed number of hashes, so the record's
computation is the same on both machines as far as the cores are.

usage: sim_replay.py [--build FOLDER] [--mbit RATE] [--steps N] [--rounds N]   (as root)
       sim_replay.py --job STEPS   (one rank of the job)
"""
import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import netns
import sim_tcp

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.path.join(HERE, "../python")
GRADIENTS = (256 << 10, 1 << 20, 256 << 10)  # bytes of the all-reduces of a step
SHARD = 128 << 10  # bytes of a rank's block of the reduce-scatter and the all-gather
CALLS = len(GRADIENTS) + 2
MOST_STEPS = 250 // CALLS  # a record has a rank's last 255 calls
WORDS = bytes(1 << 20)


def job(steps):
    """Make the steps, print what they took, and stay until standard input ends."""
    sys.path.insert(0, PYTHON)
    import kolo  # pylint: disable=import-outside-toplevel

    comm = kolo.Comm()
    gradients = [bytearray(size) for size in GRADIENTS]
    whole, shard = bytearray(SHARD * comm.size), bytearray(SHARD)
    views = [memoryview(buffer).cast("f") for buffer in (*gradients, whole, shard)]

    def step():
        for view in views[:-2]:
            hashlib.sha256(WORDS).digest()
            comm.all_reduce(view)
        comm.reduce_scatter(views[-2], views[-1])
        hashlib.sha256(WORDS).digest()
        comm.all_gather(views[-1], views[-2])

    for _ in range(3):
        step()
    begin = time.monotonic()
    for _ in range(steps):
        step()
    print(f"took {(time.monotonic() - begin) / steps * 1e3:.6f}", flush=True)
    sys.stdin.read()
    comm.close()


def started(commands, environments):
    return [subprocess.Popen(command, env={**os.environ, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             text=True) for command, env in zip(commands, environments)]


def step_ms(processes):
    """Of the slowest rank."""
    lines = [process.stdout.readline().split() for process in processes]
    if any(line[:1] != ["took"] for line in lines):
        raise RuntimeError(f"a rank of the job ended: {lines}")
    return max(float(line[1]) for line in lines)


def end(processes):
    for process in processes:
        process.communicate()


def library(build):
    return os.path.abspath(f"{build}/libkolo.so")


def recorded(build, steps, folder):
    """(ms of a step over shared memory, the files of its record)"""
    name = f"replay-{os.getpid()}"
    processes = started([[sys.executable, __file__, "--job", str(steps)]] * 2,
                        [{"KOLO_LIBRARY": library(build), "KOLO_RANK": str(rank), "KOLO_NRANKS": "2", "KOLO_JOB": name}
                         for rank in range(2)])
    took = step_ms(processes)
    subprocess.run([f"{build}/tools/kolo", "ps", "--json", f"{folder}/%r", str(processes[0].pid)], check=True,
                   stdout=subprocess.DEVNULL)
    end(processes)
    return took, [f"{folder}/{rank}" for rank in range(2)]


def measured(build, steps, mbit):
    """ms of a step between two hosts"""
    net = netns.hosts.Hosts(2)
    try:
        if net.why:
            raise RuntimeError(net.why)
        netns.shape(net, mbit)
        processes = started([net.inside(host, [sys.executable, __file__, "--job", str(steps)]) for host in range(2)],
                            [net.environment(rank, 2, KOLO_LIBRARY=library(build)) for rank in range(2)])
        took = step_ms(processes)
        end(processes)
        return took
    finally:
        net.remove()


def predicted(build, files, machine, steps):
    """ms of a step: a record has all calls of the steps, and some of the warm-up."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("".join(f"{name} {value}\n" for name, value in machine.items()))
        file.flush()
        done = subprocess.run([f"{build}/tools/kolo", "sim", "--replay", "-m", file.name, "-J", "-", *files],
                              check=True, stdout=subprocess.PIPE, text=True)
    told = json.loads(done.stdout)
    return told["predicted_ms"] * CALLS / sum(row["calls"] for row in told["calls"]), told


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--mbit", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=MOST_STEPS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--job", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        job(args.job)
        return 0
    machine = sim_tcp.fit(args.build, args.mbit)
    print("machine:", ", ".join(f"{name} {value:.4g}" for name, value in machine.items()), flush=True)
    errors = []
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory() as folder:
            before, files = recorded(args.build, args.steps, folder)
            guess, told = predicted(args.build, files, machine, args.steps)
            took = measured(args.build, args.steps, args.mbit)
        errors.append(guess / took - 1)
        print(f"a step takes {before:.2f} ms over shared memory; at {args.mbit} Mbit/s {guess:.2f} ms predicted, "
              f"{took:.2f} ms measured: {100 * errors[-1]:+.1f} %", flush=True)
        for row in told["calls"]:
            print("#  %-14s %9d B %5d calls: recorded %9.1f us, predicted %9.1f us by %s"
                  % (row["collective"], row["bytes"], row["calls"], row["recorded_us"], row["predicted_us"],
                     row["algorithm"]))
    print(f"median error {100 * statistics.median(errors):+.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
