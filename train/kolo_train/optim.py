# SPDX-License-Identifier: Apache-2.0
"""The optimizer: float32 masters of 2-byte parameters, loss scaling, and state kept elsewhere.

Mixed precision as in Micikevicius et al. 2018 (arXiv:1710.03740): parameters and gradients have 2 bytes
each; the optimizer keeps 12 more for each parameter, a float32 master and Adam's two moments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from kolo_train.compression import OneBitAdam, OneBitLamb
from kolo_train.config import Config
from kolo_train.disk import Streamed

BASES: dict[str, type[torch.optim.Optimizer]] = {
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "1bit-adam": OneBitAdam,
    "1bit-lamb": OneBitLamb,
}


def on_host(tensor: Tensor) -> Tensor:
    """A copy of a GPU's tensor in pinned memory, which the GPU writes without a detour."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor)


def local(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor: its shard of a DTensor, else all of it."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def local_gradient(param: Tensor) -> Tensor | None:
    """This rank's part of a parameter's gradient, divided as the parameter is."""
    gradient = param.grad
    if isinstance(param, DTensor) and isinstance(gradient, DTensor):
        # What autograd leaves may still be a sum over ranks to be made, as for an embedding.
        return gradient.redistribute(param.device_mesh, param.placements).to_local()
    return gradient


class Optimizer(torch.optim.Optimizer):
    """A torch optimizer over what this rank holds of `params`, with float32 masters where a parameter
    has 2 bytes or its state lives elsewhere.

    `place` says where masters and state live: beside the parameters; in `host` memory, where the update then
    runs (ZeRO-Offload, Ren et al. 2021, arXiv:2101.06840); or on `disk`, from where they are streamed.

    A parameter with a master has an optimizer of its own, so that no more than one gradient at a time
    is widened to float32. `grad_scale` divides the gradients of the next step.
    """

    def __init__(self, params: Any, base: type[torch.optim.Optimizer], place: str = "none", **defaults: Any) -> None:
        super().__init__(params, defaults)
        self.place = place
        self.grad_scale = 1.0
        self.masters: list[Tensor] = []
        self.parts: list[tuple[list[nn.Parameter], list[Tensor], torch.optim.Optimizer]] = []
        self.streamed: Streamed | None = None
        everything = [param for group in self.param_groups for param in group["params"]]
        if place == "disk":
            self.everything = everything
            self.streamed = Streamed([local(param.detach()) for param in everything], base, **defaults)
            return
        plain = [param for param in everything if not self._needs_master(param)]
        if plain:
            shards = [local(param).detach() if isinstance(param, DTensor) else param for param in plain]
            self.parts.append((plain, shards, base(shards, **defaults)))
        for param in everything:
            if self._needs_master(param):
                master = self._keep(local(param))
                self.masters.append(master)
                self.parts.append(([param], [master], base([master], **defaults)))

    def _needs_master(self, param: Tensor) -> bool:
        return param.dtype != torch.float32 or self.place != "none"

    def _keep(self, tensor: Tensor) -> Tensor:
        """A float32 copy of the tensor in its place."""
        if self.place == "none":
            return tensor.detach().float().clone()
        kept = torch.empty(tensor.shape, dtype=torch.float32, pin_memory=tensor.is_cuda)
        return kept.copy_(tensor.detach())

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        assert closure is None, "losses are computed before the step"
        if self.streamed:
            self.streamed.step(lambda number: local_gradient(self.everything[number]), self.grad_scale)
            return
        for params, masters, optimizer in self.parts:
            for param, master in zip(params, masters, strict=True):
                gradient = local_gradient(param)
                if gradient is not None:
                    gradient = on_host(gradient) if gradient.is_cuda and not master.is_cuda else gradient
                    gradient = gradient.to(master.dtype)
                    master.grad = gradient if self.grad_scale == 1.0 else gradient / self.grad_scale
            optimizer.step()
            for master in masters:
                master.grad = None
        self.publish()

    def updated(self) -> list[Tensor]:
        """What steps change: a master where a parameter has one, else what this rank holds of it."""
        return [master for _, masters, _ in self.parts for master in masters]

    @torch.no_grad()
    def publish(self) -> None:
        """Copy the masters to their parameters."""
        for params, masters, _ in self.parts:
            for param, master in zip(params, masters, strict=True):
                if self._needs_master(param):
                    local(param.detach()).copy_(master)

    def whole_state(self) -> list[tuple[list[Tensor], dict[str, Any]]]:
        """What another rank needs to go on with the same updates: masters, and the state of each part."""
        return [
            (masters if self._needs_master(params[0]) else [], part.state_dict())
            for params, masters, part in self.parts
        ]

    @torch.no_grad()
    def load_whole_state(self, state: list[tuple[list[Tensor], dict[str, Any]]]) -> None:
        """Go on with what whole_state() gave on another rank."""
        for (_, own, part), (masters, words) in zip(self.parts, state, strict=True):
            for mine, master in zip(own, masters, strict=False):
                mine.copy_(master)
            part.load_state_dict(words)

    def tensors(self) -> Iterator[Tensor]:
        """All that this rank keeps for its updates in memory: masters, moments."""
        yield from self.masters
        yield from self.streamed.views if self.streamed else ()
        for _, _, optimizer in self.parts:
            for state in optimizer.state.values():
                yield from (value for value in state.values() if torch.is_tensor(value))


def optimizer_arguments(config: Config) -> dict[str, Any]:
    """What Optimizer takes, beside the parameters, for this run."""
    arguments = {"base": BASES[config.optimizer], "place": config.offload, "lr": config.lr}
    if config.optimizer.startswith("1bit"):
        arguments["warmup_steps"] = config.warmup_steps
    return arguments | ({"momentum": config.momentum} if config.optimizer == "sgd" else {})


class LossScaler:
    """Dynamic loss scaling: the loss is multiplied so that small gradients do not vanish in fp16; a
    gradient that overflows on any rank skips the step on all and halves the scale, and `interval` steps
    without one double it. With a scale of 1 it does nothing. `device`: where the ranks agree, alike on
    those that have gradients and those that have none."""

    def __init__(self, scale: float, device: str, interval: int = 200) -> None:
        self.scale = scale
        self.device = device
        self.enabled = scale != 1.0
        self.interval = interval
        self.good_steps = 0
        self.skipped = 0

    def step(self, step: Callable[[], object], gradients: Iterable[Tensor], shared: bool = True) -> bool:
        """Call `step` unless a gradient is not finite; false if it was skipped.

        `shared`: all ranks make this call, and make the step only if it is good on every one.
        """
        if not self.enabled:
            step()
            return True
        if not self._is_finite(gradients, shared):
            self.scale = max(1.0, self.scale / 2)
            self.good_steps = 0
            self.skipped += 1
            return False
        step()
        self.good_steps += 1
        if self.good_steps % self.interval == 0:
            self.scale *= 2
        return True

    def _is_finite(self, gradients: Iterable[Tensor], shared: bool) -> bool:
        flags = [(~torch.isfinite(local(grad))).any() for grad in gradients]
        bad = torch.stack(flags).any().float() if flags else torch.zeros((), device=self.device)
        if shared and dist.is_initialized():
            dist.all_reduce(bad, op=dist.ReduceOp.MAX)
        return not bad.item()


def scaler_of(config: Config) -> LossScaler:
    """bf16 has float32's range and needs no scale."""
    return LossScaler(config.loss_scale if config.precision == "fp16" else 1.0, config.device)
