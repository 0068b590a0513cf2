#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what `kolo sim` predicts with what the sweep programs measure over TCP, between hosts that are
network namespaces of this machine, each behind a NIC that tbf(8) holds to a rate, and, with --tick, whose packets
wait for the next tick of a clock.

The machine is fitted with one algorithm of 2 hosts, all-reduce by recursive doubling, which is one message
each way: its shortest call gives the latency, its longest one the speed of a core that sends and receives, and half
a microsecond of each message is processor time. The rate of the NIC is that of tbf, less the headers of Ethernet, IP
and TCP. All other points are held out.

usage: sim_tcp.py [--build FOLDER] [-n HOSTS,...] [-c COLLECTIVE,...] [--mbit RATE] [--tick US] [--csv FILE]   (as root)
"""
import argparse
import csv
import json
import math
import os
import sys
import tempfile

import netns
import sim
from netns import hosts

PAYLOAD = 1448 / 1514  # of a full frame, as tbf counts it
MESSAGE_US = 0.5
SLOWEST_GBS, FASTEST_GBS, HALVINGS = 0.05, 50, 14
ROUNDS = 3


def measured(net, build, collective, algorithm):
    """{size: us}: single calls after a barrier, until the slowest rank has it; the median round."""
    rounds = [measured_once(net, build, collective, algorithm) for _ in range(ROUNDS)]
    return {size: sorted(times[size] for times in rounds)[ROUNDS // 2] for size in rounds[0]}


def measured_once(net, build, collective, algorithm):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        ends = net.run(list(range(len(net.names))),
                       [f"{build}/perf/{sim.PROGRAMS[collective]}_perf", "-b", sim.FIRST, "-e", sim.LAST,
                        "-f", sim.FACTOR, "-n", "10", "-w", "3", "-c", "0", "-z", "3", "-a", "3", "-J", path],
                       limit_s=60, KOLO_ALGO=f"{collective}:{algorithm}")
        if any(status != 0 for status, _ in ends):
            raise RuntimeError("\n".join(hosts.tails(ends)))
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["results"]
    return {row["size"]: row["out_of_place"]["time"] for row in rows}


def fit(build, mbit, tick=0):
    """The machine file, as names and values."""
    net = netns.linked(2, mbit, tick)
    try:
        times = measured(net, build, "allreduce", "doubling")
    finally:
        net.remove()
    machine = {"ranks_per_host": 1, "call_us": 0, "net_gbs": mbit * PAYLOAD / 8000, "net_message_us": MESSAGE_US,
               "net_latency_us": min(times.values()) - 2 * MESSAGE_US}
    low, high = SLOWEST_GBS, FASTEST_GBS
    for _ in range(HALVINGS):
        machine["net_copy_gbs"] = math.sqrt(low * high)
        if sim.predicted(build, "allreduce", 2, "doubling", machine)[max(times)] > times[max(times)]:
            low = machine["net_copy_gbs"]
        else:
            high = machine["net_copy_gbs"]
    return machine


def points(build, collective, ranks, mbit, tick, machine):
    net = netns.linked(ranks, mbit, tick)
    name = f"{mbit} Mbit/s" + (f", tick {tick} us" if tick else "")
    try:
        for algorithm in sim.algorithms(build, collective, ranks):
            if (collective, ranks, algorithm) == ("allreduce", 2, "doubling"):
                continue  # it was fitted
            guesses = sim.predicted(build, collective, ranks, algorithm, machine)
            for size, us in measured(net, build, collective, algorithm).items():
                if size in guesses and us > 0:
                    yield collective, ranks, name, algorithm, size, us, guesses[size]
    finally:
        net.remove()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("-n", default="2,4")
    parser.add_argument("-c", default=",".join(sim.PROGRAMS))
    parser.add_argument("--mbit", type=int, default=1000)
    parser.add_argument("--tick", type=int, default=0)
    parser.add_argument("--csv", help="append the points to this file")
    args = parser.parse_args()
    machine = fit(args.build, args.mbit, args.tick)
    print("machine:", ", ".join(f"{name} {value:.4g}" for name, value in machine.items()), flush=True)
    rows = []
    for ranks in [int(n) for n in args.n.split(",")]:
        for collective in args.c.split(","):
            rows += points(args.build, collective, ranks, args.mbit, args.tick, machine)
    if args.csv:
        with open(args.csv, "a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)
    sim.table(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
