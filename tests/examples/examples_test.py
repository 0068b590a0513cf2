# SPDX-License-Identifier: Apache-2.0
# covers: examples
"""Each program of examples/ under `kolo run`, by what it prints, and that each can be read at once.

usage: examples_test.py KOLO SOURCE PROGRAM...
"""
import glob
import os
import re
import subprocess
import sys

from tap import check, machine_env, run_tests

KOLO, SOURCE = sys.argv[1:3]
PROGRAMS = {os.path.basename(path): path for path in sys.argv[3:]}
LINES_MOST = 80


def lines_of(name, nranks):
    """The sorted lines that the ranks print; a failure is a line, too."""
    ran = subprocess.run([KOLO, "run", "-n", str(nranks), "--no-prefix", PROGRAMS[name]],
                         capture_output=True, text=True, timeout=60, check=False, env=machine_env())
    return sorted(ran.stdout.splitlines() + ([] if ran.returncode == 0 else [f"status {ran.returncode}", ran.stderr]))


def test_all_reduce():
    for name in ("all_reduce", "all_reduce_cpp"):
        for nranks in (1, 3):
            middle = (nranks - 1) / 2
            got = lines_of(name, nranks)
            check(got == [f"rank {r} of {nranks}: the means go from {middle:g} to {999 + middle:g}" for r in range(nranks)],
                  f"{name} gives each of {nranks} ranks the mean", *got)


def test_overlap():
    got = [line.replace("; the last sums were still going on", "") for line in lines_of("overlap", 3)]
    check(got == [f"rank {r}: layer 0 sums up to 3, layer 7 to 213" for r in range(3)],
          "overlap sums the layers while it computes", *got)


def test_recover():
    got = lines_of("recover", 4)
    now = [f"rank {old} is rank {new} of 3 now, without rank 1" for new, old in enumerate((0, 2, 3))]
    check([line for line in got if " now, " in line] == now, "recover names the rank that died", *got)
    check([line for line in got if " now, " not in line] == [f"rank {r} ends with the sum 13 of 3 ranks" for r in (0, 2, 3)],
          "recover ends with the sum of those that are left", *got)


def test_ring():
    for nranks in (1, 4):
        total = 4096 * nranks * (nranks + 1) // 2
        got = lines_of("ring", nranks)
        check(got == [f"rank {r}: the sum of all {nranks} blocks is {total}" for r in range(nranks)],
              f"ring passes all blocks by each of {nranks} ranks", *got)


def test_rows_columns():
    got = lines_of("rows_columns", 4)
    check(got == [f"rank {r}: place {r % 2} of 2 in its row, whose ranks sum up to {(1, 5)[r // 2]}; column: {(2, 4)[r % 2]}"
                  for r in range(4)], "rows_columns sums over rows and over columns", *got)


def test_server():
    got = lines_of("server", 4)
    done = [int(found[1]) for line in got if (found := re.fullmatch(r"rank [123] did (\d+) of them", line))]
    check(got[0] == "100 squares sum up to 338350" and len(got) == 4 and len(done) == 3 and sum(done) == 100,
          "server takes every result, and every worker tells its share", *got)


def test_shared():
    got = lines_of("shared", 2)
    check(len(got) == 1 and re.fullmatch(r"16 MiB: [\d.]+ ms from malloc\(\), [\d.]+ ms from kolo_mem_alloc\(\)", got[0]),
          "shared times both kinds of memory", *got)


def test_that_each_fits_on_a_screen():
    sources = sorted(path for suffix in ("c", "cpp") for path in glob.glob(f"{SOURCE}/examples/*.{suffix}"))
    check(len(sources) == len(PROGRAMS), "every example is built", len(sources), *PROGRAMS)
    for path in sources:
        with open(path, encoding="utf-8") as file:
            count = len(file.readlines())
        check(count < LINES_MOST, f"{os.path.basename(path)} has fewer than {LINES_MOST} lines", count)


run_tests(globals())
