# SPDX-License-Identifier: Apache-2.0
"""The layer of experts, as every rank of a job calls it; what is wrong with it.

Scores are sums of eighths, which no order of addition rounds: the router then decides alike for a part of
the batch and for all of it, and the rest of the layer must give the same bits.
"""
import copy

import torch
import torch.distributed as dist

from kolo_train.experts import Experts, route_of

WIDTH, TIME, EXPERTS = 16, 6, 8


def layer_of(top_k, capacity, dtype):
    torch.manual_seed(3)
    layer = Experts(WIDTH, EXPERTS, top_k, capacity)
    layer.router.weight.data = torch.randint(-4, 5, (EXPERTS, WIDTH)) / 8
    return layer.to(dtype)


def eighths(samples, seed=5):
    torch.manual_seed(seed)
    return torch.randint(-8, 9, (samples, TIME, WIDTH)) / 8


def passed(layer, x, gradient):
    """Output, gradient of the input, gradients of the experts by name."""
    x = x.clone().requires_grad_()
    result = layer(x)
    result.backward(gradient)
    return result.detach(), x.grad, {name: param.grad for name, param in layer.experts.named_parameters()}


def differs(got, want):
    """What is not equal to the last bit."""
    return [name for name in want if name in got and not got[name].equal(want[name])]


def same_as_one_rank(rank, ranks, samples=2, top_k=2, capacity=0.0, dtype=torch.float32, x=None):
    """A layer divided over the ranks, each with its samples, against the whole one with all samples."""
    whole = layer_of(top_k, capacity, dtype)
    divided = copy.deepcopy(whole)
    divided.divide(dist.group.WORLD)
    x = eighths(samples * ranks) if x is None else x
    x = x.to(dtype)
    gradient = torch.randn(x.shape, generator=torch.Generator().manual_seed(7)).to(dtype)
    want_result, want_x, want = passed(whole, x, gradient)
    mine = slice(rank * samples, (rank + 1) * samples)
    result, grad_x, got = passed(divided, x[mine], gradient[mine])
    wrong = differs(got, want)
    wrong += [] if len(got) * ranks == len(want) else ["the experts are not divided evenly"]
    wrong += [] if result.equal(want_result[mine]) else ["output"]
    return wrong + ([] if grad_x.equal(want_x[mine]) else ["gradient of the input"])


def exact(rank, ranks):
    """Numbers of experts a token sees, capacities, types."""
    for options in ({}, {"top_k": 1}, {"top_k": EXPERTS}, {"top_k": 3, "capacity": 0.5},
                    {"capacity": 1.0}, {"dtype": torch.bfloat16}, {"samples": 5}):
        yield from same_as_one_rank(rank, ranks, **options)


def uneven(rank, ranks):
    """All tokens to the same experts, so that most ranks compute nothing; a rank without tokens."""
    yield from same_as_one_rank(rank, ranks, x=eighths(1).expand(2 * ranks, -1, -1).clone())
    layer = layer_of(2, 0.0, torch.float32)
    whole = copy.deepcopy(layer)
    layer.divide(dist.group.WORLD)
    x = eighths(3 if rank == 0 else 0)
    result, gradient, _ = passed(layer, x, torch.ones_like(x))
    if rank == 0:
        want, want_gradient, _ = passed(whole, x, torch.ones_like(x))
        yield None if result.equal(want) and gradient.equal(want_gradient) else "rank 0 alone has tokens"


def by_definition(layer, x):
    """The sum over all experts of what each makes of all tokens, most of them with a weight of zero."""
    best, chosen = layer.router(x).topk(layer.top_k, dim=-1)
    weight = torch.zeros(*x.shape[:2], EXPERTS, dtype=x.dtype).scatter(-1, chosen, best.softmax(-1))
    return sum(weight[..., e : e + 1] * expert(x) for e, expert in enumerate(layer.experts.values()))


def defined(rank, ranks):
    """Output and all gradients, the router's too, are those of the definition; capacity is kept."""
    layer = layer_of(3, 0.0, torch.float64)
    x = eighths(2, seed=rank).double()
    gradient = torch.randn(x.shape, dtype=torch.float64)
    ends = []
    for forward in (layer, lambda tokens: by_definition(layer, tokens)):
        here = x.clone().requires_grad_()
        layer.zero_grad()
        result = forward(here)
        result.backward(gradient)
        ends.append([result.detach(), here.grad, *(param.grad.clone() for param in layer.parameters())])
    yield from (f"{number} is not as defined" for number, (got, want) in enumerate(zip(*ends, strict=True))
                if not torch.allclose(got, want, rtol=1e-5, atol=1e-5))
    route = route_of(layer.router(x), 3, 0.5)
    most = 2  # ceil(0.5 * 3 * 6 / 8)
    counts = torch.zeros(2, EXPERTS, dtype=torch.long)
    experts = torch.repeat_interleave(torch.arange(EXPERTS), route.per_expert)
    counts.index_put_((route.token // TIME, experts), torch.tensor(1), accumulate=True)
    yield None if int(counts.max()) == most and int(counts.sum()) < 2 * TIME * 3 else counts


def all_of():
    """(what, what is wrong) of each group of calls."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for what, group in (("divided, they give what one rank gives to the last bit", exact),
                        ("experts and ranks without tokens are no harm", uneven),
                        ("output and gradients are as defined, within the capacity", defined)):
        yield what, [wrong for wrong in group(rank, ranks) if wrong is not None]
