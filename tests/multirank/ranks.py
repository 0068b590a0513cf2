# SPDX-License-Identifier: Apache-2.0
"""Ranks of faults.c that a test started itself, so that no launcher ends the survivors, and what
they say of the one at fault."""
import re
import subprocess

LIMIT_S = 40


def output_of(process, limit_s=LIMIT_S):
    """All that a process prints to its end. A process that does not end in time is killed, and the
    output says so."""
    try:
        return process.communicate(timeout=limit_s)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0] + "(it hung)"


class Ranks:
    """Processes, rank i at place i, and the lines that each has printed."""

    def __init__(self, processes):
        self.ranks = processes
        self.said = [[] for _ in processes]

    def wait_until_at_work(self):
        for rank, process in enumerate(self.ranks):
            line = process.stdout.readline()
            while line and " works " not in line:
                self.said[rank].append(line.rstrip())
                line = process.stdout.readline()

    def ends(self):
        """Status, rank at fault, text and time (ms) that each rank reported; None: nothing."""
        reports = []
        for rank, process in enumerate(self.ranks):
            self.said[rank] += output_of(process).splitlines()
            found = None
            for line in self.said[rank]:
                match = re.fullmatch(r"\d+ ([\d.]+) (KOLO_\w+) (-?\d+) (.*)", line)
                if match:
                    found = (match[2], int(match[3]), match[4], float(match[1]))
            reports.append(found)
        return reports


def survivors_name(victim, reports, since, limit_ms, status="KOLO_ERR_PEER"):
    """All others returned the status, naming the victim, within the limit."""
    others = [report for rank, report in enumerate(reports) if rank != victim]
    return all(report is not None and report[0] == status and report[1] == victim and
               report[3] - since < limit_ms for report in others)


def latest(reports, since):
    return max((report[3] - since for report in reports if report), default=-1)
