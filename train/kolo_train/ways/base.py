# SPDX-License-Identifier: Apache-2.0
"""A way of training: what each module in this folder says about its own in a few methods.

The base class is training on one rank, `--parallel single`, and the frame of the others: take this
rank's part of the batch, compute gradients, exchange what has to be, step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn

from kolo_train.config import Config, UsageError
from kolo_train.data import make_data
from kolo_train.disk import give_back_freed_memory, keep_gradients_in_files
from kolo_train.job import Job
from kolo_train.memory import Memory, bytes_of
from kolo_train.models import Layers, loss_of, make_model
from kolo_train.optim import LossScaler, Optimizer, local, optimizer_arguments, scaler_of
from kolo_train.timeline import Timeline

State = dict[str, Tensor]


class Way:
    """Training on one rank; subclasses spread it over more."""

    synchronous = True
    """Every step has the gradient of the global batch: the weights are those of one rank."""

    lockstep = True
    """The ranks make their steps together, as many each."""

    timeline: Timeline | None = None
    """When this rank computes, of a pipeline."""

    def __init__(self, config: Config, job: Job) -> None:
        self.config, self.job = config, job
        self.data = make_data(config)
        self.scaler: LossScaler = scaler_of(config)
        self.memory = Memory()
        if config.on_disk:
            give_back_freed_memory()
        model = make_model(config, self.data.classes)
        self.parameter_count = sum(param.numel() for param in model.parameters())
        self.model: nn.Module = self.spread(model)
        if config.on_disk:
            keep_gradients_in_files(self.parameters())
        self.optimizer = self.make_optimizer()

    # ---- what a way may change

    def spread(self, model: Layers) -> nn.Module:
        """Turn the whole model into what this rank trains."""
        return model

    def regroup(self, job: Job) -> None:
        """Go on as a rank of another group. All its ranks call this."""
        self.job = job

    def whole_model(self) -> nn.Module:
        """The model without what a way puts around it."""
        return self.model

    def make_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer of what this rank updates."""
        return Optimizer(self.parameters(), **optimizer_arguments(self.config))

    def parameters(self) -> list[nn.Parameter]:
        """What the optimizer updates on this rank."""
        return list(self.model.parameters())

    def share(self, tensor: Tensor) -> Tensor:
        """This rank's part of the global batch."""
        return tensor

    def before_backward(self, last: bool) -> None:
        """A micro-batch is about to be computed; `last` is the one after which gradients count."""

    def exchange(self) -> None:
        """All gradients of this rank's part are there: make them those of the global batch."""

    def full_state(self) -> State:
        """The trained weights of the whole model by name, complete on rank 0. All ranks call this."""
        return dict(self.model.state_dict())

    def finished(self, number: int, steps: int) -> bool:
        """Step `number` is not to be made any more."""
        return number >= steps

    def wait_for_calls(self) -> None:
        """Of this rank's calls none may be under way any more."""

    def finish(self) -> None:
        """The last step was made."""

    decides_steps = True
    """This rank may say how many steps --seconds comes to."""

    period = 1
    """Steps after which the calls between ranks are the same again."""

    agrees_on_steps = True
    """What rank 0 says of that is what all do."""

    @property
    def reports(self) -> bool:
        """This rank's losses are those to show while training goes on."""
        return self.job.rank == 0

    # ---- the frame

    def step(self, number: int) -> float | None:
        """Train on batch `number`; the loss on this rank's part, or None if it has none."""
        x, y = (self.share(tensor) for tensor in self.data.batch(number))
        loss = self.compute_gradients(x, y)
        self.exchange()
        self.update()
        return loss

    def compute_gradients(self, x: Tensor, y: Tensor) -> float:
        """Gradients of the mean loss over (x, y), by `accumulate` micro-batches of equal size."""
        parts = self.config.accumulate
        if len(x) % parts:
            raise UsageError(f"a rank's batch of {len(x)} cannot be cut into --accumulate {parts} equal parts")
        total = 0.0
        for i, (part_x, part_y) in enumerate(zip(x.chunk(parts), y.chunk(parts), strict=True)):
            self.before_backward(last=i == parts - 1)
            loss = loss_of(self.model(part_x), part_y) / parts
            (loss * self.scaler.scale).backward()
            total += loss.item()
        return total

    def update(self) -> None:
        """Step the optimizer, note what memory it took, drop the gradients."""
        gradients = list(self.gradients())
        self.memory.gradients = max(self.memory.gradients, bytes_of(gradients))
        self.local_optimizer().grad_scale = self.scaler.scale
        self.scaler.step(self.optimizer.step, gradients, shared=self.lockstep)
        self.optimizer.zero_grad(set_to_none=True)

    def gradients(self) -> Iterator[Tensor]:
        """The gradients that this rank holds when the optimizer steps."""
        yield from (param.grad for param in self.parameters() if param.grad is not None)

    def local_optimizer(self) -> Optimizer:
        """What holds this rank's optimizer state."""
        assert isinstance(self.optimizer, Optimizer)
        return self.optimizer

    def held_parameters(self) -> Iterable[Tensor]:
        """The parameters that this rank keeps between steps."""
        return self.model.parameters()

    def handed_unseen(self) -> int:
        """Bytes that threads have handed to calls, which the profiler does not see."""
        return 0

    def measure_memory(self) -> Memory:
        """What this rank holds, with the gradients noted in update()."""
        self.memory.parameters = bytes_of(self.held_parameters())
        self.memory.optimizer = bytes_of(self.optimizer_tensors())
        return self.memory

    def optimizer_tensors(self) -> Iterable[Tensor]:
        """What this rank's optimizer keeps."""
        return self.local_optimizer().tensors()

    def notes(self) -> list[str]:
        """What else there is to say of the run, a line each."""
        skipped = self.scaler.skipped
        notes = [f"loss scale {self.scaler.scale:g}, {skipped} steps skipped"] if self.scaler.enabled else []
        streamed = getattr(self.optimizer, "streamed", None)
        return [*notes, f"rank {self.job.rank}: {streamed.said()}"] if streamed else notes


def gathered(tensors: State) -> State:
    """Sharded tensors made whole on every rank."""
    return {
        name: tensor.full_tensor() if hasattr(tensor, "full_tensor") else local(tensor)
        for name, tensor in tensors.items()
    }


def merged(parts: Iterable[State], job: Job) -> State:
    """What all ranks hold by name, on rank 0; others get nothing. All ranks call this."""
    mine: State = {name: tensor.cpu() for part in parts for name, tensor in part.items()}
    everything: list[State | None] | None = [None] * job.ranks if job.rank == 0 else None
    dist.gather_object(mine, everything, dst=0)
    return {name: tensor for state in everything or [] for name, tensor in (state or {}).items()}
