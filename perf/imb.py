#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the collectives of the Intel MPI Benchmarks with and without kolo, by turns, on the same MPI library.

IMB-MPI1 is in the package impi-rt (./setup --mpi-tests) and also runs on MPICH. It does not check data;
tests/mpi does. Each turn runs all sizes of a collective once with MPI alone and once over kolo. A time is the
median over turns of the average over ranks.

usage: imb.py [--build FOLDER] [--mpi impi|mpich] [-n RANKS,...] [-c COLLECTIVE,...] [-b LOG] [-e LOG]
              [--turns T] [--csv FILE]
  -b, -e  the binary logarithms of the least and the most bytes (2, 22)
"""
import argparse
import csv
import math
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PEERS = os.path.join(ROOT, ".venv-peers")
COLLECTIVES = ("Allreduce", "Reduce", "Bcast", "Allgather", "Gather", "Scatter", "Alltoall", "Reduce_scatter",
               "Reduce_scatter_block", "Allgatherv", "Barrier")
LIMIT_S = 600


def run(options, ranks, collective, kolo):
    """{bytes: average us} of one run."""
    folder = os.path.join(PEERS, options.mpi)
    env = {**os.environ, "LD_LIBRARY_PATH": os.path.join(folder, "lib"),
           "PATH": os.path.join(folder, "bin") + os.pathsep + os.environ["PATH"]}
    command = [os.path.join(folder, "bin/mpirun")]
    if options.mpi == "impi":
        command += ["-launcher", "fork"]
        env |= {"I_MPI_ROOT": folder, "I_MPI_FABRICS": "shm"}
    command += ["-n", str(ranks), *([os.path.join(options.build, "tools/kolo"), "run", "--mpi"] if kolo else []),
                os.path.join(PEERS, "impi/bin/IMB-MPI1"), collective, "-npmin", str(ranks), "-time", "5",
                *(() if collective == "Barrier" else ("-msglog", f"{options.least}:{options.most}"))]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    times = {}
    for line in ran.stdout.splitlines():
        fields = line.split()
        try:
            numbers = [float(field) for field in fields]
        except ValueError:
            continue
        if collective == "Barrier" and len(numbers) == 4:
            times[0] = numbers[3]
        elif len(numbers) == 5 and numbers[0] > 0:
            times[int(numbers[0])] = numbers[4]
    if ran.returncode != 0 or not times:
        raise SystemExit(f"imb: {' '.join(command)} ended with status {ran.returncode}:\n{ran.stdout[-2000:]}{ran.stderr}")
    return times


def measure(options, ranks, collective):
    """[(bytes, us of MPI, us over kolo)]"""
    turns = {False: [], True: []}
    for turn in range(options.turns):
        for kolo in (turn % 2 == 0, turn % 2 == 1):
            turns[kolo].append(run(options, ranks, collective, kolo))
    sizes = sorted(set.intersection(*(set(times) for times in turns[False] + turns[True])))
    return [(size, *(statistics.median(times[size] for times in turns[kolo]) for kolo in (False, True)))
            for size in sizes]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n", 2)[2])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--mpi", choices=("impi", "mpich"), default="impi")
    parser.add_argument("-n", dest="ranks", default="2,4")
    parser.add_argument("-c", dest="collectives", default=",".join(COLLECTIVES))
    parser.add_argument("-b", dest="least", type=int, default=2)
    parser.add_argument("-e", dest="most", type=int, default=22)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--csv")
    options = parser.parse_args()
    if not os.path.exists(os.path.join(PEERS, "impi/bin/IMB-MPI1")):
        raise SystemExit("imb: the Intel MPI Benchmarks are not installed (./setup --mpi-tests)")
    rows = []
    for ranks in map(int, options.ranks.split(",")):
        for collective in options.collectives.split(","):
            print(f"{collective}, {ranks} ranks, {options.mpi}\n{'bytes':>10} {'MPI us':>10} {'kolo us':>10} {'ratio':>6}")
            for size, mpi_us, kolo_us in measure(options, ranks, collective):
                rows.append((options.mpi, ranks, collective, size, mpi_us, kolo_us))
                print(f"{size:10} {mpi_us:10.2f} {kolo_us:10.2f} {mpi_us / kolo_us:6.2f}", flush=True)
    ratios = [row[4] / row[5] for row in rows if row[5] > 0]
    print(f"geometric mean {math.exp(statistics.fmean(map(math.log, ratios))):.2f}, least {min(ratios):.2f}, "
          f"{len(ratios)} points")
    if options.csv:
        with open(options.csv, "w", encoding="utf-8", newline="") as file:
            out = csv.writer(file)
            out.writerow(("mpi", "ranks", "collective", "bytes", "mpi_us", "kolo_us"))
            out.writerows(rows)


if __name__ == "__main__":
    sys.exit(main())
