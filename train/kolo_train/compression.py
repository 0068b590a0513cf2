# SPDX-License-Identifier: Apache-2.0
"""Gradients that travel compressed, as communication hooks of DistributedDataParallel.

What compression loses in one step is kept and added in the next (error feedback; Seide et al. 2014,
doi:10.21437/Interspeech.2014-274; Karimireddy et al. 2019, arXiv:1901.09847), so nothing is lost for good.
The first steps travel whole: DDP arranges its buckets anew after one step, and methods need a warm-up.

    model.register_comm_hook(TopK(part=0.01, warmup_steps=20), compressed)   # the largest 1 % of the elements

    optimizer = OneBitAdam(model.parameters(), warmup_steps=50)
    model.register_comm_hook(OneBitMomentum(optimizer=optimizer), compressed)

All ranks get the same bits: they decode the same messages and add them in the same order.
"""

import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

BLOCK = 256
"""Neighbours that share a scale in one-bit messages."""

# PyTorch 2.13 renames it.
all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)

Exchange = Generator[dist.Work, None, Tensor]


@dataclass
class _Running:
    exchange: Exchange
    waits_for: dist.Work
    future: torch.futures.Future[Tensor]


@dataclass
class Hook:
    """A hook whose exchange may have several calls, one after the other.

    A call is made when the bucket after it comes, or else after the last bucket: so calls overlap with
    backward and have the same order on all ranks, which the completion of calls has not.
    """

    group: dist.ProcessGroup | None = None
    errors: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    running: list[_Running] = field(default_factory=list)

    def exchange(self, bucket: dist.GradBucket) -> Exchange:
        """Yields calls under way, returns the bucket's new content."""
        raise AssertionError("a subclass says how")

    def stepped(self) -> None:
        """The last bucket of a step was seen."""

    def start(self, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """Begin the exchange of a bucket; all of a step are over when this was called for the last one."""
        future: torch.futures.Future[Tensor] = torch.futures.Future()
        exchange = self.exchange(bucket)
        self._advance()
        self.running.append(_Running(exchange, next(exchange), future))
        if bucket.is_last():
            while self.running:
                self._advance()
            self.stepped()
        return future

    def _advance(self) -> None:
        """Each exchange goes one call on."""
        going_on = []
        for one in self.running:
            one.waits_for.wait()
            try:
                one.waits_for = next(one.exchange)
                going_on.append(one)
            except StopIteration as end:
                one.future.set_result(end.value)
        self.running = going_on

    def with_error(self, kind: str, bucket: dist.GradBucket, values: Tensor) -> Tensor:
        """The values and what was lost of them before; lost() replaces that."""
        error = self.errors.get((kind, bucket.index()))
        return values if error is None or error.shape != values.shape else values + error

    def lost(self, kind: str, bucket: dist.GradBucket, error: Tensor) -> None:
        """What a message leaves out."""
        self.errors[kind, bucket.index()] = error

    def whole(self, bucket: dist.GradBucket) -> Exchange:
        """The mean over ranks, uncompressed."""
        values = bucket.buffer().div_(dist.get_world_size(self.group))
        yield _under_way(dist.all_reduce(values, group=self.group, async_op=True))
        return values

    def tensors(self) -> Iterator[Tensor]:
        """What the hook keeps between steps."""
        yield from self.errors.values()


def compressed(state: Hook, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
    """For register_comm_hook(), with the hook as its state."""
    return state.start(bucket)


def _under_way(work: dist.Work | None) -> dist.Work:
    assert work is not None
    return work


@dataclass
class TopK(Hook):
    """The largest elements only, with their places (Stich et al. 2018, arXiv:1809.07599)."""

    part: float = 0.01
    warmup_steps: int = 20
    steps: int = 0

    def stepped(self) -> None:
        self.steps += 1

    def exchange(self, bucket: dist.GradBucket) -> Exchange:
        return self.whole(bucket) if self.steps < self.warmup_steps else self._largest(bucket)

    def _largest(self, bucket: dist.GradBucket) -> Exchange:
        buffer, ranks = bucket.buffer(), dist.get_world_size(self.group)
        values = self.with_error("rank", bucket, buffer.float() / ranks)
        count = max(1, round(self.part * len(values)))
        places = values.abs().topk(count, sorted=False).indices
        # Values and places travel as one message of 8 bytes an element.
        message = torch.stack([values[places].view(torch.int32), places.int()])
        self.lost("rank", bucket, values.index_fill(0, places, 0.0))
        messages = message.new_empty(ranks, *message.shape)
        yield _under_way(all_gather(messages.flatten(0, 1), message, group=self.group, async_op=True))
        total = torch.zeros_like(values)
        for came, where in messages.unbind():
            total.index_add_(0, where, came.view(torch.float32))
        return buffer.copy_(total)


# ---- one bit an element


def pack(values: Tensor) -> tuple[Tensor, Tensor]:
    """Signs [blocks, BLOCK / 8] as bits, and the mean size of each block [blocks], of [blocks * BLOCK]."""
    blocks = values.view(-1, BLOCK)
    bits = (blocks >= 0).view(len(blocks), -1, 8).to(torch.uint8)
    powers = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=values.device)
    return (bits * powers).sum(-1, dtype=torch.uint8), blocks.abs().mean(1)


def unpack(signs: Tensor, scales: Tensor) -> Tensor:
    """Plus or minus the block's scale, [blocks * BLOCK]."""
    places = torch.arange(8, dtype=torch.uint8, device=signs.device)
    plus = (signs.unsqueeze(-1) >> places) & 1
    return ((plus.view(-1, BLOCK).float() * 2 - 1) * scales.unsqueeze(1)).flatten()


def one_bit_mean(hook: Hook, bucket: dist.GradBucket, values: Tensor) -> Exchange:
    """The mean of float32 values over ranks, by messages of one bit an element (Tang et al. 2021,
    arXiv:2102.02888, section 4): each rank averages a piece that all have sent it, and sends that to all.
    Both messages have error feedback."""
    ranks = dist.get_world_size(hook.group)
    piece = -(-len(values) // (ranks * BLOCK)) * BLOCK
    whole = torch.zeros(ranks * piece, device=values.device)
    whole[: len(values)] = values
    whole = hook.with_error("rank", bucket, whole)
    mine = torch.cat([part.view(ranks, -1).view(torch.uint8) for part in pack(whole)], dim=1)
    signs, scales = _parts(mine, piece)
    hook.lost("rank", bucket, whole - unpack(signs, scales))
    came = torch.empty_like(mine)
    yield _under_way(dist.all_to_all_single(came, mine, group=hook.group, async_op=True))

    mean = unpack(*_parts(came, piece)).view(ranks, piece).sum(0) / ranks
    mean = hook.with_error("piece", bucket, mean)
    mine = torch.cat([part.view(1, -1).view(torch.uint8) for part in pack(mean)], dim=1)
    hook.lost("piece", bucket, mean - unpack(*_parts(mine, piece)))
    yield _under_way(all_gather(came, mine, group=hook.group, async_op=True))
    return unpack(*_parts(came, piece))[: len(values)]


def _parts(messages: Tensor, piece: int) -> tuple[Tensor, Tensor]:
    """Signs and scales of messages [ranks, bytes], each of `piece` elements."""
    signs, scales = messages.split([piece // 8, 4 * piece // BLOCK], dim=1)
    return signs.reshape(-1, BLOCK // 8), scales.contiguous().view(torch.float32).flatten()


class OneBitAdam(torch.optim.Optimizer):
    """Adam until `warmup_steps`; from then on with the second moments of that step, and with first moments
    that OneBitMomentum has put in the place of the gradients. Weight decay is AdamW's.

    warmup_steps: 1 or more. Moments must have settled: a small second moment makes large steps for ever.
    """

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        warmup_steps: int = 100,
    ) -> None:
        if warmup_steps < 1:
            raise ValueError(f"warmup_steps is {warmup_steps}: the second moments take 1 step or more")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.warmup_steps, self.steps = warmup_steps, 0

    @property
    def is_frozen(self) -> bool:
        """Gradients are first moments now."""
        return self.steps >= self.warmup_steps

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        assert closure is None, "losses are computed before the step"
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    update = self._moved(param, group)
                    update += group["weight_decay"] * param
                    param.add_(update, alpha=-group["lr"] * self.trust(param, update, group))
        self.steps += 1

    def _moved(self, param: Tensor, group: dict[str, Any]) -> Tensor:
        """Adam's direction, after the moments took the gradient."""
        state, (beta1, beta2) = self.state[param], group["betas"]
        if not state:
            state |= {"exp_avg": torch.zeros_like(param), "exp_avg_sq": torch.zeros_like(param)}
        first, second = state["exp_avg"], state["exp_avg_sq"]
        if self.is_frozen:
            self.refresh(param, group)
            first.copy_(param.grad)
        else:
            first.lerp_(param.grad, 1 - beta1)
            second.mul_(beta2).addcmul_(param.grad, param.grad, value=1 - beta2)
        settled = 1 - beta2 ** min(self.steps + 1, self.warmup_steps)
        root = (second / settled).sqrt_().add_(group["eps"])
        return first / (1 - beta1 ** (self.steps + 1)) / root

    def refresh(self, param: Tensor, group: dict[str, Any]) -> None:
        """A new first moment has come; the state has the old one."""

    def trust(self, param: Tensor, update: Tensor, group: dict[str, Any]) -> float:
        """What multiplies the rate of a parameter."""
        return 1.0


class OneBitLamb(OneBitAdam):
    """LAMB (You et al. 2020, arXiv:1904.00962) with one bit (Li et al. 2021, arXiv:2104.06069).

    After the warm-up the trust ratio is the mean of the warm-up's, times how much the second moments,
    which first moments tell of, have changed since then: 0.5 to 4 times, by a tenth a step at most.
    """

    def refresh(self, param: Tensor, group: dict[str, Any]) -> None:
        state, (beta1, beta2) = self.state[param], group["betas"]
        if "fresh" not in state:
            state |= {"fresh": state["exp_avg_sq"].clone(), "factor": 1.0}
        gradient = (param.grad - beta1 * state["exp_avg"]) / (1 - beta1)
        state["fresh"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        eps = group["eps"]
        ratio = float(((state["exp_avg_sq"].sqrt() + eps) / (state["fresh"].sqrt() + eps)).max())
        last = state["factor"]
        state["factor"] = min(max(ratio, 0.5, 0.9 * last), 4.0, 1.1 * last)

    def trust(self, param: Tensor, update: Tensor, group: dict[str, Any]) -> float:
        state = self.state[param]
        if self.is_frozen:
            return float(state["mean_trust"] * state["factor"])
        weights, step = float(param.norm()), float(update.norm())
        ratio = min(max(weights / step, 0.01), 10.0) if weights > 0 and step > 0 else 1.0
        state["mean_trust"] = math.fsum((0.9 * state.get("mean_trust", ratio), 0.1 * ratio))
        return ratio


@dataclass
class OneBitMomentum(Hook):
    """Means of gradients during the warm-up of a OneBitAdam or OneBitLamb; then means of first moments."""

    optimizer: OneBitAdam = field(kw_only=True)

    def exchange(self, bucket: dist.GradBucket) -> Exchange:
        return self._momentum(bucket) if self.optimizer.is_frozen else self.whole(bucket)

    def _momentum(self, bucket: dist.GradBucket) -> Exchange:
        buffer = bucket.buffer()
        (beta1, _) = self.optimizer.param_groups[0]["betas"]
        before = torch.cat([self.optimizer.state[param]["exp_avg"].flatten() for param in bucket.parameters()])
        after = yield from one_bit_mean(self, bucket, before.lerp_(buffer.float(), 1 - beta1))
        return buffer.copy_(after)
