# SPDX-License-Identifier: Apache-2.0
"""The models: an MLP and a CNN for digits, a GPT for characters, without and with experts.

Each is a sequence of named layers, so that every way of training can take it apart: FSDP shards layer
by layer, a pipeline cuts between layers, activation checkpointing recomputes a layer at a time.
None has randomness or state beyond its parameters (dropout, running statistics), so that the same
batch gives the same gradient however many ranks share it.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from kolo_train.config import Config
from kolo_train.data import DTYPES
from kolo_train.disk import parameters_in_files
from kolo_train.experts import Experts


class Layers(nn.Sequential):
    """Layers one after the other; with `recompute`, each keeps its input only and computes its
    activations again in backward (Chen et al. 2016, arXiv:1604.06174)."""

    recompute = False

    def forward(self, x: Tensor) -> Tensor:
        for layer in self:
            if self.recompute and torch.is_grad_enabled():
                # To the layer's end, so that every collective in it is waited for.
                x = checkpoint(layer, x, use_reentrant=False, early_stop=False)
            else:
                x = layer(x)
        return x

    def part(self, first: int, end: int) -> Layers:
        """Layers `first` to `end` - 1 under the names they have here."""
        part = Layers(OrderedDict(list(self.named_children())[first:end]))
        part.recompute = self.recompute
        return part


def _start_for_relu(layer: nn.Linear | nn.Conv2d) -> None:
    """Weights with which activations keep their size through ReLUs (He et al. 2015, arXiv:1502.01852)."""
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)


class Dense(nn.Module):
    """Linear, then ReLU where it is not the last layer. [batch, ...] to [batch, outputs]."""

    def __init__(self, inputs: int, outputs: int, last: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        self.last = last
        if not last:
            _start_for_relu(self.linear)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x.flatten(1))
        return x if self.last else F.relu(x)


class Convolution(nn.Module):
    """3 x 3 convolution that keeps the size of the image, and ReLU; `pool` halves the size."""

    def __init__(self, inputs: int, outputs: int, pool: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.pool = pool
        _start_for_relu(self.conv)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv(x))
        return F.max_pool2d(x, 2) if self.pool else x


class Embedding(nn.Module):
    """Characters [batch, time] to vectors [batch, time, width]: a vector for what, plus one for where."""

    def __init__(self, classes: int, context: int, width: int) -> None:
        super().__init__()
        self.token = nn.Embedding(classes, width)
        self.position = nn.Embedding(context, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.token(x) + self.position(torch.arange(x.shape[1], device=x.device))


class Attention(nn.Module):
    """Causal self-attention. The number of heads follows from the width of what q, k and v give,
    so that a rank of tensor parallelism, which holds some heads, runs the same code."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head_width = width // heads
        # The softmax takes no notice of a bias of k, whose gradient would be rounding alone.
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, _ = x.shape
        q, k, v = (part(x).view(batch, time, -1, self.head_width).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, time, -1))


class Block(nn.Module):
    """A transformer's block with norms first (Xiong et al. 2020, arXiv:2002.04745)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class ExpertBlock(nn.Module):
    """The same with experts in place of the linear layers."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(config.width), nn.LayerNorm(config.width)
        self.attention = Attention(config.width, config.heads)
        self.experts = Experts(config.width, config.experts, config.top_k, config.capacity)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.experts(self.norm2(x))


class Head(nn.Module):
    """Vectors [batch, time, width] to scores [batch, time, classes]."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.norm(x))


def _mlp(config: Config, classes: int) -> list[tuple[str, nn.Module]]:
    sizes = [64, *[config.width] * config.layers]
    layers: list[tuple[str, nn.Module]] = [(f"layer{i}", Dense(sizes[i], sizes[i + 1])) for i in range(config.layers)]
    return [*layers, ("head", Dense(sizes[-1], classes, last=True))]


def _cnn(config: Config, classes: int) -> list[tuple[str, nn.Module]]:
    channels = max(1, config.width // 4)
    layers: list[tuple[str, nn.Module]] = [
        (f"conv{i}", Convolution(channels if i else 1, channels, pool=i == config.layers - 1))
        for i in range(config.layers)
    ]
    wide = ("wide", Dense(channels * 16, config.width))
    return [*layers, wide, ("head", Dense(config.width, classes, last=True))]


def _gpt(config: Config, classes: int) -> list[tuple[str, nn.Module]]:
    experts = config.model == "moe"
    blocks: list[tuple[str, nn.Module]] = [
        (f"block{i}", ExpertBlock(config) if experts else Block(config.width, config.heads))
        for i in range(config.layers)
    ]
    embed = ("embed", Embedding(classes, config.context, config.width))
    return [embed, *blocks, ("head", Head(config.width, classes))]


MODELS = {"mlp": _mlp, "cnn": _cnn, "gpt": _gpt, "moe": _gpt}


def make_model(config: Config, classes: int, dtype: torch.dtype | None = None) -> Layers:
    """The model with the weights that follow from the seed, alike on every rank, in `dtype` or the
    run's type."""
    torch.manual_seed(config.seed)
    with parameters_in_files() if config.on_disk else nullcontext():
        model = Layers(OrderedDict(MODELS[config.model](config, classes)))
    model.recompute = config.recompute
    return model.to(config.device, dtype or DTYPES[config.precision])


def loss_of(scores: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of scores [..., classes] against targets [...], in float32."""
    return F.cross_entropy(scores.flatten(0, -2).float(), targets.flatten())
