#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fits what `kolo sim --bootstrap` takes for the start of a job to measured starts, and compares the two.

build/perf/startup starts jobs of some numbers of ranks, each bound to one core and to all. Of each job the least
time of a creation and of a first call count, and its first creation holds the launch. The jobs up to --fit ranks
give the constants of launch and ranks; the others are held out. The hub's two constants are not fitted, because
on one host its work cannot be told from that of the ranks: they are assumed.

usage: sim_start.py [--build FOLDER] [-n RANKS,...] [--fit RANKS] [-t TIMES] [-o MACHINE]
"""
import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile

# Messages of a rank to the hub and back, and bytes that it tells all others: src/sim/start.c.
MESSAGES, TOLD, HEADER = 15, 176 + 532 + 280, 48
HUB_MESSAGE_US, HUB_GBS = 5, 0.5
FIT_TURNS = 30


def measured(build, ranks, cores, times):
    """Milliseconds: (launch and creation, creation, first call)."""
    text = subprocess.run(["taskset", "-c", f"0-{cores - 1}", f"{build}/tools/kolo", "run", "-n", str(ranks),
                           f"{build}/perf/startup", "-n", str(times)], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, check=True, timeout=300).stdout
    rows = [line.split() for line in text.splitlines() if line.split()[1:2] == ["processes"]]
    return float(rows[0][2]), min(float(row[2]) for row in rows[1:]), min(float(row[3]) for row in rows[1:])


def solve(matrix, right):
    """Gauss, for the few unknowns here; None: singular."""
    rows = [list(row) + [value] for row, value in zip(matrix, right)]
    for i in range(len(rows)):
        pivot = max(range(i, len(rows)), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        if abs(rows[i][i]) < 1e-12:
            return None
        for k in range(len(rows)):
            if k != i:
                part = rows[k][i] / rows[i][i]
                rows[k] = [a - part * b for a, b in zip(rows[k], rows[i])]
    return [row[-1] / row[i] for i, row in enumerate(rows)]


def least_squares(terms, values, sizes):
    """Coefficients >= 0 of the least squares of (guess - value) / size: the best over all choices of unknowns that
    are 0."""
    best, least = None, math.inf
    scaled = [[term / size for term in row] for row, size in zip(terms, sizes)]
    right = [value / size for value, size in zip(values, sizes)]
    for count in range(1, len(terms[0]) + 1):
        for kept in itertools.combinations(range(len(terms[0])), count):
            part = [[row[i] for i in kept] for row in scaled]
            found = solve([[sum(row[i] * row[k] for row in part) for k in range(count)] for i in range(count)],
                          [sum(row[i] * value for row, value in zip(part, right)) for i in range(count)])
            if found is None or min(found) < 0:
                continue
            error = sum((value - sum(a * b for a, b in zip(row, found))) ** 2 for row, value in zip(part, right))
            if error < least - 1e-12:
                least = error
                best = [found[kept.index(i)] if i in kept else 0 for i in range(len(terms[0]))]
    return best


def fit(terms, values):
    """Coefficients >= 0 of the least squares of ln(guess / value). Squares of guess / value - 1 would take a guess
    that is far too short for a better one than another that is twice too long."""
    sizes = list(values)
    for _ in range(FIT_TURNS):
        best = least_squares(terms, values, sizes)
        guesses = [max(sum(a * b for a, b in zip(row, best)), 1e-3 * value) for row, value in zip(terms, values)]
        sizes = [value if abs(guess / value - 1) < 1e-6 else (guess - value) / math.log(guess / value)
                 for guess, value in zip(guesses, values)]
    return best


def constants(points):
    """Machine-file lines from {(ranks, cores): (first, create, call)} in ms."""
    keys = sorted(points)
    share = {key: key[0] / min(key) for key in keys}  # how long a host's cores are busy with a rank's microsecond
    hub = {n: HUB_MESSAGE_US * MESSAGES * n + 1e-3 / HUB_GBS * n * (HEADER * MESSAGES + TOLD * (1 + n))
           for n, _ in keys}
    work = [[share[n, c], share[n, c] * (n - 1)] for n, c in keys]
    create = fit(work, [max(1e3 * points[key][1] - hub[key[0]], 100) for key in keys])
    call = fit(work, [1e3 * points[key][2] for key in keys])
    launch = fit([[share[key]] for key in keys],
                 [1e3 * max(points[key][0] - points[key][1], 0.01) for key in keys])
    return {"start_process_us": launch[0], "start_message_us": HUB_MESSAGE_US, "start_gbs": HUB_GBS,
            "start_rank_us": create[0], "start_peer_us": create[1], "start_call_us": call[0],
            "start_call_peer_us": call[1]}


def predicted(build, ranks, cores, values):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as machine:
        machine.write(f"cores {cores}\n" + "".join(f"{name} {value:.4g}\n" for name, value in values.items()))
        machine.flush()
        text = subprocess.run([f"{build}/tools/kolo", "sim", "--bootstrap", "-n", str(ranks), "-m", machine.name,
                               "-J", "-"], stdout=subprocess.PIPE, text=True, check=True).stdout
    told = json.loads(text)
    steps = {step["step"]: step["us"] * 1e-3 for step in told["steps"]}
    return steps["launch"] + told["create_us"] * 1e-3, told["create_us"] * 1e-3, steps["first call"]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build"))
    parser.add_argument("-n", default="2,4,8,16,32,64,128")
    parser.add_argument("--fit", type=int, default=32)
    parser.add_argument("-t", type=int, default=6)
    parser.add_argument("-o", help="write the constants as lines of a machine file")
    options = parser.parse_args()
    counts = [1, os.cpu_count()] if os.cpu_count() > 1 else [1]
    points = {(n, c): measured(options.build, n, c, options.t) for n in map(int, options.n.split(",")) for c in counts}
    values = constants({key: value for key, value in points.items() if key[0] <= options.fit})
    print("".join(f"{name} {value:.4g}\n" for name, value in values.items()), end="")
    print("| ranks, cores | | with launch (ms) | predicted | create | predicted | first call | predicted |\n"
          "|---|---|---|---|---|---|---|---|")
    for (n, c), told in points.items():
        guess = predicted(options.build, n, c, values)
        cells = " | ".join(f"{a:.1f} | {b:.1f}" for a, b in zip(told, guess))
        print(f"| {n}, {c} | {'fitted' if n <= options.fit else 'held out'} | {cells} |")
    if options.o:
        with open(options.o, "w", encoding="utf-8") as file:
            file.write("".join(f"{name} {value:.4g}\n" for name, value in values.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
