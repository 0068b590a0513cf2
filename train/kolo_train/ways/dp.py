# SPDX-License-Identifier: Apache-2.0
"""Data parallelism by hand: all there is to it, without what makes it fast.

Every rank has the whole model and computes the gradient of its part of the batch; the mean over ranks
is the gradient of the batch. One all-reduce for each parameter, after backward: no overlap, and each
pays the latency of a call. `ddp` does the same with buckets and during backward.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch.distributed as dist
from torch import Tensor, nn

from kolo_train.models import Layers
from kolo_train.optim import local
from kolo_train.ways.base import Way


def average_gradients(parameters: Iterable[nn.Parameter], ranks: int, group: dist.ProcessGroup | None = None) -> None:
    """Replace each gradient by its mean over the ranks of the group."""
    for param in parameters:
        if param.grad is not None:
            gradient = local(param.grad)
            # Divided first: in fp16 the sum could overflow where the mean does not.
            gradient.div_(ranks)
            dist.all_reduce(gradient, op=dist.ReduceOp.SUM, group=group)


class DataParallel(Way):
    """The whole model on every rank, the batch divided."""

    def spread(self, model: Layers) -> nn.Module:
        # The seed made the same weights everywhere already; broadcasting makes it sure.
        for param in model.parameters():
            dist.broadcast(param.data, src=0)
        return model

    def share(self, tensor: Tensor) -> Tensor:
        return self.job.share(tensor)

    def exchange(self) -> None:
        average_gradients(self.parameters(), self.job.ranks)
