# SPDX-License-Identifier: Apache-2.0
# covers: src/core/health/calls.c src/core/health/gossip.c src/core/failure transports/tcp
"""Ranks of several hosts that make different calls: all of them hear it, with both calls, within a
second.

usage: mismatch_test.py MISMATCH   (the program of tests/multirank/mismatch.c)
"""
import os
import sys

from hosts import need
from tap import check, run_tests

MISMATCH, = sys.argv[1:]
WHOLE = bool(os.environ.get("KOLO_TEST_WHOLE"))
SEED = os.environ.get("KOLO_TEST_SEED", "2")
CASES = 500 if WHOLE else 16
HOSTS = need(3)


def test_hosts():
    """A rank alone on its host, ranks that share one, and hosts in a chain of three."""
    for places in ([0, 1], [0, 1, 1], [0, 1, 2, 0]):
        ends = HOSTS.run(places, [MISMATCH, SEED, "0", str(CASES)], limit_s=900)
        check(all(status == 0 for status, _ in ends),
              f"{len(places)} ranks on {max(places) + 1} hosts: {CASES} mismatches are named by all",
              *[line for _, out in ends for line in (out or "").splitlines()])


run_tests(globals())
