# SPDX-License-Identifier: Apache-2.0
# covers: perf
"""The sweep programs in the place of nccl-tests: people's command lines, and the programs that read the output.

usage: perf_readers.py KOLO COMMANDS PROGRAM...   (the kolo tool, a file of command lines, the programs)

Each reader here takes the output as a public one does. The rules are facts from these sources:
  table    SuperBench, superbench/benchmarks/micro_benchmarks/cuda_nccl_bw_performance.py
  rows     awslabs' awsome-distributed-training, micro-benchmarks/nccl-tests/nccl_to_csv.py
  average  OCI, oci-hpc playbooks/roles/healthchecks/files/active_healthcheck.py;
           Azure, azurehpc-health-checks customTests/azure_nccl_allreduce.nhc
  calls    nccl-tests 2.19, tools/analyze_perf_json.py
"""
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

from tap import check, done

KOLO, COMMANDS = sys.argv[1:3]
PROGRAMS = {os.path.basename(path): path for path in sys.argv[3:]}
SWEEP = ["-b", "1K", "-e", "64KB", "-f", "8", "-w", "1", "-T", "30"]
SIZES = [1024, 8192, 65536]
ITERS = 6
LIMIT_S = 60


def run(*command):
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return ended.returncode, ended.stdout, ended.stderr


# ---- the readers: each returns the values that it read, and raises if it could not ----

def read_table(text, in_place):
    """{size: (time, algbw, busbw)}: columns are found by the titles, counted from the end of the line."""
    lines = text.splitlines()
    first = max(i for i, line in enumerate(lines) if "out-of-place" in line)
    last = max(i for i, line in enumerate(lines) if "Out of bounds values" in line)
    body = lines[first + 1:last]
    titles = next(line[1:].split() for line in body if "time" in line and "busbw" in line)
    found = {}
    for name in ("time", "algbw", "busbw"):
        places = [i - len(titles) for i, title in enumerate(titles) if title == name]
        found[name] = places[-1 if in_place else 0]
    sizes = {}
    for words in (line.split() for line in body):
        if words and words[0][0].isdigit() and int(words[titles.index("size")]) != 0:
            sizes[int(words[titles.index("size")])] = tuple(
                float(words[found[name]]) for name in ("time", "algbw", "busbw"))
    if not sizes:
        raise ValueError("no row with a size")
    return sizes


NUMBER = r"\s+(\d+\.?\d*)"
HALF = 3 * NUMBER + r"\s+(\d+|N/A)"
ROW = re.compile(r"(\d+)\s+(\d+)\s+(?:float|double|int|half)\s+(?:sum|prod|max|min|none)\s+(-?\d+)" + 2 * HALF)
AVERAGE = re.compile(r"# Avg bus bandwidth\s*:\s*(\d+\.?\d*)")


def read_rows(text):
    """The rows of 13 columns, as ([size, ...] of each, average)."""
    rows = [match.groups() for match in (ROW.match(line.strip()) for line in text.splitlines()) if match]
    if not rows:
        raise ValueError("no row has the 13 columns")
    for row in rows:
        [float(row[k]) for k in (3, 4, 5, 7, 8, 9)]
    return rows, float(AVERAGE.search(text).group(1))


def read_average(status, text):
    """The bandwidth that a health check compares: the sixth word. A program that failed has none."""
    if status != 0 or "FAILED" in text:
        raise ValueError("the program failed")
    return [float(line.split()[5]) for line in text.splitlines() if "Avg bus bandwidth" in line][-1]


def read_calls(report, place):
    """The values that the analyser reads: [(size, slowest process), ...]."""
    found = []
    for result in report["results"]:
        calls = result[place]
        for name in ("min_us", "max_us", "avg_us", "p99_us", "cv_pct"):
            if not calls[name] >= 0:
                raise ValueError(f"{name} is {calls[name]}")
        processes = calls.get("per_process_max_times_us", [])
        slowest = [max(times) for times in zip(*processes)]
        if processes and (len(slowest) != len(calls["times_us"]) or
                          any(abs(a - b) >= 0.001 for a, b in zip(slowest, calls["times_us"]))):
            raise ValueError("times_us are not those of the slowest process")
        means = [sum(times) / len(times) for times in processes]
        [statistics.stdev(times) for times in processes]
        found.append((result["size"], means.index(max(means)) if means else None))
    if len(report["config"]["devices"]) < len(processes) or not report["config"]["devices"][0]["hostname"]:
        raise ValueError("no host for each process")
    return found


def attempt(reader, *arguments):
    """The values that a reader read, and "", or None and the error."""
    try:
        return reader(*arguments), ""
    except (ValueError, KeyError, IndexError, TypeError, StopIteration, AttributeError) as error:
        return None, f"{type(error).__name__}: {error}"


