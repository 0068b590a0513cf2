# SPDX-License-Identifier: Apache-2.0
"""How long a step would take on another machine, by `kolo sim --replay` of steps that were made here.

Computation takes as long as it did here; the calls between ranks take what the simulation says.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist

from kolo_train.communication import FIRST_STEP, sampled
from kolo_train.config import UsageError
from kolo_train.job import Job
from kolo_train.record import Record, Steps, record_of

MOST = 12
"""Steps that are replayed."""


@dataclass
class Prediction:
    """Of a step, seconds. Calls may overlap with computation and with each other."""

    machine: str
    predicted: float
    measured: float
    computation: float  # of a rank
    calls: float
    steps: int


def need_kolo() -> str:
    """The command that simulates. Raises UsageError where there is none."""
    kolo = shutil.which("kolo")
    if kolo is None:
        raise UsageError("--predict asks kolo sim, and there is no kolo in PATH: build/tools has it")
    return kolo


def undisturbed(steps: int, period: int) -> tuple[int, int]:
    """First and number of the last steps in a row that no profiler slowed. Raises UsageError where they are few."""
    last = end = steps
    for step in range(steps - 1, FIRST_STEP, -1):
        if sampled(step, steps, period):
            if end - last >= 2:
                break
            end = step
        last = step if not sampled(step, steps, period) else end
        if end - last == MOST:
            break
    if end - last < 2:
        raise UsageError("--predict needs two steps after the first ones: give more --steps")
    return last, end - last


def predict(machine: str, job: Job, steps: Steps, period: int) -> Prediction | None:
    """What the steps would have taken there; complete on rank 0, None on others. All ranks call this."""
    first, count = undisturbed(len(steps.begins) - 1, period)
    mine = (record_of(steps, first, 1), record_of(steps, first, count))
    records: list[tuple[Record, Record] | None] | None = [None] * job.ranks if job.rank == 0 else None
    dist.gather_object(mine, records, dst=0)
    if records is None:
        return None
    one = _replay(machine, [pair[0] for pair in records if pair is not None])
    whole = _replay(machine, [pair[1] for pair in records if pair is not None])
    return Prediction(
        machine=machine,
        predicted=(whole["predicted_ms"] - one["predicted_ms"]) / 1e3 / (count - 1),
        measured=(steps.begins[first + count] - steps.begins[first]) / 1e9 / count,
        computation=(whole["compute_ms"] - one["compute_ms"]) / 1e3 / (count - 1),
        calls=(whole["calls_ms"] - one["calls_ms"]) / 1e3 / (count - 1),
        steps=count,
    )


def _replay(machine: str, records: list[Record]) -> dict[str, float]:
    """What kolo sim tells of the records of all ranks."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / str(rank) for rank in range(len(records))]
        for path, record in zip(paths, records, strict=True):
            path.write_text(json.dumps(record), encoding="utf-8")
        command = [need_kolo(), "sim", "--replay", "--machine", machine, "--json", "-", *map(str, paths)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UsageError(f"--predict: {done.stderr.strip()}")
    told: dict[str, float] = json.loads(done.stdout)
    return told
