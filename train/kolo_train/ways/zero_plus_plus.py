# SPDX-License-Identifier: Apache-2.0
"""ZeRO stage 3 for slow links between hosts, as in ZeRO++ (Wang et al. 2023, arXiv:2306.10209).

Collectives of all ranks have two levels. A part is gathered by the ranks with the same number on all
hosts, then inside each host; a gradient is summed inside each host, then between hosts. So each number
goes to another host once.

`hpz` keeps the parameters of a layer inside each host from its forward to its backward, where stage 3
frees them (hierarchical partitioning): the all-gather before backward crosses no link between hosts.
`qwz` sends weights between hosts as INT8, and `qgz` gradients as INT4. `zero++` is all three.

Inside a host float32 is added. Between hosts decoded numbers are added in float32, and each sum is
encoded once more. Each rank keeps its part of the weights in float32.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from kolo_train.config import UsageError
from kolo_train.job import Job
from kolo_train.models import Layers
from kolo_train.ways.fsdp import FullyShardedDataParallel

# PyTorch 2.13 renames them.
reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)


def ranks_of_a_host(job: Job, asked: int) -> int:
    """How many ranks a host has: what was asked for, or else what the launcher says.

    Raises UsageError where the hosts would not have as many ranks each.
    """
    said = os.environ.get("LOCAL_WORLD_SIZE", os.environ.get("KOLO_LOCAL_SIZE", job.ranks))
    local = asked or int(said)
    if job.ranks % local:
        raise UsageError(f"{job.ranks} ranks are not hosts of {local} ranks each: see --host-ranks")
    return local


def group_of(rank: int, parts: Iterable[Sequence[int]], codec: str = "none") -> dist.ProcessGroup:
    """The group of the part that has `rank`. All ranks call this, and with the same parts."""
    mine = None
    for ranks in parts:
        options = None
        if codec != "none":
            import kolo_torch

            options = kolo_torch.Options(codec=codec)
        group = dist.new_group(list(ranks), pg_options=options)
        mine = group if rank in ranks else mine
    assert mine is not None
    return mine


class _Buffers:
    """Memory for a collective of FSDP2."""

    def allocate(self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class TwoLevelGather(_Buffers):
    """All ranks' parts: those of the same number on each host, by `across`, then those of this host."""

    def __init__(self, inside: dist.ProcessGroup, across: dist.ProcessGroup, codec: str) -> None:
        self.inside, self.across, self.codec = inside, across, codec

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work | None:
        """`group` has all ranks, or those of this host if it keeps the parameters."""
        hosts, local, numbers = self.across.size(), self.inside.size(), input_tensor.numel()
        if group.size() == local:
            work: dist.Work | None = all_gather(output_tensor, input_tensor, group=group, async_op=async_op)
            return work
        part = input_tensor if self.codec == "none" else input_tensor.float()
        column = part.new_empty(hosts * numbers)
        all_gather(column, part, group=self.across)
        column = column.to(input_tensor.dtype)
        columns = column.new_empty(local * len(column))
        all_gather(columns, column, group=self.inside)
        output_tensor.view(hosts, local, numbers).copy_(columns.view(local, hosts, numbers).transpose(0, 1))
        return None


class TwoLevelReduceScatter(_Buffers):
    """This rank's part of the sum: of the ranks of this host, then of the hosts, by `across`."""

    def __init__(self, inside: dist.ProcessGroup, across: dist.ProcessGroup) -> None:
        self.inside, self.across = inside, across

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool = False
    ) -> dist.Work | None:
        hosts, local, numbers = self.across.size(), self.inside.size(), output_tensor.numel()
        columns = input_tensor.view(hosts, local, numbers).transpose(0, 1).contiguous()
        column = columns.new_empty(hosts * numbers)
        reduce_scatter(column, columns.flatten(), op=op, group=self.inside)
        reduce_scatter(output_tensor, column, op=op, group=self.across)
        return None


class TwoLevels(FullyShardedDataParallel):
    """ZeRO stage 3, whose collectives cross links between hosts apart from those inside."""

    keeps_in_host: ClassVar[bool] = False
    weights_codec: ClassVar[str] = "none"
    gradients_codec: ClassVar[str] = "none"

    def spread(self, model: Layers) -> nn.Module:
        rank, ranks = self.job.rank, self.job.ranks
        local = self.local = ranks_of_a_host(self.job, self.config.host_ranks)
        hosts = [range(first, first + local) for first in range(0, ranks, local)]
        columns = [range(first, ranks, local) for first in range(local)]
        inside = group_of(rank, hosts)
        gather = TwoLevelGather(inside, group_of(rank, columns, self.weights_codec), self.weights_codec)
        scatter = TwoLevelReduceScatter(inside, group_of(rank, columns, self.gradients_codec))
        # A host of one rank keeps the parameters whole.
        self.reshard_layers = self.reshard_root = not self.keeps_in_host or (local if local > 1 else False)
        spread = super().spread(model)
        for module in spread.modules():
            if isinstance(module, FSDPModule) and local < ranks:
                module.set_custom_all_gather(gather)
                module.set_custom_reduce_scatter(scatter)
        return spread

    def notes(self) -> list[str]:
        return [*super().notes(), f"hosts: {self.job.ranks // self.local}, ranks of a host: {self.local}"]


class HierarchicalPartition(TwoLevels):
    """Between forward and backward each host has all parameters, a part on each of its ranks."""

    keeps_in_host = True


class QuantizedWeights(TwoLevels):
    """A layer is computed with rounded weights."""

    synchronous = False
    weights_codec = "int8"


class QuantizedGradients(TwoLevels):
    """The sums of the hosts are rounded, and so is their sum."""

    synchronous = False
    gradients_codec = "int4"


class ZeroPlusPlus(HierarchicalPartition):
    """All three."""

    synchronous = False
    weights_codec = "int8"
    gradients_codec = "int4"
