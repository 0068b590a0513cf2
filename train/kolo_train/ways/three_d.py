# SPDX-License-Identifier: Apache-2.0
"""Data x pipeline x tensor parallelism (Narayanan et al. 2021, arXiv:2104.04473).

The ranks form a mesh [data, pipeline, tensor]. Along `tensor` the linear layers are split, along
`pipeline` the layers are dealt out, along `data` the batch is divided and gradients are averaged.
Tensor parallelism speaks most, so its ranks are next to each other.
"""

from __future__ import annotations

from typing import cast

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from kolo_train.config import UsageError
from kolo_train.models import Layers
from kolo_train.ways.dp import average_gradients
from kolo_train.ways.pp import Pipeline
from kolo_train.ways.tp import split_layers


def default_mesh(ranks: int) -> tuple[int, int, int]:
    """Factors of two to pipeline, tensor and data in turn; what is left of the ranks to data."""
    sizes = {"data": 1, "pipeline": 1, "tensor": 1}
    left, turn = ranks, ["pipeline", "tensor", "data"]
    while left % 2 == 0:
        name = turn.pop(0)
        turn.append(name)
        sizes[name] *= 2
        left //= 2
    return sizes["data"] * left, sizes["pipeline"], sizes["tensor"]


class ThreeDimensional(Pipeline):
    """A pipeline of split layers, as many times as `data` says."""

    def spread(self, model: Layers) -> nn.Module:
        shape = self.config.mesh or default_mesh(self.job.ranks)
        if shape[0] * shape[1] * shape[2] != self.job.ranks:
            raise UsageError(f"--mesh {shape[0]},{shape[1]},{shape[2]} is not {self.job.ranks} ranks")
        if self.config.heads % shape[2]:
            raise UsageError(f"--heads {self.config.heads} cannot be split over {shape[2]} ranks")
        names = ("data", "pipeline", "tensor")
        self.mesh = init_device_mesh(self.job.device.type, shape, mesh_dim_names=names)
        return super().spread(model)

    def dimension(self, name: str) -> DeviceMesh:
        """The ranks that differ from this one in one dimension only."""
        return cast(DeviceMesh, self.mesh[name])

    def pipeline_group(self) -> dist.ProcessGroup:
        return self.dimension("pipeline").get_group()

    def prepare(self, part: nn.Module) -> nn.Module:
        if self.dimension("tensor").size() == 1:
            return part
        return split_layers(cast(Layers, part), self.config, self.dimension("tensor"))

    def share(self, tensor: Tensor) -> Tensor:
        data = self.dimension("data")
        if len(tensor) % data.size():
            raise UsageError(f"a batch of {len(tensor)} cannot be shared by {data.size()} pipelines")
        return tensor.chunk(data.size())[data.get_local_rank()]

    def exchange(self) -> None:
        data = self.dimension("data")
        if data.size() > 1:
            average_gradients(self.parameters(), data.size(), data.get_group())

    @property
    def reports(self) -> bool:
        # Of the first pipeline, the last stage; of its ranks, the first.
        return self.reports_here and all(self.dimension(name).get_local_rank() == 0 for name in ("data", "tensor"))
