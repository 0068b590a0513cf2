#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds `kolo sim` against a table of public measurements: fits a machine file to some of the points, predicts
the others, and tells the errors.

A table is a CSV file: collective, what was measured, kolo's plan for it, ranks, bytes (as in nccl-tests), us.
"ring|tree" as the plan means that the algorithm is not known: the plan that is predicted to be faster counts.
"chain@1M" means that a call goes in tiles of 1 MiB, whatever the machine file says: other libraries cut their
pipelines by algorithm.

The points that are fitted:
- Every second size, from the least on, of each algorithm on the least number of ranks. The next numbers of ranks
  follow, as long as all of that is at most a quarter of the table. The greatest number is never fitted.
- A table with one number of ranks gives every fourth size, from the third on, but never the greatest.

The values that are fitted are those of the machine file's lines that end in "# fit". All others stay. The fit
minimizes Huber's cost of log(predicted / measured) by Levenberg and Marquardt's method, from the file's values.

usage: sim_tables.py [--build FOLDER] TABLE.csv MACHINE.txt [--fit NEW.txt]    without --fit: MACHINE as it is
"""
import argparse
import concurrent.futures
import csv
import json
import math
import os
import subprocess
import sys
import tempfile

STEP = 0.05  # of the logarithm of a value, for derivatives
SMALL = 0.1  # an error of this logarithm
LEAST_GAIN = 0.002  # of the cost: with less, the fit ends
TRIES = 8  # of a step with more and more damping
WORST = 8
GOAL, GOAL_95 = 10, 25


def read_table(path):
    """[(collective, what, plans, ranks, bytes, us)]"""
    with open(path, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [(row["collective"], row["measured"], tuple(row["plans"].split("|")), int(row["ranks"]),
                 int(row["bytes"]), float(row["us"])) for row in rows]


def choose(points):
    """The points that are fitted."""
    ranks = sorted({point[3] for point in points})
    fitted = []
    for number in ranks[:-1] or ranks:
        part = []
        for key in sorted({point[:2] for point in points}):
            sizes = sorted((point for point in points if point[:2] == key and point[3] == number),
                           key=lambda point: point[4])
            part += sizes[::2] if len(ranks) > 1 else sizes[2:-1:4]
        if 4 * (len(fitted) + len(part)) > len(points):
            break
        fitted += part
    return fitted


# ---- machine files ----

def read_machine(path):
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


def fit_lines(lines):
    """[(line, name, value)]"""
    return [(i, *line.split()[:2]) for i, line in enumerate(lines) if line.rstrip().endswith("# fit")]


def with_values(lines, logs):
    new = list(lines)
    for (i, name, _), log in zip(fit_lines(lines), logs):
        value = math.exp(log)
        new[i] = f"{name} {value:.0f}  # fit" if name.endswith("_bytes") else f"{name} {value:.4g}  # fit"
    return new


# ---- predictions ----

class Simulator:
    def __init__(self, build):
        self.kolo = f"{build}/tools/kolo"
        self.known = {}
        self.pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())

    def run(self, machine, collective, plan, ranks, size):
        plan = plan.partition("@")[0]
        done = subprocess.run([self.kolo, "sim", collective, "-n", str(ranks), "-m", machine, "-a", plan,
                               "-b", str(size), "-e", str(size), "-J", "-"], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"kolo sim {collective} -a {plan} -n {ranks} -b {size}: {done.stderr.strip()}")
        return json.loads(done.stdout)["results"][0]["time"]

    @staticmethod
    def write(folder, text, plan):
        tile = plan.partition("@")[2]
        path = os.path.join(folder, tile or "machine")
        if not os.path.exists(path):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text + (f"tile_bytes {tile}\n" if tile else ""))
        return path

    def times(self, lines, points):
        """Predicted us of each point."""
        text = "\n".join(lines) + "\n"
        wanted = {(text, point[0], plan, *point[3:5]) for point in points for plan in point[2]}
        new = sorted(wanted - self.known.keys(), key=lambda key: -key[3])
        with tempfile.TemporaryDirectory() as folder:
            jobs = [self.pool.submit(self.run, self.write(folder, *key[:3:2]), *key[1:]) for key in new]
            self.known.update(zip(new, [job.result() for job in jobs]))
        return [min(self.known[text, point[0], plan, *point[3:5]] for plan in point[2]) for point in points]


# ---- the fit ----

def solved(matrix, right):
    """Gauss's elimination with pivots."""
    rows = [list(row) + [value] for row, value in zip(matrix, right)]
    for i, _ in enumerate(rows):
        pivot = max(range(i, len(rows)), key=lambda k: abs(rows[k][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for k, row in enumerate(rows):
            if k != i:
                factor = row[i] / rows[i][i]
                rows[k] = [a - factor * b for a, b in zip(row, rows[i])]
    return [row[-1] / row[i] for i, row in enumerate(rows)]


def cost(logs):
    """Huber's: squares of small errors, and the rest by its size, so that no outlier rules."""
    return sum(r * r if abs(r) < SMALL else 2 * SMALL * abs(r) - SMALL * SMALL for r in logs)


def step_of(slopes, now, damping):
    """The change of each value, by the normal equations of the weighted errors."""
    weights = [min(1, SMALL / abs(r)) if r else 1 for r in now]
    matrix = [[sum(w * a * b for w, a, b in zip(weights, one, two)) for two in slopes] for one in slopes]
    for i, row in enumerate(matrix):
        row[i] += damping * row[i] + 1e-6
    right = [-sum(w * a * r for w, a, r in zip(weights, one, now)) for one in slopes]
    return [max(-1, min(1, step)) for step in solved(matrix, right)]


def fit(simulator, lines, points):
    """The machine file with fitted values."""
    def residuals(logs):
        return [math.log(us / point[5]) for us, point in
                zip(simulator.times(with_values(lines, logs), points), points)]

    logs = [math.log(float(value)) for _, _, value in fit_lines(lines)]
    now, damping, gain = residuals(logs), 0.01, 1
    while gain > LEAST_GAIN:
        moved = [residuals([log + STEP * (k == i) for k, log in enumerate(logs)]) for i, _ in enumerate(logs)]
        slopes = [[(a - b) / STEP for a, b in zip(new, now)] for new in moved]
        before = cost(now)
        for _ in range(TRIES):
            tried = [log + step for log, step in zip(logs, step_of(slopes, now, damping))]
            then = residuals(tried)
            if cost(then) < before:
                logs, now = tried, then
                damping /= 4
                break
            damping *= 4
        gain = 1 - cost(now) / before if before > 0 else 0
    return with_values(lines, logs)


# ---- reports ----

def errors(pairs):
    """(geometric mean, what 95 of 100 points do not exceed), in percent, of (point, predicted)"""
    logs = sorted(abs(math.log(us / point[5])) for point, us in pairs)
    return (100 * (math.exp(sum(logs) / len(logs)) - 1),
            100 * (math.exp(logs[math.ceil(0.95 * len(logs)) - 1]) - 1))


def regrets(pairs):
    """(points, mean, greatest), in percent: the loss by the algorithm that is predicted to be the fastest."""
    groups = {}
    for point, us in pairs:
        if len(point[2]) == 1:
            groups.setdefault((point[0], *point[3:5]), []).append((us, point[5]))
    losses = [min(group)[1] / min(us for _, us in group) - 1 for group in groups.values() if len(group) > 1]
    return (len(losses), 100 * sum(losses) / len(losses), 100 * max(losses)) if losses else (0, 0, 0)


def word(size):
    for unit, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size >= unit:
            return f"{size / unit:g}{letter}"
    return str(size)


def ratios(pairs, key):
    """Predicted over measured, the geometric mean of the points with each key."""
    groups = {}
    for point, us in pairs:
        groups.setdefault(key(point), []).append(math.log(us / point[5]))
    return {value: math.exp(sum(logs) / len(logs)) for value, logs in sorted(groups.items())}


def report(name, held):
    print(f"\n{name}\n\n| collective | measured | points | error % | of 95 in 100 % |\n"
          "| --- | --- | --- | --- | --- |")
    for key in sorted({point[:2] for point, _ in held}):
        part = [pair for pair in held if pair[0][:2] == key]
        print("| %s | %s | %d | %.0f | %.0f |" % (*key, len(part), *errors(part)))
    mean, most = errors(held)
    print("| all | | %d | %.0f | %.0f |" % (len(held), mean, most))
    print("\n%s: goal of %d %% and %d %% %s." % (name, GOAL, GOAL_95, "met" if mean <= GOAL and most <= GOAL_95
                                               else "not met"))
    count, mean, most = regrets(held)
    if count:
        print("Choice: %d points, mean loss %.1f %%, at most %.0f %%." % (count, mean, most))
    print("Predicted over measured, by ranks:",
          ", ".join(f"{ranks} {ratio:.2f}" for ranks, ratio in ratios(held, lambda point: point[3]).items()))
    print("By size:", ", ".join(f"{word(size)} {ratio:.2f}"
                                for size, ratio in ratios(held, lambda point: point[4]).items()))
    print("Worst:")
    for point, us in sorted(held, key=lambda pair: -abs(math.log(pair[1] / pair[0][5])))[:WORST]:
        print("  %s, %s, %d ranks, %s: measured %.1f us, predicted %.1f us" %
              (*point[:2], point[3], word(point[4]), point[5], us))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--fit", metavar="NEW.txt", help="fit the machine, and write it here")
    parser.add_argument("table")
    parser.add_argument("machine")
    args = parser.parse_args()
    points = read_table(args.table)
    fitted = choose(points)
    held = [point for point in points if point not in fitted]
    simulator = Simulator(args.build)
    lines = read_machine(args.machine)
    print(f"{args.table}: {len(points)} points, {len(fitted)} fitted, {len(held)} held out")
    if args.fit:
        lines = fit(simulator, lines, fitted)
        with open(args.fit, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    print(", ".join(" ".join(pair) for _, *pair in fit_lines(lines)))
    print("fitted points: error %.0f %%, of 95 in 100 %.0f %%" %
          errors(list(zip(fitted, simulator.times(lines, fitted)))))
    report(os.path.splitext(os.path.basename(args.table))[0], list(zip(held, simulator.times(lines, held))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
