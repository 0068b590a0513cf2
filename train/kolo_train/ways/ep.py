# SPDX-License-Identifier: Apache-2.0
"""Expert parallelism (Lepikhin et al. 2020, arXiv:2006.16668): each rank has some of the experts.

The batch is divided as in data parallelism, and so is all that is not an expert's: its gradients are
averaged. An expert sees the tokens of all ranks of its group, so its gradient is a sum already, and it is
only divided by the number of ranks. With `ep+dp` the ranks form groups of --expert-ranks, each with all
experts; an expert's gradients are averaged over the groups.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

from kolo_train.config import UsageError
from kolo_train.experts import Experts
from kolo_train.models import Layers
from kolo_train.ways.base import State, Way, merged
from kolo_train.ways.dp import average_gradients


class ExpertParallel(Way):
    """The experts of each block over the ranks of a group; `ep` is one group of all ranks."""

    def spread(self, model: Layers) -> nn.Module:
        ranks = self.job.ranks
        share = ranks
        if self.config.parallel == "ep+dp":
            share = self.config.expert_ranks or (ranks // 2 if ranks % 2 == 0 else ranks)
        if ranks % share:
            raise UsageError(f"{ranks} ranks do not form groups of --expert-ranks {share}")
        if self.config.experts % share:
            raise UsageError(f"--experts {self.config.experts} cannot be divided over {share} ranks")
        self.mesh = init_device_mesh(self.job.device.type, (ranks // share, share), mesh_dim_names=("data", "expert"))
        for experts in layers_of(model):
            experts.divide(self.mesh.get_group("expert"))
        return model

    def share(self, tensor: Tensor) -> Tensor:
        return self.job.share(tensor)

    def exchange(self) -> None:
        mine = {id(param) for layer in layers_of(self.model) for param in layer.experts.parameters()}
        average_gradients((param for param in self.parameters() if id(param) not in mine), self.job.ranks)
        experts = [param for param in self.parameters() if id(param) in mine]
        if self.mesh.size(0) > 1:
            average_gradients(experts, self.job.ranks, self.mesh.get_group("data"))
            return
        for param in experts:
            if param.grad is not None:
                param.grad.div_(self.job.ranks)

    def full_state(self) -> State:
        return merged([dict(self.model.state_dict())], self.job)

    def notes(self) -> list[str]:
        layers = list(layers_of(self.model))
        load = torch.stack([layer.load for layer in layers]).to(self.job.device)
        dropped = torch.tensor(sum(layer.dropped for layer in layers), device=self.job.device)
        dist.all_reduce(load)
        dist.all_reduce(dropped)
        busiest = float((load.max(1).values / load.float().mean(1)).max())
        part = int(dropped) / max(1, int(dropped) + int(load.sum()))
        text = f"the busiest has {busiest:.2f} times the mean of its block's tokens, {part:.1%} of routes dropped"
        return [*super().notes(), f"experts: {text}"]


def layers_of(model: nn.Module) -> Iterator[Experts]:
    """The expert layers of a model."""
    return (module for module in model.modules() if isinstance(module, Experts))
