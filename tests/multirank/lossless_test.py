# SPDX-License-Identifier: Apache-2.0
# covers: transports/tcp/lossless.c transports/tcp/price.c
"""KOLO_LOSSLESS: how many bytes were coded, as the log tells when a connection ends.

usage: lossless_test.py LIBRARY SOURCE
"""
import os
import subprocess
import sys

import lossless
from ranks import output_of
from tap import check, run_tests

LIBRARY, SOURCE = sys.argv[1:]
MIB = 1 << 20


def run(word, kind, mib, calls):
    """(whether both ranks ended well, bytes before coding, bytes after) of two ranks of this host."""
    env = {**os.environ, "PYTHONPATH": os.path.join(SOURCE, "python"), "KOLO_LIBRARY": LIBRARY,
           "KOLO_TRANSPORT": "tcp", "KOLO_LOSSLESS": word, "KOLO_NRANKS": "2", "KOLO_DEBUG": "INFO",
           "KOLO_DEBUG_SUBSYS": "NET", "KOLO_JOB": f"lossless-{os.getpid()}-{word}-{kind}"}
    ranks = [subprocess.Popen([sys.executable, lossless.__file__, kind, str(mib), str(calls)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, env={**env, "KOLO_RANK": str(rank)})
             for rank in range(2)]
    said = [output_of(process, 120) for process in ranks]
    well = all(process.returncode == 0 for process in ranks)
    return (well, *lossless.coded(said[0]), said)


def test_numbers_get_shorter():
    well, before, after, said = run("always", "normal", 8, 2)
    check(well and before == 16 * MIB and 0.6 * before < after < 0.75 * before,
          "all of 16 MiB of normal numbers were coded, to two thirds", before, after, *said)


def test_noise_is_given_up():
    well, before, _, said = run("always", "noise", 8, 4)
    check(well and 0 < before <= 8 * MIB, "of 32 MiB of noise a few frames were coded", before, *said)


def test_never():
    well, before, _, said = run("never", "normal", 8, 1)
    check(well and before == 0, "nothing is coded otherwise", before, *said)


run_tests(globals())
