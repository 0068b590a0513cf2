#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the collectives of the Intel MPI Benchmarks with and without kolo, by turns, on the same MPI library.

IMB-MPI1 is in the package impi-rt (./setup --mpi-tests) and also runs on MPICH. For Open MPI it is built
from https://github.com/intel/mpi-benchmarks and named by --imb. It does not check data; tests/mpi does.
Each turn runs all sizes of a collective once with MPI alone and once over kolo. A time is the median over
turns of the average over ranks. The last table has MPI's time over kolo's: the geometric mean of the
sizes, and the least with its bytes. A turn of a collective counts again if other processes take a twentieth
of a core in it: ranks that share cores wait for them in one run, and not in the other. After three such
times it is taken as it is.

usage: imb.py [--build FOLDER] [--mpi impi|mpich|openmpi] [--imb PROGRAM] [-n RANKS,...] [-c COLLECTIVE,...]
              [-b LOG] [-e LOG] [--turns T] [--csv FILE]
  -b, -e  the binary logarithms of the least and the most bytes (2, 22)
"""
import argparse
import csv
import math
import os
import resource
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "perf/compare"))
import machine  # noqa: E402

PEERS = os.path.join(ROOT, ".venv-peers")
COLLECTIVES = ("Allreduce", "Reduce", "Bcast", "Allgather", "Gather", "Scatter", "Alltoall", "Reduce_scatter",
               "Reduce_scatter_block", "Allgatherv", "Barrier")
LIMIT_S = 600
# Four times IMB's own iterations and bytes: 1000 calls of a third of a microsecond are soon disturbed.
ITERATIONS = "4000,160"
QUIET_CORES = 0.05
TRIES = 3


def start(options, ranks):
    """The command that starts ranks, and its environment. Ranks that share cores yield, where a library can."""
    folder = os.path.join(PEERS, options.mpi)
    env = {**os.environ, "LD_LIBRARY_PATH": os.path.join(folder, "lib"),
           "PATH": os.path.join(folder, "bin") + os.pathsep + os.environ["PATH"]}
    command = [os.path.join(folder, "bin/mpirun")]
    crowded = ranks > len(os.sched_getaffinity(0))
    if options.mpi == "impi":
        command += ["-launcher", "fork"]
        env |= {"I_MPI_ROOT": folder, "I_MPI_FABRICS": "shm", **({"I_MPI_THREAD_YIELD": "3"} if crowded else {})}
    elif options.mpi == "openmpi":
        command += ["--oversubscribe", "--bind-to", "none" if crowded else "core"]
        env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    elif crowded:
        env |= {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1", "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1"}
    return [*command, "-n", str(ranks)], env


def run(options, ranks, collective, kolo):
    """{bytes: average us} of one run."""
    command, env = start(options, ranks)
    command += [*([os.path.join(options.build, "tools/kolo"), "run", "--mpi"] if kolo else []), options.imb, collective,
                "-npmin", str(ranks), "-time", "5", "-iter", ITERATIONS,
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


def used():
    """Seconds: of processors by other processes, those taken by the host included; and of the clock."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(machine.busy_s()) - children.ru_utime - children.ru_stime, time.monotonic()


def turn_of(options, ranks, collective, order):
    """{whether over kolo: {bytes: average us}} of a turn that other processes did not disturb, if one is."""
    for last in (*(False,) * (TRIES - 1), True):
        begin = used()
        times = {kolo: run(options, ranks, collective, kolo) for kolo in order}
        others_s, seconds = (now - then for now, then in zip(used(), begin))
        if others_s <= QUIET_CORES * seconds:
            break
        print(f"# other processes took {others_s / seconds:.2f} cores{'' if last else '; again'}", flush=True)
    return times


def measure(options, ranks, collective):
    """[(bytes, us of MPI, us over kolo)]"""
    turns = {False: [], True: []}
    for turn in range(options.turns):
        for kolo, times in turn_of(options, ranks, collective, (turn % 2 == 0, turn % 2 == 1)).items():
            turns[kolo].append(times)
    sizes = sorted(set.intersection(*(set(times) for times in turns[False] + turns[True])))
    return [(size, *(statistics.median(times[size] for times in turns[kolo]) for kolo in (False, True)))
            for size in sizes]


def cell(rows):
    """The geometric mean of MPI's time over kolo's, and the least."""
    ratios = [(mpi_us / kolo_us, size) for *_, size, mpi_us, kolo_us in rows if kolo_us > 0]
    least, size = min(ratios)
    return f"{math.exp(statistics.fmean(math.log(ratio) for ratio, _ in ratios)):.2f} | {least:.2f} ({size})"


def table(rows):
    """Lines of Markdown: a collective each, with a mean and a least for each number of ranks."""
    ranks = sorted({row[1] for row in rows})
    yield "| collective | " + " | ".join(f"{n} ranks, mean | least (bytes)" for n in ranks) + " |"
    yield "|---|" + "---|" * (2 * len(ranks))
    for name in [*dict.fromkeys(row[2] for row in rows), "all"]:
        parts = [[row for row in rows if row[1] == n and name in (row[2], "all")] for n in ranks]
        yield f"| {name} | " + " | ".join(cell(part) if part else " | " for part in parts) + " |"


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n", 2)[2])
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--mpi", choices=("impi", "mpich", "openmpi"), default="impi")
    parser.add_argument("--imb", default=os.path.join(PEERS, "impi/bin/IMB-MPI1"))
    parser.add_argument("-n", dest="ranks", default="2,4")
    parser.add_argument("-c", dest="collectives", default=",".join(COLLECTIVES))
    parser.add_argument("-b", dest="least", type=int, default=2)
    parser.add_argument("-e", dest="most", type=int, default=22)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--csv")
    options = parser.parse_args()
    if not os.path.exists(options.imb):
        raise SystemExit("imb: the Intel MPI Benchmarks are not installed (./setup --mpi-tests)")
    rows = []
    for ranks in map(int, options.ranks.split(",")):
        for collective in options.collectives.split(","):
            print(f"{collective}, {ranks} ranks, {options.mpi}\n{'bytes':>10} {'MPI us':>10} {'kolo us':>10} {'ratio':>6}")
            for size, mpi_us, kolo_us in measure(options, ranks, collective):
                rows.append((options.mpi, ranks, collective, size, mpi_us, kolo_us))
                print(f"{size:10} {mpi_us:10.2f} {kolo_us:10.2f} {mpi_us / kolo_us:6.2f}", flush=True)
    print("\n".join(table(rows)))
    if options.csv:
        with open(options.csv, "w", encoding="utf-8", newline="") as file:
            out = csv.writer(file)
            out.writerow(("mpi", "ranks", "collective", "bytes", "mpi_us", "kolo_us"))
            out.writerows(rows)


if __name__ == "__main__":
    sys.exit(main())
