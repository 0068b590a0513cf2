# SPDX-License-Identifier: Apache-2.0
# covers: src/util/descriptor.c src/core/health src/memory src/boot/hub.c transports/tcp
"""A program that closes all descriptors behind kolo's back, and opens its own files at their
numbers: kolo leaves these files alone, takes no processor time, and ends each call soon.

usage: closed_test.py CLOSED   (the program of closed.c)
"""
import itertools
import os
import subprocess
import sys
import tempfile
import time

from tap import check, run_tests

CLOSED = sys.argv[1]
LIMIT_S = 30
SOON_S = 8  # two time-outs; the rest is the machine's
IDLE_PERCENT = 40  # of a core; a thread that spins takes 100, and shares two cores with another
NAMES = ("few", "many", "pass", "shared", "alloc", "split")
TCP = {"KOLO_TRANSPORT": "tcp"}
_jobs = itertools.count()


def run(*args, nranks=2, env=None):
    """The lines and the statuses of the ranks, and the seconds that they took."""
    name = f"closed-{os.getpid()}-{next(_jobs)}"
    since = time.time()
    ranks = [subprocess.Popen([CLOSED, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, **(env or {}), "KOLO_RANK": str(rank), "KOLO_JOB": name,
                                   "KOLO_NRANKS": str(nranks)}) for rank in range(nranks)]
    said = []
    for process in ranks:
        try:
            said.append(process.communicate(timeout=LIMIT_S)[0].splitlines())
        except subprocess.TimeoutExpired:
            process.kill()
            said.append(process.communicate()[0].splitlines() + ["(it hung)"])
    return said, [process.returncode for process in ranks], time.time() - since


def results(lines):
    """The calls of a rank: name to status and text."""
    return {words[0]: words[1:] for words in (line.split(maxsplit=2) for line in lines)
            if words and words[0] in (*NAMES, "create")}


def idle(lines):
    return max((int(line.split()[1]) for line in lines if line.startswith("cpu ")), default=1000)


def check_all(what, said, statuses, seconds):
    everything = [f"rank {rank}: {line}" for rank, lines in enumerate(said) for line in lines]
    check(statuses == [0] * len(said) and all(lines[-1:] == ["end"] for lines in said) and seconds < SOON_S,
          f"{what}: all calls end soon, and so does kolo_comm_destroy()", f"{seconds:.1f} s", statuses, *everything)
    check(not [line for line in everything if ": file " in line],
          f"{what}: no file of the program was written, read or closed", *everything)
    check(all(idle(lines) < IDLE_PERCENT for lines in said), f"{what}: no idle thread spins", *everything)
    check(all(status == ["KOLO_OK"] or (len(status) == 2 and len(status[1].split()) > 3)
              for lines in said for status in results(lines).values()),
          f"{what}: a call that fails says why", *everything)


def test_all_ranks():
    for kind in ("nothing", "files", "sockets", "polls"):
        for name, env in (("shm", {}), ("tcp", TCP)):
            check_all(f"{name}, {kind} at the numbers", *run(kind, env=env))


def test_one_rank():
    """The others cannot reach it any more."""
    for name, env in (("shm", {}), ("tcp", TCP)):
        said, statuses, seconds = run("files", "0", nranks=3, env=env)
        check_all(f"{name}, rank 0 alone", said, statuses, seconds)
        other = [results(lines).get("few", ["?"]) for lines in said]
        check(all(status[0] == "KOLO_ERR_PEER" and "rank 0 " in status[1] for status in other),
              f"{name}, rank 0 alone: all ranks name it", *said)


def test_log():
    with tempfile.TemporaryDirectory(prefix="kolo-closed-") as folder:
        env = {"KOLO_DEBUG": "INFO", "KOLO_DEBUG_FILE": os.path.join(folder, "log-%p")}
        check_all("with a log file", *run("files", env=env))


def test_id():
    check_all("between an id and its ranks", *run("id", nranks=1))


run_tests(globals())
