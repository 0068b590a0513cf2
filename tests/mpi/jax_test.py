# SPDX-License-Identifier: Apache-2.0
# covers: src/mpi/trampoline python/kolo/jax.py
"""libkolo_mpitrampoline.so: its names and calls, and JAX's collectives over it against those over gloo.

usage: jax_test.py KOLO PROGRAM LIBKOLO LIBRARY NAMES
NAMES lists what MPItrampoline looks for, PROGRAM is mpi_trampoline. The parts that need JAX are skipped where ./setup --jax has not
been run.
"""
import ctypes
import os
import pathlib
import socket
import subprocess
import sys

import tap

KOLO, PROGRAM, LIBKOLO, LIBRARY, NAMES = (os.path.abspath(path) for path in sys.argv[1:])
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PYTHON = ROOT / ".venv-jax/bin/python"
RANKS_PY = str(pathlib.Path(__file__).with_name("jax_ranks.py"))
LIMIT_S = 200
DEADLINE_MS = 3000


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run(ranks, what, **more):
    """What each process of a job printed."""
    job = str(free_port())
    started = []
    for rank in range(ranks):
        env = {name: value for name, value in os.environ.items() if not name.startswith(("KOLO_", "JAX_"))}
        env |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "COORDINATOR": "127.0.0.1:" + job, "COLLECTIVES": "mpi",
                "PYTHONDONTWRITEBYTECODE": "1", "KOLO_TUNE_FILE": "none", "MPITRAMPOLINE_LIB": LIBRARY,
                "KOLO_RANK": str(rank), "KOLO_NRANKS": str(ranks), "KOLO_JOB": "jax" + job, **more}
        env = {name: value for name, value in env.items() if value is not None}
        started.append(subprocess.Popen([PYTHON, RANKS_PY, what], env=env, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    return [end(process, is_stopped=what in ("late", "early") and 0 < rank) for rank, process in enumerate(started)]


def end(process, is_stopped):
    """What a process printed. One that has stopped itself is killed first."""
    try:
        if is_stopped:
            process.kill()
        return process.communicate(timeout=LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        return f"no end within {LIMIT_S} s"
    finally:
        process.kill()
        process.wait()


def told(output):
    return [line for line in output.splitlines() if line.startswith("TOLD ")]


def test_1_names():
    names = pathlib.Path(NAMES).read_text(encoding="utf-8").split()
    library, libkolo = ctypes.CDLL(LIBRARY), ctypes.CDLL(LIBKOLO)
    missing = [name for name in names if not hasattr(library, name)]
    tap.check(not missing, f"the library has all {len(names)} names that MPItrampoline looks for", missing)
    table = subprocess.run(["readelf", "-Wd", LIBRARY], capture_output=True, text=True, check=True).stdout
    tap.check("libmpi" not in table, "the library needs no MPI", table)
    tap.check(not any(name.startswith("MPI") and hasattr(libkolo, name) for name in names),
              "libkolo has none of these names")


def test_2_lacking():
    call = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).MPIABI_Win_create()"
    ended = subprocess.run([sys.executable, "-c", call, LIBRARY], capture_output=True, text=True, check=False)
    tap.check(ended.returncode == 1 and "MPI_Win_create is not in libkolo_mpitrampoline.so" in ended.stderr,
              "a call that JAX never makes ends the process with a sentence", ended)


def test_2_program():
    for ranks in (3, 4):
        ended = subprocess.run([KOLO, "run", "-n", str(ranks), PROGRAM], capture_output=True, text=True, timeout=LIMIT_S,
                               check=False)
        tap.check(ended.returncode == 0 and ended.stdout.count("right") == ranks,
                  f"what XLA calls does what MPI does, {ranks} ranks", ended)


def test_3_equal():
    for ranks in (2, 4):
        kolos, gloos = run(ranks, "equal"), run(ranks, "equal", COLLECTIVES="gloo")
        for rank, (kolo, gloo) in enumerate(zip(kolos, gloos)):
            differ = [pair for pair in zip(told(kolo), told(gloo)) if pair[0] != pair[1]]
            whole = len(told(kolo)) == len(told(gloo)) and "TOLD end" in told(kolo)
            tap.check(whole and not differ, f"{ranks} processes: JAX's collectives on all types are those of gloo, "
                      f"process {rank}", differ[:5], kolo[-2000:] if not whole else "")


def test_4_stopped():
    for what, name in (("late", "a collective"), ("early", "the making of a communicator")):
        first, last = run(2, what, KOLO_TIMEOUT_MS=str(DEADLINE_MS))
        text = " ".join(told(first))
        tap.check("TOLD ready" in last and f"waited {DEADLINE_MS} ms" in text and "for rank 1 " in text,
                  f"a stopped process ends {name} at the deadline, with its rank", first, last)


def test_5_joined():
    alone = {"KOLO_RANK": None, "KOLO_NRANKS": None, "KOLO_JOB": None, "MPITRAMPOLINE_LIB": None, "KOLO_LIBRARY": LIBKOLO,
             "PYTHONPATH": str(ROOT / "python")}
    ended = run(2, "joined", **alone)
    sums = [told(output) for output in ended]
    tap.check(len(sums[0]) == 1 and sums[0] == sums[1] != [], "processes without a launcher meet by kolo.jax.join()",
              ended)


def test_6_alone():
    ended = run(1, "late", KOLO_RANK=None, KOLO_NRANKS=None, KOLO_JOB=None)
    tap.check("no launcher has started this process" in ended[0], "a process without a launcher says how to start it",
              ended)


if not PYTHON.exists():
    test_1_names()
    test_2_lacking()
    test_2_program()
    tap.check(True, "JAX's collectives are those of gloo # SKIP JAX is not installed: ./setup --jax")
    tap.done()
tap.run_tests(globals())
