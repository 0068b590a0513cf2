# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel (Li et al. 2020, arXiv:2006.15704).

As `dp`, with gradients in buckets whose all-reduce starts as soon as backward has filled them, from the
last layer on. In all but the last micro-batch of a step the exchange is left out. With --topk or a one-bit
optimizer a hook sends the buckets compressed.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from kolo_train.compression import Hook, OneBitAdam, OneBitMomentum, TopK, compressed
from kolo_train.job import Job
from kolo_train.models import Layers
from kolo_train.optim import Optimizer
from kolo_train.ways.base import State, Way


class BucketedDataParallel(Way):
    """PyTorch's DDP around the model."""

    hook: Hook | None = None

    def spread(self, model: Layers) -> nn.Module:
        # Gradients as views of the buckets: they are not held twice.
        return DistributedDataParallel(model, gradient_as_bucket_view=True)

    def regroup(self, job: Job) -> None:
        super().regroup(job)
        model = self.whole_model()
        self.model = nn.Identity()
        gc.collect()  # DDP refers to itself, and its hooks would go on
        self.model = DistributedDataParallel(model, gradient_as_bucket_view=True)

    def whole_model(self) -> nn.Module:
        assert isinstance(self.model, DistributedDataParallel)
        module: nn.Module = self.model.module
        return module

    def make_optimizer(self) -> torch.optim.Optimizer:
        optimizer = super().make_optimizer()
        self.hook = self._hook(optimizer)
        if self.hook is not None:
            assert isinstance(self.model, DistributedDataParallel)
            self.model.register_comm_hook(self.hook, compressed)
            self.synchronous = False
        return optimizer

    def _hook(self, optimizer: torch.optim.Optimizer) -> Hook | None:
        """How gradients are compressed, if at all."""
        if self.config.topk:
            return TopK(part=self.config.topk, warmup_steps=self.config.warmup_steps)
        if not self.config.compresses:
            return None
        assert isinstance(optimizer, Optimizer)
        ((_, _, one_bit),) = optimizer.parts
        assert isinstance(one_bit, OneBitAdam)
        return OneBitMomentum(optimizer=one_bit)

    def share(self, tensor: Tensor) -> Tensor:
        return self.job.share(tensor)

    def before_backward(self, last: bool) -> None:
        # What DDP.no_sync() sets, without its indentation.
        assert isinstance(self.model, DistributedDataParallel)
        self.model.require_backward_grad_sync = last

    def full_state(self) -> State:
        assert isinstance(self.model, DistributedDataParallel)
        return dict(self.model.module.state_dict())

    def optimizer_tensors(self) -> Iterator[Tensor]:
        yield from super().optimizer_tensors()
        if self.hook is not None:
            yield from self.hook.tensors()
