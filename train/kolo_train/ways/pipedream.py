# SPDX-License-Identifier: Apache-2.0
"""Pipelines that are never flushed: PipeDream and PipeDream-2BW.

A flushed pipeline (`pp-1f1b`) is idle while it fills and drains in every step. These fill once. The price
is that a gradient is computed with weights that lack the last updates. With S stages, stage s of 0 to S - 1
makes w(t + 1) = w(t) - gradient of batch t, at the weights

- w(t - (S - 1 - s))  `pp-pipedream` (Narayanan et al. 2019, doi:10.1145/3341301.3359646): stage s runs
                      S - 1 - s batches ahead of its updates;
- w(t - (S - 1))      the same with --vertical-sync: all stages take the same version for a batch;
- w(t - 1)            `pp-2bw` (Narayanan et al. 2021, arXiv:2006.09503): a batch has as many micro-batches
                      as stages or more, and two versions are enough.

Backward needs the weights that forward had, so a stage keeps a copy of each version in use (weight
stashing). Numbers below 0 mean the first weights.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from kolo_train.config import Config, UsageError
from kolo_train.job import Job
from kolo_train.memory import Memory, bytes_of
from kolo_train.models import Layers, loss_of
from kolo_train.timeline import Timeline
from kolo_train.ways.base import State, Way, merged
from kolo_train.ways.pp import cuts

Weights = dict[str, Tensor]


@dataclass
class Flight:
    """A micro-batch between its forward and its backward on this stage."""

    weights: Weights
    came: Tensor  # the activations that the stage before sent, or the samples
    result: Tensor  # the activations that the next stage got, or the loss


def staleness(config: Config, stage: int, stages: int) -> int:
    """How many updates the weights of a gradient lack, on a stage."""
    if config.parallel == "pp-2bw":
        return 1
    return stages - 1 if config.vertical_sync else stages - 1 - stage


class PipeDream(Way):
    """One stage on each rank."""

    synchronous = False

    def __init__(self, config: Config, job: Job) -> None:
        self.stages, self.stage = job.ranks, job.rank
        self.is_first, self.is_last = job.rank == 0, job.rank == job.ranks - 1
        self.ahead = self.stages - 1 - self.stage  # micro-batches between forward and backward
        self.staleness = staleness(config, self.stage, self.stages)
        self.parts = self._micro_batches(config)
        if config.precision == "fp16":
            raise UsageError(f"--parallel {config.parallel} has no loss scale that all stages share: --precision bf16")
        if config.batch % self.parts:
            raise UsageError(f"--batch {config.batch} cannot be cut into {self.parts} micro-batches")
        self.timeline: Timeline = Timeline()
        self.steps = 0
        self.forwarded = 0  # micro-batches, of all batches
        self.updates = 0
        self.most_bytes = 0  # of stashed weights
        self.in_flight: deque[Flight] = deque()
        self.sending: deque[tuple[dist.Work, Tensor]] = deque()
        self.batches: dict[int, list[tuple[Tensor, Tensor]]] = {}
        super().__init__(config, job)
        self.versions = {0: self._copy()}

    def _micro_batches(self, config: Config) -> int:
        """Of a batch."""
        if config.parallel == "pp-pipedream":
            if config.accumulate > 1:
                raise UsageError("--parallel pp-pipedream updates after each batch: pp-2bw can --accumulate")
            return 1
        if 1 < config.accumulate < self.stages:
            raise UsageError(f"--accumulate {config.accumulate} is less than the {self.stages} stages of pp-2bw")
        return config.accumulate if config.accumulate > 1 else self.stages

    def spread(self, model: Layers) -> nn.Module:
        pieces = cuts(len(model), self.stages)
        first, end = pieces[self.stage]
        part = model.part(first, end)
        # What the stage before sends has the shape that its last layer gives here.
        x, _ = self.data.batch(0)
        with torch.no_grad():
            self.shape = model.part(0, first)(x[: self.config.batch // self.parts]).shape if first else x.shape
        return part

    # ---- versions of weights

    def _copy(self) -> Weights:
        """The weights as they are now, to be kept."""
        return {name: param.detach().clone().requires_grad_() for name, param in self.model.named_parameters()}

    def _needed(self, batch: int) -> int:
        """The version that a batch takes."""
        return max(0, batch - self.staleness)

    def _drop_versions(self) -> None:
        """Those that no batch will take any more; who is in flight keeps his own."""
        oldest = self._needed(self.forwarded // self.parts)
        self.versions = {number: weights for number, weights in self.versions.items() if number >= oldest}
        held = {id(weights): weights for weights in self.versions.values()}
        held |= {id(flight.weights): flight.weights for flight in self.in_flight}
        stashed = sum(bytes_of(weights.values()) for weights in held.values())
        self.most_bytes = max(self.most_bytes, stashed)

    # ---- a step

    def finished(self, number: int, steps: int) -> bool:
        self.steps = steps
        return number >= steps

    def step(self, number: int) -> float | None:
        """Update with batch `number`; the forwards of later batches are under way meanwhile."""
        total = 0.0
        for part in range(self.parts):
            here = number * self.parts + part
            while self.forwarded <= min(here + self.ahead, self.steps * self.parts - 1):
                self._forward(self.forwarded)
                self.forwarded += 1
            total += self._backward()
        self.update()
        self.updates += 1
        self.versions[self.updates] = self._copy()
        self._drop_versions()
        self.batches.pop(number, None)
        return total if self.is_last else None

    def _micro_batch(self, number: int) -> tuple[Tensor, Tensor]:
        """Of all micro-batches; a batch is made once for all of its own."""
        batch, part = divmod(number, self.parts)
        if batch not in self.batches:
            x, y = self.data.batch(batch)
            self.batches[batch] = list(zip(x.chunk(self.parts), y.chunk(self.parts), strict=True))
        return self.batches[batch][part]

    def _forward(self, number: int) -> None:
        weights = self.versions[self._needed(number // self.parts)]
        if self.is_first:
            came, _ = self._micro_batch(number)
        else:
            dtype = next(self.model.parameters()).dtype
            came = torch.empty(self.shape, dtype=dtype, device=self.job.device)
            dist.recv(came, src=self.stage - 1)
            came.requires_grad_()
        with self.timeline.span("forward"):
            result = self._through(weights, came)
            if self.is_last:
                _, y = self._micro_batch(number)
                result = loss_of(result, y) / self.parts
        if not self.is_last:
            self._send(result.detach(), self.stage + 1)
        self.in_flight.append(Flight(weights, came, result))
        self._drop_versions()

    def _through(self, weights: Weights, x: Tensor) -> Tensor:
        """The stage's layers with these weights, also where backward computes them again."""
        for name, layer in self.model.named_children():
            prefix = name + "."
            own = {key.removeprefix(prefix): value for key, value in weights.items() if key.startswith(prefix)}
            if self.config.recompute:
                x = checkpoint(functional_call, layer, own, (x,), use_reentrant=False, early_stop=False)
            else:
                x = functional_call(layer, own, (x,))
        return x

    def _backward(self) -> float:
        """Of the oldest micro-batch in flight; its part of the loss, on the last stage."""
        flight = self.in_flight.popleft()
        gradient = None
        if not self.is_last:
            gradient = torch.empty_like(flight.result)
            dist.recv(gradient, src=self.stage + 1)
        with self.timeline.span("backward"):
            flight.result.backward(gradient)
        if not self.is_first:
            assert flight.came.grad is not None
            self._send(flight.came.grad, self.stage - 1)
        for name, param in self.model.named_parameters():
            stashed = flight.weights[name]
            if stashed.grad is not None:
                param.grad = stashed.grad if param.grad is None else param.grad + stashed.grad
                stashed.grad = None
        return flight.result.item() if self.is_last else 0.0

    def _send(self, tensor: Tensor, stage: int) -> None:
        """Without a wait: the other stage may be about to send to this one. Sends that are done are let go."""
        tensor = tensor.contiguous()
        work = dist.isend(tensor, dst=stage)
        assert work is not None
        self.sending.append((work, tensor))
        while self.sending and self.sending[0][0].is_completed():
            self.sending.popleft()[0].wait()

    def wait_for_calls(self) -> None:
        while self.sending:
            self.sending.popleft()[0].wait()

    def finish(self) -> None:
        self.wait_for_calls()

    # ---- who holds what

    @property
    def reports(self) -> bool:
        return self.is_last

    def full_state(self) -> State:
        return merged([dict(self.model.state_dict())], self.job)

    def measure_memory(self) -> Memory:
        memory = super().measure_memory()
        memory.parameters += self.most_bytes
        return memory

    def notes(self) -> list[str]:
        whole = bytes_of(self.model.parameters())
        kept = f"{self.most_bytes / whole:.0f} copies of its weights"
        return [f"stage {self.stage} of {self.stages}: gradients {self.staleness} updates old, {kept} at most"]
