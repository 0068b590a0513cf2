# SPDX-License-Identifier: Apache-2.0
"""Parameter server (Li et al. 2014, OSDI) on sends and receives.

Rank 0 keeps the weights and the optimizer; the other ranks are workers, which push the gradient of
their part of a batch and pull the weights. They differ in what the server waits for:

- `ps-sync`    every worker; a step has the gradient of the whole batch, as with one rank;
- `ps-async`   nobody: each gradient is applied as it comes, to weights that may have moved on since
               the worker pulled them (Dean et al. 2012, "Large scale distributed deep networks");
- `ps-hybrid`  every worker, but only --ps-timeout-ms after the first gradient of a step came; then it
               goes on without, and drops what comes late, as that is of older weights (backup workers
               of Chen et al. 2016, arXiv:1604.00981, with a time in place of a number).
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn

from kolo_train.config import Config
from kolo_train.job import Job
from kolo_train.ways.base import Way

SERVER = 0


@dataclass
class Push:
    """A worker's gradient [parameters]: the mean over `samples`, at the weights of `version`."""

    worker: int
    version: int
    samples: int
    loss: float
    gradient: Tensor


@dataclass
class Pull:
    """The server's answer: weights [parameters] of `version`, and whether training is over."""

    version: int
    over: bool
    scale: float
    weights: Tensor


@dataclass
class Line:
    """The server's end of the conversation with a worker, held by a thread of its own, so that one
    worker's silence keeps nobody else waiting."""

    worker: int
    group: dist.ProcessGroup
    answers: queue.Queue[Pull] = field(default_factory=queue.Queue)

    def serve(self, pushes: queue.Queue[Push | BaseException], gradient_like: Tensor) -> None:
        """Receive a push, have it answered, until an answer says that training is over."""
        try:
            header = torch.empty(3, dtype=torch.float64, device=gradient_like.device)
            over = False
            while not over:
                gradient = torch.empty_like(gradient_like)
                dist.recv(header, src=self.worker, group=self.group)
                dist.recv(gradient, src=self.worker, group=self.group)
                version, samples, loss = header.tolist()
                pushes.put(Push(self.worker, int(version), int(samples), loss, gradient))
                answer = self.answers.get()
                over = answer.over
                numbers = header.new_tensor([answer.version, float(over), answer.scale])
                dist.send(numbers, dst=self.worker, group=self.group)
                dist.send(answer.weights, dst=self.worker, group=self.group)
        except BaseException as error:  # the training thread raises it
            pushes.put(error)


