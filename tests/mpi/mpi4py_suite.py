# SPDX-License-Identifier: Apache-2.0
# covers: src/mpi tools/run/mpi.c
"""The tests of mpi4py, with and without kolo: each must end alike on every rank.

usage: mpi4py_suite.py KOLO [options]
  --mpi NAME,...  of openmpi, mpich and impi, as ./setup --mpi-tests installs them (all three)
  -n N,...        numbers of ranks (2)
  -i REGEX        files of tests (all)
  -x PATTERN      tests that are left out; may be given again
  --limit S       seconds of a file of tests, after which it counts as hung (300); the next run begins behind it
  --only WHICH    "with" or "without" kolo: no comparison
  --tap           print the results as TAP

It prints the tests that ended differently, and how many calls went to kolo and to MPI.
"""
import argparse
import collections
import glob
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PYTHON = os.path.join(ROOT, ".venv-mpi/bin/python3")
TESTS = os.path.join(ROOT, ".venv-mpi/mpi4py/test")
LIBRARY = {"openmpi": "libmpi.so.40", "mpich": "libmpi.so.12", "impi": "libmpi.so.12"}


# ---- on each rank ----


class Result(unittest.TestResult):
    """Writes how each test begins and ends to a file, at once: the process may not live to the end."""

    def __init__(self, path):
        super().__init__()
        self.file = open(path, "w", encoding="utf-8", buffering=1)
        self.how = ""

    def note(self, test, how):
        self.how = how
        print(how, test.id(), file=self.file)

    def startTest(self, test):
        super().startTest(test)
        self.note(test, "begins")

    def stopTest(self, test):
        super().stopTest(test)
        print("ends", test.id(), file=self.file)

    def addSuccess(self, test):
        super().addSuccess(test)
        if self.how == "begins":
            self.note(test, "passed")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note(test, "failed")

    def addError(self, test, err):
        super().addError(test, err)
        self.note(test, "failed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skipped")

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.note(test, "failed")


class Runner:
    def __init__(self, folder):
        self.folder = folder

    def run(self, tests):
        from mpi4py import MPI
        result = Result(os.path.join(self.folder, f"rank.{MPI.COMM_WORLD.Get_rank()}"))
        tests(result)
        for test, text in result.failures + result.errors:
            print(test.id(), text, file=sys.stderr)
        return result


def be_rank(folder, args):
    sys.dont_write_bytecode = True
    sys.path.insert(0, TESTS)
    import main
    main.main(module=None, argv=["main", "--no-builddir", *args], testRunner=Runner(folder))


# ---- the comparison ----


