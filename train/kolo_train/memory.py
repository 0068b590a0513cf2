# SPDX-License-Identifier: Apache-2.0
"""Memory that a rank keeps for parameters, gradients and optimizer, and what the field's formulas say.

P is the number of parameters, N that of ranks; with Adam all have 16 bytes a parameter on one rank, in
float32 (4 + 4 + 8) and in mixed precision (2 + 2 + 12). ZeRO divides more and more of them by N
(Rajbhandari et al. 2020, arXiv:1910.02054, figure 1).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from kolo_train.config import Config
from kolo_train.optim import local


@dataclass
class Memory:
    """Bytes of a rank: parameters between steps, gradients when the optimizer steps, its state."""

    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0

    @property
    def together(self) -> int:
        """All three."""
        return self.parameters + self.gradients + self.optimizer


def bytes_of(tensors: Iterable[Tensor | None]) -> int:
    """Bytes that this rank holds of the tensors; a shard counts as what it is."""
    return sum(local(tensor).numel() * tensor.element_size() for tensor in tensors if tensor is not None)


def formula(config: Config, ranks: int) -> tuple[str, float] | None:
    """What a parameter takes on a rank by the formula, in words and in bytes; None where there is none:
    for SGD, and for ways whose ranks hold different parameters."""
    if config.optimizer != "adamw" or config.offload != "none":
        return None
    weights, rest = (2, 14) if config.half else (4, 12)
    state = 12 if config.half else 8
    match config.parallel:
        case "single" | "dp" | "ddp" | "horovod" | "local-sgd" | "ps-sync" | "ps-async" | "ps-hybrid":
            return "16P", 16
        case "zero1":
            return f"{16 - state}P + {state}P/N", 16 - state + state / ranks
        case "zero2":
            return f"{weights}P + {rest}P/N", weights + rest / ranks
        case "zero3" | "fsdp" | "hpz" | "qwz" | "qgz" | "zero++":
            return "16P/N", 16 / ranks
    return None
