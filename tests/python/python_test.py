# SPDX-License-Identifier: Apache-2.0
# covers: python
"""python/kolo under `kolo run`: what calls.py finds on 1, 2 and 3 ranks, and how ranks end.

usage: python_test.py KOLO LIBRARY SOURCE
"""
import os
import subprocess
import sys

from tap import check, machine_env, run_tests

KOLO, LIBRARY, SOURCE = sys.argv[1:]
CALLS = os.path.join(SOURCE, "tests", "python", "calls.py")


def run(nranks, *command, python=sys.executable):
    env = machine_env(PYTHONPATH=os.path.join(SOURCE, "python"), KOLO_LIBRARY=LIBRARY)
    return subprocess.run([KOLO, "run", "-n", str(nranks), "--no-prefix", "--timeout", "60", python, *command],
                          capture_output=True, text=True, timeout=90, check=False, env=env)


def check_calls(nranks, *arguments, **more):
    """One check for each name of which ranks tell."""
    ran = run(nranks, CALLS, *arguments, **more)
    told = {}
    for line in ran.stdout.splitlines():
        rank, name, said = line.split(" ", 2)
        told.setdefault(name, {})[int(rank)] = said
    check(ran.returncode == 0 and len(told) >= 3, f"{nranks} ranks of calls.py come to their end", ran.returncode,
          ran.stdout, ran.stderr)
    for name, said in told.items():
        sentence = name.replace("numpy_", "").replace("test_", "", 1).replace("_", " ")
        wrong = [f"rank {rank}: {said.get(rank)}" for rank in range(nranks) if said.get(rank) != "ok"]
        check(not wrong, f"{sentence}, on {nranks} ranks", *wrong)


def python_with_numpy():
    for python in (os.path.join(SOURCE, ".venv/bin/python3"), sys.executable, "/usr/bin/python3"):
        if os.path.exists(python) and subprocess.run([python, "-c", "import numpy"], capture_output=True,
                                                     check=False).returncode == 0:
            return python
    return None


def test_calls():
    for nranks in (1, 2, 3):
        check_calls(nranks)


def test_calls_with_numpy():
    python = python_with_numpy()
    if python is None:
        check(True, "numpy arrays # SKIP no numpy here")
        return
    check_calls(2, "numpy", python=python)


ENDING = """
import array, os, kolo
comm = kolo.Comm()
comm.barrier()
if comm.rank == 1:
    END
try:
    comm.all_reduce(array.array("f", [1]))
except kolo.PeerError as error:
    print(f"{error.rank} {comm.failure().rank} {error}\\n", end="")
"""


def test_a_rank_that_dies_is_named():
    ran = run(3, "-c", ENDING.replace("END", "os._exit(0)"))
    lines = ran.stdout.splitlines()
    check(len(lines) == 2 and all(line.startswith("1 1 ") and "rank 1 (pid" in line and "died" in line for line in lines),
          "a rank that dies is named in the exception of every other", ran.stdout, ran.stderr)


def test_a_rank_that_ends_says_goodbye():
    ran = run(3, "-c", ENDING.replace("END", "raise SystemExit"))
    lines = ran.stdout.splitlines()
    check(len(lines) == 2 and all(line.startswith("1 1 ") and "left" in line for line in lines),
          "a program that ends with its communicator open has left, and is not dead", ran.stdout, ran.stderr)


def test_without_a_library():
    env = machine_env(PYTHONPATH=os.path.join(SOURCE, "python"), KOLO_LIBRARY="/nowhere/libkolo.so.0")
    ran = subprocess.run([sys.executable, "-c", "import kolo"], capture_output=True, text=True, check=False, env=env)
    check(ran.returncode == 1 and "ImportError: /nowhere/libkolo.so.0" in ran.stderr and "KOLO_LIBRARY" in ran.stderr,
          "an import without the library says what is missing", ran.stderr)


run_tests(globals())
