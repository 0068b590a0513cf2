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

In an elastic job a worker may be lost: a step goes on without its gradient.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum

import torch
import torch.distributed as dist
from torch import Tensor, nn

from kolo_train.config import Config
from kolo_train.job import ELASTIC_TIMEOUT, TIMEOUT, Job
from kolo_train.ways.base import Way

SERVER = 0


class Then(IntEnum):
    """A worker's next act, as the server's answer says."""

    STEP = 0
    END = 1
    REGROUP = 2  # the group changes


@dataclass
class Push:
    """A worker's gradient [parameters]: the mean over `samples`, at the weights of `version`."""

    worker: int
    version: int
    samples: int
    loss: float
    gradient: Tensor


@dataclass
class Lost:
    """The end of a conversation with a worker that failed."""

    worker: int
    error: BaseException


@dataclass
class Pull:
    """The server's answer: weights [parameters] of `version`, and the worker's next act."""

    version: int
    then: Then
    scale: float
    weights: Tensor


@dataclass
class Line:
    """The server's end of the conversation with a worker, held by a thread of its own, so that one
    worker's silence keeps nobody else waiting."""

    worker: int
    group: dist.ProcessGroup
    answers: queue.Queue[Pull] = field(default_factory=queue.Queue)

    def serve(self, pushes: queue.Queue[Push | Lost], gradient_like: Tensor) -> None:
        """Receive a push, have it answered, until an answer asks for no other."""
        try:
            header = torch.empty(3, dtype=torch.float64, device=gradient_like.device)
            then = Then.STEP
            while then == Then.STEP:
                gradient = torch.empty_like(gradient_like)
                dist.recv(header, src=self.worker, group=self.group)
                dist.recv(gradient, src=self.worker, group=self.group)
                version, samples, loss = header.tolist()
                pushes.put(Push(self.worker, int(version), int(samples), loss, gradient))
                answer = self.answers.get()
                then = answer.then
                numbers = header.new_tensor([answer.version, then, answer.scale])
                dist.send(numbers, dst=self.worker, group=self.group)
                dist.send(answer.weights, dst=self.worker, group=self.group)
        except BaseException as error:  # for the training thread
            pushes.put(Lost(self.worker, error))


class ParameterServer(Way):
    """Rank 0 serves, the others work."""

    lockstep = False
    agrees_on_steps = False  # workers go on until the server says it is over

    def __init__(self, config: Config, job: Job) -> None:
        self.synchronous = config.parallel == "ps-sync"
        self.is_server = job.rank == SERVER
        self.then = Then.STEP
        self.decides_steps = self.is_server
        self.version = 0
        self.dropped = self.staleness = self.applied = self.handed = 0
        super().__init__(config, job)
        self._connect()

    def _connect(self) -> None:
        """A group for each pair, so that no two threads of the server share one, and no worker's end ends
        another's conversation."""
        job = self.job
        self.workers = range(1, job.ranks)
        self.then = Then.STEP
        self.lost: list[int] = []  # workers, since the group was made
        groups = {worker: dist.new_group([SERVER, worker], timeout=self._timeout()) for worker in self.workers}
        if self.is_server:
            self.pushes: queue.Queue[Push | Lost] = queue.Queue()
            self.lines = {worker: Line(worker, group) for worker, group in groups.items()}
            self.threads = [
                threading.Thread(target=line.serve, args=(self.pushes, self.flat_weights()), daemon=True)
                for line in self.lines.values()
            ]
            for thread in self.threads:
                thread.start()
        else:
            self.group = groups[job.rank]

    def _timeout(self) -> timedelta:
        """That of an elastic job is short: a worker that is silent for so long is left out."""
        return ELASTIC_TIMEOUT if self.config.elastic else TIMEOUT

    def regroup(self, job: Job) -> None:
        if self.is_server and job.rank != SERVER:  # it was alone until it entered
            self.is_server = self.decides_steps = False
            self.optimizer = self.make_optimizer()
        super().regroup(job)
        self._connect()

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
        return number >= steps if self.is_server else self.then == Then.END

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
        self.version, self.then, self.scaler.scale = int(header[0]), Then(int(header[1])), float(header[2])
        nn.utils.vector_to_parameters(gradient, self.model.parameters())

    # ---- the server

    def serve(self) -> float | None:
        """One step: wait for what this way waits for, update, answer; the loss of what was applied. None: no
        worker is left."""
        if self.config.parallel == "ps-async":
            losses = []
            for _ in list(self.lines):  # as many gradients as the others' steps have
                push = self.next_push()
                if push is not None:
                    self.apply([push])
                    self.answer([push])
                    losses.append(push.loss)
            return sum(losses) / len(losses) if losses else None
        taken = self.collect()
        if not taken:
            return None
        self.apply(taken)
        self.answer(taken)
        return sum(push.loss * push.samples for push in taken) / sum(push.samples for push in taken)

    def collect(self) -> list[Push]:
        """Gradients of this version: of all workers, or of those that came in time. One that is of an
        older version is dropped and its worker given the weights of now."""
        taken: list[Push] = []
        deadline = None
        while len(taken) < len(self.lines):
            try:
                push = self.next_push(deadline)
            except queue.Empty:
                break
            if push is None:
                continue
            if push.version < self.version:
                self.dropped += 1
                self.answer([push])
                continue
            taken.append(push)
            if self.config.parallel == "ps-hybrid" and deadline is None:
                deadline = time.monotonic() + self.config.ps_timeout_ms / 1e3
        return sorted(taken, key=lambda push: push.worker)  # so that sums do not depend on who was first

    def next_push(self, deadline: float | None = None) -> Push | None:
        """The next gradient to come; None where a worker of an elastic job was lost instead. Raises queue.Empty
        at the deadline, and what a thread raised."""
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        push = self.pushes.get(timeout=timeout)
        if isinstance(push, Push):
            return push
        if self.config.elastic is None or not isinstance(push.error, dist.DistBackendError):
            raise push.error
        del self.lines[push.worker]
        self.lost.append(push.worker)
        return None

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

    def answer(self, pushes: list[Push], then: Then = Then.STEP) -> None:
        """Give the workers that pushed these the weights of now."""
        weights = self.flat_weights()
        for push in pushes:
            self.handed += weights.numel() * weights.element_size()
            self.lines[push.worker].answers.put(Pull(self.version, then, self.scaler.scale, weights))

    def dismiss(self, then: Then) -> None:
        """Each worker hears at its next push, which does not count, that there is no other step."""
        left = set(self.lines)
        while left & set(self.lines):
            push = self.next_push()
            if push is not None:
                self.answer([push], then)
                left.discard(push.worker)
        for thread in self.threads:
            thread.join()

    def finish(self) -> None:
        """The server made its last step."""
        if self.is_server:
            self.dismiss(Then.END)

    # ---- who holds what

    def make_optimizer(self) -> torch.optim.Optimizer:
        if self.is_server:
            return super().make_optimizer()
        return torch.optim.SGD(self.parameters())  # never stepped: it keeps nothing

    def handed_unseen(self) -> int:
        return self.handed

    def optimizer_tensors(self) -> Iterable[Tensor]:
        return super().optimizer_tensors() if self.is_server else ()

    def notes(self) -> list[str]:
        if not self.is_server:
            return []
        stale = self.staleness / max(1, self.applied)
        text = f"{self.applied} gradients applied, {stale:.2f} versions old on average, {self.dropped} dropped"
        return [*super().notes(), f"server: {text}"]
