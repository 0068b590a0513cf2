# SPDX-License-Identifier: Apache-2.0
"""Pipeline parallelism by torch.distributed.pipelining.

The layers are cut into stages, one for each rank; the batch is cut into micro-batches, which go through
the stages like through an assembly line: activations forward, gradients backward, from rank to rank.
GPipe (Huang et al. 2018, arXiv:1811.06965) makes all forwards first and has to keep the activations of
all micro-batches; 1F1B (Narayanan et al. 2019, doi:10.1145/3341301.3359646) keeps those of as many as
there are stages; interleaved (Narayanan et al. 2021, arXiv:2104.04473) gives each rank two smaller
stages, so that less time passes with a rank idle.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)

from kolo_train.config import UsageError
from kolo_train.models import Layers, loss_of
from kolo_train.timeline import Timeline
from kolo_train.ways.base import State, Way, gathered, merged


def cuts(layers: int, stages: int) -> list[tuple[int, int]]:
    """First and end layer of each stage, as even as can be. Raises UsageError if there are too few."""
    if layers < stages:
        raise UsageError(f"{stages} stages need as many layers, and the model has {layers}: raise --layers")
    return [(i * layers // stages, (i + 1) * layers // stages) for i in range(stages)]


class Pipeline(Way):
    """This rank's stages, and the schedule that drives them."""

    def pipeline_group(self) -> dist.ProcessGroup | None:
        """The ranks of one pipeline; None for all."""
        return None

    def spread(self, model: Layers) -> nn.Module:
        group = self.pipeline_group()
        self.stage_rank, self.stage_ranks = dist.get_rank(group), dist.get_world_size(group)
        per_rank = 2 if self.config.parallel == "pp-interleaved" else 1
        total = per_rank * self.stage_ranks
        pieces = cuts(len(model), total)
        mine = range(self.stage_rank, total, self.stage_ranks)
        self.parts = nn.ModuleList(self.prepare(model.part(*pieces[i])) for i in mine)
        stages = [
            PipelineStage(part, i, total, self.job.device, group=group)
            for i, part in zip(mine, self.parts, strict=True)
        ]
        self.timeline = Timeline()
        for stage in stages:
            self.timeline.watch(stage)
        self.schedule = self.make_schedule(stages)
        return self.parts

    def prepare(self, part: nn.Module) -> nn.Module:
        """What else is done with the layers of a stage."""
        return part

    def make_schedule(self, stages: list[PipelineStage]) -> ScheduleGPipe | Schedule1F1B | ScheduleInterleaved1F1B:
        """The schedule that --parallel names; `3d` takes 1F1B."""
        count = self.micro_batches()
        options: dict[str, Any] = {"loss_fn": self.micro_loss, "scale_grads": False}
        if self.config.parallel == "pp-interleaved":
            return ScheduleInterleaved1F1B(list(stages), count, **options)
        schedule = ScheduleGPipe if self.config.parallel == "pp-gpipe" else Schedule1F1B
        return schedule(stages[0], count, **options)

    def micro_batches(self) -> int:
        """--accumulate, or else two for each rank, which keeps ranks busy most of the time."""
        if self.config.accumulate > 1:
            if self.config.accumulate % self.stage_ranks:
                raise UsageError(
                    f"--accumulate {self.config.accumulate} is not a multiple of the {self.stage_ranks} stages"
                )
            return self.config.accumulate
        return 2 * self.stage_ranks

    def micro_loss(self, scores: Tensor, targets: Tensor) -> Tensor:
        """A micro-batch's part of the loss; gradients divided here are those of a whole batch, while
        the schedule would divide their sum, which may overflow in fp16."""
        return loss_of(scores, targets) * self.scaler.scale / self.micro_batches()

    def compute_gradients(self, x: Tensor, y: Tensor) -> float:
        if len(x) % self.micro_batches():
            raise UsageError(f"a batch of {len(x)} cannot be cut into {self.micro_batches()} micro-batches")
        losses: list[Tensor] = []
        inputs = (x,) if self.stage_rank == 0 else ()
        last: dict[str, Any] = {"target": y, "losses": losses} if self.reports_here else {}
        self.schedule.step(*inputs, **last)
        return torch.stack(losses).sum().item() / self.scaler.scale if losses else float("nan")

    def step(self, number: int) -> float | None:
        loss = super().step(number)
        return loss if self.reports_here else None

    @property
    def reports_here(self) -> bool:
        """This rank has the last stage, which computes the loss."""
        return self.stage_rank == self.stage_ranks - 1

    @property
    def reports(self) -> bool:
        return self.job.rank == self.stage_ranks - 1

    def full_state(self) -> State:
        return merged((gathered(part.state_dict()) for part in self.parts), self.job)
