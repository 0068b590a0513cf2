# SPDX-License-Identifier: Apache-2.0
"""Gradients fused into buffers, one all-reduce each, that start during backward.

A buffer takes the parameters in reverse order, which is about the order in which backward reaches them,
up to a number of bytes. Buffers start in their order on all ranks, whatever the order of the gradients.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

THRESHOLD = 128 << 20


def fusion_threshold() -> int:
    """The most bytes of one all-reduce: HOROVOD_FUSION_THRESHOLD."""
    return int(os.environ.get("HOROVOD_FUSION_THRESHOLD", THRESHOLD))


class Plain:
    """Tensors travel as they are."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        """What travels, and what decompress() needs to know."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Tensor, context: Any) -> Tensor:
        """The tensor that came."""
        return tensor


class Half(Plain):
    """Floats travel as float16."""

    @staticmethod
    def compress(tensor: Tensor) -> tuple[Tensor, Any]:
        return (tensor.half() if tensor.is_floating_point() else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: Tensor, context: Any) -> Tensor:
        return tensor.to(context)


@dataclass
class Buffer:
    """Parameters whose gradients are reduced by one call."""

    params: list[nn.Parameter]
    missing: int = 0
    sent: Tensor | None = None
    context: Any = None
    work: dist.Work | None = None


def buffers_of(params: Iterable[nn.Parameter], threshold: int) -> list[Buffer]:
    """Neighbours of one type and device, as many as fit."""
    buffers: list[Buffer] = []
    room = 0
    for param in params:
        last = buffers[-1].params[0] if buffers else None
        taken = param.numel() * param.element_size()
        if last is None or taken > room or (last.dtype, last.device) != (param.dtype, param.device):
            buffers.append(Buffer([]))
            room = threshold
        buffers[-1].params.append(param)
        room -= taken
    return buffers


@dataclass
class Fusion:
    """The gradients of some parameters, which become means (or sums) over all ranks."""

    params: list[nn.Parameter]
    compression: type[Plain] = Plain
    passes: int = 1
    average: bool = True
    threshold: int = field(default_factory=fusion_threshold)

    def __post_init__(self) -> None:
        self.buffers = buffers_of(reversed(self.params), self.threshold)
        self.home = {param: buffer for buffer in self.buffers for param in buffer.params}
        self.seen = dict.fromkeys(self.params, 0)
        self.started = 0
        self.begin()
        self.hooks = [param.register_post_accumulate_grad_hook(self.arrived) for param in self.params]

    def begin(self) -> None:
        """No gradient is there yet."""
        self.started = 0
        for param in self.params:
            self.seen[param] = 0
        for buffer in self.buffers:
            buffer.missing, buffer.sent, buffer.work = len(buffer.params), None, None

    def arrived(self, param: nn.Parameter) -> None:
        """A backward pass has added to this gradient."""
        if self.started == len(self.buffers) and not any(buffer.work for buffer in self.buffers):
            self.begin()  # those of the last step were reduced
        if self.seen[param] == self.passes:
            raise RuntimeError(f"backward() ran more than {self.passes} times before step()")
        self.seen[param] += 1
        if self.seen[param] == self.passes:
            self.home[param].missing -= 1
            while self.started < len(self.buffers) and self.buffers[self.started].missing == 0:
                self.start(self.buffers[self.started])

    def start(self, buffer: Buffer) -> None:
        """Begin the all-reduce of a buffer. A parameter without a gradient here has one of zeros."""
        self.started += 1
        for param in buffer.params:
            if param.grad is None:
                param.grad = torch.zeros_like(param)
        flat = torch.cat([param.grad.reshape(-1) for param in buffer.params if param.grad is not None])
        if self.average:
            flat.div_(dist.get_world_size())  # first: in float16 the sum could overflow
        buffer.sent, buffer.context = self.compression.compress(flat)
        buffer.work = dist.all_reduce(buffer.sent, async_op=True)

    def finish(self) -> None:
        """Wait for all, after the buffers that no backward pass has filled were sent, too."""
        while self.started < len(self.buffers):
            self.start(self.buffers[self.started])
        for buffer in self.buffers:
            if buffer.work is not None and buffer.sent is not None:
                buffer.work.wait()
                self.spread(buffer, self.compression.decompress(buffer.sent, buffer.context))
                buffer.work = buffer.sent = None

    @staticmethod
    def spread(buffer: Buffer, flat: Tensor) -> None:
        """The reduced values become the gradients."""
        parts = flat.split([param.numel() for param in buffer.params])
        for param, part in zip(buffer.params, parts, strict=True):
            assert param.grad is not None
            param.grad.copy_(part.view_as(param))


def fusion_of(optimizer: torch.optim.Optimizer) -> Fusion:
    """The gradients of a DistributedOptimizer()."""
    assert isinstance(optimizer, _Distributed)
    return optimizer.fusion


class _Distributed:
    """What DistributedOptimizer() adds to the class of an optimizer."""

    fusion: Fusion
    synchronizes: bool

    def synchronize(self) -> None:
        """Wait until the gradients are those of all ranks; step() does so by itself."""
        self.fusion.finish()

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """step() inside, after synchronize() and a change of the gradients."""
        self.synchronizes = False
        try:
            yield
        finally:
            self.synchronizes = True

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Synchronize, then step."""
        if self.synchronizes:
            self.synchronize()
        return super().step(closure) if closure is not None else super().step()  # type: ignore[misc]


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, nn.Parameter]] | None = None,
    compression: type[Plain] = Plain,
    backward_passes_per_step: int = 1,
    op: str = "average",
) -> torch.optim.Optimizer:
    """The optimizer itself, whose step() takes the means of all ranks' gradients.

    op: "average" or "sum". backward_passes_per_step: gradients of so many passes are added first.
    Raises ValueError for another op, or names that are not unique.
    """
    if op not in ("average", "sum"):
        raise ValueError(f"op is {op!r}; gradients are averaged or summed")
    names = [name for name, _ in named_parameters or ()]
    if len(set(names)) < len(names):
        raise ValueError("named_parameters has a name twice")
    params = [param for group in optimizer.param_groups for param in group["params"] if param.requires_grad]
    cls = optimizer.__class__
    optimizer.__class__ = type(f"Distributed{cls.__name__}", (_Distributed, cls), {})
    own: Any = optimizer
    own.fusion = Fusion(params, compression, backward_passes_per_step, op == "average")
    own.synchronizes = True
    return optimizer
