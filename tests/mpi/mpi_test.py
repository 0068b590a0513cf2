# SPDX-License-Identifier: Apache-2.0
# covers: src/mpi tools/run/mpi.c
"""Programs of MPI whose collectives go to kolo, started by `kolo run --mpi`.

usage: mpi_test.py KOLO [NAME:FOLDER[:PROGRAM]...]...

Each entry is an MPI library: its name, the folder where it is installed ("": the system's), and its
programs, mpi_*_NAME. Without programs it is Intel MPI, which runs those of MPICH.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

import tap

KOLO = os.path.abspath(sys.argv[1])
ENTRIES = [entry.split(":") for entry in sys.argv[2:]]
LONG = bool(os.environ.get("KOLO_TEST_FULL"))
LIMIT_S = 120
LONG_BYTES = 1 << 16  # of a trial, in src/mpi/choice.c
# No rank reads another's memory: then a message of some size needs both ranks' help.
NO_SINGLE_COPIES = {"OMPI_MCA_smsc": "^cma,knem,xpmem", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
                    "MPIR_CVAR_CH4_CMA_ENABLE": "0"}


def mpis():
    """(name, command before the number of ranks, environment, programs) of each library."""
    programs = {}
    for name, folder, *paths in ENTRIES:
        command, env = [shutil.which("mpirun.openmpi") or shutil.which("mpirun")], {}
        if folder:
            command = [os.path.join(folder, "bin", "mpirun")]
            env = {"LD_LIBRARY_PATH": os.path.join(folder, "lib"),
                   "PATH": os.path.join(folder, "bin") + os.pathsep + os.environ["PATH"]}
        if paths:
            programs[name] = {os.path.basename(path).split("_")[1]: path for path in paths}
        else:  # Intel MPI
            command += ["-launcher", "fork"]
            env |= {"I_MPI_ROOT": folder, "I_MPI_FABRICS": "shm", "I_MPI_PIN": "0"}
        if "open" in name.lower():
            command += ["--oversubscribe", "--bind-to", "none"]
            env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if command[0] and os.path.exists(command[0]):
            yield name, command, env, programs.get(name) or programs.get("mpich")


def run(mpi, ranks, program, *args, kolo=True, options=(), **env):
    """Status and output of a job; None as its status: it hung."""
    _, command, its_env, _ = mpi
    command = [*command, *options, "-n", str(ranks), *([KOLO, "run", "--mpi"] if kolo else []), program, *args]
    try:
        ran = subprocess.run(command, env={**os.environ, **its_env, **env}, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, errors="replace", timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired as expired:
        return None, (expired.stdout or b"").decode(errors="replace")
    return ran.returncode, ran.stdout


def said(word, out):
    """Whether a rank printed a word. A launcher may put the next line of another rank right behind it."""
    return re.search("^" + word, out, re.MULTILINE) is not None


def test_progress(mpi, program):
    status, out = run(mpi, 2, program, KOLO_MPI="all", **NO_SINGLE_COPIES)
    tap.check((status, out.strip()) == (0, "right"), f"{mpi[0]}: a wait in a collective lets messages move",
              str(status), *out.splitlines()[-5:])


def test_same(mpi, program):
    for ranks, rounds in ((1, "10"), (2, "200"), (3, "100")) if not LONG else ((2, "3000"), (3, "1000"), (4, "500")):
        status, out = run(mpi, ranks, program, "1", rounds)
        tap.check((status, out.strip()) == (0, "same"),
                  f"{mpi[0]}: random collectives of {ranks} ranks give what MPI's own give", str(status),
                  *out.splitlines()[-5:])


def test_all(mpi, program):
    status, out = run(mpi, 3, program, "2", "1000" if LONG else "100", KOLO_MPI="all", KOLO_DEBUG="INFO")
    tap.check(status == 0 and said("same", out) and "Alltoallv -> kolo" in out and "Gatherv -> kolo" in out,
              f"{mpi[0]}: so do those that kolo serves if it is told to", str(status), *out.splitlines()[-5:])


def test_log(mpi, program):
    status, out = run(mpi, 2, program, "1", "60", KOLO_DEBUG="INFO")
    tap.check(status == 0 and "of MPI_COMM_WORLD: Allreduce -> kolo" in out,
              f"{mpi[0]}: the log says which calls go to kolo", *out.splitlines()[-5:])
    tap.check("-> MPI: an inter-communicator" in out and "-> MPI: kolo has no such operation" in out,
              f"{mpi[0]}: the log says which calls go to MPI, and why")
    status, out = run(mpi, 2, program, "1", "60", KOLO_DEBUG="INFO", KOLO_MPI="off")
    tap.check(status == 0 and said("same", out) and "-> kolo" not in out, f"{mpi[0]}: KOLO_MPI=off leaves all calls to MPI",
              *out.splitlines()[-5:])


def test_file(mpi, program):
    with tempfile.TemporaryDirectory(prefix="mpi-test-") as folder:
        status, out = run(mpi, 2, program, KOLO_DEBUG="INFO", KOLO_DEBUG_FILE=folder + "/%p")
        logs = []
        for path in glob.glob(folder + "/*"):
            with open(path, encoding="utf-8") as file:
                logs.append(file.read())
    tap.check((status, out.strip()) == (0, "right") and len(logs) == 2 and all("Allreduce -> kolo" in log for log in logs),
              f"{mpi[0]}: the log goes to the file of KOLO_DEBUG_FILE", str(status), *out.splitlines()[-5:])


def test_memory(mpi, program):
    status, out = run(mpi, 3, program)
    tap.check((status, out.strip()) == (0, "right"), f"{mpi[0]}: if one rank lacks memory, all decide alike",
              str(status), *out.splitlines()[-5:])


def test_mixture(mpi, program):
    status, out = run(mpi, 3, program, "1", "2000" if LONG else "200", **NO_SINGLE_COPIES)
    tap.check((status, out.strip()) == (0, "right"), f"{mpi[0]}: random messages and collectives end, and are right",
              str(status), *out.splitlines()[-5:])


def test_choice(mpi, program):
    for ranks in (2, 3):
        status, out = run(mpi, ranks, program, KOLO_DEBUG="INFO")
        tried = set(re.findall(r"calls of (\w+) -> MPI: a trial", out))
        tap.check(status == 0 and said("right", out) and tried == {"Bcast", "Alltoall"},
                  f"{mpi[0]}: calls that move data are tried by kolo and by MPI, {ranks} ranks", str(status),
                  *out.splitlines()[-5:])
        trials = [(int(size), int(parts)) for size, parts in re.findall(r"of (\d+) bytes, (\d+) parts: kolo", out)]
        tap.check(any(size >= LONG_BYTES for size, _ in trials) and any(size < LONG_BYTES for size, _ in trials) and
                  all(3 <= parts <= 5 if size >= LONG_BYTES else parts == 5 for size, parts in trials),
                  f"{mpi[0]}: a trial of short calls has all parts, one of long calls three at least, {ranks} ranks",
                  str(sorted(set(trials))))


def test_killed(mpi, program):
    """Not with MPICH: its launcher may end the others before they can tell, and leaves its shared memory."""
    is_open = "open" in mpi[0].lower()
    option = "--enable-recovery" if is_open else "-disable-auto-cleanup"
    with tempfile.TemporaryDirectory(prefix="mpi-test-") as folder:
        status, out = run(mpi, 3, program, folder, options=[option])
        told = {}
        for path in glob.glob(folder + "/*"):
            with open(path, encoding="utf-8") as file:
                told[os.path.basename(path)] = file.read()
    right = all(re.search(r"^kolo: .*\brank 2 \(pid \d+\) ", text) for text in told.values())
    tap.check(status is not None and right and sorted(told) == ["0", "1"],
              f"{mpi[0]}: after a rank's death, the error of the others names it", str(status), *told.values(),
              *out.splitlines()[-5:])


def test_fortran(mpi, program):
    for ranks in (2, 3):
        status, out = run(mpi, ranks, program, KOLO_MPI="all", KOLO_DEBUG="INFO")
        served = set(re.findall(r"calls of (\w+) -> kolo", out))
        tap.check(status == 0 and said("right", out) and "-> MPI" not in out and len(served) == 14,
                  f"{mpi[0]}: the 14 collectives of a Fortran program go to kolo, with {ranks} ranks", str(status),
                  " ".join(sorted(served)), *out.splitlines()[-5:])


def test_command():
    ran = subprocess.run([KOLO, "run", "--mpi", KOLO, "env"], capture_output=True, text=True, check=False)
    tap.check(ran.returncode == 126 and "is not linked with an MPI library" in ran.stderr,
              "kolo run --mpi refuses a program without MPI", ran.stderr)
    ran = subprocess.run([KOLO, "run", "--mpi=/lib/libfoo.so", KOLO], capture_output=True, text=True, check=False)
    tap.check(ran.returncode == 126 and "the name must begin with" in ran.stderr,
              "kolo run --mpi refuses the name of another library", ran.stderr)
    ran = subprocess.run([KOLO, "run", "--mpi", "-n", "2", KOLO], capture_output=True, text=True, check=False)
    tap.check(ran.returncode == 2 and "mpirun starts the ranks" in ran.stderr,
              "kolo run --mpi leaves the ranks to mpirun", ran.stderr)


def main():
    found = [mpi for mpi in mpis() if mpi[3]]
    if not found:
        print("1..0 # SKIP no MPI library with its header and its mpirun is installed")
        return 0
    test_command()
    for mpi in found:
        test_progress(mpi, mpi[3]["progress"])
        test_same(mpi, mpi[3]["same"])
        test_all(mpi, mpi[3]["same"])
        test_log(mpi, mpi[3]["same"])
        test_file(mpi, mpi[3]["memory"])
        test_memory(mpi, mpi[3]["memory"])
        test_mixture(mpi, mpi[3]["mixture"])
        test_choice(mpi, mpi[3]["choice"])
        if mpi[0] != "mpich":
            test_killed(mpi, mpi[3]["killed"])
        if "fortran" in mpi[3]:
            test_fortran(mpi, mpi[3]["fortran"])
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
