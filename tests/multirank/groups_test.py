# SPDX-License-Identifier: Apache-2.0
# covers: topology/layout/groups.c
"""Groups of near ranks as their user sees them: KOLO_GROUPS, the log, and `kolo plan`.

usage: groups_test.py KOLO ALL_REDUCE MACHINE   (the kolo tool, a sweep program, an hwloc XML file
of two packages with four L3 caches of four cores each)
"""
import os
import subprocess
import sys

from tap import check, run_tests

KOLO, ALL_REDUCE, MACHINE = sys.argv[1:]
LIMIT_S = 120


def kolo(*args, **env):
    """Exit status, output and errors of the tool, with these variables set."""
    ran = subprocess.run([KOLO, *args], capture_output=True, text=True, timeout=LIMIT_S,
                         check=False, env={**os.environ, **env})
    return ran.returncode, ran.stdout, ran.stderr


def sweep(nranks, groups, *options, **env):
    """A short sweep, every result checked by the program, with its log."""
    return kolo("run", "-n", str(nranks), ALL_REDUCE, "-b", "8", "-e", "1M", "-f", "64", "-n", "5",
                *options, KOLO_GROUPS=groups, KOLO_DEBUG="INFO", KOLO_VERIFY="1", **env)


def test_ranks_are_grouped_by_hand():
    for nranks, groups, line in (
            (4, "0,0,1,1", "Groups : L3 0-1 2-3"),
            (8, "0,1", "Groups : L3 0,2,4,6 1,3,5,7"),
            (8, "0,0,1,1,2,2,3,3;0,0,0,0,1,1,1,1;0,0,0,0,1,1,1,1",
             "Groups : L3 0-1 2-3 4-5 6-7, package 0-3 4-7"),
            (5, "0,0,0,1,1", "Groups : L3 0-2 3-4"),
            (4, "7", "Groups : none, all ranks are alike")):
        status, out, err = sweep(nranks, groups)
        check(status == 0 and out.count(f"KOLO INFO {line}\n") > 0,
              f"KOLO_GROUPS={groups} groups {nranks} ranks", status, err, out[-2000:])


def test_each_hierarchy_runs():
    for word in ("hier", "hier_oneshot", "hier_leader"):
        for nranks, groups in ((4, "0,0,1,1"), (8, "0,0,0,1,1,1,2,2;0,0,0,0,0,0,1,1")):
            status, out, err = sweep(nranks, groups, KOLO_ALGO=f"allreduce:{word}")
            chosen = f"Algo {word.upper()} (rules)"
            check(status == 0 and chosen in out, f"{word} runs on {nranks} ranks by {groups}",
                  status, err, out[-2000:])


def test_refusals():
    status, _, err = sweep(2, "0,x")
    check(status != 0 and 'KOLO_GROUPS is "0,x"' in err, "a text that is no groups is refused",
          status, err)
    status, _, err = sweep(4, "3", KOLO_ALGO="allreduce:hier")
    check(status != 0 and "no groups" in err, "a hierarchy without groups is refused", status, err)
    script = 'KOLO_GROUPS=0,$KOLO_RANK exec "$0" -b 8 -e 8 -n 1'
    status, _, err = kolo("run", "-n", "2", "sh", "-c", script, ALL_REDUCE)
    check(status != 0 and "differ in KOLO_GROUPS" in err, "ranks with different groups are told so",
          status, err)


def test_plans_of_other_machines():
    status, out, err = kolo("plan", "allreduce_hier", "-n", "8", "--groups", "0,0,0,0,1,1,1,1",
                            "--verify", "--price")
    check(status == 0 and out.startswith("Groups : L3 0-3 4-7\n") and "proved" in out
          and "critical path" in out, "a plan is shown for groups by hand", status, out, err)
    status, out, err = kolo("plan", "allreduce", "-n", "32", "--topo", MACHINE, "--bytes", "1M")
    check(status == 0 and "package 0-15 16-31\n" in out and
          "AllReduce: 1048576 Bytes -> Algo HIER (price, tiles of 524288): hier " in out,
          "what would be chosen on a machine of a file is told", status, out, err)
    status, out, err = kolo("plan", "allreduce", "-n", "4", "--topo", MACHINE)
    check(status == 0 and "none, all ranks are alike" in out and "hier" not in out,
          "within one cache there is no hierarchy", status, out, err)


def test_bad_options():
    for args, said in (
            (("allreduce", "-n", "4"), "--groups or --topo"),
            (("allreduce", "-n", "4", "--groups", "0,,1"), '--groups is "0,,1"'),
            (("allreduce", "-n", "4", "--topo", "no-such.xml"), "no-such.xml: No such file"),
            (("allreduce", "-n", "4", "--topo", MACHINE, "--groups", "0"), "either --groups or"),
            (("allreduce_hier", "-n", "4"), "without groups"),
            (("allreduce_heir", "-n", "4", "--groups", "0,1"), "allreduce_hier")):
        status, _, err = kolo("plan", *args)
        check(status in (1, 2) and said in err, f"kolo plan {' '.join(args[:3])} says: {said}",
              status, err)


run_tests(globals())