# ---- the checks ----

def texts():
    """The table of every program, by each reader of tables, and that they agree."""
    for name, program in PROGRAMS.items():
        status, text, errors = run(KOLO, "run", "-n", "2", program, *SWEEP, "-n", str(ITERS))
        average, why = attempt(read_average, status, text)
        check(average is not None, f"{name}: a health check finds the bandwidth", why, *errors.splitlines()[-3:])
        rows, why = attempt(read_rows, text)
        sizes = [0] if name == "barrier_perf" else SIZES
        check(rows is not None and len(rows[0]) == len(sizes) and rows[1] == average,
              f"{name}: each row has the 13 columns", why, *text.splitlines()[-8:])
        if name == "barrier_perf":
            continue  # SuperBench has no such operation, and leaves out rows of size 0
        for in_place in (False, True):
            table, why = attempt(read_table, text, in_place)
            columns = slice(7, 10) if in_place else slice(3, 6)
            expected = {int(row[0]): tuple(float(word) for word in row[columns]) for row in rows[0]} if rows else None
            check(table is not None and table == expected,
                  f"{name}: the table is read by its titles, {'' if in_place else 'not '}in place", why,
                  f"{table} is not {expected}")


def report_of(program, *options, ranks):
    """The text and the JSON of a run with the times of single calls."""
    with tempfile.TemporaryDirectory(prefix="kolo-readers-") as folder:
        path = os.path.join(folder, "results.json")
        status, text, errors = run(KOLO, "run", "-n", str(ranks), program, *SWEEP, "-n", str(ITERS), "-I", "1",
                                   "-J", path, *options)
        try:
            with open(path, encoding="utf-8") as file:
                return text, json.load(file)
        except (OSError, ValueError) as error:
            return text, {"results": [], "why": f"status {status}: {error} {errors[-300:]}"}


def calls():
    """The single calls of every program, of two processes with two ranks each."""
    for name, program in PROGRAMS.items():
        text, report = report_of(program, "-g", "2", "-K", "1", ranks=2)
        for place in ("out_of_place_per_iter", "in_place_per_iter"):
            found, why = attempt(read_calls, report, place)
            good = found is not None and len(found) > 0 and all(slowest in (0, 1) for _, slowest in found)
            check(good, f"{name}: the analyser reads {place}", why, report.get("why", ""), str(found))
        if not report["results"]:
            continue
        one = report["results"][0]["in_place_per_iter"]
        check(len(one["times_us"]) == ITERS and one["skipped_iterations"] == 1 and
              abs(one["max_us"] - max(one["times_us"][1:])) < 1e-6 and
              abs(one["avg_us"] - statistics.mean(one["times_us"][1:])) < 1e-3 and
              abs(one["stdev_us"] - statistics.pstdev(one["times_us"][1:])) < 1e-3,
              f"{name}: the statistics are those of the calls but the first", str(one))
        if name != "barrier_perf":
            table, why = attempt(read_table, text, True)
            check(table is not None and len(table) == len(SIZES), f"{name}: the wider table is read by its titles", why)
    _, report = report_of(PROGRAMS["all_reduce_perf"], "-t", "2", ranks=1)
    check(all("per_process_max_times_us" not in result["in_place_per_iter"] for result in report["results"]) and
          report["results"], "one process has no rows of processes", report.get("why", ""))
    members = {"version", "start_time", "args", "env", "nccl_version", "config", "results", "out_of_bounds",
               "average_bus_bandwidth", "errors", "end_time"}
    check(members <= set(report) and report["env"] == [] and report["config"]["parallel_init"] == "false" and
          report["average_bus_bandwidth"]["okay"] == "unchecked" and
          re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", report["start_time"]),
          "-J has the members of nccl-tests", members - set(report))


def command_lines():
    """Each line of COMMANDS runs, cut to a few bytes and calls, or is refused by the option that it names."""
    with open(COMMANDS, encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file if not line.startswith("#")]
    short = ["-b", "8", "-e", "64", "-f", "8", "-n", "1", "-w", "0", "-m", "1", "-N", "1", "-T", "30"]
    taken = 0
    for verdict, command, source in lines:
        name, *options = command.split()
        status, text, errors = run(PROGRAMS[name], *options, *short)
        if verdict == "yes":
            check(status == 0 and "# Avg bus bandwidth" in text, command, source, f"status {status}", errors)
        else:
            check(status == 2 and text == "" and errors.startswith(f"{name}: {verdict}/") and len(errors.split()) > 8,
                  f"{command} is refused by {verdict}, and why", source, f"status {status}", errors)
        taken += status == 0
    check(taken >= 95 and len(lines) == 101, "95 of 101 command lines run", f"{taken} of {len(lines)}")


command_lines()
texts()
calls()
done()
