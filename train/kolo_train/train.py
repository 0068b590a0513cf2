# SPDX-License-Identifier: Apache-2.0
"""A run: the loop over steps, what it measures, and the report that comes of it."""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from kolo_train.check import Check, compare
from kolo_train.communication import Communication, sampled
from kolo_train.config import Config
from kolo_train.job import Job
from kolo_train.memory import Memory
from kolo_train.predict import Prediction, predict, undisturbed
from kolo_train.progress import Progress
from kolo_train.record import Steps
from kolo_train.timeline import Window
from kolo_train.ways import make_way
from kolo_train.ways.base import State, Way

TIMED_WARMUP = 5
"""Steps after which --seconds is turned into a number of steps."""


@dataclass
class Trace:
    """What one rank saw of the run."""

    losses: list[float | None] = field(default_factory=list)
    seconds: list[float | None] = field(default_factory=list)  # of each step; None where profiled
    shares: dict[str, float] = field(default_factory=dict)
    handed: float = 0.0  # bytes a step
    memory: Memory = field(default_factory=Memory)
    notes: list[str] = field(default_factory=list)
    prediction: Prediction | None = None
    window: Window | None = None


@dataclass
class Report:
    """What a run came to, complete on rank 0."""

    config: Config
    ranks: int
    parameters: int
    losses: list[float]  # the mean over ranks, of each step
    step_seconds: float  # mean of the steps that were neither the first ones nor profiled
    samples_per_s: float
    communication: dict[str, float]  # share of a step by collective, mean over ranks
    handed_bytes: float  # to calls in a step, by the rank that handed over most; 0 where nobody knows
    memory: list[Memory]  # of each rank
    notes: list[str]
    check: Check | None = None
    prediction: Prediction | None = None
    windows: list[Window] = field(default_factory=list)  # of each rank of a pipeline

    def as_dict(self) -> dict[str, object]:
        """All of it in the types of JSON."""
        return dataclasses.asdict(self)


def run(config: Config, job: Job, quiet: bool = False) -> Report:
    """Train as `config` says. All ranks of the job call this together; `quiet` shows no progress.

    Raises UsageError where the options do not fit each other or the number of ranks.
    """
    return trained(config, job, quiet)[0]


def trained(config: Config, job: Job, quiet: bool = False) -> tuple[Report, State]:
    """As run(), with the weights, complete on rank 0, where config.check asks for them."""
    config.validate(job.ranks)
    way = make_way(config, job)
    trace = _train(way, config, job, quiet)
    state = way.full_state() if config.check else {}
    traces: list[Trace] = _gather(trace, job)
    report = _report(config, job, way, traces)
    if config.check:
        report.check = compare(state, config, job, exact=way.synchronous and config.codec == "none")
    return report, state


def _train(way: Way, config: Config, job: Job, quiet: bool) -> Trace:
    trace = Trace()
    communication = Communication(config.backend, config.device)
    steps = TIMED_WARMUP if config.seconds else config.steps
    began = time.perf_counter()
    marks = Steps()
    with Progress(steps, config, show=way.reports and not quiet) as progress:
        number = 0
        while not way.finished(number, steps):
            marks.begin()
            _step(way, number, steps, config, trace, communication)
            number += 1
            progress.update(number, trace.losses[-1], communication.shares().get("all"))
            if config.seconds and number == TIMED_WARMUP and way.decides_steps:
                steps = _steps_for(config.seconds - (time.perf_counter() - began), trace, way)
                progress.total = steps
    marks.begin()
    if config.predict:
        trace.prediction = predict(config.predict, way.job, marks, way.period)
    if way.timeline and number > TIMED_WARMUP:
        trace.window = way.timeline.window(marks.begins, *undisturbed(number, way.period))
    unseen = way.handed_unseen() / number
    way.finish()
    trace.shares = communication.shares()
    trace.handed = communication.bytes_a_step() + unseen
    trace.memory = way.measure_memory()
    trace.notes = way.notes()
    return trace


def _step(way: Way, number: int, steps: int, config: Config, trace: Trace, communication: Communication) -> None:
    """One step, timed, or profiled where it is a sample."""
    if config.straggle_ms and way.job.rank == way.job.ranks - 1:
        time.sleep(config.straggle_ms / 1e3)
    # The profiler takes more than 100 MiB of a rank, which a model larger than memory has not.
    if way.job.ranks > 1 and communication.is_seen and not config.on_disk and sampled(number, steps, way.period):
        with communication.sample():
            trace.losses.append(way.step(number))
            way.wait_for_calls()  # the end of one that outlives the profiler would be written into freed memory
        trace.seconds.append(None)
    else:
        start = time.perf_counter()
        trace.losses.append(way.step(number))
        if config.device == "cuda":
            torch.cuda.synchronize()
        trace.seconds.append(time.perf_counter() - start)


def _steps_for(seconds: float, trace: Trace, way: Way) -> int:
    """How many steps to make so that `seconds` more pass; alike on all ranks that keep step."""
    recent = [duration for duration in trace.seconds[1:] if duration is not None]
    steps = [TIMED_WARMUP + max(5, int(seconds / (sum(recent) / len(recent))))]
    if way.agrees_on_steps and way.job.ranks > 1:
        dist.broadcast_object_list(steps, src=0)
    return steps[0]


def _gather(trace: Trace, job: Job) -> list[Trace]:
    """Every rank's trace, on every rank."""
    traces = [trace] * job.ranks
    if job.ranks > 1:
        dist.all_gather_object(traces, trace)
    return traces


def _report(config: Config, job: Job, way: Way, traces: list[Trace]) -> Report:
    timed = [_mean_of_steady(trace.seconds) for trace in traces]
    step_seconds = sum(timed) / len(timed)
    names = sorted({name for trace in traces for name in trace.shares})
    shown = [trace for trace in traces if trace.shares]
    notes = [note for trace in traces for note in trace.notes]
    return Report(
        config=config,
        ranks=job.ranks,
        parameters=way.parameter_count,
        losses=_mean_losses(traces),
        step_seconds=step_seconds,
        samples_per_s=config.batch / step_seconds,
        communication={name: sum(t.shares.get(name, 0.0) for t in shown) / len(shown) for name in names},
        handed_bytes=max(trace.handed for trace in traces),
        memory=[trace.memory for trace in traces],
        notes=list(dict.fromkeys(notes)),
        prediction=traces[0].prediction,
        windows=[trace.window for trace in traces if trace.window is not None],
    )


def _mean_of_steady(seconds: list[float | None]) -> float:
    """Mean duration of the steps after the first few, of all where there are no more."""
    durations = [duration for duration in seconds[TIMED_WARMUP:] if duration is not None]
    durations = durations or [duration for duration in seconds if duration is not None]
    return sum(durations) / len(durations) if durations else math.nan


def _mean_losses(traces: list[Trace]) -> list[float]:
    """Of each step, the mean over the ranks that had a loss."""
    means = []
    for number in range(max(len(trace.losses) for trace in traces)):
        here = [trace.losses[number] for trace in traces if number < len(trace.losses)]
        known = [loss for loss in here if loss is not None]
        if known:
            means.append(sum(known) / len(known))
    return means
