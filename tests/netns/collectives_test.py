# SPDX-License-Identifier: Apache-2.0
# covers: transports/tcp
"""Collectives between hosts: right on two and on four, and the perf programs run across them.

usage: collectives_test.py COLLECTIVES PERF...   (the ranks' checks, and the perf programs)
"""
import os
import re
import sys

from hosts import need, tails
from tap import check, run_tests

COLLECTIVES, *PERF = sys.argv[1:]
HOSTS = need(4)
PLACES = {"two hosts, a rank each": [0, 1],
          "two hosts, two ranks on one": [0, 1, 0],
          "four hosts": [0, 1, 2, 3]}


def test_collectives():
    """Every collective, type and operation, each algorithm; of shared and of private buffers."""
    for name, places in PLACES.items():
        ends = HOSTS.run(places, [COLLECTIVES], KOLO_TEST_SHORT="1")
        said = ends[0][1] or ""
        good = len(re.findall(r"^ok ", said, re.M))
        check(all(status == 0 for status, _ in ends) and good > 0 and "not ok" not in said,
              f"on {name} every collective is right", f"{good} were", *tails(ends),
              *re.findall(r"^not ok.*", said, re.M)[:5])


def test_shared_cores():
    """The hosts are namespaces of one machine: with more ranks than its cores, few messages win."""
    cores = os.cpu_count()  # those of a pool, whatever this process is bound to
    ends = HOSTS.run([rank % 4 for rank in range(4 * cores)], [PERF[0], "-b", "8", "-e", "8", "-n", "1"],
                     KOLO_DEBUG="INFO", KOLO_TUNE_FILE="none")
    lines = re.findall(r"Barrier: 0 Bytes -> Algo (\w+)", ends[0][1] or "")
    check(lines and "DIRECT" not in lines, "hosts know that they share cores", str(lines), *tails(ends))


def test_perf_programs():
    """Each sweeps over two hosts, and finds every result right."""
    for program in PERF:
        ends = HOSTS.run([0, 1], [program, "-b", "8", "-e", "256K", "-f", "8", "-n", "5"])
        check(all(status == 0 for status, _ in ends),
              f"{os.path.basename(program)} runs across two hosts", *tails(ends))


run_tests(globals())
