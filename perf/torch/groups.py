# SPDX-License-Identifier: Apache-2.0
"""What a new group costs over kolo and over gloo: time until it has made its first call, and memory.

usage: torchrun --nproc-per-node 2 groups.py [COUNT] [DEFAULT]   (kolo_torch on PYTHONPATH)
Makes COUNT groups of all ranks with each backend, by turns, where the default group is of DEFAULT (cpu:gloo).
Without a group of kolo that stays, each new one starts and ends kolo's threads. Prints medians of rank 0 in ms:
new_group() alone, with its first all-reduce, destroy; and the growth of the proportional set size (PSS) of all ranks,
in MB a group and rank.
"""
import gc
import statistics
import sys
import time

import torch
import torch.distributed as dist

import kolo_torch  # noqa: F401: registers the backend


def own_pss():
    """Proportional set size of this process, in MB."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:")) / 1024


def one_group(backend):
    """(seconds of new_group, of it with a first call), and the group."""
    value = torch.ones(2)
    dist.barrier()
    start = time.perf_counter()
    group = dist.new_group(backend=backend)
    made = time.perf_counter() - start
    dist.all_reduce(value, group=group)
    return made, time.perf_counter() - start, group


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    dist.init_process_group(sys.argv[2] if len(sys.argv) > 2 else "cpu:gloo")
    rows = {"gloo": [], "kolo": []}
    for backend in rows:
        dist.destroy_process_group(one_group(backend)[2])  # loads what the first group loads
    for _ in range(count):
        for backend, row in rows.items():
            made, first, group = one_group(backend)
            start = time.perf_counter()
            dist.destroy_process_group(group)
            row.append((1e3 * made, 1e3 * first, 1e3 * (time.perf_counter() - start)))
    growth = {}
    for backend in rows:
        gc.collect()
        before = own_pss()
        kept = [one_group(backend)[2] for _ in range(count)]
        sums = torch.tensor([own_pss() - before])
        dist.all_reduce(sums)
        growth[backend] = sums.item() / dist.get_world_size() / count
        for group in kept:
            dist.destroy_process_group(group)
    if dist.get_rank() == 0:
        print("backend  new_group  with first call  destroy  MB a group and rank")
        for backend, row in rows.items():
            made, first, destroyed = (statistics.median(column) for column in zip(*row))
            print(f"{backend:7} {made:10.2f} {first:16.2f} {destroyed:8.2f} {growth[backend]:20.2f}")
    dist.destroy_process_group()


main()
