#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Steps of torch.distributed.pipelining over kolo and over gloo, in one run on one machine.

usage: pipelines.py [-n RANKS] [-s SCHEDULES] [-w WIDTH] [-b ROWS] [--layers LAYERS] [--rounds ROUNDS]

The process groups live in the same processes, and take turns. A step is a forward and a backward
pass of 4 microbatches a rank. What is shown is the median step of each in milliseconds, on the rank
that took longest; the part of gloo's step that is not the work of the layers, as measured without a
pipeline on as many ranks at once; how many times faster kolo's step is; and how many times faster
that of PyTorch's `fake` is, whose messages do nothing: no backend can be faster. The outputs of gloo
and kolo are compared once.
"""
import argparse
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
from torch.distributed.pipelining import PipelineStage, schedules  # noqa: E402
from torch.testing._internal.distributed import fake_pg  # noqa: E402, F401: registers the backend

import kolo_torch  # noqa: E402, F401

SCHEDULES = {  # schedule, stages a rank
    "gpipe": (schedules.ScheduleGPipe, 1),
    "1f1b": (schedules.Schedule1F1B, 1),
    "interleaved": (schedules.ScheduleInterleaved1F1B, 2),
    "zero-bubble": (schedules.ScheduleInterleavedZeroBubble, 2),
}
MICROBATCHES = 4  # a rank


def make_stage(width, layers, index):
    torch.manual_seed(index)
    parts = [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Tanh()) for _ in range(layers)]
    return torch.nn.Sequential(*parts)


class Pipeline:
    def __init__(self, name, group, args):
        kind, per_rank = SCHEDULES[name]
        self.rank, self.n = dist.get_rank(), args.ranks
        last = self.n * per_rank - 1
        indices = [self.rank + self.n * i for i in range(per_rank)]
        self.layers = [make_stage(args.width, args.layers // per_rank, i) for i in indices]
        self.stages = [
            PipelineStage(layers, i, last + 1, torch.device("cpu"), group=group)
            for layers, i in zip(self.layers, indices)
        ]
        self.count = MICROBATCHES * self.n
        self.schedule = kind(self.stages if per_rank > 1 else self.stages[0], self.count, loss_fn=torch.nn.functional.mse_loss)
        torch.manual_seed(0)
        self.rows = torch.randn(args.rows * self.count, args.width)
        self.target = torch.randn(args.rows * self.count, args.width)

    def use(self, group):
        """Send by another group from now on. What stages tell each other in their first step needs real messages."""
        for stage in self.stages:
            stage.group = group

    def step(self):
        for layers in self.layers:
            layers.zero_grad()
        first = (self.rows,) if self.rank == 0 else ()
        target = {"target": self.target} if self.rank == self.n - 1 else {}
        return self.schedule.step(*first, **target)

    def work(self):
        """The layers of this rank on all microbatches, without a pipeline."""
        rows = self.rows.chunk(self.count)
        for layers in self.layers:
            layers.zero_grad()
            for x in rows:
                x = x.detach().requires_grad_()
                layers(x).sum().backward()


def slowest(value):
    t = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    return t.item()


def took(run, rounds):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(rounds):
        run()
    return slowest((time.perf_counter() - start) / rounds * 1e3)


def same(a, b):
    return (a is None and b is None) or torch.equal(a, b)


def rank_main(rank, args, store):
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=args.ranks)
    groups = {"gloo": dist.group.WORLD, "kolo": dist.new_group(backend="kolo"), "fake": dist.group.WORLD}
    fake = dist.new_group(backend="fake")
    for name in args.schedules:
        pipelines = {backend: Pipeline(name, group, args) for backend, group in groups.items()}
        results = {backend: pipeline.step() for backend, pipeline in pipelines.items()}
        if not same(results["gloo"], results["kolo"]):
            raise SystemExit(f"{name}: gloo and kolo have different outputs on rank {rank}")
        pipelines["fake"].use(fake)
        times = {backend: [] for backend in groups}
        work = []
        for _ in range(args.rounds):
            work.append(took(pipelines["gloo"].work, 1))
            for backend, pipeline in pipelines.items():
                times[backend].append(took(pipeline.step, 3))
        gloo, kolo, floor = (statistics.median(times[backend]) for backend in groups)
        apart = 100 * (1 - statistics.median(work) / gloo)
        if rank == 0:
            print(
                f"{name:>12} {gloo:9.2f} {kolo:9.2f} {floor:9.2f} {apart:15.0f} % {gloo / kolo:9.2f} {gloo / floor:9.2f}",
                flush=True,
            )
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", dest="ranks", type=int, default=2)
    parser.add_argument("-s", dest="schedules", type=lambda s: s.split(","), default=list(SCHEDULES))
    parser.add_argument("-w", dest="width", type=int, default=256)
    parser.add_argument("-b", dest="rows", type=int, default=8, help="rows of a microbatch")
    parser.add_argument("--layers", type=int, default=4, help="of a rank; even")
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    for name in set(args.schedules) - set(SCHEDULES):
        parser.error(f"{name} is none of {', '.join(SCHEDULES)}")
    print(f"# torch {torch.__version__}, {len(os.sched_getaffinity(0))} cores, {args.ranks} ranks")
    print(f"{'schedule':>12} {'gloo ms':>9} {'kolo ms':>9} {'fake ms':>9} {'not work':>17} {'faster':>9} {'at most':>9}")
    with tempfile.TemporaryDirectory(prefix="torch-pipelines-") as folder:
        mp.start_processes(rank_main, (args, os.path.join(folder, "store")), args.ranks, start_method="fork")
    return 0


if __name__ == "__main__":
    sys.exit(main())