class ParameterServer(Way):
    """Rank 0 serves, the others work."""

    lockstep = False
    agrees_on_steps = False  # workers go on until the server says it is over

    def __init__(self, config: Config, job: Job) -> None:
        self.synchronous = config.parallel == "ps-sync"
        self.workers = range(1, job.ranks)
        self.is_server = job.rank == SERVER
        self.over = False
        self.decides_steps = self.is_server
        self.version = 0
        self.dropped = self.staleness = self.applied = 0
        super().__init__(config, job)
        # A group for each pair: no two threads of the server share one.
        groups = {worker: dist.new_group([SERVER, worker]) for worker in self.workers}
        if self.is_server:
            self.pushes: queue.Queue[Push | BaseException] = queue.Queue()
            self.lines = {worker: Line(worker, group) for worker, group in groups.items()}
            self.threads = [
                threading.Thread(target=line.serve, args=(self.pushes, self.flat_weights()), daemon=True)
                for line in self.lines.values()
            ]
            for thread in self.threads:
                thread.start()
        else:
            self.group = groups[job.rank]

    def flat_weights(self) -> Tensor:
        """All weights as one new tensor [parameters]."""
        return nn.utils.parameters_to_vector(self.model.parameters()).detach().clone()

    def share(self, tensor: Tensor) -> Tensor:
        # The server has no part. A batch that does not divide evenly is no harm: gradients are
        # weighted by their samples.
        return tensor.tensor_split(len(self.workers))[self.job.rank - 1]

    def step(self, number: int) -> float | None:
        if self.is_server:
            return self.serve()
        self.work(number)
        return None

    def finished(self, number: int, steps: int) -> bool:
        return number >= steps if self.is_server else self.over

    # ---- a worker

    def work(self, number: int) -> None:
        """Push the gradient of a batch, pull the weights. Who is not kept in step with the others takes
        his next batch; else all take that of the version they have."""
        asynchronous = self.config.parallel == "ps-async"
        x, y = (self.share(tensor) for tensor in self.data.batch(number if asynchronous else self.version))
        loss = self.compute_gradients(x, y)
        gradient = torch.cat([param.grad.flatten() for param in self.model.parameters() if param.grad is not None])
        self.memory.gradients = gradient.numel() * gradient.element_size()
        self.model.zero_grad(set_to_none=True)
        header = torch.tensor([self.version, len(x), loss], dtype=torch.float64, device=self.job.device)
        dist.send(header, dst=SERVER, group=self.group)
        dist.send(gradient, dst=SERVER, group=self.group)
        dist.recv(header, src=SERVER, group=self.group)
        dist.recv(gradient, src=SERVER, group=self.group)
        self.version, self.over, self.scaler.scale = (
            int(header[0]),
            bool(header[1]),
            float(header[2]),
        )
        nn.utils.vector_to_parameters(gradient, self.model.parameters())

    # ---- the server

    def serve(self) -> float:
        """One step: wait for what this way waits for, update, answer; the loss of what was applied."""
        if self.config.parallel == "ps-async":
            losses = []
            for _ in self.workers:  # as many gradients as the others' steps have
                push = self.next_push()
                self.apply([push])
                self.answer([push])
                losses.append(push.loss)
            return sum(losses) / len(losses)
        taken = self.collect()
        self.apply(taken)
        self.answer(taken)
        return sum(push.loss * push.samples for push in taken) / sum(push.samples for push in taken)

    def collect(self) -> list[Push]:
        """Gradients of this version: of all workers, or of those that came in time. One that is of an
        older version is dropped and its worker given the weights of now."""
        taken: list[Push] = []
        deadline = None
        while len(taken) < len(self.workers):
            try:
                push = self.next_push(deadline)
            except queue.Empty:
                break
            if push.version < self.version:
                self.dropped += 1
                self.answer([push])
                continue
            taken.append(push)
            if self.config.parallel == "ps-hybrid" and deadline is None:
                deadline = time.monotonic() + self.config.ps_timeout_ms / 1e3
        return sorted(taken, key=lambda push: push.worker)  # so that sums do not depend on who was first

    def next_push(self, deadline: float | None = None) -> Push:
        """The next gradient to come. Raises queue.Empty at the deadline, and what a thread raised."""
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        push = self.pushes.get(timeout=timeout)
        if isinstance(push, BaseException):
            raise push
        return push

    def apply(self, pushes: list[Push]) -> None:
        """Update with the mean of gradients, weighted by their samples."""
        samples = sum(push.samples for push in pushes)
        mean = torch.stack([push.gradient.float() * (push.samples / samples) for push in pushes]).sum(0)
        params = list(self.model.parameters())
        for param, part in zip(params, mean.split([param.numel() for param in params]), strict=True):
            param.grad = part.view_as(param).to(param.dtype)
        self.staleness += sum(self.version - push.version for push in pushes)
        self.applied += len(pushes)
        self.update()
        self.version += 1

    def answer(self, pushes: list[Push], over: bool = False) -> None:
        """Give the workers that pushed these the weights of now."""
        weights = self.flat_weights()
        for push in pushes:
            self.lines[push.worker].answers.put(Pull(self.version, over, self.scaler.scale, weights))

    def finish(self) -> None:
        """The server made its last step: each worker hears it at its next push."""
        if not self.is_server:
            return
        for _ in self.workers:
            self.answer([self.next_push()], over=True)
        for thread in self.threads:
            thread.join()

    # ---- who holds what

    def make_optimizer(self) -> torch.optim.Optimizer:
        if self.is_server:
            return super().make_optimizer()
        return torch.optim.SGD(self.parameters())  # never stepped: it keeps nothing

    def optimizer_tensors(self) -> Iterable[Tensor]:
        return super().optimizer_tensors() if self.is_server else ()

    def notes(self) -> list[str]:
        if not self.is_server:
            return []
        stale = self.staleness / max(1, self.applied)
        text = f"{self.applied} gradients applied, {stale:.2f} versions old on average, {self.dropped} dropped"
        return [*super().notes(), f"server: {text}"]
