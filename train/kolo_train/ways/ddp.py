# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel (Li et al. 2020, arXiv:2006.15704).

As `dp`, with gradients in buckets whose all-reduce starts as soon as backward has filled them, from the
last layer on. In all but the last micro-batch of a step the exchange is left out.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from kolo_train.models import Layers
from kolo_train.ways.base import State, Way


class BucketedDataParallel(Way):
    """PyTorch's DDP around the model."""

    def spread(self, model: Layers) -> nn.Module:
        # Gradients as views of the buckets: they are not held twice.
        return DistributedDataParallel(model, gradient_as_bucket_view=True)

    def share(self, tensor: Tensor) -> Tensor:
        return self.job.share(tensor)

    def before_backward(self, last: bool) -> None:
        # What DDP.no_sync() sets, without its indentation.
        assert isinstance(self.model, DistributedDataParallel)
        self.model.require_backward_grad_sync = last

    def full_state(self) -> State:
        assert isinstance(self.model, DistributedDataParallel)
        return dict(self.model.module.state_dict())
