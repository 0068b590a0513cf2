# SPDX-License-Identifier: Apache-2.0
# covers: tools src/core/setup/tune_table.c
"""`kolo tune` and the tables it writes, as a user meets them.

usage: tune_test.py KOLO ALL_REDUCE_PERF   (the kolo tool, and the sweep program)
"""
import os
import re
import subprocess
import sys
import tempfile
import time

from tap import check, done

KOLO, PERF = sys.argv[1:]
LIMIT_S = 120
HEAD = "kolo-table 1\nmachine any\n"


def run(*command, **environment):
    """Exit status and text of a command; an endless one is a failure that says so."""
    clean = {name: value for name, value in os.environ.items() if name not in ("KOLO_TUNE_FILE", "KOLO_ALGO")}
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False,
                               env={**clean, "XDG_CONFIG_HOME": FOLDER, **environment})
        return ended.returncode, ended.stdout, ended.stderr
    except subprocess.TimeoutExpired as late:
        texts = [bytes(text or b"").decode() for text in (late.stdout, late.stderr)]
        return None, texts[0], f"{texts[1]}still running after {LIMIT_S} s"


def write(name, text):
    """A file in the folder of this test."""
    path = os.path.join(FOLDER, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def read(path):
    """The text of a file, or what is wrong with it."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        return str(error)


def sweep(ranks, *options, **environment):
    """The sweep program on some sizes, with what the log says of choices."""
    return run(KOLO, "run", "-n", str(ranks), PERF, "-b", "64", "-e", "256K", "-f", "64", "-n", "2", *options,
               KOLO_DEBUG="INFO", KOLO_DEBUG_SUBSYS="TUNE", **environment)


def failures(ranks, path):
    """What each of the ranks says, when all are let end by themselves; rank 0 is given the table."""
    script = f'[ "$KOLO_RANK" = 0 ] || export KOLO_TUNE_FILE=/else; {PERF} -b 64 -e 64 -n 1 || true'
    _, out, err = run(KOLO, "run", "-n", str(ranks), "sh", "-c", script, KOLO_TUNE_FILE=path)
    return (out + err).splitlines()


def rows(table, coll):
    """The rows of a table about a collective."""
    return [line for line in table.splitlines() if line.startswith(coll + " ")]


def is_right(result):
    """The sweep ended well, with every element right."""
    return result[0] == 0 and "Out of bounds values : 0 OK" in result[1]


def tables_decide():
    """A named table changes choices, on all ranks alike."""
    path = write("chain.tune", HEAD + "allreduce 3 [4k,) chain 16k any\n")
    result = sweep(3, KOLO_TUNE_FILE=path)
    check(is_right(result) and "AllReduce: 262144 Bytes -> Algo CHAIN (table, tiles of 16384): " in result[1],
          "a table changes the choice of a communicator", *result)
    check("AllReduce: 64 Bytes -> Algo " in result[1] and
          not re.search(r"AllReduce: 64 Bytes -> Algo \w+ \(table", result[1]),
          "sizes without a row are chosen by price", *result)
    check(f"table {path}: 1 rows" in result[1], "the log names the table", *result)
    result = sweep(2, KOLO_TUNE_FILE=path)
    check(is_right(result) and "(table" not in result[1], "rows are for their numbers of ranks", *result)
    result = sweep(3, KOLO_TUNE_FILE=path, KOLO_ALGO="allreduce:ring")
    check(is_right(result) and "Algo RING (rules)" in result[1], "KOLO_ALGO goes before a table", *result)
    script = f'[ "$KOLO_RANK" = 0 ] || export KOLO_TUNE_FILE=/nowhere; exec {PERF} -b 256K -e 256K -n 2'
    result = run(KOLO, "run", "-n", "3", "sh", "-c", script, KOLO_TUNE_FILE=path, KOLO_DEBUG="INFO")
    check(is_right(result) and "Algo CHAIN (table" in result[1],
          "rank 0's table is everybody's, so that all choose alike", *result)
    said = failures(3, "/nowhere")
    check(len(said) == 3 and all("table /nowhere: No such file" in line for line in said),
          "what is wrong with rank 0's table is told on every rank", *said)


def buffers_decide():
    """A row for shared buffers is taken where all ranks' buffers are."""
    path = write("shared.tune", HEAD + "allreduce 2 [4k,) chain default shared\n"
                 "allreduce 2 * ring default private\n")
    result = sweep(2, "--shared", "-n", "40", KOLO_TUNE_FILE=path)
    check(is_right(result) and "Algo CHAIN (table, shared buffers)" in result[1],
          "a row for shared buffers counts where they are", *result)
    result = sweep(2, "-n", "40", KOLO_TUNE_FILE=path)
    check(is_right(result) and "Algo RING (table)" in result[1] and "CHAIN (table" not in result[1],
          "a row for private buffers counts elsewhere", *result)
    result = run(PERF, "-t", "2", "-b", "256K", "-e", "256K", "-n", "4", KOLO_TUNE_FILE=path, KOLO_DEBUG="INFO")
    check(is_right(result) and "Algo CHAIN (table, shared buffers)" in result[1],
          "threads share all of their memory", *result)


def refused():
    """Named files must be right."""
    for text, words in (("allreduce 2 * ring default any\n", ":1:1: "),
                        (HEAD + "allreduce 2 * rng default any\n", ":3:15: "),
                        ("kolo-table 9\nmachine any\n", ":1:12: "),
                        ("kolo-table 1\nmachine 00 mine\n", "made on another machine")):
        path = write("bad.tune", text)
        said = failures(2, path)
        check(len(said) == 2 and all(path in line and words in line for line in said),
              f"a named table that says {text.splitlines()[-1]!r} is refused on every rank", *said)
    result = sweep(2, KOLO_TUNE_FILE="none")
    check(is_right(result) and "table" not in result[1], "KOLO_TUNE_FILE=none is no table", *result)


def tuning():
    """The table of `kolo tune` is written, read again, and completed piece by piece."""
    path = os.path.join(FOLDER, "new", "mine.tune")
    status, out, err = run(KOLO, "tune", "--time", "3", "-n", "2", "-c", "allreduce", "-b", "8", "-e", "64k",
                           "-o", path)
    table = read(path)
    check(status == 0 and f"table: {path}" in out and "100 %" in err, "kolo tune writes a table", status, out, err)
    check(re.match(r"kolo-table 1\nmachine [0-9a-f]{16} 1?\d+ package", table), "its head names the machine", table)
    check("regret of the default choice: mean" in out and "regret of the tuned choice: mean" in out and
          re.search(r"^noise: a regret is known to [\d.]+ %", out, re.M),
          "the report has the regret of both choices, and how well it is known", out)
    result = sweep(2, KOLO_TUNE_FILE=path)
    check(is_right(result) and f"table {path}: {len(rows(table, 'allreduce'))} rows" in result[1],
          "communicators read what it wrote", *result)
    machine = table.splitlines()[1]
    kept = ["allreduce 3 * ring default any", "broadcast 2 * chain 64k any"]
    write("new/mine.tune", "\n".join(["kolo-table 1", machine, "allreduce 2 [0,4M) chain default any",
                                      "allreduce 2 [4M,) ring default any", *kept]) + "\n")
    csv = os.path.join(FOLDER, "all.csv")
    status, out, err = run(KOLO, "run", "-n", "2", KOLO, "tune", "-t", "2", "-c", "allreduce", "-e", "64k", "-o", path,
                           "--csv", csv)
    table = read(path)
    check(status == 0 and all(row in table.splitlines() for row in kept),
          "rows of other ranks and collectives stay", status, out, err, table)
    check("allreduce 2 [128k,4M) chain default any" in table and "allreduce 2 [4M,) ring default any" in table
          and "[0,4M)" not in table, "of the same, only what was not measured stays", table)
    figures = [line.split(",") for line in read(csv).splitlines()]
    check(len(figures) > 20 and figures[0][0] == "collective" and all(len(row) == len(figures[0]) for row in figures)
          and {"default", "default+chosen"} & {row[-1] for row in figures}, "--csv has every figure", *figures[:5])
    status, out, err = run(KOLO, "tune", "-t", "1", "-n", "2", "-c", "barrier", KOLO_TUNE_FILE=path)
    check(status == 0 and f"table: {path}" in out, "KOLO_TUNE_FILE names the table to write, too", status, out, err)
    before = read(path)
    status, out, err = run(KOLO, "tune", "-t", "1", "-n", "2", "-c", "barrier", "-d", "-o", path)
    check(status == 0 and read(path) == before, "--dry-run writes nothing", status, out, err)
    write("new/mine.tune", "kolo-table 1\nmachine 00 mine\n")
    status, out, err = run(KOLO, "tune", "-t", "1", "-n", "2", "-c", "barrier", "-o", path)
    check(status != 0 and "made on another machine" in err and "mine" in read(path),
          "the table of another machine is not overwritten", status, out, err)


def the_machines_own():
    """The file that is looked for: used where it fits, told of where it is bad."""
    status, out, err = run(KOLO, "tune", "-t", "1", "-n", "2", "-c", "barrier")
    found = re.search(r"table: (\S+)", out)
    path = found.group(1) if found else ""
    check(status == 0 and re.fullmatch(re.escape(FOLDER) + r"/kolo/[0-9a-f]{16}\.tune", path),
          "the default table lies in the user's configuration", status, out, err)
    machine = (read(path) + "\n\n").splitlines()[1]
    write(os.path.relpath(path, FOLDER), f"kolo-table 1\n{machine}\nallreduce 2 * chain default any\n")
    result = sweep(2)
    check(is_right(result) and "Algo CHAIN (table)" in result[1], "communicators find it", *result)
    status, out, err = run(KOLO, "tune", "--explain", "allreduce", "64k", "-n", "2")
    check(status == 0 and re.search(r"^  chain .* <- chosen$", out, re.M) and "chosen: chain, by table; next: " in out,
          "--explain names the source of a choice", status, out, err)
    write(os.path.relpath(path, FOLDER), f"kolo-table 1\n{machine}\nallreduce 2 * chian default any\n")
    result = sweep(2)
    check(is_right(result) and "KOLO WARN the measured choices are not used: " in result[1]
          and f'{path}:3:15: "chian"' in result[1] and "(table" not in result[1],
          "a bad one is told of, and not used", *result)
    os.unlink(path)


def explaining():
    """One call: every candidate, predicted and measured."""
    status, out, err = run(KOLO, "tune", "--explain", "allreduce", "4k", "-n", "3")
    names = re.findall(r"^  (\w+) +[\d.]+ +[\d.]+ +[\d.]+", out, re.M)
    check(status == 0 and {"ring", "chain", "oneshot"} <= set(names) and len(names) == len(set(names)),
          "--explain lists the candidates with both times", status, out, err)
    check(re.search(r"^chosen: \w+, by price; next: \S+, [\d.]+ % (slower|faster)$", out, re.M),
          "--explain says what was chosen, by what, and what is next", status, out, err)
    status, out, err = run(KOLO, "tune", "--explain", "broadcast", "1M", "--shared", KOLO_ALGO="broadcast:chain")
    check(status == 0 and "shared buffers" in out and
          re.search(r"^chosen: chain\S*, by rules;", out, re.M),
          "--explain follows the user's rules", status, out, err)


def session_of(pid):
    """The processes of a session, zombies aside."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        fields = read(f"/proc/{name}/stat").rsplit(")", 1)[-1].split()
        if len(fields) > 3 and fields[3] == str(pid) and fields[0] not in "ZX":
            found.append(name)
    return found


def ended_early():
    """Nothing goes on without the command."""
    with subprocess.Popen([KOLO, "tune", "-n", "2", "-t", "100", "-d"], stdout=subprocess.DEVNULL, text=True,
                          stderr=subprocess.PIPE, start_new_session=True) as tune:
        first = tune.stderr.readline()
        tune.terminate()
        tune.wait()
        deadline = time.monotonic() + LIMIT_S
        while session_of(tune.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        left = session_of(tune.pid)
        check("kolo tune, 2 ranks: 0 %" in first and not left, "ranks end with the kolo tune that started them",
              first, left)


def options():
    """What is not understood."""
    for words, why in ((["-n", "1"], "-n: \"1\""), (["-c", "allreduce,all"], "there are allreduce"),
                       (["-b", "6"], "-b: \"6\""), (["-b", "1M", "-e", "1k"], "-b is more than -e"),
                       (["--explain", "allreduce"], "and its bytes"), (["--shared"], "--shared goes with --explain"),
                       (["more"], "unexpected argument"), (["-q"], "unknown option")):
        status, out, err = run(KOLO, "tune", *words)
        check(status == 2 and why in err and out == "", f"kolo tune {' '.join(words)} is refused", status, out, err)
    status, out, err = run(KOLO, "tune", "-h")
    check(status == 0 and out.startswith("Usage: kolo tune"), "kolo tune -h tells how", status, out, err)


with tempfile.TemporaryDirectory(prefix="kolo-tune-") as FOLDER:
    tables_decide()
    buffers_decide()
    refused()
    tuning()
    the_machines_own()
    explaining()
    ended_early()
    options()
done()
