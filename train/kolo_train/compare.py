# SPDX-License-Identifier: Apache-2.0
"""python -m kolo_train.compare FILE.json...: runs, as --json wrote them, next to each other."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Run = dict[str, Any]


def _communication(run: Run) -> str:
    """The share of all collectives, then that of each."""
    parts = sorted(run["communication"].items(), key=lambda part: -part[1])
    return ", ".join(f"{'any' if name == 'all' else name} {share:.1%}" for name, share in parts) or "none"


def _name(config: Run) -> str:
    codec = config.get("codec", "none")
    return f"{config['parallel']} over {config['backend']}{'' if codec == 'none' else f', {codec}'}"


ROWS: dict[str, Callable[[Run], str]] = {
    "": lambda run: _name(run["config"]),
    "ranks": lambda run: str(run["ranks"]),
    "samples/s": lambda run: f"{run['samples_per_s']:,.0f}",
    "ms a step": lambda run: f"{run['step_seconds'] * 1e3:.2f}",
    "communication": _communication,
    "steps": lambda run: str(len(run["losses"])),
    "loss": lambda run: f"{run['losses'][0]:.3f} -> {run['losses'][-1]:.3f}",
    "MiB, largest rank": lambda run: f"{max(sum(memory.values()) for memory in run['memory']) / 2**20:.2f}",
}


def table(runs: Sequence[Run]) -> str:
    """A column for each run; the last line is how much faster the first one is than each other."""
    cells = [[name, *(cell(run) for run in runs)] for name, cell in ROWS.items()]
    widths = [max(len(row[column]) for row in cells) for column in range(len(runs) + 1)]
    lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    first = runs[0]
    for other in runs[1:]:
        ratio = first["samples_per_s"] / other["samples_per_s"]
        lines.append(
            f"{first['config']['backend']} makes {ratio:.2f} times the samples/s of {other['config']['backend']}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table([json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:]]))
