# SPDX-License-Identifier: Apache-2.0
# covers: src/core/setup
"""A communicator takes in new ranks while its own calls go on. Ranks die or abort meanwhile: the
others hear of it at once, and wait for nobody whose end is known.

usage: grow_test.py GROW   (the program of grow.c)
"""
import itertools
import os
import random
import subprocess
import sys
import tempfile

from hosts import made
from tap import check, run_tests

GROW = sys.argv[1]
WHOLE = bool(os.environ.get("KOLO_TEST_WHOLE"))
LIMIT_S = 120
TIMEOUT_MS, SOON_MS = 60000, 20000  # soon is long before the time-out, on a busy machine, too
SEED = 7
TRIALS = 400 if WHOLE else 16
TCP = {"KOLO_TRANSPORT": "tcp"}
_jobs = itertools.count()


def ends(old, new, env=None, hosts=None, places=(), absent=False, timeout_ms=TIMEOUT_MS):
    """The lines of each rank, by their first word. old: (dies, aborts) of each old rank, in microseconds, or
    None; new: when each new rank dies. absent: the last new rank does not start."""
    nranks, said, processes = len(old) + len(new), [], []
    name = f"grow-{os.getpid()}-{next(_jobs)}"
    if hosts:
        hosts.port = 20000 + (os.getpid() * 31 + next(_jobs)) % 10000
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(nranks - absent):
            is_old = rank < len(old)
            dies, last = old[rank] if is_old else (new[rank - len(old)], rank)
            command = [GROW, "old" if is_old else "new", os.path.join(folder, "id"), str(nranks),
                       *(str(-1 if value is None else value) for value in (dies, last))]
            more = {"KOLO_TIMEOUT_MS": str(timeout_ms), **(env or {})}
            environment = {**os.environ, **more}
            if hosts:
                command = hosts.inside(places[rank], command)
                environment = hosts.environment(rank, len(old), **more)
            elif is_old:
                environment.update(KOLO_RANK=str(rank), KOLO_NRANKS=str(len(old)), KOLO_JOB=name)
            processes.append(subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE,
                                              stderr=subprocess.STDOUT))
        for process in processes:
            try:
                text = process.communicate(timeout=LIMIT_S)[0]
            except subprocess.TimeoutExpired:
                process.kill()
                text = process.communicate()[0] + "hung\n"
            said.append({line.split()[0]: line.split(maxsplit=3)[1:] for line in text.splitlines() if line.strip()})
    return said


def is_soon(line, status, text=""):
    return (line is not None and line[0] == status and float(line[1]) < SOON_MS and
            text in (line[2] if len(line) > 2 else ""))


def all_grew(said, nold):
    """However long the 2,000 calls take on a busy machine."""
    return all(one.get(word, [""])[0] == "KOLO_OK" for i, one in enumerate(said)
               for word in ("grow", "sums", *(["calls"] if i < nold else [])))


STAYS = (None, None)


def test_new_ranks_are_taken_in():
    """The new communicator has right sums, and calls on the old one go on."""
    for nold, nnew, env in ((1, 1, {}), (2, 1, {}), (2, 3, {}), (4, 1, {}), (3, 2, TCP), (2, 0, {})):
        said = ends([STAYS] * nold, [None] * nnew, env)
        check(all_grew(said, nold), f"{nold} ranks take in {nnew}, {env or 'shm'}", *said)


def test_new_ranks_of_other_hosts():
    hosts = made(3, "skipped")
    for places in ((0, 0, 1), (0, 1, 2), (0, 1, 0)) if hosts else ():
        said = ends([STAYS] * 2, [None], None, hosts, places)
        check(all_grew(said, 2), f"a rank is taken in, hosts {places}", *said)


def test_an_old_rank_dies():
    """The others and the new rank hear of it at once, though it has not joined."""
    for victim, env in ((0, {}), (1, {}), (2, TCP)):
        old = [STAYS] * 3
        old[victim] = (0, None)
        said = ends(old, [None], env)
        told = [said[rank].get("grow") for rank in range(3) if rank != victim]
        check(all(is_soon(line, "KOLO_ERR_PEER", f"rank {victim}") for line in told),
              f"rank {victim} of 3 dies before it joins, {env or 'shm'}: the others are told", *said)
    hosts = made(3, "skipped")
    for victim in (1, 2) if hosts else ():
        old = [STAYS] * 3
        old[victim] = (0, None)
        said = ends(old, [None], None, hosts, (0, 1, 2, 0))
        told = [said[rank].get("grow") for rank in range(3) if rank != victim]
        check(all(is_soon(line, "KOLO_ERR_PEER", f"rank {victim}") for line in told),
              f"rank {victim} of 3 dies on its host before it joins: the others are told", *said)


def test_an_abort_ends_the_wait():
    """A new rank never comes, and a thread aborts the old communicator. Who hears of it leaves: that is not told
    as the reason."""
    for old in ([(None, 300000), STAYS], [STAYS, (None, 300000)], [STAYS, STAYS, (None, 300000), STAYS]):
        said = ends(old, [None], absent=True)
        check(all(is_soon(one.get("grow"), "KOLO_ERR_ABORTED") for one in said if one),
              f"an abort ends the wait of all {len(old)}, and is what they are told", *said)


def test_a_new_rank_that_never_comes_is_named():
    said = ends([STAYS] * 2, [None], absent=True, timeout_ms=5000)
    check(all(one.get("grow", [""])[0] == "KOLO_ERR_TIMEOUT" and "rank 2" in one["grow"][2] for one in said) and
          all(one.get("calls", [""])[0] == "KOLO_OK" for one in said),
          "the time-out names the rank, and the old communicator goes on", *said)


def test_deaths_at_any_moment():
    """A rank dies at a random moment: the others grow, or are told, each within the limit; nobody hangs."""
    rng, bad, told, grew = random.Random(SEED), [], 0, 0
    for _ in range(TRIALS):
        nold, nnew = rng.randint(2, 4), rng.randint(1, 2)
        victim, us = rng.randrange(nold + nnew), rng.randint(1, 40000)
        old = [(us if rank == victim else None, None) for rank in range(nold)]
        new = [us if nold + rank == victim else None for rank in range(nnew)]
        said = ends(old, new, rng.choice(({}, {}, TCP)), timeout_ms=5000)
        for rank, one in enumerate(said):
            line = one.get("grow") or one.get("start")  # the victim may die while others still get the id from it
            right = rank == victim or (line is not None and line[0] in ("KOLO_OK", "KOLO_ERR_PEER", "KOLO_ERR_LINK"))
            # Nobody knows of a new rank that has not joined, and neither does it know of others.
            right = right or (max(rank, victim) >= nold and line is not None and line[0] == "KOLO_ERR_TIMEOUT")
            bad += [] if right else [f"{nold} and {nnew} ranks, rank {victim} dies after {us} us: rank {rank}: {one}"]
            told += rank != victim and line is not None and line[0] != "KOLO_OK"
            grew += rank != victim and line is not None and line[0] == "KOLO_OK"
    check(not bad and told > 0, f"{TRIALS} times a rank dies while a communicator grows: {grew} ranks have grown, "
          f"{told} were told", f"seed {SEED}", *bad)


run_tests(globals())
