#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kolo and gloo through torch.distributed, in one run on one machine.

usage: compare.py [-n RANKS] [-b BYTES] [-e BYTES] [-f FACTOR] [-d DTYPES] [-o OPERATIONS] [--shared]

Both process groups live in the same processes. For each operation, dtype and size they take turns,
`--rounds` times; a round is as many calls as fit into --round-ms on the slower of them, between two
barriers. What is shown is the median over rounds of the average call, in microseconds, on the rank
that took longest, and how many times faster kolo is. Every result is checked once a size.

all_reduce_async is async_op=True and wait(); ping_pong is a round trip between ranks 0 and 1, 2 and 3,
and so on. Both are left out unless -o names them.
"""
import argparse
import math
import os
import statistics
import sys
import tempfile
import time
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

import kolo_torch  # noqa: E402

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
OPERATIONS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "barrier"]
CLOSE = ["all_reduce_async", "ping_pong"]  # what they cost beside the time on the wire


def size_of(text):
    """Bytes of 64, 4K, 64M."""
    return int(float(text.rstrip("KMG")) * 1024 ** "BKMG".index(text[-1] if text[-1] in "KMG" else "B"))


class Case:
    """One operation on buffers of `size` bytes: the larger of its two buffers, as nccl-tests count."""

    def __init__(self, operation, dtype, size, shared):
        self.operation, self.n, self.rank = operation, dist.get_world_size(), dist.get_rank()
        make = kolo_torch.empty_shared if shared else torch.empty
        count = max(self.n, size // dtype.itemsize // self.n * self.n)
        self.whole, self.other = make(count, dtype=dtype), make(count, dtype=dtype)
        self.part = make(count // self.n, dtype=dtype)
        self.bytes = count * dtype.itemsize

    def fill(self):
        self.whole.fill_(self.rank + 1)
        self.other.fill_(self.rank + 1)
        self.part.fill_(self.rank + 1)

    def call(self, group):
        if self.operation == "all_reduce":
            dist.all_reduce(self.whole, op=dist.ReduceOp.MAX, group=group)  # stays finite for ever
        elif self.operation == "all_reduce_async":
            dist.all_reduce(self.whole, op=dist.ReduceOp.MAX, group=group, async_op=True).wait()
        elif self.operation == "ping_pong":
            self.ping_pong(group)
        elif self.operation == "all_gather":
            dist.all_gather_single(self.whole, self.part, group=group)
        elif self.operation == "reduce_scatter":
            dist.reduce_scatter_single(self.part, self.whole, group=group)
        elif self.operation == "broadcast":
            dist.broadcast(self.whole, 0, group=group)
        elif self.operation == "all_to_all":
            dist.all_to_all_single(self.other, self.whole, group=group)
        else:
            dist.barrier(group=group)

    def ping_pong(self, group):
        peer = self.rank ^ 1
        if peer < self.rank:
            dist.recv(self.other, peer, group=group)
            dist.send(self.other, peer, group=group)
        elif peer < self.n:
            dist.send(self.whole, peer, group=group)
            dist.recv(self.other, peer, group=group)

    def check(self, group):
        """One call on known numbers; an error where the result is wrong."""
        self.fill()
        self.call(group)
        count, ranks = self.part.numel(), range(1, self.n + 1)
        if self.operation in ("all_reduce", "all_reduce_async"):
            right = (self.whole == self.n).all()
        elif self.operation == "all_gather":
            right = all((self.whole[r * count - count : r * count] == r).all() for r in ranks)
        elif self.operation == "reduce_scatter":
            right = (self.part == sum(ranks)).all()
        elif self.operation == "broadcast":
            right = (self.whole == 1).all()
        elif self.operation == "ping_pong":
            right = (self.other == self.rank // 2 * 2 + 1).all()
        elif self.operation == "all_to_all":
            right = all((self.other[r * count - count : r * count] == r).all() for r in ranks)
        else:
            right = True
        if not right:
            raise SystemExit(f"{self.operation} of {self.bytes} bytes is wrong on rank {self.rank}")
        self.fill()

    def time(self, group, calls):
        """Microseconds a call, here."""
        dist.barrier(group=group)
        start = time.perf_counter()
        for _ in range(calls):
            self.call(group)
        return (time.perf_counter() - start) / calls * 1e6


def slowest(value, group):
    """The largest of all ranks' values."""
    t = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(t, op=dist.ReduceOp.MAX, group=group)
    return t.item()


