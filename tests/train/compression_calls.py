# SPDX-License-Identifier: Apache-2.0
"""Hooks that compress gradients, as every rank of a job calls them; what is wrong with them."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from kolo_train.compression import (
    BLOCK,
    OneBitAdam,
    OneBitLamb,
    OneBitMomentum,
    TopK,
    compressed,
    one_bit_mean,
    pack,
    unpack,
)


class Bucket:
    """What a hook takes of DDP's buckets."""

    def __init__(self, values, index=0, last=True):
        self.values, self.number, self.last = values, index, last

    def buffer(self):
        return self.values

    def index(self):
        return self.number

    def is_last(self):
        return self.last


class OneBitMean(TopK):
    """The mean of gradients by one bit an element."""

    def exchange(self, bucket):
        return one_bit_mean(self, bucket, bucket.buffer().clone())


def gradients(rank, step, size):
    torch.manual_seed(1000 * rank + step)
    return torch.randn(size) * (1 + torch.arange(size) % 7)


def bits(rank, ranks):
    """A message of one block is the signs and the mean size."""
    values = gradients(rank, 0, 3 * BLOCK)
    values[:5] = torch.tensor([0.0, -0.0, 1e-40, -1e-40, 3.0])
    signs, scales = pack(values)
    want = torch.where(values >= 0, 1.0, -1.0) * values.view(3, -1).abs().mean(1).repeat_interleave(BLOCK)
    yield None if unpack(signs, scales).equal(want) and signs.numel() * 8 == values.numel() else (unpack(signs, scales), want)


def kept(rank, ranks):
    """All that was put in has come out, or is an error that a rank keeps; all ranks get the same bits."""
    for size in (1, BLOCK, 1000):
        for hook in (TopK(part=0.05, warmup_steps=0), OneBitMean()):
            came = torch.zeros(size)
            for step in range(6):
                # Two buckets: the second's calls are made while the first's are under way.
                first = hook.start(Bucket(gradients(rank, step, size), last=False))
                second = hook.start(Bucket(gradients(rank, step, 2 * size), index=1))
                result = first.wait()
                yield None if len(second.wait()) == 2 * size else "the second bucket's size"
                results = [torch.empty_like(result) for _ in range(ranks)]
                dist.all_gather(results, result)
                yield None if all(other.equal(result) for other in results) else "ranks differ"
                came += result
            put_in = sum(gradients(r, step, size) for r in range(ranks) for step in range(6)) / ranks
            left = hook.errors["rank", 0].clone() / (1 if type(hook) is TopK else ranks)
            dist.all_reduce(left)
            left = left[:size]
            if type(hook) is OneBitMean:
                pieces = [torch.empty_like(hook.errors["piece", 0]) for _ in range(ranks)]
                dist.all_gather(pieces, hook.errors["piece", 0])
                left = left + torch.cat(pieces)[:size]
            yield None if torch.allclose(came + left, put_in, atol=1e-3) else (hook, came + left, put_in)


def weights_after(rank, make, steps):
    """A model's weights on this rank, after steps on batches of its own."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))
    wrapped = DistributedDataParallel(model, bucket_cap_mb=0.001)
    optimizer = make(model, wrapped)
    for step in range(steps):
        torch.manual_seed(10000 * rank + step)
        optimizer.zero_grad()
        (wrapped(torch.randn(16, 16)) - 1).square().mean().backward()
        optimizer.step()
    return torch.cat([param.detach().flatten() for param in model.parameters()])


def by_topk(model, wrapped):
    wrapped.register_comm_hook(TopK(part=0.05, warmup_steps=10), compressed)
    return torch.optim.SGD(model.parameters(), lr=0.05)


def by_one_bit(cls, lr, warmup_steps):
    def make(model, wrapped):
        optimizer = cls(model.parameters(), lr=lr, warmup_steps=warmup_steps)
        wrapped.register_comm_hook(OneBitMomentum(optimizer=optimizer), compressed)
        return optimizer

    return make


def alike(rank, ranks):
    """With several buckets, in the warm-up and after it, the ranks have the same bits."""
    for name, make in (("top-k", by_topk), ("1-bit Adam", by_one_bit(OneBitAdam, 1e-2, 10)),
                       ("1-bit LAMB", by_one_bit(OneBitLamb, 1e-2, 10))):
        weights = weights_after(rank, make, 30)
        others = [torch.empty_like(weights) for _ in range(ranks)]
        dist.all_gather(others, weights)
        yield None if all(other.equal(weights) for other in others) else f"{name}: ranks differ"


def adam(rank, ranks):
    """The warm-up of 1-bit Adam is AdamW."""
    ends = [weights_after(rank, make, 20) for make in (
        by_one_bit(OneBitAdam, 1e-2, 1000), lambda model, _: torch.optim.AdamW(model.parameters(), lr=1e-2))]
    yield None if torch.allclose(*ends, rtol=1e-4, atol=1e-6) else (ends[0] - ends[1]).abs().max()


def all_of():
    """(what, what is wrong) of each group of calls."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for what, group in (("one bit an element, one scale a block", bits),
                        ("what a message leaves out is kept for the next", kept),
                        ("the ranks' weights are the same to the last bit", alike),
                        ("1-bit Adam warms up as AdamW", adam)):
        yield what, [wrong for wrong in group(rank, ranks) if wrong is not None]
