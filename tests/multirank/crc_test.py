# SPDX-License-Identifier: Apache-2.0
# covers: transports/tcp src/util/crc.c
"""Checksums of frames over TCP, and encryption: a bit that changes on its way ends the job, with the
rank in the error, and with sums the connection and the message.

usage: crc_test.py FLIP FAULTS SHORT_JOB   (flip.c, to be loaded before libc; faults.c; short_job.c)
"""
import itertools
import os
import re
import subprocess
import sys

from ranks import LIMIT_S, Ranks
from tap import check, run_tests

FLIP, FAULTS, SHORT_JOB = map(os.path.abspath, sys.argv[1:])
FULL = bool(os.environ.get("KOLO_TEST_FULL"))
_jobs = itertools.count()


class Job(Ranks):
    """Ranks over TCP, of which one changes a bit of what it writes."""

    def __init__(self, nranks, *args, flips=None, crc="1", **env):
        name = f"crc-{os.getpid()}-{next(_jobs)}"
        if flips:
            rank, frame, byte = flips
            env |= {"FLIP_RANK": str(rank), "FLIP_FRAME": str(frame), "FLIP_BYTE": str(byte),
                    "LD_PRELOAD": FLIP + (":" + os.environ["LD_PRELOAD"] if os.environ.get("LD_PRELOAD") else "")}
        super().__init__([
            subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             env={**os.environ, "KOLO_TRANSPORT": "tcp",
                                  "KOLO_CRC": crc if isinstance(crc, str) else crc[rank], **env,
                                  "KOLO_RANK": str(rank), "KOLO_NRANKS": str(nranks), "KOLO_JOB": name})
            for rank in range(nranks)])


def finders(reports, culprit, words):
    """Ranks whose own error says what was wrong with what the culprit sent."""
    return [rank for rank, report in enumerate(reports)
            if report and report[0] == "KOLO_ERR_LINK" and report[1] == culprit and
            re.match(rf"rank {culprit} \(pid \d+\) sent .*{words}", report[2])]


def test_flips():
    """Headers and payloads, short and long, early and late."""
    for what, frame, byte, words in (
            ("small", 40, -1, r"a frame with a wrong checksum, by connection 0: message \d+ of channel \d+, bytes 0 to 8 of 8"),
            ("small", 70, 33, "the header of a frame with a wrong checksum, by connection 0"),
            ("small", 70, 8, "the header of a frame with a wrong checksum, by connection 0"),
            ("large", 3, -1, r"a frame with a wrong checksum, by connection 0: message \d+ of channel \d+, bytes"),
            ("large", 9, 1000, r"a frame with a wrong checksum, by connection 0: message \d+ of channel \d+, bytes"),
            ("large", 20, 1, "the header of a frame with a wrong checksum, by connection 0")):
        for culprit in (0, 1) if FULL else (1,):
            job = Job(2, FAULTS, what, flips=(culprit, frame, byte))
            reports = job.ends()
            check(finders(reports, culprit, words) == [1 - culprit] and reports[culprit] and
                  reports[culprit][:2] == ("KOLO_ERR_LINK", culprit) and
                  f"rank {1 - culprit} ended this communicator" in reports[culprit][2],
                  f"{what}: byte {byte} of write {frame} of rank {culprit} changes: it is named, with what changed",
                  *reports, *job.said)


def test_one_side_asks():
    """KOLO_CRC=1 on one rank holds for all of its connections."""
    job = Job(2, FAULTS, "small", flips=(0, 40, -1), crc=("0", "1"))
    reports = job.ends()
    check(finders(reports, 0, "a frame with a wrong checksum") == [1], "one rank asks for sums: they are there",
          *reports, *job.said)


def test_right():
    """Nothing is found where nothing changes, with one connection a pair and with several."""
    for sockets in ("1", "3"):
        for crc in ("1", ("1", "0", "1")):
            job = Job(3, SHORT_JOB, crc=crc, KOLO_NSOCKS_PERTHREAD=sockets)
            for process in job.ranks:
                process.wait(LIMIT_S)
            job.ends()
            check(all(process.returncode == 0 for process in job.ranks),
                  f"{sockets} connections a pair, KOLO_CRC {crc}: a job ends well", *job.said)


def ends_of(frame, crc, **env):
    """How the ranks of a job that looks at its results ended, where the last byte of a write of rank 1
    changes: 0 right, 1 with an error, 3 wrong."""
    job = Job(2, SHORT_JOB, flips=(1, frame, -1), crc=crc, **env)
    for process in job.ranks:
        process.wait(LIMIT_S)
    job.ends()
    return [process.returncode for process in job.ranks], job.said


def test_wrong_results():
    """A changed bit makes results wrong, but not where there are sums."""
    frames = range(8)  # as many as every rank of the job writes
    plain = [ends_of(frame, "0") for frame in frames]
    check(any(3 in ends for ends, _ in plain), "without KOLO_CRC a changed bit goes into results", *plain)
    summed = [ends_of(frame, "1") for frame in frames]
    check(all(3 not in ends and 1 in ends for ends, _ in summed) and
          all("rank 1 (pid" in str(said) and "checksum" in str(said) for _, said in summed),
          "with KOLO_CRC=1 every such job ends with an error that names the rank", *summed)


def test_encrypted_flips():
    """A changed bit of any write is found, wherever it is, and goes into no result."""
    for what, frame, byte in (("small", 40, -1), ("small", 70, 2), ("large", 3, -1), ("large", 20, 40)):
        job = Job(2, FAULTS, what, flips=(1, frame, byte), crc="0", KOLO_ENCRYPT="1")
        reports = job.ends()
        check(finders(reports, 1, "bytes that were changed on their way") == [0] and reports[1] and
              reports[1][:2] == ("KOLO_ERR_LINK", 1),
              f"{what}, encrypted: byte {byte} of write {frame} of rank 1 changes: it is named", *reports, *job.said)
    sealed = [ends_of(frame, "0", KOLO_ENCRYPT="1") for frame in range(8)]
    check(all(3 not in ends and 1 in ends for ends, _ in sealed),
          "with KOLO_ENCRYPT=1 every such job ends with an error", *sealed)


def test_not_a_number():
    job = Job(2, FAULTS, "small", crc="yes")
    reports = job.ends()
    check(any(report and 'KOLO_CRC is "yes"' in report[2] for report in reports),
          "what KOLO_CRC cannot be is an error that says so", *reports, *job.said)


run_tests(globals())
