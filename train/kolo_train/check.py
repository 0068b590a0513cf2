# SPDX-License-Identifier: Apache-2.0
"""--check: are the weights those that one rank gets from the same batches?

Sums in another order round otherwise, and training carries that on, so equality is meant as: the
distance between the two results is a small part of the way that training moved the weights.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from kolo_train.config import Config, UsageError
from kolo_train.data import make_data
from kolo_train.job import Job
from kolo_train.models import make_model
from kolo_train.ways.base import State, Way

TOLERANCES = {"fp32": 1e-4, "bf16": 0.05, "fp16": 0.02}


@dataclass
class Check:
    """Distances are Euclidean, over all weights."""

    distance: float  # between the weights of this run and those of one rank
    moved: float  # between the weights of one rank before and after training
    tolerance: float  # of distance / moved
    exact: bool  # this way of training is to give what one rank does
    single_losses: list[float]

    @property
    def relative(self) -> float:
        """What is held against the tolerance."""
        return self.distance / self.moved if self.moved else float("inf")

    @property
    def passed(self) -> bool:
        """Near enough; a way that is not synchronous cannot be and never fails."""
        return not self.exact or self.relative <= self.tolerance


def compare(state: State, config: Config, job: Job, exact: bool) -> Check:
    """Train on rank 0 alone what `config` says, and compare with `state`, the weights that the run gave.

    All ranks call this and get the result.
    """
    results: list[Check | None] = [None]
    if job.rank == 0:
        results = [_compare(state, config, job, exact)]
    if job.ranks > 1:
        dist.broadcast_object_list(results, src=0)
    assert results[0] is not None
    return results[0]


def _compare(state: State, config: Config, job: Job, exact: bool) -> Check:
    alone = dataclasses.replace(config, parallel="single", accumulate=1, offload="none")
    start, end, losses = trained_alone(alone, dataclasses.replace(job, rank=0, ranks=1))
    missing = set(end) ^ set(state)
    if missing:
        raise UsageError(f"the run's weights lack or add {sorted(missing)}")
    return Check(
        distance=_distance(end, state),
        moved=_distance(end, start),
        tolerance=TOLERANCES[config.precision],
        exact=exact,
        single_losses=[loss for loss in losses if loss is not None],
    )


def trained_alone(config: Config, job: Job) -> tuple[State, State, list[float | None]]:
    """The weights before and after training on this rank alone, and the loss of each step."""
    start = make_model(config, make_data(config).classes).state_dict()
    single = _Single(config, job)
    losses = [single.step(number) for number in range(config.steps)]
    return start, single.full_state(), losses


class _Single(Way):
    """Rank 0 alone: it does not ask the others whether a gradient overflowed."""

    lockstep = False


def _distance(one: State, other: State) -> float:
    """Euclidean distance of all weights of two models, by name."""
    squares = [(_plain(one[name]) - _plain(other[name])).square().sum() for name in one]
    return float(torch.stack(squares).sum().sqrt())


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().double()
