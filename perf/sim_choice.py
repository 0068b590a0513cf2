#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What kolo's choice of algorithms loses between hosts: the simulated time of the chosen one over that of the fastest.

A core needs 4 us for a message over TCP and 0.3 us over a faster network, as sends that were measured. Calls of
8 bytes to 512 KiB of all collectives but gather and scatter.

usage: sim_choice.py [--build FOLDER] [-n RANKS,...] [-k RANKS_PER_HOST]
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
            "faster": "net_latency_us 1.5\nnet_gbs 24\nnet_message_us 0.3\n"}
SIZES = ("-b", "8", "-e", "512K", "-f", "16")
WORST = 5


def losses(tool, machine, collective, ranks):
    """[(percent, collective, ranks, bytes, fastest, chosen)]"""
    command = [tool, "sim", collective, "-n", str(ranks), "-m", machine, *SIZES, "-a", "all", "-J", "-"]
    rows = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["results"]
    found = []
    for chosen in (row for row in rows if row["chosen"]):
        best = min((row for row in rows if row["size"] == chosen["size"]), key=lambda row: row["time"])
        percent = 100 * (chosen["time"] / best["time"] - 1)
        found.append((percent, collective, ranks, chosen["size"], best["algorithm"], chosen["algorithm"]))
    return found


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build"))
    parser.add_argument("-n", default="4,8,16,32,64")
    parser.add_argument("-k", type=int, default=1)
    options = parser.parse_args()
    tool = os.path.join(options.build, "tools", "kolo")
    print("| network | points | mean loss % | of 95 in 100 | worst | over 15 % |\n|---|---|---|---|---|---|")
    worst = []
    for network, lines in NETWORKS.items():
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(f"ranks_per_host {options.k}\n{lines}")
            file.flush()
            found = [loss for ranks in options.n.split(",") for collective in COLLECTIVES
                     for loss in losses(tool, file.name, collective, int(ranks))]
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
