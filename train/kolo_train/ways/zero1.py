# SPDX-License-Identifier: Apache-2.0
"""ZeRO stage 1 (Rajbhandari et al. 2020, arXiv:1910.02054): the optimizer's state is divided.

DDP gives every rank all gradients; PyTorch's ZeroRedundancyOptimizer gives each rank some of the
parameters to update, and broadcasts what each has updated. The parameters stay whole, so the state of
16P bytes with Adam becomes 4P + 12P/N in mixed precision.
"""

from __future__ import annotations

from typing import cast

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer

from kolo_train.optim import Optimizer, optimizer_arguments
from kolo_train.ways.ddp import BucketedDataParallel


class ZeroStage1(BucketedDataParallel):
    """DDP with a sharded optimizer."""

    def make_optimizer(self) -> torch.optim.Optimizer:
        return ZeroRedundancyOptimizer(
            self.parameters(),
            optimizer_class=Optimizer,
            parameters_as_bucket_view=True,
            **optimizer_arguments(self.config),
        )

    def local_optimizer(self) -> Optimizer:
        assert isinstance(self.optimizer, ZeroRedundancyOptimizer)
        return cast(Optimizer, self.optimizer.optim)
