#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What kolo's choice of algorithms loses between hosts: the simulated time of the chosen one over that of the fastest.

A core needs 4 us for a message over TCP and 0.3 us over a faster network, as sends that were measured. Calls of
8 bytes to 512 KiB of all collectives but gather and scatter. Over the last network, as over verbs, long messages
wait for their receive.

With --series, broadcasts and reduces of 2 KiB to 512 KiB alone, and in a series of calls with one root, which follow
one another as tiles do: the loss of the chosen algorithm, and of the one that would be best by each of three rules.

usage: sim_choice.py [--build FOLDER] [-n RANKS,...] [-k RANKS_PER_HOST] [--series]
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

COLLECTIVES = ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "reduce", "barrier")
NETWORKS = {"TCP": "net_latency_us 15\nnet_gbs 1.25\nnet_message_us 4\n",
            "faster": "net_latency_us 1.5\nnet_gbs 24\nnet_message_us 0.3\n",
            "faster, waits": "net_latency_us 1.5\nnet_gbs 24\nnet_message_us 0.3\nnet_rendezvous_bytes 65536\n"}
SIZES = ("-b", "8", "-e", "512K", "-f", "16")
SERIES_BYTES = (2 << 10, 8 << 10, 32 << 10, 128 << 10, 512 << 10)
CALLS = 8
WORST = 5
# Of an algorithm's times alone and in a series, and of the least times: the least counts.
RULES = {"half of each": lambda lone, series, least_lone, least_series: lone + series,
         "alone": lambda lone, series, least_lone, least_series: lone,
         "least loss of both": lambda lone, series, least_lone, least_series: max(lone / least_lone,
                                                                                  series / least_series)}


def simulate(tool, machine, collective, ranks, sizes):
    """The rows of all algorithms."""
    command = [tool, "sim", collective, "-n", str(ranks), "-m", machine, *sizes, "-a", "all", "-J", "-"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["results"]


def losses(tool, machine, collective, ranks):
    """[(percent, collective, ranks, bytes, fastest, chosen)]"""
    rows = simulate(tool, machine, collective, ranks, SIZES)
    found = []
    for chosen in (row for row in rows if row["chosen"]):
        best = min((row for row in rows if row["size"] == chosen["size"]), key=lambda row: row["time"])
        percent = 100 * (chosen["time"] / best["time"] - 1)
        found.append((percent, collective, ranks, chosen["size"], best["algorithm"], chosen["algorithm"]))
    return found


def in_file(text, what):
    """what() of the name of a file with this text."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        return what(file.name)


def both_times(tool, machine, collective, ranks, size):
    """{algorithm: (alone, in a series)}, and the chosen one."""

    def times(text, calls):
        rows = in_file(text, lambda name: simulate(tool, name, collective, ranks,
                                                   ("-b", str(calls * size), "-e", str(calls * size))))
        return {row["algorithm"]: row["time"] for row in rows}, [row["algorithm"] for row in rows if row["chosen"]]

    lone, chosen = times(machine, 1)
    few, _ = times(f"{machine}tile_bytes {size}\n", CALLS)
    many, _ = times(f"{machine}tile_bytes {size}\n", 2 * CALLS)
    return {name: (lone[name], (many[name] - few[name]) / CALLS) for name in lone}, chosen[0]


def series(tool, options):
    """A row a rule."""
    found = {"chosen": [], **{rule: [] for rule in RULES}}
    for network in list(NETWORKS.values())[:2]:
        for ranks in options.n.split(","):
            for collective in ("broadcast", "reduce"):
                for size in SERIES_BYTES:
                    times, chosen = both_times(tool, f"ranks_per_host {options.k}\n{network}", collective, int(ranks),
                                               size)
                    least = [min(pair[i] for pair in times.values()) for i in (0, 1)]
                    picks = {rule: min(times, key=lambda name, of=of: of(*times[name], *least))
                             for rule, of in RULES.items()}
                    for rule, name in {"chosen": chosen, **picks}.items():
                        found[rule].append([100 * (times[name][i] / least[i] - 1) for i in (0, 1)])
    print("| rule | points | alone, mean loss % | worst | in a series, mean | worst |\n|---|---|---|---|---|---|")
    for rule, percent in found.items():
        lone, rows = zip(*percent)
        print(f"| {rule} | {len(lone)} | {statistics.mean(lone):.1f} | {max(lone):.0f} | {statistics.mean(rows):.0f} "
              f"| {max(rows):.0f} |")
    return 0


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build"))
    parser.add_argument("-n", default="4,8,16,32,64")
    parser.add_argument("-k", type=int, default=1)
    parser.add_argument("--series", action="store_true")
    options = parser.parse_args()
    tool = os.path.join(options.build, "tools", "kolo")
    if options.series:
        return series(tool, options)
    print("| network | points | mean loss % | of 95 in 100 | worst | over 15 % |\n|---|---|---|---|---|---|")
    worst = []
    for network, lines in NETWORKS.items():
        found = in_file(f"ranks_per_host {options.k}\n{lines}",
                        lambda name: [loss for ranks in options.n.split(",") for collective in COLLECTIVES
                                      for loss in losses(tool, name, collective, int(ranks))])
        percent = sorted(loss[0] for loss in found)
        most = percent[math.ceil(0.95 * len(percent)) - 1]
        print(f"| {network} | {len(found)} | {statistics.mean(percent):.1f} | {most:.0f} | {max(percent):.0f} "
              f"| {sum(one > 15 for one in percent)} |")
        worst += [(*loss, network) for loss in sorted(found, reverse=True)[:WORST]]
    print("\nWorst:")
    for percent, collective, ranks, size, best, name, network in sorted(worst, reverse=True):
        print(f"  {network}, {collective}, {ranks} ranks, {size} bytes: {name} takes {percent:.0f} % longer than {best}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
