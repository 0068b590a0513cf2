# SPDX-License-Identifier: Apache-2.0
"""--elastic: training that goes on without ranks that die, and takes others in.

A step counts when the ranks that live have agreed that all their parts went well. If a rank dies, the
others shrink their group and make the step again, its samples divided anew. At the border of a step the
group takes in who waits; model, optimizer and place in the data come from rank 0, which has them.
With --checkpoint, rank 0 also writes them to a file. A job goes on from the file when no rank is left,
as after each death under torchrun.
The samples of step k are the same for any number of ranks, so the losses are, too, but for rounding.
"""

from __future__ import annotations

import gc
import io
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from kolo_torch import Options
from kolo_torch.elastic import Members, Verdict
from torch import Tensor

from kolo_train.config import Config, UsageError
from kolo_train.job import ELASTIC_TIMEOUT, Job, leave, share_cores
from kolo_train.models import loss_of
from kolo_train.progress import Progress
from kolo_train.restarted import RestartedMembers, is_under_torchrun
from kolo_train.train import TIMED_WARMUP, Report
from kolo_train.ways import make_way

GATHER_S = 60.0
"""How long the first rank waits for all others before it starts with fewer."""

TRIES = 20
"""How often a step may fail; each death is one."""

CHECKPOINT_S = 1.0
"""How old a checkpoint is before the next one is written. The steps since are lost with the last rank."""

SAME = ("model", "layers", "width", "heads", "context", "experts", "top_k", "capacity", "batch", "seed", "lr")
SAME += ("optimizer", "momentum", "precision", "parallel")
"""A checkpoint is for a job with the same values of these options."""


class ServerLost(Exception):
    """A parameter server has died; the message says which process it was."""


@dataclass
class Told:
    """What the job has come to: a rank that is taken in gets it with the weights."""

    number: int = 0  # steps made
    epoch: int = 0
    place: int = 0  # samples of the epoch that are trained
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # of steps that nothing disturbed
    gaps: list[float] = field(default_factory=list)  # of steps that a death made twice, the first try included
    lost: int = 0
    resumed: int = 0  # from a checkpoint
    taken_in: int = 0
    seconds_to_take_in: list[float] = field(default_factory=list)
    server: str = ""  # of parameters: which process that is


