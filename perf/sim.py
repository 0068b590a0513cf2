#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what `kolo sim` predicts with what the sweep programs measure, over shared memory of this
machine.

For each collective, number of ranks and algorithm, in several rounds: the sweep program runs with the
algorithm forced, and its log tells the costs that kolo measured when the job began. `kolo sim` predicts
from these costs. The cores of a virtual machine move, and then all costs change: near cores (a flag takes
less than 0.12 us) and far cores are told apart, and the median round of a point counts. The
costs are measured, not fitted; perf/RESULTS.md tells which constants of src/sim/machine.c were.

usage: sim.py [--build FOLDER] [-n RANKS,...] [-c COLLECTIVE,...] [--rounds N] [--csv FILE]
       sim.py --summary FILE     the table of RESULTS.md, from such a file
"""
import argparse
import csv
import json
import math
import os
import re
import subprocess
import sys
import tempfile

PROGRAMS = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter",
            "broadcast": "broadcast", "reduce": "reduce", "gather": "gather", "scatter": "scatter",
            "alltoall": "alltoall", "barrier": "barrier"}
FIRST, LAST, FACTOR = "256", "1M", "16"
NEAR_US = 0.12
COSTS = re.compile(r"costs: (\d+) cores, flag ([\d.]+) us, copy ([\d.]+) GB/s, sum ([\d.]+) GB/s, "
                   r"switch ([\d.]+) us")


def run(command, **env):
    done = subprocess.run(command, env={**os.environ, **env}, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")
    return done.stdout


def algorithms(build, collective, ranks):
    text = run([f"{build}/tools/kolo", "sim", collective, "-n", str(ranks), "-a", "all", "-b", "1K", "-J", "-"])
    return [row["algorithm"].split("_", 1)[1] for row in json.loads(text)["results"]]


def predicted(build, collective, ranks, algorithm, costs):
    """{size: us}"""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as machine:
        machine.write("".join(f"{name} {value}\n" for name, value in costs.items()))
        machine.flush()
        text = run([f"{build}/tools/kolo", "sim", collective, "-n", str(ranks), "-m", machine.name, "-a", algorithm,
                    "-b", FIRST, "-e", LAST, "-f", FACTOR, "-J", "-"])
    return {row["size"]: row["time"] for row in json.loads(text)["results"]}


def measured(build, collective, ranks, algorithm):
    """(the costs that the job measured, {size: us}): single calls after a barrier, until the slowest rank has it."""
    with tempfile.TemporaryDirectory() as folder:
        path, log = os.path.join(folder, "out.json"), os.path.join(folder, "log")
        run([f"{build}/tools/kolo", "run", "-n", str(ranks), f"{build}/perf/{PROGRAMS[collective]}_perf",
             "-b", FIRST, "-e", LAST, "-f", FACTOR, "-n", "60", "-w", "100", "-c", "0", "-z", "3", "-a", "3",
             "-J", path],
            KOLO_ALGO=f"{collective}:{algorithm}", KOLO_DEBUG="INFO", KOLO_DEBUG_FILE=log)
        with open(path, encoding="utf-8") as file:
            rows = json.load(file)["results"]
        with open(log, encoding="utf-8") as file:
            cores, flag, copy, add, switch = COSTS.findall(file.read())[-1]
    costs = {"cores": cores, "latency_us": flag, "copy_gbs": copy, "reduce_gbs": add, "switch_us": switch,
             "step_us": min(0.6 * float(flag), 0.05)}
    return costs, {row["size"]: row["out_of_place"]["time"] for row in rows}


def points(build, collective, ranks, rounds):
    """(collective, ranks, cores, algorithm, size, measured us, predicted us) of the median round."""
    seen = {}
    for _ in range(rounds):
        for algorithm in algorithms(build, collective, ranks):
            costs, times = measured(build, collective, ranks, algorithm)
            guesses = predicted(build, collective, ranks, algorithm, costs)
            cores = "near" if float(costs["latency_us"]) < NEAR_US else "far"
            for size, us in times.items():
                if size in guesses and us > 0:
                    seen.setdefault((cores, algorithm, size), []).append((guesses[size] / us, us, guesses[size]))
    for (cores, algorithm, size), found in sorted(seen.items()):
        _, us, guess = sorted(found)[len(found) // 2]
        yield collective, ranks, cores, algorithm, size, us, guess


def summary(rows):
    """The geometric mean of the errors, and the error that 95 in 100 points do not exceed."""
    errors = sorted(abs(math.log(guess / us)) for *_, us, guess in rows)
    mean = math.exp(sum(errors) / len(errors)) - 1
    return 100 * mean, 100 * (math.exp(errors[math.ceil(0.95 * len(errors)) - 1]) - 1)


def regret(rows):
    """The mean and the greatest loss by taking the algorithm that is predicted to be the fastest."""
    best = {}
    for collective, ranks, cores, _, size, us, guess in rows:
        best.setdefault((collective, ranks, cores, size), []).append((guess, us))
    losses = [min(group)[1] / min(us for _, us in group) - 1 for group in best.values()]
    return 100 * sum(losses) / len(losses), 100 * max(losses)


def table(rows):
    """A line for each number of ranks, distance of cores and collective, and one for all of them."""
    print("| ranks | cores | collective | points | error % | of 95 in 100 % | regret % | at most % |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for ranks, cores in sorted({row[1:3] for row in rows}, key=lambda key: (key[0], key[1] == "far")):
        group = [row for row in rows if row[1:3] == (ranks, cores)]
        for name in [*sorted({row[0] for row in group}), "all"]:
            part = [row for row in group if name in (row[0], "all")]
            print("| %d | %s | %s | %d | %.0f | %.0f | %.1f | %.0f |"
                  % (ranks, cores, name, len(part), *summary(part), *regret(part)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("-n", default="2,4")
    parser.add_argument("-c", default=",".join(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--csv", help="append the points to this file")
    parser.add_argument("--summary", help="measure nothing: make the table from such a file")
    args = parser.parse_args()
    if args.summary:
        with open(args.summary, encoding="utf-8", newline="") as file:
            table([(c, int(n), cores, a, int(size), float(us), float(guess))
                   for c, n, cores, a, size, us, guess in csv.reader(file)])
        return 0
    rows = []
    for ranks in [int(n) for n in args.n.split(",")]:
        for collective in args.c.split(","):
            rows += points(args.build, collective, ranks, args.rounds)
    if args.csv:
        with open(args.csv, "a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(rows)
    if rows:
        table(rows)
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
