# SPDX-License-Identifier: Apache-2.0
"""What a rank called in some steps, as a flight record that `kolo sim --replay` reads.

kolo_torch keeps the last calls of the process. Of them the record has those of whole steps.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist

Record = dict[str, Any]


@dataclass
class Steps:
    """When steps began, and when the last one ended, by the clock of the records."""

    begins: list[int] = field(default_factory=list)  # ns

    def begin(self) -> None:
        """A step begins, or the last one is over."""
        self.begins.append(time.time_ns())


def record_of(steps: Steps, first: int, count: int) -> Record:
    """This rank's calls in `count` steps from `first` on."""
    import kolo_torch

    recorded: Record = kolo_torch.flight_recorder()
    entries: list[Record] = []
    for step in range(first, first + count):
        begin, end = steps.begins[step], steps.begins[step + 1]
        calls = [entry for entry in recorded["entries"] if begin <= entry["time_created_ns"] < end]
        _note_waits(calls)
        entries += calls
    return {"version": recorded["version"], "pg_config": _groups(), "entries": entries}


def _note_waits(calls: list[Record]) -> None:
    """DDP waits by futures, which no backend sees: for all buckets, as soon as it has filled the last one."""
    unseen = [call for call in calls if call["time_waited_ns"] is None and not call["is_p2p"]]
    for call in unseen:
        call["time_waited_ns"] = unseen[-1]["time_created_ns"]


def _groups() -> dict[str, dict[str, str]]:
    """The ranks of each process group, by the name that entries have of it."""
    world = dist.distributed_c10d._world
    return {
        world.pg_names[group]: {"name": world.pg_names[group], "ranks": str(list(ranks))}
        for group, ranks in world.pg_group_ranks.items()
        if group in world.pg_names  # not what stands for groups of others
    }