class Trainer:
    """One rank of the job."""

    def __init__(self, config: Config, members: Members | RestartedMembers) -> None:
        self.config, self.members, self.told = config, members, Told()
        self.way = make_way(config, self._job())
        self.data = self.way.data
        self.seen = torch.zeros(self.data.samples)  # how often each sample of the epoch was trained
        self.current = True  # no member lacks the state
        self.order, self.order_of = torch.empty(0, dtype=torch.int64), -1  # of the samples, in which epoch
        self.saved_at = time.monotonic()

    def _job(self) -> Job:
        return Job(self.members.rank, self.members.size, torch.device("cpu"))

    # ---- a step

    def step(self) -> None:
        """Train the next samples; with fewer ranks, if some die. Raises RuntimeError after TRIES failures."""
        start, tries = time.perf_counter(), 0
        while True:
            try:
                batch, tally = self._part()
                good = True
            except RuntimeError as error:
                only_of_group(error)
                good = False
            verdict = self.members.agree(good)
            if verdict.good:
                self._count(batch, tally)
                took = time.perf_counter() - start
                (self.told.gaps if tries > 0 else self.told.seconds).append(took)
            self.follow(verdict)
            if verdict.good:
                return
            tries += 1
            if tries == TRIES:
                raise RuntimeError(f"step {self.told.number} failed {TRIES} times")

    def _part(self) -> tuple[Tensor, Tensor]:
        """Exchange the gradients of this rank's part of the step. The samples of the step, and over all
        ranks: how often each of them was trained, and behind that the loss."""
        self.way.optimizer.zero_grad(set_to_none=True)
        batch = self._samples()
        places = torch.arange(len(batch)).tensor_split(self.members.size)[self.members.rank]
        mine = batch[places]
        # DDP waits for every rank's gradients: a rank without samples computes those of one, times 0.
        x, y = self.data.picked(mine if len(mine) else batch[:1])
        self.way.before_backward(last=True)
        weighted = loss_of(self.way.model(x), y) * (len(mine) / len(batch))
        (weighted * self.members.size).backward()
        self.way.exchange()
        tally = torch.zeros(len(batch) + 1)
        tally[places] = 1
        tally[-1] = weighted.detach()
        dist.all_reduce(tally)
        return batch, tally

    def _samples(self) -> Tensor:
        """The next samples of the epoch, whose order the seed gives."""
        if self.order_of != self.told.epoch:
            generator = torch.Generator().manual_seed(self.config.seed + self.told.epoch)
            self.order, self.order_of = torch.randperm(self.data.samples, generator=generator), self.told.epoch
        return self.order[self.told.place :][: self.config.batch]

    def _count(self, batch: Tensor, tally: Tensor) -> None:
        """The step counts. Raises RuntimeError where an epoch had a sample not once."""
        self.way.update()
        told = self.told
        self.seen.index_add_(0, batch, tally[:-1])
        told.losses.append(float(tally[-1]))
        told.number += 1
        told.place += self.config.batch
        if told.place >= self.data.samples:
            wrong = int((self.seen != 1).sum())
            if wrong:
                raise RuntimeError(f"epoch {told.epoch} trained {wrong} samples not exactly once")
            told.epoch, told.place = told.epoch + 1, 0
            self.seen.zero_()

    # ---- the group

    def follow(self, verdict: Verdict) -> None:
        """Go on in the group that the verdict leads to, with the state of its rank 0."""
        before, start = self.members.size, time.perf_counter()
        while self.settle(verdict):
            lost = len(verdict.failed)
            self.told.lost += lost
            self.current = self.current and (lost > 0 or not verdict.good)  # else new ranks have come
            came = self.members.size - (before - lost) if self.told.number > 0 else 0  # later than the start
            self.told.taken_in += max(0, came)
            good = self._take_over()
            if came > 0:
                self.told.seconds_to_take_in.append(time.perf_counter() - start)
            before, start = self.members.size, time.perf_counter()
            verdict = self.members.agree(good)
            self.current = self.current or verdict.good
            if good and verdict.good and not verdict.failed and not verdict.someone_waits:
                return

    def settle(self, verdict: Verdict) -> bool:
        """Whether the group has changed, as the verdict says."""
        return self.members.settle(verdict)

    def enter(self) -> bool:
        """Become a member. False: the job has finished."""
        if not self.members.enter():
            return False
        if self.members.rank == 0:
            self._resume()
        if self.members.size == 1:  # this rank has founded the group
            deadline = time.monotonic() + GATHER_S
            while len(self.members.waiting()) < self.members.most - 1 and time.monotonic() < deadline:
                time.sleep(0.01)
            self.follow(self.members.agree(True))
            return True
        self._settle_in()
        return True

    def _settle_in(self) -> None:
        """As a new member: take part in what follow() does on the others."""
        self.current = False
        good = self._take_over()
        verdict = self.members.agree(good)
        self.current = verdict.good
        if not good or not verdict.good or verdict.failed or verdict.someone_waits:
            self.follow(verdict)

    def _take_over(self) -> bool:
        """Whether all went well here; else one more rank has died."""
        try:
            if not self.current:
                state = self._state_of_rank_0()
                if self.members.rank > 0:
                    self._load(state)
            self.way.regroup(self._job())
            return True
        except RuntimeError as error:
            only_of_group(error)
            return False

    def _state_of_rank_0(self) -> dict[str, Any]:
        """By a broadcast of bytes that hold tensors and plain values only."""
        image = torch.empty(0, dtype=torch.uint8)
        if self.members.rank == 0:
            file = io.BytesIO()
            torch.save(self._state(), file)
            image = torch.frombuffer(file.getbuffer(), dtype=torch.uint8)
        length = torch.tensor([len(image)])
        dist.broadcast(length, 0)
        if self.members.rank > 0:
            image = torch.empty(int(length), dtype=torch.uint8)
        dist.broadcast(image, 0)
        state: dict[str, Any] = torch.load(io.BytesIO(image.numpy().tobytes()), weights_only=True)
        return state

    def _state(self) -> dict[str, Any]:
        return {
            "model": self.way.whole_model().state_dict(),
            "optimizer": self.way.local_optimizer().whole_state(),
            "told": asdict(self.told),
            "seen": self.seen,
        }

    def _load(self, state: dict[str, Any]) -> None:
        self.way.whole_model().load_state_dict(state["model"])
        self.way.local_optimizer().load_whole_state(state["optimizer"])
        self.told = Told(**state["told"])
        self.seen = state["seen"]

    # ---- the file

    def _resume(self) -> None:
        """Go on from the checkpoint, if there is one. Raises UsageError where it is of other options."""
        path = self.config.checkpoint
        if path is None or not path.exists():
            return
        try:
            state = torch.load(path, weights_only=True)
            of = state["of"]
        except Exception as error:
            raise UsageError(f"--checkpoint {path} cannot be read: {error}") from error
        for name in SAME:
            mine = getattr(self.config, name)
            if of.get(name) != mine:
                raise UsageError(f"--checkpoint {path} is of --{name.replace('_', '-')} {of.get(name)}, not {mine}")
        self._load(state)
        self.told.resumed += 1

    def save(self, path: Path) -> None:
        """Write the checkpoint: all of it, or the one before stays."""
        part = path.with_name(f"{path.name}.part")
        with part.open("wb") as file:
            torch.save({**self._state(), "of": {name: getattr(self.config, name) for name in SAME}}, file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        self.saved_at = time.monotonic()

    def _save_if_due(self) -> None:
        path, told = self.config.checkpoint, self.told
        if path is not None and self.members.rank == 0:
            if told.number == self.config.steps or time.monotonic() > self.saved_at + CHECKPOINT_S:
                self.save(path)

    # ---- the whole

    def train(self, quiet: bool) -> None:
        """All steps, as long as there are enough ranks."""
        with Progress(self.config.steps, self.config, show=not quiet) as progress:
            while not self.finished():
                if self.members.size < self.members.least:
                    time.sleep(0.01)
                    self.follow(self.members.agree(True))
                    continue
                self.step()
                self._save_if_due()
                progress.show = self.members.rank == 0 and not quiet
                progress.update(self.told.number, self.told.losses[-1] if self.told.losses else None, None)
        self.way.finish()

    def finished(self) -> bool:
        """No step is to be made any more."""
        return self.told.number >= self.config.steps

    def report(self) -> Report:
        """As rank 0 saw it."""
        steady = self.told.seconds[TIMED_WARMUP:] or self.told.seconds
        seconds = sum(steady) / len(steady)
        return Report(
            config=self.config,
            ranks=self.members.size,
            parameters=self.way.parameter_count,
            losses=self.told.losses,
            step_seconds=seconds,
            samples_per_s=self.config.batch / seconds,
            communication={},
            handed_bytes=0.0,
            memory=[self.way.measure_memory()],
            notes=self._notes(),
        )

    def _notes(self) -> list[str]:
        told = self.told
        gap = f"; a step through a death took {max(told.gaps) * 1e3:.0f} ms at most" if told.gaps else ""
        entry = f", in {max(told.seconds_to_take_in) * 1e3:.0f} ms at most" if told.seconds_to_take_in else ""
        resumed = f"; {told.resumed} times resumed from {self.config.checkpoint}" if told.resumed else ""
        return [
            f"elastic: {told.lost} ranks lost, {told.taken_in} taken in{entry}{gap}{resumed}",
            self._data_note(),
        ]

    def _data_note(self) -> str:
        samples = self.data.samples
        return f"data: {self.told.epoch} whole epochs of {samples} samples, each sample exactly once in each"


def run_elastic(config: Config, quiet: bool = False) -> Report | None:
    """Train as a rank of `kolo run --elastic`, or of torchrun. The report on rank 0, else None.

    Raises UsageError where the job is not elastic, or the options do not fit.
    """
    assert config.elastic is not None
    config.validate(config.elastic[1])
    try:
        members = RestartedMembers(config) if is_under_torchrun() else _members_of_job(config)
        share_cores(members.most)
        gc.collect()
        gc.freeze()  # a change of the group collects: what was imported need not be searched for that
        trainer = _trainer_of(config)(config, members)
        if not trainer.enter():
            return None
        trainer.train(quiet)
        if members.rank == 0:
            members.finish()
            return trainer.report()
        return None
    finally:
        leave()


def _trainer_of(config: Config) -> type[Trainer]:
    if config.has_server:
        from kolo_train.elastic_server import ServerTrainer

        return ServerTrainer
    return Trainer


def _members_of_job(config: Config) -> Members:
    try:
        members = Members.of_job(Options(ELASTIC_TIMEOUT, codec=config.codec), ELASTIC_TIMEOUT)
    except RuntimeError as error:
        raise UsageError(f"--elastic: {error}") from error
    if (members.least, members.most) != config.elastic:
        assert config.elastic is not None
        raise UsageError(
            f"--elastic {config.elastic[0]}:{config.elastic[1]}: kolo run has {members.least}:{members.most}"
        )
    return members


def only_of_group(error: RuntimeError) -> None:
    """Raises the error unless it says that a group has failed, or could not be made."""
    if not isinstance(error, dist.DistError) and "kolo: " not in str(error):
        raise error
