# SPDX-License-Identifier: Apache-2.0
# covers: transports/verbs
"""Collectives by verbs between the guest's hosts: right, over one rail and two, and nothing is kept.

usage: collectives_test.py CONFORMANCE COLLECTIVES PERF...   (the suite of messages, the ranks' checks, and
the perf programs)
"""
import os
import re
import sys

from guest import Guest, left_over, resources
from hosts import tails
from tap import check, run_tests

CONFORMANCE, COLLECTIVES, *PERF = sys.argv[1:]
GUEST = Guest()
PLACES = {2: [0, 1], 3: [0, 1, 0], 4: [0, 1, 0, 1]}
RAILS = {"one rail": "rxe0,rxe1", "two rails": ""}
AT_FIRST = resources()
WHOLE = bool(os.environ.get("KOLO_TEST_WHOLE"))


def test_1_messages():
    """The suite that every transport passes, on a device's own loopback and from one device to another."""
    for devices in ("rxe0", "rxe0,rxe2"):
        status, out = GUEST.call(0, "env", f"KOLO_IB_HCA={devices}", CONFORMANCE,
                                 "--gtest_filter=Transport/Messages.*/verbs", limit_s=200)
        found = re.search(r"\[  PASSED  \] (\d+) tests", out)
        check(status == 0 and found and int(found[1]) > 0, f"the suite of messages passes on {devices}",
              *re.findall(r"^\[  FAILED  \].*", out, re.M)[:10], *out.splitlines()[-4:])


def test_2_programs():
    """Each collective's program sweeps with 2, 3 and 4 ranks by verbs alone, and finds every result right; over one
    rail and two by turns, so that each meets both, or both each time with KOLO_TEST_WHOLE=1."""
    for turn, (nranks, places) in enumerate(PLACES.items()):
        for rail, (rails, devices) in enumerate(RAILS.items()):
            failed = []
            for number, program in enumerate(PERF):
                if not WHOLE and (turn + rail + number) % len(RAILS) != 0:
                    continue
                ends = GUEST.run(places, [program, "-b", "8", "-e", "512K", "-f", "256", "-n", "2", "-w", "1"],
                                 KOLO_TRANSPORT="verbs", KOLO_IB_HCA=devices)
                if not all(status == 0 for status, _ in ends):
                    failed += [os.path.basename(program), *tails(ends)]
            check(not failed, f"{nranks} ranks, {rails}: every collective is right", *failed)


def test_3_everything():
    """Every type and operation, each algorithm; of shared and of private buffers."""
    ends = GUEST.run([0, 1], [COLLECTIVES], KOLO_TEST_SHORT="1", KOLO_TRANSPORT="verbs")
    said = ends[0][1] or ""
    good = len(re.findall(r"^ok ", said, re.M))
    check(all(status == 0 for status, _ in ends) and good > 0 and "not ok" not in said,
          "2 ranks: every type, operation and algorithm is right", f"{good} were", *tails(ends),
          *re.findall(r"^not ok.*", said, re.M)[:5])


def test_4_mixed():
    """Ranks of one host by shared memory, hosts by verbs, as it is without being told."""
    ends = GUEST.run([0, 0, 1, 1], [PERF[0], "-b", "8", "-e", "512K", "-f", "256", "-n", "2"], KOLO_DEBUG="INFO")
    said = "".join(out or "" for _, out in ends)
    check(all(status == 0 for status, _ in ends) and " via NET/IB/" in said and " via NET/Socket" not in said and
          re.search(" via (?!NET)", said),
          "4 ranks on 2 hosts take shared memory and verbs by themselves", *tails(ends),
          *re.findall(r".* via .*", said)[:8])


def test_5_nothing_is_left():
    check(not left_over(AT_FIRST), "no queue pair, registration or completion queue is left", left_over(AT_FIRST))


run_tests(globals())
