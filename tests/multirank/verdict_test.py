# SPDX-License-Identifier: Apache-2.0
# covers: src/core/health src/core/failure transports/tcp
"""Whether the ranks of a job name the rank that went wrong, and agree.

One rank of each trial is killed, stopped, late, leaves or becomes another program, before the first
contact or later, in collectives or in chains of sends and receives, on one host or on three. The
trials follow from a seed. A trial is right if all ranks that live report the right status, and
name that rank. It is "not known" if all report the right status, and some name nobody. Everything
else is wrong.

usage: verdict_test.py VERDICT [TRIALS [SEED]]   (the program of verdict.c)
"""
import collections
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import time

from hosts import made
from tap import check, run_tests

VERDICT = sys.argv[1]
WHOLE = bool(os.environ.get("KOLO_TEST_WHOLE"))
TRIALS = int(sys.argv[2]) if len(sys.argv) > 2 else 500 if WHOLE else 12
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 7
TIMEOUT_MS = 1000
LIMIT_S = 20
WORKS = ("small", "large", "all", "token", "sends", "exchange")
STATUS = {"kill": "KOLO_ERR_PEER", "exec": "KOLO_ERR_PEER", "leave": "KOLO_ERR_PEER",
          "stay": "KOLO_ERR_PEER", "stop": "KOLO_ERR_TIMEOUT", "late": "KOLO_ERR_TIMEOUT"}
FAULTS = ("kill", "kill", "stop", "stop", "late", "late", "leave", "stay", "exec")
_jobs = itertools.count()


def three_hosts():
    return made(3, "all trials are on one host")


def draw(rng):
    """One trial."""
    nranks = rng.randint(2, 6)
    fault = rng.choice(FAULTS)
    calls = rng.choice((0, 0, 1, 3, 20))
    later = calls > 0 and fault in ("kill", "stop", "exec") and rng.random() < 0.5
    return {"nranks": nranks, "work": rng.choice(WORKS), "fault": fault,
            "victim": rng.randrange(nranks), "calls": calls,
            "delay_us": rng.randint(1, 20000) if later else 0,
            "hosts": rng.choice((1, 3)) if nranks > 2 else 1,
            "seed": rng.randrange(1 << 20)}


def start(trial, places, timeout_ms=TIMEOUT_MS, spaces=None):
    """Its ranks, on the hosts at `places`, or in PID namespaces as `spaces` says."""
    command = [VERDICT, *(str(trial[key]) for key in ("work", "fault", "victim", "calls", "delay_us")),
               str(timeout_ms)]
    if places:
        hosts = three_hosts()
        hosts.port = 20000 + (os.getpid() * 31 + next(_jobs)) % 10000
        return hosts.start(places, command)
    name = f"verdict-{os.getpid()}-{next(_jobs)}"
    return [subprocess.Popen(in_space(spaces[rank], rank, command) if spaces else command,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             start_new_session=True, # else the end of a terminal wakes the stopped
                             env={**os.environ, "KOLO_RANK": str(rank), "KOLO_JOB": name,
                                  "KOLO_NRANKS": str(trial["nranks"])})
            for rank in range(trial["nranks"])]


def in_space(space, rank, command):
    """The command in a PID namespace of its own, with its own /proc ("own") or that of the host
    ("bare"), as a process whose ID there is small; or as it is ("")."""
    if not space:
        return command
    more = ["--mount-proc"] if space == "own" else []
    forks = "true & " * rank
    return ["unshare", "--pid", "--fork", "--kill-child", *more, "sh", "-c",
            f'{forks} "$@" & wait', "sh", *command]


