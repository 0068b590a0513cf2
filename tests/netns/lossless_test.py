# SPDX-License-Identifier: Apache-2.0
# covers: transports/tcp/lossless.c transports/tcp/price.c
"""KOLO_LOSSLESS between two hosts, behind NICs so slow that coding pays: bytes that they count.

usage: lossless_test.py LIBRARY SOURCE
"""
import os
import subprocess
import sys

import lossless
from hosts import need, tails
from tap import check, run_tests

LIBRARY, SOURCE = sys.argv[1:]
HOSTS = need(2)
MIB, CALLS = 4, 2
RATE = ["rate", "100mbit", "burst", "16k", "latency", "100ms"]


def shape():
    """Hold the NICs to a rate; or the end of the script."""
    try:
        for name in HOSTS.names:
            subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", *RATE], check=True,
                           capture_output=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"1..0 # SKIP no tbf(8) here: {error}")
        sys.exit(0)


def sent(word, kind):
    """Bytes that host 0 sends, what of them was coded, and how the ranks ended."""
    before = HOSTS.sent_bytes(0)
    ends = HOSTS.run([0, 1], [sys.executable, lossless.__file__, kind, str(MIB), str(CALLS)],
                     PYTHONPATH=os.path.join(SOURCE, "python"), KOLO_LIBRARY=LIBRARY, KOLO_LOSSLESS=word,
                     KOLO_DEBUG="INFO", KOLO_DEBUG_SUBSYS="NET")
    return HOSTS.sent_bytes(0) - before, lossless.coded(ends[0][1])[0], ends


def test_slow_hosts():
    raw, _, ends = sent("never", "normal")
    check(raw > CALLS * MIB << 20, "the NIC counts all bytes", raw, *tails(ends))
    for word, most in (("always", 0.75), ("price", 0.9)):  # a rate must be known first
        coded, _, ends = sent(word, "normal")
        check(all(status == 0 for status, _ in ends) and coded < most * raw,
              f"{word}: fewer bytes leave the host", coded, raw, *tails(ends))
    check("bfloat16 goes coded" in ends[0][1], "and the log says why", ends[0][1])
    coded, tried, ends = sent("price", "noise")
    check(all(status == 0 for status, _ in ends) and coded < 1.05 * raw and tried == 0,
          "price: noise goes as it is", coded, raw, tried, *tails(ends))


shape()
run_tests(globals())
