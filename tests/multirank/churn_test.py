# SPDX-License-Identifier: Apache-2.0
# covers: src/core/health src/core/setup
"""Ranks that call at random, while at random one is stopped for a moment, or killed: results stay
right, the others name the dead, shrink and go on.

usage: churn_test.py CHURN [SECONDS [SEED]]   (the program of churn.c)
"""
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

from tap import check, run_tests

CHURN = sys.argv[1]
WHOLE = bool(os.environ.get("KOLO_TEST_WHOLE"))
SECONDS = float(sys.argv[2]) if len(sys.argv) > 2 else 40 if WHOLE else 6
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 23
RUN_S = 3  # of one job
LIMIT_S = 60


def start(seed, nranks, **more):
    """The ranks, and a watch that ends them all where they hang."""
    name = f"churn-{os.getpid()}-{seed}"
    ranks = [subprocess.Popen([CHURN, str(seed), str(RUN_S)], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT,
                              env={**os.environ, **more, "KOLO_RANK": str(rank), "KOLO_JOB": name,
                                   "KOLO_NRANKS": str(nranks)}) for rank in range(nranks)]
    watch = threading.Timer(LIMIT_S, lambda: [process.kill() for process in ranks])
    watch.start()
    return ranks, watch


def disturb(ranks, rng):
    """Stop one rank for a moment, or kill one or two. Returns the complaints."""
    victim = rng.randrange(len(ranks))
    time.sleep(rng.uniform(0, 0.4))
    if rng.random() < 0.5:
        ranks[victim].send_signal(signal.SIGSTOP)
        time.sleep(rng.uniform(0, 0.3))
        ranks[victim].send_signal(signal.SIGCONT)
        return []
    victims = {victim, rng.randrange(len(ranks))} if len(ranks) > 3 else {victim}
    for dies in victims:
        ranks[dies].kill()
    for dies in sorted(victims, reverse=True):
        ranks.pop(dies).communicate()
    said = [last_of(process, len(ranks)) for process in ranks]
    wanted = " ".join([f"on {len(ranks)} without", *map(str, sorted(victims))]) + "\n"
    late = all(re.match("right ", line) for line in said)  # their time was over
    steps = len(victims) > 1 and all(line.startswith(f"on {len(ranks)} ") for line in said)
    return [] if late or steps or all(line == wanted for line in said) else [wanted, *said]


def last_of(process, size):
    """The line of a rank that goes on with `size` ranks. It may hear of two deaths one by one, and
    then prints a line for each."""
    line = process.stdout.readline()
    while line.startswith("on ") and not line.startswith(f"on {size} "):
        line = process.stdout.readline()
    return line


def run(seed):
    """One job; what went wrong, and how many calls and deaths there were."""
    rng = random.Random(seed)
    more = {"KOLO_TRANSPORT": "tcp"} if rng.random() < 0.3 else {}
    nranks = rng.randrange(3, 7)
    ranks, watch = start(seed, nranks, **more)
    wrong = [line for line in [process.stdout.readline() for process in ranks] if line != "works\n"]
    while len(ranks) > 2 and not wrong and all(process.poll() is None for process in ranks):
        wrong = disturb(ranks, rng)
    ends = [process.communicate()[0] for process in ranks]
    watch.cancel()
    calls = [int(m[1]) for m in (re.search(r"^right (\d+) $", end, re.M) for end in ends) if m]
    done = all(process.returncode == 0 for process in ranks)
    return wrong + ([] if done else ends), sum(calls), nranks - len(ranks)


def test_churn():
    """Job after job until the seconds are over."""
    end = time.time() + SECONDS
    seed = SEED
    calls = deaths = 0
    wrong = []
    while time.time() < end and not wrong:
        wrong, more, died = run(seed)
        calls += more
        deaths += died
        seed += 1
    check(not wrong, f"{seed - SEED} jobs: results stay right, the dead are named, the others go on",
          f"again: churn_test.py {CHURN} 1 {seed - 1}", *wrong)
    check(calls > 0 and deaths > 0, f"{calls} calls, {deaths} deaths")


run_tests(globals())
