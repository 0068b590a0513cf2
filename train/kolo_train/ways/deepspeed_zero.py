# SPDX-License-Identifier: Apache-2.0
"""ZeRO stages 1, 2 and 3 by the library that they come from (Rajbhandari et al. 2020, arXiv:1910.02054).

DeepSpeed's engine takes over backward, gradient accumulation, mixed precision and the optimizer's step;
what it sends goes through the process group that this job has joined, so over kolo as over any backend.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from kolo_train.config import Config, UsageError
from kolo_train.job import Job
from kolo_train.memory import bytes_of
from kolo_train.models import Layers, loss_of
from kolo_train.optim import BASES
from kolo_train.ways.base import State, Way

try:
    # DeepSpeed asks once, when it is imported, what it computes on.
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed
except ImportError as error:
    raise UsageError(f"--parallel deepspeed-... needs the package deepspeed: pip install deepspeed ({error})") from error


class DeepSpeed(Way):
    """deepspeed.initialize() on the model; the stage is the last letter of --parallel's word."""

    def __init__(self, config: Config, job: Job) -> None:
        if config.offload != "none":
            raise UsageError(f"--parallel {config.parallel} keeps the optimizer beside the parameters: --offload none")
        if config.precision == "fp16" and config.device == "cpu":
            raise UsageError(f"--parallel {config.parallel} has no fp16 on the CPU: --precision bf16")
        self.stage = int(config.parallel[-1])
        if self.stage == 3 and config.recompute:
            # It frees a layer's parameters after the second forward, too, which then lack in backward.
            raise UsageError(f"--parallel {config.parallel} cannot --recompute; deepspeed-zero2 and zero3 can")
        super().__init__(config, job)
        # The engine scales the loss itself.
        self.scaler.scale, self.scaler.enabled = 1.0, False

    def spread(self, model: Layers) -> nn.Module:
        logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
        # It would compile an all-reduce of its own for inference, which training never calls.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        rate = {"momentum": self.config.momentum} if self.config.optimizer == "sgd" else {}
        optimizer = BASES[self.config.optimizer](model.parameters(), lr=self.config.lr, **rate)
        self.engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=self._engine_config())
        return self.engine

    def _engine_config(self) -> dict[str, Any]:
        # Powers of two only, as DeepSpeed counts them.
        scale = max(0, round(self.config.loss_scale).bit_length() - 1)
        return {
            "train_micro_batch_size_per_gpu": self.config.batch // (self.job.ranks * self.config.accumulate) or 1,
            "gradient_accumulation_steps": self.config.accumulate,
            "zero_optimization": {"stage": self.stage},
            "zero_allow_untested_optimizer": True,
            "gradient_clipping": 0.0,  # its default changes what is trained
            "bf16": {"enabled": self.config.precision == "bf16"},
            "fp16": {"enabled": self.config.precision == "fp16", "initial_scale_power": scale, "hysteresis": 1},
        }

    def make_optimizer(self) -> torch.optim.Optimizer:
        return self.engine.optimizer

    def share(self, tensor: Tensor) -> Tensor:
        return self.job.share(tensor)

    def compute_gradients(self, x: Tensor, y: Tensor) -> float:
        parts = self.config.accumulate
        if len(x) % parts:
            raise UsageError(f"a rank's batch of {len(x)} cannot be cut into --accumulate {parts} equal parts")
        total = 0.0
        for part_x, part_y in zip(x.chunk(parts), y.chunk(parts), strict=True):
            loss = loss_of(self.engine(part_x), part_y)
            self.engine.backward(loss)
            self.memory.gradients = max(self.memory.gradients, bytes_of(self.gradients()))
            self.engine.step()  # which counts micro-batches, and updates after the last
            total += loss.item() / parts
        return total

    def update(self) -> None:
        """The engine has."""

    def gradients(self) -> Iterator[Tensor]:
        optimizer = self.engine.optimizer
        if self.stage == 3:
            yield optimizer.grad_partitions_flat_buffer
            return
        yield from (param.grad for param in self.engine.module.parameters() if param.grad is not None)
        for partition in optimizer.averaged_gradients.values():
            yield from partition if isinstance(partition, list) else [partition]

    def full_state(self) -> State:
        names = {name: param for name, param in self.engine.module.named_parameters()}
        with deepspeed.zero.GatheredParameters(list(names.values()), enabled=self.stage == 3):
            return {name: param.detach().clone() for name, param in names.items()}

    def finish(self) -> None:
        self.engine.optimizer.zero_grad()

    def held_parameters(self) -> Iterable[Tensor]:
        for param in self.engine.module.parameters():
            yield param.ds_tensor if self.stage == 3 else param

    def optimizer_tensors(self) -> Iterator[Tensor]:
        inner = self.engine.optimizer.optimizer
        for group in inner.param_groups:
            yield from group["params"]
        for state in inner.state.values():
            yield from (value for value in state.values() if torch.is_tensor(value))

    def notes(self) -> list[str]:
        engine = self.engine
        if self.config.precision != "fp16":
            return []
        return [f"loss scale {engine.optimizer.loss_scale:g}, {engine.skipped_steps} steps skipped"]
