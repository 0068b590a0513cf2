# SPDX-License-Identifier: Apache-2.0
"""Tensor parallelism (Shoeybi et al. 2019, arXiv:1909.08053) by torch.distributed.tensor.parallel.

Linear layers go in pairs: the first is split by columns, so each rank has some of the outputs, and works
on them alone; the second is split by rows, takes what its rank has, and an all-reduce adds up the
partial outputs. In attention the pair is q, k, v (each rank has some heads) and out. All ranks see
the same batch. What is not split (norms, convolutions) is computed by every rank alike.
"""

from __future__ import annotations

from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from kolo_train.config import Config
from kolo_train.models import Layers
from kolo_train.ways.base import State, Way, gathered

Plan = dict[str, ParallelStyle]


def plan_for(config: Config) -> Plan:
    """How each linear layer of the model is split; the names of layers are those in models.py."""
    columns, rows = ColwiseParallel, RowwiseParallel
    if config.model == "cnn":
        return {"wide.linear": columns(), "head.linear": rows()}
    if config.model == "mlp":
        names = [*(f"layer{i}" for i in range(config.layers)), "head"]
        pairs: Plan = {f"{name}.linear": rows() if i % 2 else columns() for i, name in enumerate(names)}
        if config.layers % 2 == 0:  # the head has no partner before it
            pairs["head.linear"] = columns(output_layouts=Replicate())
        return pairs
    plan: Plan = {
        "embed.token": rows(input_layouts=Replicate()),
        "head.linear": columns(output_layouts=Replicate()),
    }
    for i in range(config.layers):
        block = f"block{i}"
        plan |= {f"{block}.attention.{name}": columns() for name in "qkv"}
        plan[f"{block}.attention.out"] = rows()
        if config.model == "gpt":  # experts stay whole on every rank
            plan |= {f"{block}.up": columns(), f"{block}.down": rows()}
    return plan


def split_layers(model: Layers, config: Config, mesh: DeviceMesh) -> nn.Module:
    """Split what the plan names of the layers that this model has."""
    names = {name for name, _ in model.named_modules()}
    plan = {name: style for name, style in plan_for(config).items() if name in names}
    return parallelize_module(model, mesh, plan)


class TensorParallel(Way):
    """Every rank has a part of every large layer, and the whole batch."""

    def spread(self, model: Layers) -> nn.Module:
        mesh = init_device_mesh(self.job.device.type, (self.job.ranks,))
        return split_layers(model, self.config, mesh)

    def full_state(self) -> State:
        return gathered(self.model.state_dict())