def measure(case, groups, args):
    """{backend: microseconds}"""
    for group in groups.values():
        case.check(group)
    guess = max(slowest(case.time(group, 2), group) for group in groups.values())
    calls = max(1, min(1000, int(args.round_ms * 1e3 / guess)))
    taken = {backend: [] for backend in groups}
    for turn in range(args.rounds):
        order = list(groups.items())
        for backend, group in order if turn % 2 else order[::-1]:
            taken[backend].append(slowest(case.time(group, calls), group))
    return {backend: statistics.median(times) for backend, times in taken.items()}


def conclude(what, ratios):
    if ratios:
        mean = math.exp(statistics.fmean(math.log(ratio) for ratio, *_ in ratios))
        least, operation, dtype, size = min(ratios)
        print(f"# {what}: geometric mean {mean:.2f} times faster; least {least:.2f}, at {operation} {dtype} {size}")


def rank_main(rank, args, store):
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=args.ranks)
    groups = {"gloo": dist.group.WORLD, "kolo": dist.new_group(backend="kolo")}
    ratios = []
    for operation in args.operations:
        for dtype in args.dtypes if operation != "barrier" else args.dtypes[:1]:
            if rank == 0:
                where = ", shared memory" if args.shared else ""
                print(f"\n# {operation} {dtype if operation != 'barrier' else ''} {args.ranks} ranks{where}")
                print(f"{'bytes':>12} {'gloo us':>12} {'kolo us':>12} {'times faster':>13}")
            size = args.begin if operation != "barrier" else args.end
            while size <= args.end:
                case = Case(operation, DTYPES[dtype], size if operation != "barrier" else 64, args.shared)
                us = measure(case, groups, args)
                ratios.append((us["gloo"] / us["kolo"], operation, dtype, case.bytes))
                if rank == 0:
                    shown = case.bytes if operation != "barrier" else 0
                    print(f"{shown:12} {us['gloo']:12.1f} {us['kolo']:12.1f} {ratios[-1][0]:13.2f}", flush=True)
                size *= args.factor
    if rank == 0:
        conclude("collectives", [r for r in ratios if r[1] in OPERATIONS and r[1] != "barrier"])
        conclude("asynchronous calls and messages", [r for r in ratios if r[1] in CLOSE])
        conclude("barrier", [r for r in ratios if r[1] == "barrier"])
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", dest="ranks", type=int, default=2)
    parser.add_argument("-b", dest="begin", type=size_of, default=64)
    parser.add_argument("-e", dest="end", type=size_of, default=64 << 20)
    parser.add_argument("-f", dest="factor", type=int, default=4)
    parser.add_argument("-d", dest="dtypes", type=lambda s: s.split(","), default=list(DTYPES))
    parser.add_argument("-o", dest="operations", type=lambda s: s.split(","), default=OPERATIONS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--round-ms", type=float, default=20)
    parser.add_argument("--shared", action="store_true", help="buffers of kolo_torch.empty_shared()")
    args = parser.parse_args()
    for given, known in ((args.dtypes, list(DTYPES)), (args.operations, OPERATIONS + CLOSE)):
        for name in set(given) - set(known):
            parser.error(f"{name} is none of {', '.join(known)}")
    print(f"# torch {torch.__version__}, {len(os.sched_getaffinity(0))} cores")
    with tempfile.TemporaryDirectory(prefix="torch-compare-") as folder:
        mp.start_processes(rank_main, (args, os.path.join(folder, "store")), args.ranks, start_method="fork")
    return 0


if __name__ == "__main__":
    sys.exit(main())
