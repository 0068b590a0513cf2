# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own NCCL backend over kolo's libnccl.so.2: several ranks on the first GPU, which NCCL itself
refuses, call every collective and train a model with DistributedDataParallel.

usage: LD_PRELOAD=.../libnccl.so.2 torch_nccl.py RANKS
"""
import ctypes
import faulthandler
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def expect(name, got, want):
    if not torch.equal(got.cpu(), want):
        raise AssertionError(f"{name}: {got.tolist()}, not {want.tolist()}")


def check_collectives(rank, ranks):
    def tensor(*values):
        return torch.tensor(values, dtype=torch.float32, device="cuda")

    everybody = torch.arange(ranks, dtype=torch.float32)
    x = tensor(rank + 1)
    dist.all_reduce(x)
    expect("all_reduce", x, everybody.sum().reshape(1) + ranks)
    x = tensor(rank)
    dist.broadcast(x, ranks - 1)
    expect("broadcast", x, torch.tensor([ranks - 1.0]))
    out = torch.empty(ranks, device="cuda")
    dist.all_gather_into_tensor(out, tensor(rank))
    expect("all_gather", out, everybody)
    out = torch.empty(1, device="cuda")
    dist.reduce_scatter_tensor(out, torch.arange(ranks, dtype=torch.float32, device="cuda"), op=dist.ReduceOp.AVG)
    expect("reduce_scatter", out, torch.tensor([float(rank)]))
    out = torch.empty(ranks, device="cuda")
    dist.all_to_all_single(out, torch.full((ranks,), float(rank), device="cuda"))
    expect("all_to_all", out, everybody)
    x = tensor(rank)
    ops = [dist.P2POp(dist.isend, x, (rank + 1) % ranks), dist.P2POp(dist.irecv, out[:1], (rank - 1) % ranks)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    expect("sends and receives", out[:1], torch.tensor([float((rank - 1) % ranks)]))
    dist.barrier(device_ids=[0])


def check_training(rank):
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda(), device_ids=[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(10):
        torch.manual_seed(100 * step + rank)
        optimizer.zero_grad()
        model(torch.randn(32, 64, device="cuda")).square().mean().backward()
        optimizer.step()
    weights = model.module.weight.detach()
    first = weights.clone()
    dist.broadcast(first, 0)
    expect("weights of all ranks", weights, first.cpu())


def check_library():
    """The names of NCCL are the preloaded library's, though PyTorch may load its own as well."""
    call = ctypes.cast(ctypes.CDLL(None).ncclAllReduce, ctypes.c_void_p).value
    with open("/proc/self/maps", encoding="utf-8") as file:
        for line in file:
            first, last = (int(end, 16) for end in line.split()[0].split("-"))
            if first <= call < last and os.path.samefile(line.split()[-1], os.environ["LD_PRELOAD"]):
                return
    raise AssertionError("another library has ncclAllReduce")


def run(rank, ranks, meeting):
    faulthandler.enable()
    faulthandler.dump_traceback_later(60, exit=True)  # where a rank that hangs is
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", init_method="file://" + meeting, rank=rank, world_size=ranks)
    check_library()
    check_collectives(rank, ranks)
    check_training(rank)
    dist.destroy_process_group()


def main():
    ranks = int(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="kolo-torch-nccl-") as folder:
        mp.spawn(run, (ranks, folder + "/meeting"), ranks)


if __name__ == "__main__":
    main()
