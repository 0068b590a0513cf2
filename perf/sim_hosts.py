# SPDX-License-Identifier: Apache-2.0
"""Compares what `kolo sim` predicts between hosts with what the sweep programs measure there, for sim_tcp.py and
sim_verbs.py.

The machine is fitted with one algorithm of 2 hosts, all-reduce by recursive doubling, which is one message each
way: its shortest call gives the latency, its longest one the speed of a core that sends and receives.
"""
import csv
import json
import math
import os
import sys
import tempfile

import sim
from netns import hosts

FITTED = ("allreduce", 2, "doubling")
SLOWEST_GBS, FASTEST_GBS, HALVINGS = 0.005, 50, 16
ROUNDS = 3


def measured(net, build, collective, algorithm):
    """{size: us}: single calls after a barrier, until the slowest rank has it; the median call of the median round."""
    rounds = [measured_once(net, build, collective, algorithm) for _ in range(ROUNDS)]
    return {size: sorted(times[size] for times in rounds)[ROUNDS // 2] for size in rounds[0]}


def measured_once(net, build, collective, algorithm):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        ends = net.run(list(range(len(net.names))),
                       [f"{build}/perf/{sim.PROGRAMS[collective]}_perf", "-b", sim.FIRST, "-e", sim.LAST,
                        "-f", sim.FACTOR, "-n", "10", "-w", "3", "-c", "0", "-z", "3", "-I", "1", "-J", path],
                       limit_s=60, KOLO_ALGO=f"{collective}:{algorithm}")
        if any(status != 0 for status, _ in ends):
            raise RuntimeError("\n".join(hosts.tails(ends)))
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["results"]
    return {row["size"]: row["out_of_place_per_iter"]["p50_us"] for row in rows}


def fit(net, build, known):
    """The machine file, as names and values. `known` has the values that are not fitted."""
    collective, ranks, algorithm = FITTED
    times = measured(net, build, collective, algorithm)
    machine = {"ranks_per_host": 1, "call_us": 0, **known,
               "net_latency_us": min(times.values()) - 2 * known["net_message_us"]}
    low, high = SLOWEST_GBS, FASTEST_GBS
    for _ in range(HALVINGS):
        machine["net_copy_gbs"] = math.sqrt(low * high)
        if sim.predicted(build, collective, ranks, algorithm, machine)[max(times)] > times[max(times)]:
            low = machine["net_copy_gbs"]
        else:
            high = machine["net_copy_gbs"]
    return machine


def points(net, build, collective, name, machine):
    """As those of sim.py; `name` is that of the network."""
    ranks = len(net.names)
    for algorithm in sim.algorithms(build, collective, ranks):
        if (collective, ranks, algorithm) == FITTED:
            continue
        guesses = sim.predicted(build, collective, ranks, algorithm, machine)
        for size, us in measured(net, build, collective, algorithm).items():
            if size in guesses and us > 0:
                yield collective, ranks, name, algorithm, size, us, guesses[size]


def text(machine):
    return "machine: " + ", ".join(f"{name} {value:.4g}" for name, value in machine.items())


def write(rows, path):
    """Points at the end of a file, if there is one, or to standard output ("-")."""
    if path == "-":
        csv.writer(sys.stdout).writerows(rows)
        sys.stdout.flush()
    elif path:
        with open(path, "a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)
