# SPDX-License-Identifier: Apache-2.0
"""FSDP2, PyTorch's fully_shard, as `fsdp` and as ZeRO stage 3 (Zhao et al. 2023, arXiv:2304.11277).

Each rank keeps 1/N of every parameter, its gradient and its optimizer state. A layer's parameters are
all-gathered before its forward, freed, gathered again before its backward, and its gradients are
reduce-scattered. `zero3` frees every layer; `fsdp` is PyTorch's default, which keeps what the root
gathered, as its backward comes next. In mixed precision the shards are the float32 masters, and layers
are gathered in 2 bytes.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from kolo_train.data import DTYPES
from kolo_train.disk import mapped
from kolo_train.models import Layers
from kolo_train.ways.base import State, Way, gathered


class FullyShardedDataParallel(Way):
    """fully_shard() on every layer and on the whole."""

    reshard_layers: bool | int = True
    reshard_root: bool | int | None = None

    def spread(self, model: Layers) -> nn.Module:
        mesh = init_device_mesh(self.job.device.type, (self.job.ranks,))
        half = DTYPES[self.config.precision] if self.config.half else None
        policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32)
        # Shards in float32, whatever the layers are computed in.
        model = model.to(torch.float32)
        # It warns of operations in place on a module's output; there are none here.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")
        for layer in model.children():
            fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=self.reshard_layers)
            if self.config.on_disk:
                layer._apply(mapped)
        fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=self.reshard_root)
        return model

    def share(self, tensor: Tensor) -> Tensor:
        return self.job.share(tensor)

    def before_backward(self, last: bool) -> None:
        assert isinstance(self.model, FSDPModule)
        self.model.set_requires_gradient_sync(last)

    def full_state(self) -> State:
        return gathered(self.model.state_dict())


class ZeroStage3(FullyShardedDataParallel):
    """Nothing stays gathered."""

    reshard_root = True
