# SPDX-License-Identifier: Apache-2.0
# covers: perf
"""The sweep programs as a user starts them: processes under `kolo run`, and threads of one process.

usage: perf_sweep.py KOLO PROGRAM...   (the kolo tool, and the programs)
"""
import json
import os
import subprocess
import sys
import tempfile

from tap import check, done

KOLO, PROGRAMS = sys.argv[1], {os.path.basename(path): path for path in sys.argv[2:]}
RANKS = 3
RANKS_OF = {"hypercube_perf": 4}  # a power of two
SWEEP = ["-b", "8", "-e", "64K", "-f", "8", "-n", "2", "-T", "30"]
SWEEP_BYTES = [8, 64, 512, 4096, 32768]
LIMIT_S = 120


def run(*command, **environment):
    """Exit status and text of a command; an endless one is a failure that says so."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False,
                               env={**os.environ, **environment})
        return ended.returncode, ended.stdout, ended.stderr
    except subprocess.TimeoutExpired as late:
        table, errors = (bytes(text or b"").decode() for text in (late.stdout, late.stderr))
        return None, table, f"{errors}still running after {LIMIT_S} s"


def processes(name, *options, ranks=RANKS, **environment):
    """The program as `ranks` processes."""
    return run(KOLO, "run", "-n", str(ranks), PROGRAMS[name], *options, **environment)


def lines(table, errors):
    """The ends of both, for a check that failed."""
    return table.splitlines()[-20:] + errors.splitlines()[-10:]


def rows(table):
    """The columns of each row of a table."""
    return [line.split() for line in table.splitlines() if line and not line.startswith("#")]


def halves(row):
    """The columns of a row's two halves: five columns stand before them, and with -S two behind."""
    columns = [word for word in row[5:] if "-" not in word and ":" not in word]
    return columns[:len(columns) // 2], columns[len(columns) // 2:]


def all_right(table):
    """Whether no row has a wrong element: the fourth column of both halves."""
    return all(half[3] == "0" for row in rows(table) for half in halves(row))


def finds_nothing_wrong(result, expected_rows, name):
    """One check: exit status 0, the rows that were asked for, every element right."""
    status, table, errors = result
    good = status == 0 and all_right(table) and "Out of bounds values : 0 OK" in table
    check(good and len(rows(table)) == expected_rows, name, f"status {status}",
          *lines(table, errors))


def sweeps():
    """Sizes from 8 B to 64 KiB, by processes and by threads, and all types and operations at one size."""
    for name in PROGRAMS:
        ranks = RANKS_OF.get(name, RANKS)
        expected = 1 if name == "barrier_perf" else len(SWEEP_BYTES)
        finds_nothing_wrong(processes(name, *SWEEP, ranks=ranks), expected,
                            f"{name} is right on {ranks} processes from 8 B to 64 KiB")
        for threads in (1, ranks):
            finds_nothing_wrong(run(PROGRAMS[name], "-t", str(threads), *SWEEP), expected,
                                f"{name} is right on {threads} threads from 8 B to 64 KiB")
        status, table, errors = processes(name, "-b", "1K", "-e", "1K", "-n", "1", "-d", "all", "-o", "all",
                                          "-r", "all", ranks=ranks)
        check(status == 0 and rows(table) and all_right(table), f"{name} is right with every type, operation and root",
              f"status {status}", *lines(table, errors))
    status, table, errors = processes("hypercube_perf", *SWEEP)
    check(status == 0 and not rows(table) and "not a power of 2" in table,
          f"hypercube_perf measures nothing on {RANKS} processes", f"status {status}", *lines(table, errors))


def threads_of_processes():
    """-t and -g: each thread is a rank, of one process or of several."""
    for options, ranks in ((["-g", "4"], 4), (["-t", "2", "-g", "3"], 6), (["-g", "3", "-p", "1"], 3)):
        result = run(PROGRAMS["all_reduce_perf"], *SWEEP, *options)
        finds_nothing_wrong(result, len(SWEEP_BYTES), f"one process is right with {' '.join(options)}")
        check(result[1].count("#  Rank ") == ranks, f"{' '.join(options)} makes {ranks} ranks", *lines(*result[1:]))
    for name in ("all_reduce_perf", "alltoallv_perf", "broadcast_perf"):
        result = processes(name, *SWEEP, "-t", "2", ranks=2)
        finds_nothing_wrong(result, len(SWEEP_BYTES), f"{name} is right with two threads of two processes")
        devices = [line.split() for line in result[1].splitlines() if line.startswith("#  Rank ")]
        pids = [words[words.index("Pid") + 1] for words in devices]
        check(len(pids) == 4 and pids[0] == pids[1] != pids[2] == pids[3], "the threads of a process are neighbours",
              *pids)


def ways_of_timing():
    """Options that change how calls are made and timed, not what they do."""
    for options in (["-z", "1"], ["-I"], ["--vary"], ["--shared"], ["--stream"], ["--deterministic"],
                    ["-m", "3"], ["-a", "3", "-N", "2", "-c", "3"]):
        for name in ("all_reduce_perf", "alltoall_perf", "sendrecv_perf"):
            repeated = 2 if "-N" in options else 1
            finds_nothing_wrong(processes(name, *SWEEP, *options), repeated * len(SWEEP_BYTES),
                                f"{name} is right with {' '.join(options)}")
    for options in (["-z", "2", "-u", "3"], ["-z", "3", "-m", "2", "-y", "1"], ["-I", "1", "-K", "1", "-S", "1"],
                    ["--stream", "-z", "2", "-R", "1"], ["--stream", "-C", "1", "-R", "2", "-u", "1"]):
        finds_nothing_wrong(processes("sendrecv_perf", *SWEEP, *options), len(SWEEP_BYTES),
                            f"sendrecv_perf is right with {' '.join(options)}")
    finds_nothing_wrong(processes("hypercube_perf", *SWEEP, "--stream", ranks=4), len(SWEEP_BYTES),
                        "hypercube_perf is right with --stream")


def shortest_us(*options):
    """The root's time of a broadcast, at its best: it waits for nobody."""
    times = []
    for _ in range(3):
        table = processes("broadcast_perf", "-b", "8", "-e", "8", "-n", "500", "-c", "0", "-a", "0", *options)[1]
        rows = [line.split() for line in table.splitlines() if line.split()[:1] == ["8"]]
        times += [float(row[at]) for row in rows for at in (5, 9)]
    return min(times, default=0)


def barriers_in_the_time():
    """As in nccl-tests: -z 1 counts the barrier after each call, -z 3 does not count the one before it."""
    for _ in range(10):  # other programs may have disturbed one
        alone, with_barrier, after_barrier = (shortest_us("-z", z) for z in ("2", "1", "3"))
        if with_barrier > 1.5 * max(alone, after_barrier) > 0:
            break
    check(with_barrier > 1.5 * max(alone, after_barrier) > 0, "the time of -z 1 includes barriers, that of -z 3 does not",
          f"-z 1 {with_barrier} us, -z 2 {alone} us, -z 3 {after_barrier} us")


def refused():
    """What must not run."""
    for name in PROGRAMS:
        status, table, errors = processes(name, "-n", "many")
        check(status == 2 and table == "" and "-n/--iters" in errors and "many" in errors,
              f"{name} exits 2 at a bad option and measures nothing", f"status {status}", *lines(table, errors))
    for options, word in ((["-r", "3"], "-r/--root"), (["-G", "2"], "-G/--cudagraph")):
        status, table, errors = processes("broadcast_perf", *SWEEP, *options)
        check(status == 2 and table == "" and word in errors,
              f"{' '.join(options)} is refused on {RANKS} processes", f"status {status}", *lines(table, errors))
    status, table, _ = processes("all_reduce_perf", *SWEEP, KOLO_TESTS_MIN_BW="1000000")
    check(status == 7 and "FAILED" in table, "a sweep slower than KOLO_TESTS_MIN_BW exits 7",
          f"status {status}", *table.splitlines()[-5:])
    status, table, errors = processes("all_reduce_perf", *SWEEP, KOLO_TESTS_MIN_BW="fast")
    check(status == 2 and table == "" and 'KOLO_TESTS_MIN_BW is "fast"' in errors,
          "a KOLO_TESTS_MIN_BW that is no number is refused", f"status {status}", *lines(table, errors))


def as_json():
    """The file of -J holds what the table shows, and nothing of the environment."""
    with tempfile.TemporaryDirectory(prefix="kolo-perf-") as folder:
        path = os.path.join(folder, 'odd "name"\n.json')
        status, table, errors = processes("all_reduce_perf", *SWEEP, "-J", path, PERF_SECRET="do-not-tell")
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
            report = json.loads(text)
        except (OSError, ValueError) as error:
            check(False, "-J writes JSON", f"status {status}", error, *lines("", errors))
            return
    check(report["version"] == 3 and path in report["args"], "-J writes JSON, odd names escaped")
    check(report["env"] == [] and "do-not-tell" not in text, "-J keeps the environment to itself")
    sizes = [result["size"] for result in report["results"]]
    check(sizes == SWEEP_BYTES == [int(row[0]) for row in rows(table)], "-J has the rows of the table", sizes)
    check([device["rank"] for device in report["config"]["devices"]] == list(range(RANKS)),
          "-J lists the ranks")
    check(all(result["in_place"]["nwrong"] == 0 for result in report["results"]), "-J says what was wrong")


sweeps()
threads_of_processes()
ways_of_timing()
barriers_in_the_time()
refused()
as_json()
done()
