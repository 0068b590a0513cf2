#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records kolo_train over shared memory, predicts by `kolo sim --replay` how long its steps take over TCP, and
measures them there: between hosts that are network namespaces of this machine, each behind a NIC that
tbf(8) holds to a rate (see sim_tcp.py).

A rank's record says when it waited for its calls, so calls that overlap with computation do so in the
prediction, too. All runs make the same steps, on one thread a rank.

usage: sim_train.py [--build FOLDER] [--mbit RATE] [--rounds N] [--steps N] [--batch N] [WAY...]   (as root)
       sim_train.py --rank WAY --folder FOLDER ...   (one rank of the job)
       A rank runs in this Python, which needs PyTorch and kolo_torch, in FOLDER/torch or installed.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import netns
import sim_tcp

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WAYS = ("ddp", "zero1", "zero2", "zero3")
RANKS = 2
WARMUP = 5
LIMIT_S = 170
FIT_BYTES, FIT_TIMES, PRODUCTS = 1 << 20, 15, 60  # computation takes longer than the call


def rank(args):
    """Make the steps; write what they took, and the records of the first of them and of all."""
    from kolo_train.config import Config
    from kolo_train.job import join, leave
    from kolo_train.record import Steps, record_of
    from kolo_train.ways import make_way

    config = Config(parallel=args.rank, batch=args.batch)
    job = join(config)
    way, steps = make_way(config, job), Steps()
    for number in range(WARMUP + args.steps):
        steps.begin()
        way.step(number)
    steps.begin()
    way.finish()
    times = [(end - begin) / 1e6 for begin, end in zip(steps.begins[WARMUP:], steps.begins[WARMUP + 1:])]
    told = {"ms": times, "records": {count: record_of(steps, WARMUP, count) for count in (1, args.steps)}}
    with open(f"{args.folder}/{job.rank}", "w", encoding="utf-8") as file:
        json.dump(told, file)
    leave()


def compute_ms(torch, matrix):
    begin = time.perf_counter()
    for _ in range(PRODUCTS):
        torch.mm(matrix, matrix)
    return 1e3 * (time.perf_counter() - begin)


def beside(args):
    """As a rank: write how much longer computation takes beside an all-reduce, ms, the median."""
    import torch
    import torch.distributed as dist

    from kolo_train.config import Config
    from kolo_train.job import join, leave

    job = join(Config())
    matrix, vector = torch.ones(256, 256), torch.ones(FIT_BYTES // 4)
    lost = []
    for _ in range(FIT_TIMES):
        dist.barrier()
        alone = compute_ms(torch, matrix)
        dist.barrier()
        work = dist.all_reduce(vector, async_op=True)
        lost.append(compute_ms(torch, matrix) - alone)
        work.wait()
    with open(f"{args.folder}/{job.rank}", "w", encoding="utf-8") as file:
        json.dump(statistics.median(lost), file)
    leave()


def between_hosts(args, job, folder):
    """What each rank of the job wrote, run over TCP."""
    net = netns.hosts.Hosts(RANKS)
    try:
        if net.why:
            raise RuntimeError(net.why)
        netns.shape(net, args.mbit)
        command, more = command_of(args, job, folder)
        ends = net.run(list(range(RANKS)), command, LIMIT_S, **more, KOLO_JOB=f"{net.tag}tcp")
        if any(status != 0 for status, _ in ends):
            raise RuntimeError("\n".join(netns.hosts.tails(ends)))
    finally:
        net.remove()
    return written(folder)


def over_shared_memory(args, job, folder):
    command, more = command_of(args, job, folder)
    subprocess.run([f"{args.build}/tools/kolo", "run", "-n", str(RANKS), "--", *command], check=True,
                   env={**os.environ, **more}, timeout=LIMIT_S, stdin=subprocess.DEVNULL)
    return written(folder)


def command_of(args, job, folder):
    return ([sys.executable, os.path.abspath(__file__), "--rank", job, "--folder", folder, "--steps", str(args.steps),
             "--batch", str(args.batch)],
            {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}/train:{os.path.abspath(args.build)}/torch"})


def written(folder):
    told = []
    for number in range(RANKS):
        with open(f"{folder}/{number}", encoding="utf-8") as file:
            told.append(json.load(file))
    return told


def fit(args):
    """The machine: as in sim_tcp.py, and what a busy NIC takes from the cores, by the time that a product of
    matrices takes longer beside an all-reduce of 1 MiB."""
    machine = sim_tcp.fit(args.build, args.mbit)
    with tempfile.TemporaryDirectory() as folder:
        lost_ms = statistics.mean(between_hosts(args, "fit", folder))
    wire_ms = FIT_BYTES / machine["net_gbs"] / 1e6
    return {**machine, "net_core_share": max(0, lost_ms / wire_ms)}


def slowest(told):
    """ms of a step of the slowest rank, in the median"""
    return statistics.median(max(times) for times in zip(*(one["ms"] for one in told)))


def replayed(build, machine, records, folder):
    """What `kolo sim --replay` tells of the records."""
    paths = [f"{folder}/record{number}" for number in range(len(records))]
    for path, record in zip(paths, records):
        with open(path, "w", encoding="utf-8") as file:
            json.dump(record, file)
    with open(f"{folder}/machine", "w", encoding="utf-8") as file:
        file.write("".join(f"{name} {value}\n" for name, value in machine.items()))
    done = subprocess.run([f"{build}/tools/kolo", "sim", "--replay", "-m", f"{folder}/machine", "-J", "-", *paths],
                          check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def predicted(args, machine, told, folder):
    """(ms of a step, what the replay tells of all): a step more of the record takes so much longer."""
    one, whole = (replayed(args.build, machine, [rank["records"][str(count)] for rank in told], folder)
                  for count in (1, args.steps))
    return (whole["predicted_ms"] - one["predicted_ms"]) / (args.steps - 1), whole


def compare(args, machine, way):
    """(ms of a step over shared memory, predicted, measured)"""
    with tempfile.TemporaryDirectory() as folder:
        before = over_shared_memory(args, way, folder)
        guess, whole = predicted(args, machine, before, folder)
        there = between_hosts(args, way, folder)
        again, real = predicted(args, machine, there, folder)
    if args.calls:
        print(f"#  a rank computes {whole['compute_ms'] / args.steps:.2f} ms a step as predicted; from the record over "
              f"TCP: {again:.2f} ms a step, {real['compute_ms'] / args.steps:.2f} ms of computation")
        for row, other in zip(whole["calls"], real["calls"]):
            print("#  %-14s %9d B %5d calls: %9.1f us over shared memory, %9.1f us predicted, %9.1f us measured"
                  % (row["collective"], row["bytes"], row["calls"], row["recorded_us"], row["predicted_us"],
                     other["recorded_us"]))
    return slowest(before), guess, slowest(there)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--mbit", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--calls", action="store_true", help="print the calls as well")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("ways", nargs="*", default=WAYS)
    args = parser.parse_args()
    if args.rank:
        beside(args) if args.rank == "fit" else rank(args)
        return 0
    machine = fit(args)
    print("machine:", ", ".join(f"{name} {value:.4g}" for name, value in machine.items()), flush=True)
    print("way        round  shared memory  predicted   measured   error %", flush=True)
    for way in args.ways:
        errors = []
        for number in range(args.rounds):
            before, guess, took = compare(args, machine, way)
            errors.append(100 * (guess / took - 1))
            print(f"{way:<10} {number:>5} {before:>14.2f} {guess:>10.2f} {took:>10.2f} {errors[-1]:>+9.1f}", flush=True)
        print(f"{way:<10} median error {statistics.median(errors):+.1f} %", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
