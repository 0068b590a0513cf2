# SPDX-License-Identifier: Apache-2.0
"""Local SGD (Stich 2018, arXiv:1805.09767) with PyTorch's model averaging.

Every rank trains on its part of the batch alone; every --local-steps steps the ranks average their
weights: that many times less communication, for weights that differ from those of one rank.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed import group
from torch.distributed.algorithms.model_averaging.utils import average_parameters

from kolo_train.models import Layers
from kolo_train.ways.base import Way


class LocalSgd(Way):
    """Independent steps between averages."""

    lockstep = False

    @property
    def period(self) -> int:  # type: ignore[override]
        return self.config.local_steps

    def spread(self, model: Layers) -> nn.Module:
        # With plain SGD and an average after each step, this is data parallelism.
        sgd = self.config.optimizer == "sgd" and self.config.momentum == 0
        self.synchronous = self.config.local_steps == 1 and sgd
        return model

    def share(self, tensor: Tensor) -> Tensor:
        return self.job.share(tensor)

    def step(self, number: int) -> float | None:
        loss = super().step(number)
        if (number + 1) % self.config.local_steps == 0:
            self.average()
        return loss

    def finish(self) -> None:
        self.average()

    @torch.no_grad()
    def average(self) -> None:
        """Every rank gets the mean of all ranks' weights, masters where there are some."""
        optimizer = self.local_optimizer()
        means = [nn.Parameter(tensor.detach()) for tensor in optimizer.updated()]
        assert group.WORLD is not None
        average_parameters(iter(means), group.WORLD)
        for tensor, mean in zip(optimizer.updated(), means, strict=True):
            tensor.copy_(mean)
        optimizer.publish()
