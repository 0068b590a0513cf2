# SPDX-License-Identifier: Apache-2.0
"""The calls of kolo_train.horovod, as every rank of a job makes them; what is wrong with them."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import kolo_train.horovod as hvd
from kolo_train.fusion import Fusion


def same(got, want):
    """None, or both."""
    return None if got.dtype == want.dtype and got.equal(want) else (got, want)


def reductions(rank, ranks):
    """Operations, factors, compression, in place and not, groups of tensors."""
    t = torch.arange(5.0) + rank
    total = ranks * torch.arange(5.0) + sum(range(ranks))
    yield same(hvd.allreduce(t, op=hvd.Sum), total)
    yield same(hvd.allreduce(t), total / ranks)
    yield same(hvd.allreduce(t, average=False), total)
    yield same(t, torch.arange(5.0) + rank)
    yield same(hvd.allreduce(t, op=hvd.Max), torch.arange(5.0) + ranks - 1)
    yield same(hvd.allreduce(t, op=hvd.Sum, prescale_factor=2, postscale_factor=0.5), total)
    yield same(hvd.allreduce(t, op=hvd.Sum, compression=hvd.Compression.fp16), total)
    yield same(hvd.allreduce(torch.tensor([-3 * rank - 1, 7])), torch.tensor([int((-3 * sum(range(ranks)) - ranks) / ranks), 7]))
    handle = hvd.allreduce_async_(t, op=hvd.Product)
    result = hvd.synchronize(handle)
    yield None if result is t and hvd.poll(handle) else (result, t)
    pair = hvd.grouped_allreduce([torch.ones(2, 2), torch.full((3,), float(rank))], op=hvd.Sum)
    yield same(pair[0], torch.full((2, 2), float(ranks)))
    yield same(pair[1], torch.full((3,), float(sum(range(ranks)))))
    try:
        hvd.allreduce(t, op="adasum")
        yield "adasum was not refused"
    except ValueError:
        pass


def moves(rank, ranks):
    """Parts that differ, roots, objects."""
    rows = torch.full((rank, 3), rank)  # rank 0 has none
    yield same(hvd.allgather(rows), torch.cat([torch.full((q, 3), q) for q in range(ranks)]))
    yield same(hvd.allgather(torch.tensor(rank)), torch.arange(ranks))
    yield same(hvd.broadcast(torch.tensor([rank, 1]), ranks - 1), torch.tensor([ranks - 1, 1]))
    yield same(hvd.alltoall(torch.arange(2 * ranks) + 100 * rank),
               torch.cat([torch.arange(2 * rank, 2 * rank + 2) + 100 * q for q in range(ranks)]))
    splits = torch.arange(ranks)  # q rows go to rank q
    got, came = hvd.alltoall(torch.full((int(splits.sum()), 2), rank), splits)
    yield same(came, torch.full((ranks,), rank))
    yield same(got, torch.arange(ranks).repeat_interleave(rank)[:, None].expand(-1, 2).contiguous())
    found = hvd.broadcast_object({"from": rank}, ranks - 1)
    yield None if found == {"from": ranks - 1} else found
    found = (hvd.rank(), hvd.size(), hvd.allgather_object(hvd.local_rank()), hvd.cross_size(), hvd.cross_rank())
    yield None if found == (rank, ranks, list(range(ranks)), 1, 0) else found
    hvd.barrier()


def model_of(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))


def trained(rank, wrap, steps=5):
    """The weights after some steps, each on this rank's batch."""
    model, step = wrap(model_of(1))
    torch.manual_seed(100 + rank)
    for _ in range(steps):
        model(torch.randn(4, 6)).square().mean().backward()
        step()
    return torch.cat([param.detach().reshape(-1) for param in model.parameters()])


def by_ddp(model):
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step():
        optimizer.step()
        optimizer.zero_grad()

    return wrapped, step


def by_horovod(model, **options):
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
                                         named_parameters=model.named_parameters(), **options)

    def step():
        optimizer.step()
        optimizer.zero_grad()

    return model, step


def training(rank, ranks):
    """The weights of DDP to the last bit; state is shared; gradients may be changed before the step."""
    want = trained(rank, by_ddp)
    yield same(trained(rank, by_horovod), want)
    half = trained(rank, lambda model: by_horovod(model, compression=hvd.Compression.fp16))
    yield None if not half.equal(want) and torch.allclose(half, want, atol=1e-2) else (half, want)
    model = model_of(rank)
    hvd.broadcast_parameters(model.state_dict(), root_rank=ranks - 1)
    yield same(model[0].weight.detach(), model_of(ranks - 1)[0].weight.detach())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1 * (1 + rank))
    if rank == 0:
        model(torch.ones(2, 6)).sum().backward()
        optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    yield None if optimizer.param_groups[0]["lr"] == 0.1 and len(optimizer.state) == 4 else optimizer.state_dict()
    optimizer = hvd.DistributedOptimizer(optimizer)
    optimizer.zero_grad()
    model[0](torch.ones(1, 6)).sum().backward()  # the second layer gets no gradient anywhere
    optimizer.synchronize()
    gradient = model[0].weight.grad.clone()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    with optimizer.skip_synchronize():
        optimizer.step()
    yield same(gradient, torch.ones(8, 6))
    yield None if model[2].weight.grad.abs().sum() == 0 else model[2].weight.grad


def passes(rank, ranks):
    """Gradients of several passes are added before they travel; one pass more is refused on every rank."""
    model = model_of(1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), backward_passes_per_step=2)
    for part in (1.0, 2.0):
        model[0](torch.full((1, 6), part * (rank + 1))).sum().backward()
        model[2](torch.full((1, 8), part)).sum().backward()
    optimizer.synchronize()
    yield same(model[0].weight.grad, torch.full((8, 6), 3 * (ranks + 1) / 2))
    optimizer.step()
    optimizer.zero_grad()
    for _ in range(2):
        model(torch.ones(1, 6)).sum().backward()
    try:
        model(torch.ones(1, 6)).sum().backward()
        yield "a third pass was not refused"
    except RuntimeError as error:
        yield None if "more than 2 times" in str(error) else error
    optimizer.step()


def fused(rank, ranks, calls_of):
    """All gradients go in one call, or each in its own, as the threshold says."""
    for threshold, calls in ((1 << 20, 1), (1, 4)):
        plain = model_of(1)
        fusion = Fusion(list(plain.parameters()), threshold=threshold)
        before = max(calls_of())
        plain(torch.ones(1, 6)).sum().backward()
        fusion.finish()
        made = sum(call > before for call in calls_of())
        yield None if made == calls else (threshold, made)


def all_of(backend):
    """(what, what is wrong) of each group of calls."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    groups = [("its reductions are right", reductions), ("its moves are right", moves),
              ("its optimizer gives the weights of DDP", training), ("passes are counted", passes)]
    if backend == "kolo":
        import kolo_torch

        def calls_of():
            # Numbers, not how many: the recorder keeps the last 2000 calls only.
            return [entry["record_id"] for entry in kolo_torch.flight_recorder()["entries"]
                    if "all_reduce" in entry["profiling_name"]]

        groups.append(("gradients are fused up to a number of bytes", lambda *who: fused(*who, calls_of)))
    for what, group in groups:
        yield what, [wrong for wrong in group(rank, ranks) if wrong is not None]
