#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dispatch and combine of a layer of experts over kolo and over gloo, in one run on one machine.

usage: experts.py [-n RANKS] [--tokens TOKENS] [--width WIDTH] [--experts EXPERTS] [--top-k K] [--rounds ROUNDS]

The tokens of each rank go to their experts and come back as weighted sums, in bfloat16. The experts
themselves do nothing in what is timed. Two ways take turns over both backends:

  all-to-all   as kolo_train does it: a row for each token and expert, by all-to-alls of unequal parts
  all-gather   all tokens to all ranks; a reduce-scatter of each rank's sums

What is shown for each is the median time in milliseconds on the rank that took longest, the part of
it in collectives, the bytes a rank sends to others, and how many times as long it takes as all-to-all over kolo.
The tokens are such that no order of addition rounds, so all four must give the same bits, with experts
that multiply by numbers of their own.
"""
import argparse
import ctypes
import os
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "train"))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

import kolo_torch  # noqa: E402, F401
from kolo_train import experts as kolo_experts  # noqa: E402

WAYS = [("all-to-all", "kolo"), ("all-gather", "kolo"), ("all-to-all", "gloo"), ("all-gather", "gloo")]


def keep_freed_memory():
    """Rows of one round in the memory of the last one: else the kernel's fresh pages cost more than all else."""
    mmap_max, trim_threshold = -4, -1
    libc = ctypes.CDLL(None)
    if not (libc.mallopt(mmap_max, 0) and libc.mallopt(trim_threshold, 2**31 - 1)):
        raise SystemExit("mallopt() refuses")


class Times(torch.nn.Module):
    """An expert that multiplies by a power of two or leaves its rows alone."""

    def __init__(self, number):
        super().__init__()
        self.factor = (1, -1, 2, -2, 4, -4)[number % 6]
        self.works = False

    def forward(self, rows):
        return rows * self.factor if self.works else rows


class Counted:
    """The collectives of torch.distributed that a layer calls, with their time and bytes to others."""

    NAMES = ("all_to_all_single", "all_gather_single", "reduce_scatter_single")

    def __init__(self):
        self.seconds, self.bytes = 0.0, 0
        for name in self.NAMES:
            setattr(dist, name, self._counted(name, getattr(dist, name)))

    def _counted(self, name, call):
        def counted(out, data, *args, **keywords):
            start = time.perf_counter()
            call(out, data, *args, **keywords)
            self.seconds += time.perf_counter() - start
            self.bytes += self._bytes_of(name, data, *args)

        return counted

    @staticmethod
    def _bytes_of(name, data, _came=None, sent=None):
        n, rank = dist.get_world_size(), dist.get_rank()
        if name == "all_gather_single":
            return (n - 1) * data.nbytes
        kept = data.nbytes // n if sent is None else sent[rank] * data[:1].nbytes
        return data.nbytes - kept

    def taken(self):
        """(seconds, bytes) since the last call."""
        result = self.seconds, self.bytes
        self.seconds, self.bytes = 0.0, 0
        return result