def hear(process):
    """The rank's report: its status, the rank that it names, its text."""
    try:
        out = process.communicate(timeout=LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return ("hung", -1, process.communicate()[0])
    found = re.search(r"^\d+ (KOLO_\w+) (-?\d+) (.*)$", out, re.M)
    return (found[1], int(found[2]), found[3]) if found else ("silent", -1, out)


def judge(trial, reports):
    """right, not known or wrong."""
    victim, fault = trial["victim"], trial["fault"]
    if any(status != STATUS[fault] or named not in (victim, -1) for status, named, _ in reports):
        return "wrong"
    if fault in ("leave", "stay") and any("died" in text for _, _, text in reports):
        return "wrong"
    return "right" if all(named == victim for _, named, _ in reports) else "not known"


def finish(trial, processes):
    """The reports of all ranks but the victim; a victim that is only late reports, too. Any other
    victim is killed then."""
    victim = processes[trial["victim"]]
    reports = [hear(process) for process in processes if process != victim or trial["fault"] == "late"]
    if trial["fault"] != "late":
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
    return reports


def run(trial, **more):
    """The verdict on the trial, the reports of the ranks, and the seconds that it took."""
    places = None
    if trial["hosts"] == 3 and three_hosts():
        places = [0, *(random.Random(trial["seed"]).randrange(3) for _ in range(1, trial["nranks"]))]
    since = time.time()
    reports = finish(trial, start(trial, places, **more))
    return judge(trial, reports), reports, time.time() - since


def test_pid_namespaces():
    """A process ID means nothing in another PID namespace, and may be a stranger's there."""
    spaces = ["", "bare", "own", "own"]
    probe = subprocess.run(in_space("own", 0, ["true"]), capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        print(f"# skipped: no PID namespaces here: {probe.stderr.strip()}")
        return
    for fault, victim in (("kill", 1), ("kill", 0), ("kill", 3), ("exec", 2), ("late", 2),
                          ("stop", 1), ("leave", 3)):
        trial = {"nranks": 4, "work": "small", "fault": fault, "victim": victim, "calls": 20,
                 "delay_us": 0, "hosts": 1, "seed": 0}
        timeout_ms = TIMEOUT_MS if STATUS[fault] == "KOLO_ERR_TIMEOUT" else LIMIT_S * 1000
        result, reports, took = run(trial, spaces=spaces, timeout_ms=timeout_ms)
        check(result == "right",
              f"in PID namespaces of their own all name rank {victim} ({fault})",
              result, f"{took:.1f} s", *reports)


def test_limit_before_first_contact():
    """A rank that stops before its peers have mapped its memory: their time limit counts, and no
    other."""
    trial = {"nranks": 3, "work": "small", "fault": "stop", "victim": 1, "calls": 0, "delay_us": 0,
             "hosts": 1, "seed": 0}
    result, reports, took = run(trial, timeout_ms=600)
    check(result == "right" and took < 4.9, "a time limit below 5 s holds before the first contact",
          result, f"{took:.1f} s", *reports)
    trial["fault"] = "pause"
    processes = start(trial, None, timeout_ms=LIMIT_S * 1000)
    time.sleep(5.7)
    waits = all(process.poll() is None for process in processes)
    processes[1].send_signal(signal.SIGCONT)
    reports = [hear(process) for process in processes]
    check(waits and all(status == "KOLO_OK" for status, _, _ in reports),
          "so does one above 5 s: a rank that goes on after 6 s is waited for", waits, *reports)


def test_lost_connection():
    """A connection is reset, and both its ends live: no rank is dead."""
    if not three_hosts():
        print("# skipped: no network namespaces here")
        return
    for work, calls in (("small", 20), ("token", 20)):
        trial = {"nranks": 3, "work": work, "fault": "none", "victim": -1, "calls": calls,
                 "delay_us": 0, "hosts": 3, "seed": 0}
        processes = start(trial, [0, 1, 2], timeout_ms=5000)
        time.sleep(1)
        ran = subprocess.run(three_hosts().inside(1, ["ss", "-K", "dst", three_hosts().address(2)]),
                             capture_output=True, text=True, check=False)
        since = time.time()
        reports = [hear(process) for process in processes]
        took = time.time() - since
        check(ran.returncode == 0 and took < 4.5 and
              all(report[:2] == ("KOLO_ERR_LINK", 2) for report in reports) and
              all("died" not in report[2] for report in reports) and
              any("though both live" in report[2] for report in reports),
              f"a reset connection of ranks 1 and 2 ({work}): all say that it is lost, and nobody dead",
              f"{took:.1f} s", ran.stderr, *reports)


def test_verdicts():
    """At least 99 of 100 are right, and none is wrong."""
    rng = random.Random(SEED)
    count = collections.Counter()
    bad = []
    for number in range(TRIALS):
        trial = draw(rng)
        result, reports, took = run(trial)
        count[result] += 1
        if result != "right":
            bad += [f"trial {number} is {result} after {took:.1f} s: {trial}",
                    *(f"    {report}" for report in reports)]
            if not sys.stdout.isatty() and len(sys.argv) > 2:
                print("\n".join("# " + line for line in bad[-1 - len(reports):]), flush=True)
    check(count["wrong"] == 0 and count["right"] >= TRIALS - max(1, TRIALS // 100),
          f"{TRIALS} random faults: all ranks name the rank that went wrong, or say that they do not "
          "know", f"seed {SEED}: {dict(count)}", *bad)


if __name__ == "__main__":
    run_tests(globals())
