# SPDX-License-Identifier: Apache-2.0
# covers: src/core/failure/flight_recorder.c tools/ps.c
"""The calls that ranks have made, as they leave them when a communicator fails and as `kolo ps` reads
them from outside; and what PyTorch's analyser of flight recorders makes of them.

usage: record_test.py FAULTS KOLO   (the program of faults.c, and the kolo tool)
"""
import itertools
import json
import os
import pathlib
import signal
import stat
import subprocess
import sys
import tempfile
import time

from ranks import LIMIT_S, Ranks
from tap import check, run_tests

FAULTS, KOLO = sys.argv[1:]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
KEPT = 254  # calls that can be read while another may be written, at least
_jobs = itertools.count()


class Job(Ranks):
    """Ranks of one host that leave their records in a folder."""

    def __init__(self, nranks, folder, *args, **env):
        name = f"record-{os.getpid()}-{next(_jobs)}"
        super().__init__([
            subprocess.Popen([FAULTS, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, env={**os.environ, "KOLO_RECORD_FILE": f"{folder}/", **env,
                                             "KOLO_RANK": str(rank), "KOLO_NRANKS": str(nranks),
                                             "KOLO_JOB": name})
            for rank in range(nranks)])

    def kill(self):
        for process in self.ranks:
            process.kill()
        self.ends()


def read(folder, nranks):
    """The dumps of all ranks, None where there is none."""
    dumps = []
    for rank in range(nranks):
        path = pathlib.Path(folder, str(rank))
        dumps.append(json.loads(path.read_text(encoding="utf-8")) if path.exists() else None)
    return dumps


def is_whole(dump, rank):
    """Numbers follow one another, times go forward, all but the last are over."""
    calls = dump["entries"]
    numbers = [call["collective_seq_id"] for call in calls]
    times = [t for call in calls for t in (call["time_created_ns"], call["time_discovered_completed_ns"])]
    over = times if calls[-1]["state"] == "completed" else times[:-1]
    return (dump["version"] == "2.4" and dump["kolo"]["rank"] == rank and
            numbers == list(range(numbers[0], numbers[0] + len(calls))) and
            len(calls) >= min(KEPT, dump["kolo"]["calls"]) and
            all(call["state"] == "completed" for call in calls[:-1]) and over == sorted(over) and
            abs(times[0] / 1e9 - time.time()) < 100)


def test_death():
    """Every survivor leaves its record, and one of them the dead rank's."""
    for transport in ("shm", "tcp"):
        with tempfile.TemporaryDirectory() as folder:
            job = Job(4, folder, "small", KOLO_TRANSPORT=transport)
            job.wait_until_at_work()
            time.sleep(0.2)
            job.ranks[2].kill()
            job.ranks[2].wait()
            reports = job.ends()
            dumps = read(folder, 4)
            expected = [0, 1, 2, 3] if transport == "shm" else [0, 1, 3]
            there = [rank for rank, dump in enumerate(dumps) if dump]
            check(there == expected and all(is_whole(dumps[rank], rank) for rank in there),
                  f"{transport}: a rank is killed: the last calls of ranks {expected} are in their files",
                  there, *reports, *job.said)
            check(all(dumps[rank] and dumps[rank]["kolo"]["failure"]["rank"] == 2 for rank in (0, 1, 3)),
                  f"{transport}: with what ended the communicator, and who is at fault", *reports)
            modes = {stat.S_IMODE(path.stat().st_mode) for path in pathlib.Path(folder).iterdir()}
            check(modes == {0o600} and len(list(pathlib.Path(folder).iterdir())) == len(expected),
                  f"{transport}: they are the user's alone, and nothing else is left there", modes,
                  *pathlib.Path(folder).iterdir())


def test_no_file():
    """Nothing is written that was not asked for, nor does it hurt where it cannot be written."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(2, folder, "not-count", KOLO_RECORD_FILE="")
        reports = job.ends()
        check(all(report and report[0] == "KOLO_ERR_MISMATCH" for report in reports) and
              not os.listdir(folder), "without KOLO_RECORD_FILE no file is written", *reports)
        job = Job(2, folder, "not-count", KOLO_RECORD_FILE=f"{folder}/none/%r", KOLO_DEBUG="WARN")
        reports = job.ends()
        check(all(report and report[0] == "KOLO_ERR_MISMATCH" for report in reports) and
              all(any("cannot be written" in line for line in said) for said in job.said),
              "a file that cannot be written is a warning, and the error stays", *reports, *job.said)
        job = Job(2, folder, "not-count", KOLO_RECORD_FILE=f"{folder}/none/%r")
        reports = job.ends()
        told = [[line for line in said if "KOLO_RECORD_FILE" in line] for said in job.said]
        check(all(len(lines) == 1 and f"{folder}/none: No such file" in lines[0] for lines in told),
              "a folder that is not there is named once, also without a log", *job.said)
        check(all(report and report[0] == "KOLO_ERR_MISMATCH" for report in reports),
              "and the error stays", *reports)


def test_link():
    """A symbolic link that lies at the file's name is replaced, not followed."""
    with tempfile.TemporaryDirectory() as folder:
        victim = pathlib.Path(folder, "victim")
        victim.write_text("mine", encoding="utf-8")
        pathlib.Path(folder, "0").symlink_to(victim)
        Job(2, folder, "not-count").ends()
        check(victim.read_text(encoding="utf-8") == "mine" and
              not pathlib.Path(folder, "0").is_symlink() and read(folder, 2)[0],
              "a link at the file's name leads nowhere else", *os.listdir(folder))


def python_with_torch():
    for python in (str(ROOT / ".venv/bin/python3"), sys.executable):
        found = os.path.exists(python) and subprocess.run(
            [python, "-c", "from torch.distributed.flight_recorder import fr_trace"],
            capture_output=True, check=False)
        if found and found.returncode == 0:
            return python
    return None


def analysed(folder):
    python = python_with_torch()
    script = str(pathlib.Path(__file__).parent / "analyse.py")
    ran = python and subprocess.run([python, script, folder], capture_output=True, text=True,
                                    check=False, timeout=120)
    return ran and ran.stdout + ran.stderr


def says(folder, words, name, *details):
    """The analyser's check, or why it is not made."""
    text = analysed(folder)
    if text is None:
        print(f"# skipped, no Python here has torch (./setup --torch): {name}")
    else:
        check(all(word in text for word in words), name, text, *details)


def test_other_call():
    """One rank makes another call: PyTorch's analyser names it."""
    for what, words in (("count", "SIZE_OR_SYNTAX_MISMATCH"), ("barrier", "COLLECTIVE_TYPE_MISMATCH"),
                        ("type", "COLLECTIVE_DTYPE_MISMATCH")):
        with tempfile.TemporaryDirectory() as folder:
            job = Job(2, folder, f"not-{what}")
            reports = job.ends()
            dumps = read(folder, 2)
            check(all(dumps) and all(len(dump["entries"]) == 2 for dump in dumps) and
                  dumps[1]["entries"][1]["kolo"]["call"] != dumps[0]["entries"][1]["kolo"]["call"],
                  f"another {what}: both ranks leave their call in their files", *reports, *job.said)
            says(folder, ("sequence number: 2 has errors", "Culprit rank 1", words),
                 f"another {what}: PyTorch's analyser names the rank that made it", *reports)


def test_away():
    """One rank makes no more calls: PyTorch's analyser names it, and so does kolo ps."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as outside:
        job = Job(4, folder, "away", "3000")
        job.wait_until_at_work()
        time.sleep(1)
        ran = subprocess.run([KOLO, "ps", "--json", f"{outside}/%r", str(job.ranks[0].pid)],
                             capture_output=True, text=True, check=False, timeout=LIMIT_S)
        dumps = read(outside, 4)
        check(ran.returncode == 0 and sorted(ran.stdout.split()) == [f"{outside}/{r}" for r in range(4)] and
              all(dumps) and all(is_whole(dump, rank) for rank, dump in enumerate(dumps)) and
              [dump["kolo"]["state"] for dump in dumps] == ["waits"] * 3 + ["runs"] and
              [dump["kolo"]["waits_for_last"] for dump in dumps] == [3, 3, 3, None] and
              [dump["entries"][-1]["state"] for dump in dumps] == ["started"] * 3 + ["completed"],
              "kolo ps --json writes what all ranks are in while they run", ran.stdout, ran.stderr,
              *[dump and dump["kolo"] for dump in dumps])
        missing = ("Not all ranks joining collective, sequence number: 301", "missing ranks: {3}")
        says(outside, missing, "PyTorch's analyser names, of what runs, the rank that stays away")
        reports = job.ends()
        dumps = read(folder, 4)
        check(all(dumps) and all(is_whole(dump, rank) for rank, dump in enumerate(dumps)),
              "at the time-out all ranks leave their files, also the one that makes no calls",
              *reports, *job.said)
        says(folder, missing, "PyTorch's analyser names the rank that stayed away")


def test_job():
    """kolo ps --job shows communicators of the job that the process is no member of."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(4, folder, "halves")
        job.wait_until_at_work()
        pid = str(job.ranks[0].pid)
        few = subprocess.run([KOLO, "ps", pid], capture_output=True, text=True, check=False,
                             timeout=LIMIT_S).stdout
        all_of_it = subprocess.run([KOLO, "ps", "--job", pid], capture_output=True, text=True,
                                   check=False, timeout=LIMIT_S).stdout
        job.kill()
        check(few.count("communicator ") == 2 and all_of_it.count("communicator ") == 3,
              "kolo ps PID shows that process's communicators, --job all of the job's", few, all_of_it)


def test_alone():
    """A rank that shares no memory with any other can be looked at all the same."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(2, folder, "small", KOLO_TRANSPORT="tcp")
        job.wait_until_at_work()
        job.ranks[1].send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        ran = subprocess.run([KOLO, "ps", str(job.ranks[0].pid)], capture_output=True, text=True,
                             check=False, timeout=LIMIT_S)
        job.kill()
        check(": 1 of 2 ranks are on this host" in ran.stdout and "waits" in ran.stdout and
              "for rank 1 since" in ran.stdout, "tcp: kolo ps shows what a rank alone on its board is in",
              ran.stdout, ran.stderr)


run_tests(globals())
