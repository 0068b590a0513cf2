# SPDX-License-Identifier: Apache-2.0
"""Take links between hosts down and up again while ranks call, for a time: no call may fail or be wrong.

Ranks on 4 hosts run perf programs with random sizes, types and numbers of ranks, every result checked, half
of them encrypted. Meanwhile the links of one or two hosts are down for 0.02 to 2 s, again and again; the
time-out of calls is longer. A run follows from its seed, but for when the links go down.

usage: links.py PERF_FOLDER MINUTES [SEED]; tests/soak --links calls it
"""
import os
import random
import sys
import threading
import time

from hosts import ip, need, tails

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather", "scatter",
               "alltoall", "alltoallv", "sendrecv", "barrier")
TYPES = ("int8", "int32", "int64", "half", "float", "double", "bfloat16")
HOSTS_COUNT = 4
TIMEOUT_MS = 60000
RUN_LIMIT_S = 240


class Links:
    """Takes links down and up in a thread, until it is ended."""

    def __init__(self, hosts, rng):
        self.hosts, self.rng = hosts, rng
        self.cuts, self.down_s, self.why = 0, 0.0, ""
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._work)
        self.thread.start()

    def _set(self, host, way):
        self.why = self.why or ip("-n", self.hosts.bridge, "link", "set", f"port{host}", way)

    def _work(self):
        while not self.over.wait(self.rng.uniform(0.1, 1.5)):
            cut = self.rng.sample(range(HOSTS_COUNT), self.rng.choice((1, 1, 2)))
            seconds = 0.02 * 100 ** self.rng.random()
            for host in cut:
                self._set(host, "down")
            self.over.wait(seconds)
            for host in cut:
                self._set(host, "up")
            self.cuts += len(cut)
            self.down_s += seconds * len(cut)

    def end(self):
        self.over.set()
        self.thread.join()


def command(folder, rng):
    """A perf program that checks its calls: some seconds of them."""
    first = 4 ** rng.randrange(0, 11)
    return [os.path.join(folder, rng.choice(COLLECTIVES) + "_perf"), "-b", str(first),
            "-e", str(min(first * 4 ** rng.randrange(0, 4), 1 << 22)), "-f", "4", "-n", "20", "-c", "20",
            "-N", "2", "-d", rng.choice(TYPES), "-o", rng.choice(("sum", "min", "max"))]


def run(hosts, folder, seed):
    """One job: its links, and why it is not as it should be."""
    rng = random.Random(seed)
    places = sorted(rng.randrange(HOSTS_COUNT) for _ in range(rng.choice((4, 4, 6, 8))))
    places[0], places[-1] = 0, HOSTS_COUNT - 1
    one = command(folder, rng)
    encrypt = rng.choice("01")
    print(f"seed {seed}: {len(places)} ranks on hosts {places}, KOLO_ENCRYPT={encrypt}: {' '.join(one)}", flush=True)
    links = Links(hosts, rng)
    ends = hosts.run(places, one, RUN_LIMIT_S, KOLO_ENCRYPT=encrypt, KOLO_TIMEOUT_MS=str(TIMEOUT_MS))
    links.end()
    return links, [links.why] if links.why else tails(ends)


def main():
    folder, minutes = sys.argv[1], float(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 30)
    hosts = need(HOSTS_COUNT)
    end = time.monotonic() + minutes * 60
    runs = cuts = 0
    down_s = 0.0
    while time.monotonic() < end:
        links, why = run(hosts, folder, seed)
        if why:
            print("\n".join(why), f"links: failed after {runs} good runs; again: tests/soak --links 1 {seed}", sep="\n")
            return 1
        runs, seed, cuts, down_s = runs + 1, seed + 1, cuts + links.cuts, down_s + links.down_s
    print(f"links: {runs} runs, all good; {cuts} times a link was down, {down_s:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
