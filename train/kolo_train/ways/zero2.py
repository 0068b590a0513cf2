# SPDX-License-Identifier: Apache-2.0
"""ZeRO stage 2 (Rajbhandari et al. 2020, arXiv:1910.02054): gradients are divided as well.

PyTorch has no such stage of its own, so here it is, in a page. The parameters of a layer lie in one flat
buffer, whose N equal pieces belong to the N ranks. As soon as backward has all gradients of the layer,
a reduce-scatter gives each rank the mean of its piece, and the whole ones are freed: they exist for
one layer at a time. Each rank updates its piece of every layer; an all-gather, straight into the
buffer, makes the parameters whole again.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn

from kolo_train.models import Layers
from kolo_train.ways.base import Way

# PyTorch 2.13 renames them.
reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)


class FlatLayer:
    """The parameters of one layer as views of a flat buffer [N * piece], and this rank's piece of it."""

    def __init__(self, layer: nn.Module, rank: int, ranks: int) -> None:
        self.params = list(layer.parameters())
        self.ranks = ranks
        elements = sum(param.numel() for param in self.params)
        piece = -(-elements // ranks)
        first = self.params[0]
        self.flat = torch.zeros(piece * ranks, dtype=first.dtype, device=first.device)
        for param, view in zip(self.params, self._views(self.flat), strict=True):
            view.copy_(param.detach())
            param.data = view
            param.register_post_accumulate_grad_hook(self._one_is_there)
        self.shard = nn.Parameter(self.flat[rank * piece : (rank + 1) * piece])
        self.there = 0
        self.under_way: list[tuple[dist.Work, Tensor, Tensor]] = []

    def _views(self, flat: Tensor) -> Iterator[Tensor]:
        first = 0
        for param in self.params:
            yield flat[first : first + param.numel()].view_as(param)
            first += param.numel()

    def _one_is_there(self, _: Tensor) -> None:
        """Backward has the gradient of one parameter; after the layer's last, start the exchange."""
        self.there += 1
        if self.there < len(self.params):
            return
        self.there = 0
        whole = torch.zeros_like(self.flat)
        for param, view in zip(self.params, self._views(whole), strict=True):
            assert param.grad is not None
            view.copy_(param.grad)
            param.grad = None
        # Divided first: in fp16 the sum could overflow where the mean does not.
        whole.div_(self.ranks)
        mine = torch.empty_like(self.shard)
        work = reduce_scatter(mine, whole, op=dist.ReduceOp.SUM, async_op=True)
        assert work is not None
        self.under_way.append((work, mine, whole))

    def collect(self) -> None:
        """Wait for the exchange; this rank's piece of the gradient adds up over micro-batches."""
        for work, mine, _ in self.under_way:
            work.wait()
            self.shard.grad = mine if self.shard.grad is None else self.shard.grad + mine
        self.under_way.clear()

    def gather(self) -> None:
        """Every rank's updated piece, to every rank."""
        all_gather(self.flat, self.shard.detach())


class ZeroStage2(Way):
    """Whole parameters; gradients and optimizer by pieces."""

    def spread(self, model: Layers) -> nn.Module:
        self.layers = [
            FlatLayer(layer, self.job.rank, self.job.ranks) for layer in model.children() if list(layer.parameters())
        ]
        return model

    def parameters(self) -> list[nn.Parameter]:
        return [layer.shard for layer in self.layers]

    def share(self, tensor: Tensor) -> Tensor:
        return self.job.share(tensor)

    def before_backward(self, last: bool) -> None:
        # The whole gradients of the micro-batch before may be freed now.
        self.exchange()

    def exchange(self) -> None:
        for layer in self.layers:
            layer.collect()

    def update(self) -> None:
        super().update()
        for layer in self.layers:
            layer.gather()
