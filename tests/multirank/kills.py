# SPDX-License-Identifier: Apache-2.0
"""Kill, stop and pause ranks at random for a time, on one host and on up to four, and count what follows.

Three programs run side by side: kills on one host, kills over 2 to 4 hosts, and stops and pauses on either.
Each line of faults names its seed, with which `members` repeats the trial.

usage: kills.py MEMBERS MINUTES [SEED]   (the program of members.c); tests/soak --kills calls it
"""
import collections
import concurrent.futures
import os
import random
import re
import subprocess
import sys
import threading
import time

from hosts import made

TRIALS = {"kill": 100, "stop": 4, "pause": 40}
HOSTS_MOST = 4
COSTS = "cores=2,latency_us=0.2,copy_gbs=10,reduce_gbs=10,step_us=0.01,switch_us=1"
RANKS = ("KOLO_RANK", "KOLO_NRANKS", "KOLO_JOB")
NO_RANK = {name: value for name, value in os.environ.items() if name not in RANKS}
ENVIRONMENT = {**NO_RANK, "KOLO_TUNE_FILE": "none", "KOLO_COSTS": COSTS}  # less work at the start of a rank


class Findings:
    """The sums of the counts, and all times, by what they are of and the number of hosts."""

    def __init__(self):
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.times = collections.defaultdict(list)

    def add(self, where, said):
        """Take the output of one run of the program; other lines are faults, and come back."""
        faults = []
        with self.lock:
            for line in said.splitlines():
                if found := re.match(r"(ms to [^:]+):(.*)", line):
                    self.times[f"{found[1]}, {where}"] += map(float, found[2].split())
                elif re.search(r", \d+ trials, ", line):
                    self.counts.update({what: int(number) for number, what in re.findall(r"(\d+) ([^,]+)", line)})
                else:
                    faults.append(line)
        return faults

    def show(self):
        """Print the table."""
        for what, ms in sorted(self.times.items()):
            if ms:
                ms.sort()
                print(f"{what}: {len(ms)} times, median {ms[len(ms) // 2]:.1f}, 99 % within "
                      f"{ms[len(ms) * 99 // 100]:.1f}, longest {ms[-1]:.1f}")
        print(", ".join(f"{number} {what}" for what, number in self.counts.items()), flush=True)


def lane(members, hows, host_counts, rng, end, findings):
    """Run the program over and over."""
    while time.time() < end:
        how, nhosts, seed = rng.choice(hows), rng.choice(host_counts), rng.randrange(1 << 31)
        hosts = made(HOSTS_MOST, "one host only") if nhosts > 1 else None
        places = [f"{hosts.names[i]}={hosts.address(i)}" for i in range(nhosts)] if hosts else []
        done = subprocess.run([members, str(TRIALS[how]), str(seed), how, *places], env=ENVIRONMENT, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        where = "several hosts" if places else "one host"
        faults = findings.add(f"{where}", done.stdout)
        if done.returncode != 0 or faults:
            print(f"members {TRIALS[how]} {seed} {how}, {max(1, len(places))} hosts: status {done.returncode}",
                  *faults, sep="\n  ", flush=True)


def main():
    """Returns the exit status."""
    members, minutes = sys.argv[1], float(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    made(HOSTS_MOST, "one host only")
    findings, end = Findings(), time.time() + 60 * minutes
    lanes = [(["kill"], [1]), (["kill"], [2, 3, 4]), (["stop", "pause", "pause"], [1, 1, 2, 3])]
    with concurrent.futures.ThreadPoolExecutor(len(lanes)) as pool:
        for ended in [pool.submit(lane, members, hows, counts, random.Random(seed + i), end, findings)
                      for i, (hows, counts) in enumerate(lanes)]:
            ended.result()
    findings.show()
    return findings.counts["wrong"] > 0


if __name__ == "__main__":
    sys.exit(main())