def start(mpi, ranks, kolo):
    """The command that starts ranks of Python, and the environment."""
    folder = os.path.join(ROOT, ".venv-peers", mpi)
    library = os.path.join(folder, "lib", LIBRARY[mpi])
    env = {**os.environ, "LD_LIBRARY_PATH": os.path.join(folder, "lib"), "MPI4PY_LIBMPI": library,
           "PATH": os.path.join(folder, "bin") + os.pathsep + os.environ["PATH"]}
    command = [os.path.join(folder, "bin/mpirun")]
    if mpi == "openmpi":
        command += ["--oversubscribe", "--bind-to", "none"]
        env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    # Ranks of MPICH and Intel MPI yield on busy cores.
    if mpi == "mpich":
        env |= {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1", "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1"}
    if mpi == "impi":
        command += ["-launcher", "fork"]
        env |= {"I_MPI_ROOT": folder, "I_MPI_FABRICS": "shm", "I_MPI_PIN": "0", "I_MPI_THREAD_YIELD": "3"}
    return [*command, "-n", str(ranks), *([kolo, "run", "--mpi=" + library] if kolo else []), PYTHON], env


def read(folder, ranks):
    """{(test, rank): how it ended}; a test that began and did not end is "open"."""
    ended = {}
    for rank in range(ranks):
        try:
            with open(os.path.join(folder, f"rank.{rank}"), encoding="utf-8") as file:
                lines = file.read().splitlines()
        except OSError:
            lines = []
        for line in lines:
            how, test = line.split(" ", 1)
            if how == "begins":
                ended[test, rank] = "open"
            elif how != "ends" and ended.get((test, rank)) != "failed":
                ended[test, rank] = how
    return ended


def count_calls(folder):
    calls = collections.Counter()
    for path in glob.glob(folder + "/log.*"):
        with open(path, encoding="utf-8", errors="replace") as file:
            for number, name, where in re.findall(r"MPI : rank \d+: (\d+) calls of (\w+) -> (.*)", file.read()):
                calls[name, where] += int(number)
    return calls


def file_of(test):
    return re.search(r"\btest_\w+", test)[0]


def current_file(folder, ranks, files):
    """The first file of tests in which a rank is, or None before the first test of all."""
    at = []
    for rank in range(ranks):
        try:
            with open(os.path.join(folder, f"rank.{rank}"), "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 1000))
                at.append(file_of(file.read().decode().splitlines()[-1]))
        except (OSError, IndexError):
            return None
    return min(at, key=files.index)


def end(job):
    """None of the job's processes is left."""
    job.terminate()  # the launcher ends ranks in process groups of their own
    try:
        job.wait(10)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(job.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    job.wait()


def wait(job, limit_s, current):
    """A sentence if the job did not come to its end: it ended, or current() stayed the same for the limit.
    Whoever stops this process, stops the job too: a longer time between two looks does not count."""
    file, waited_s, last = None, 0, time.monotonic()
    try:
        while job.poll() is None:
            seen, now = current(), time.monotonic()
            waited_s = waited_s + min(now - last, 1) if seen == file else 0
            file, last = seen, now
            if waited_s > limit_s:
                return f"hung: no end after {limit_s:g} s"
            time.sleep(0.2)
        return "" if job.returncode in (0, 1) else f"ended with status {job.returncode}"
    finally:
        end(job)


class Outcome:
    def __init__(self):
        self.ended = {}  # (test, rank): how it ended
        self.calls = collections.Counter()  # (call, where): number
        self.trouble = {}  # file of tests: a sentence, if the run did not come to the end of it
        self.tails = []

    def summary(self):
        count = collections.Counter(self.ended.values())
        text = ", ".join(f"{count[how]} {how}" for how in ("passed", "failed", "skipped", "open") if count[how])
        return "; ".join([text, *(f"{file} {how}" for file, how in self.trouble.items())])

    def lines(self, name):
        yield f"{name} kolo, tests of all ranks: {self.summary()}"
        for test, rank in sorted(key for key, how in self.ended.items() if how == "open"):
            yield f"  rank {rank} was in {test}"
        for line in self.tails:
            yield "  " + line
        for (call, where), number in sorted(self.calls.items()):
            yield f"  {number:8} {call} -> {where}"
        if self.calls:
            to_kolo = sum(number for (_, where), number in self.calls.items() if where == "kolo")
            yield f"  {to_kolo} calls to kolo, {self.calls.total() - to_kolo} to MPI"


def run_files(mpi, ranks, options, kolo, files, outcome):
    """The files that are left: those behind the one in which the run was cut off."""
    with tempfile.TemporaryDirectory(prefix="mpi4py-suite-") as folder:
        command, env = start(mpi, ranks, kolo)
        env |= {"KOLO_DEBUG": "INFO", "KOLO_DEBUG_FILE": folder + "/log.%p", "KOLO_TUNE_FILE": "none"}
        args = ["-i", rf"^({'|'.join(files)})\.py$", *(arg for pattern in options.exclude for arg in ("-x", pattern))]
        with open(folder + "/out", "w+", encoding="utf-8", errors="replace") as out:
            job = subprocess.Popen([*command, __file__, "--rank", folder, *args], env=env, stdout=out,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)
            trouble = wait(job, options.limit, lambda: current_file(folder, ranks, files))
            out.seek(0)
            outcome.tails += out.read().splitlines()[-8:] if trouble else []
        outcome.calls += count_calls(folder)
        ended = read(folder, ranks)
        last = current_file(folder, ranks, files) if trouble else None
        if trouble:
            outcome.trouble[last or files[0]] = trouble
        left = files[files.index(last) + 1:] if last else []
        outcome.ended |= {key: how for key, how in ended.items() if file_of(key[0]) not in left}
        return left


def run(mpi, ranks, options, kolo):
    """A file that is cut off costs only itself: the next run begins behind it."""
    files = sorted(os.path.basename(path)[:-3] for path in glob.glob(TESTS + "/test_*.py"))
    files = [file for file in files if re.search(options.include or "", file + ".py")]
    outcome = Outcome()
    while files:
        files = run_files(mpi, ranks, options, kolo, files, outcome)
    return outcome


def differences(without, over):
    """Tests that did not end alike. A file that was cut off without kolo tells only of the tests that ended."""
    for key in sorted(without.ended.keys() | over.ended.keys()):
        ways = [outcome.ended.get(key) for outcome in (without, over)]
        cut_off = file_of(key[0]) in without.trouble and any(how in (None, "open") for how in ways)
        if ways[0] != ways[1] and not cut_off:
            yield f"{key[0]} on rank {key[1]}: {ways[0]} without kolo, {ways[1]} with it"
    for file in over.trouble.keys() - without.trouble.keys():
        yield f"{file} {over.trouble[file]} with kolo only"


def compare(mpi, ranks, options):
    """Whether all tests ended alike; and lines that tell."""
    print(f"# {mpi}, {ranks} ranks", flush=True)
    lines, runs = [], {}
    for name, kolo in (("without", None), ("with", options.kolo)):
        if options.only in (None, name):
            runs[name] = run(mpi, ranks, options, kolo)
            lines += runs[name].lines(name)
    if options.only:
        return bool(runs[options.only].ended) and not runs[options.only].trouble, lines
    without, over = runs["without"], runs["with"]
    lines += [f"{test} on rank {rank} failed in both" for (test, rank), how in sorted(without.ended.items())
              if how == over.ended.get((test, rank)) == "failed"]
    different = list(differences(without, over))
    used = ranks == 1 or bool(over.trouble) or any(where == "kolo" for _, where in over.calls)
    return not different and used and bool(over.ended), lines + different


def stop(*_):
    """End the job, too. timeout(1) sends its signal twice, and the second must not keep the job alive."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def main():
    if sys.argv[1:2] == ["--rank"]:
        return be_rank(sys.argv[2], sys.argv[3:])
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n", 1)[1])
    parser.add_argument("kolo", type=os.path.abspath)
    parser.add_argument("--mpi", default="openmpi,mpich,impi")
    parser.add_argument("-n", dest="ranks", default="2")
    parser.add_argument("-i", dest="include")
    parser.add_argument("-x", dest="exclude", action="append", default=[])
    parser.add_argument("--limit", type=float, default=300)
    parser.add_argument("--only", choices=("with", "without"))
    parser.add_argument("--tap", action="store_true")
    options = parser.parse_args()
    if not os.path.isdir(TESTS):
        print("1..0 # SKIP mpi4py is not installed (./setup --mpi-tests)")
        return 0
    cases = [(mpi, int(n)) for mpi in options.mpi.split(",") for n in options.ranks.split(",")
             if os.path.exists(os.path.join(ROOT, ".venv-peers", mpi, "bin/mpirun"))]
    signal.signal(signal.SIGTERM, stop)
    failed = 0
    for number, (mpi, ranks) in enumerate(cases, 1):
        good, lines = compare(mpi, ranks, options)
        failed += not good
        if options.tap:
            print(f"{'ok' if good else 'not ok'} {number} - {mpi}: mpi4py's tests end alike with and without kolo, "
                  f"{ranks} ranks")
        print("\n".join(("# " if options.tap else "") + line for line in lines), flush=True)
    if options.tap:
        print(f"1..{len(cases)}" + ("" if cases else " # SKIP no MPI library is installed (./setup --mpi-tests)"))
    else:
        print(f"{len(cases) - failed} of {len(cases)} alike")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