class Layer:
    """Tokens of this rank, their experts and weights; the experts of this rank."""

    def __init__(self, args, group):
        self.group, self.n, self.rank = group, dist.get_world_size(), dist.get_rank()
        generator = torch.Generator().manual_seed(self.rank)
        shape = (args.tokens, args.width)
        self.tokens = torch.randint(-2, 3, shape, generator=generator).to(torch.bfloat16)
        scores = torch.rand(1, args.tokens, args.experts, generator=generator)
        self.route = kolo_experts.route_of(scores, args.top_k, 0.0)
        self.route.weight.fill_(1 / 8)
        self.chosen = scores[0].topk(args.top_k, dim=-1).indices.sort(dim=-1).values
        with torch.device("meta"):  # whole experts of this width would not fit into memory
            self.layer = kolo_experts.Experts(1, args.experts, args.top_k, 0.0)
        self.layer.experts = torch.nn.ModuleDict({str(number): Times(number) for number in range(args.experts)})
        self.layer.divide(group)
        self.share = args.experts // self.n

    def work(self, works):
        for expert in self.layer.experts.values():
            expert.works = works

    def by_all_to_all(self):
        route = self.route
        rows = kolo_experts._Dispatch.apply(self.tokens, route.token, route.row)
        results = self.layer._by_experts(rows, route.per_expert)
        return kolo_experts._Combine.apply(results, route.weight, route.row)

    def gathered(self, part):
        whole = part.new_empty(self.n * part.shape[0], *part.shape[1:])
        dist.all_gather_single(whole, part, group=self.group)
        return whole

    def by_all_gather(self):
        tokens, chosen, weight = (self.gathered(part) for part in (self.tokens, self.chosen, self.route.weight))
        mine = chosen.flatten() - self.rank * self.share
        places = ((mine >= 0) & (mine < self.share)).nonzero()[:, 0]
        number, order = mine[places].sort(stable=True)
        places = places[order]
        token = places // chosen.shape[1]
        rows = tokens.index_select(0, token)
        results = torch.cat(self.layer._by_mine(rows, number.bincount(minlength=self.share).tolist()))
        sums = torch.zeros(tokens.shape)
        sums.index_add_(0, token, results.float().mul_(weight.flatten()[places, None]))
        part = torch.empty_like(self.tokens)
        dist.reduce_scatter_single(part, sums.to(part.dtype), group=self.group)
        return part

    def run(self, way):
        return self.by_all_to_all() if way == "all-to-all" else self.by_all_gather()


def slowest(*values):
    t = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    return t.tolist()


def timed(layer, way, counted):
    """Milliseconds, those in collectives, and MB to others, each on the rank with the most."""
    dist.barrier()
    counted.taken()
    start = time.perf_counter()
    layer.run(way)
    seconds = time.perf_counter() - start
    inside, sent = counted.taken()
    return slowest(seconds * 1e3, inside * 1e3, sent / 1e6)


def compare_results(layers):
    """With experts that do something, which is left out of the times."""
    for layer in layers.values():
        layer.work(True)
    first, *others = [layers[backend].run(way) for way, backend in WAYS]
    if not first.any() or not all(first.equal(other) for other in others):
        raise SystemExit(f"rank {dist.get_rank()}: the ways have different results")
    for layer in layers.values():
        layer.work(False)


@torch.no_grad()
def rank_main(rank, args, store):
    keep_freed_memory()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=args.ranks)
    groups = {"gloo": dist.group.WORLD, "kolo": dist.new_group(backend="kolo")}
    layers = {backend: Layer(args, group) for backend, group in groups.items()}
    compare_results(layers)
    counted = Counted()
    rounds = {way: [] for way in WAYS}
    for _ in range(args.rounds):
        for way, backend in WAYS:
            rounds[way, backend].append(timed(layers[backend], way, counted))
    medians = {way: [statistics.median(column) for column in zip(*rows)] for way, rows in rounds.items()}
    if rank == 0:
        for (way, backend), (whole, inside, sent) in medians.items():
            times = whole / medians[WAYS[0]][0]
            print(f"{args.ranks:5} {way:>11} {backend:>8} {whole:9.2f} {inside:15.2f} {sent:9.2f} {times:9.2f}", flush=True)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", dest="ranks", type=lambda s: [int(n) for n in s.split(",")], default=[2, 4, 8])
    parser.add_argument("--tokens", type=int, default=128, help="of a rank")
    parser.add_argument("--width", type=int, default=7168)
    parser.add_argument("--experts", type=int, default=256)
    parser.add_argument("--top-k", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=25)
    args = parser.parse_args()
    every = args.ranks
    for ranks in every:
        if args.experts % ranks:
            parser.error(f"--experts {args.experts} cannot be divided over {ranks} ranks")
    print(f"# torch {torch.__version__}, {len(os.sched_getaffinity(0))} cores, medians of {args.rounds} rounds")
    print(f"{'ranks':>5} {'way':>11} {'backend':>8} {'ms':>9} {'in collectives':>15} {'MB sent':>9} {'times':>9}")
    for args.ranks in every:
        with tempfile.TemporaryDirectory(prefix="torch-experts-") as folder:
            mp.start_processes(rank_main, (args, os.path.join(folder, "store")), args.ranks, start_method="fork")
    return 0


if __name__ == "__main__":
    sys.exit(main())
