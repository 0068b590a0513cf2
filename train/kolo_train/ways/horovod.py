# SPDX-License-Identifier: Apache-2.0
"""Horovod's way (Sergeev and Del Balso 2018, arXiv:1802.05799): the optimizer is wrapped, not the model.

As `ddp`, in the terms of kolo_train.horovod: parameters are broadcast once, and the optimizer's step()
waits for fused all-reduces that have started during backward.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import kolo_train.horovod as hvd
from kolo_train.fusion import fusion_of
from kolo_train.models import Layers
from kolo_train.ways.base import Way


class Horovod(Way):
    """A distributed optimizer around the model's own."""

    def spread(self, model: Layers) -> nn.Module:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        return model

    def make_optimizer(self) -> torch.optim.Optimizer:
        return hvd.DistributedOptimizer(
            super().make_optimizer(),
            named_parameters=self.model.named_parameters(),
            backward_passes_per_step=self.config.accumulate,
        )

    def share(self, tensor: Tensor) -> Tensor:
        return self.job.share(tensor)

    def exchange(self) -> None:
        fusion_of(self.optimizer).finish()
