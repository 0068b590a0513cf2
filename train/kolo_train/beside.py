# SPDX-License-Identifier: Apache-2.0
"""--compare: several ways train one after the other with the same options; a table and a picture of all."""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kolo_train.config import WAYS, Config, UsageError
from kolo_train.launch import start_ranks

INTERRUPTED = 130
Run = dict[str, Any]

COLUMNS: dict[str, Callable[[Run], str]] = {
    "way": lambda run: str(run["config"]["parallel"]),
    "ranks": lambda run: str(run["ranks"]),
    "last loss": lambda run: f"{_last_loss(run):.4f}",
    "samples/s": lambda run: f"{run['samples_per_s']:,.0f}",
    "ms a step": lambda run: f"{run['step_seconds'] * 1e3:.1f}",
    "MiB, largest rank": lambda run: f"{_memory(run):.2f}",
    "communication": lambda run: f"{_communication(run):.1%}",
}


def _last_loss(run: Run) -> float:
    """The mean of the last tenth."""
    tail = run["losses"][-max(1, len(run["losses"]) // 10) :]
    return float(sum(tail) / len(tail))


def _memory(run: Run) -> float:
    return float(max(sum(memory.values()) for memory in run["memory"]) / 2**20)


def _communication(run: Run) -> float:
    return float(run["communication"].get("all", 0))


def chosen(words: str, config: Config, ranks: int) -> tuple[list[str], dict[str, str]]:
    """The ways to run, and why `all` leaves others out. Raises UsageError for a way that was named and cannot be."""
    ways, refused = [], {}
    for way in WAYS if words == "all" else words.split(","):
        try:
            if way not in WAYS:
                raise UsageError(f"--compare {way}: there is no such way")
            if way.startswith("deepspeed-") and find_spec("deepspeed") is None:
                raise UsageError("deepspeed is not installed")
            dataclasses.replace(config, parallel=way).validate(_ranks_of(way, ranks))
            ways.append(way)
        except UsageError as error:
            if words != "all":
                raise
            refused[way] = str(error)
    return ways, refused


def _ranks_of(way: str, ranks: int) -> int:
    return 1 if way == "single" else ranks


def beside(words: str, config: Config, ranks: int, command: Sequence[str], plot: Path | None, out: Path | None) -> int:
    """Status 0; or that of the first way that fails, after all have run."""
    ways, refused = chosen(words, config, ranks)
    runs, status = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for number, way in enumerate(ways):
            path = Path(folder) / f"{number}.json"
            ended = start_ranks(_ranks_of(way, ranks), [*command, "--parallel", way, "--json", str(path)])
            status = status or ended
            if path.exists():
                runs.append(json.loads(path.read_text(encoding="utf-8")))
            else:
                refused[way] = f"it ended with status {ended}"
            if ended == INTERRUPTED:
                break
            print(flush=True)
    print(table(runs))
    for way, why in refused.items():
        print(f"{way}: {why}", file=sys.stderr)
    if out:
        out.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
    if plot and runs:
        draw(runs, plot)
    return status


def table(runs: Sequence[Run]) -> str:
    """In Markdown, a row for each run."""
    rows = [list(COLUMNS), *([cell(run) for cell in COLUMNS.values()] for run in runs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    rows.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    )


def draw(runs: Sequence[Run], path: Path) -> None:
    """Loss, speed, memory and communication of all runs as one picture. Needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = [run["config"]["parallel"] for run in runs]
    size = (16, 2 + 0.3 * max(8, len(runs)))
    figure, (loss, *bars) = pyplot.subplots(1, 4, figsize=size, width_ratios=(2, 1, 1, 1), layout="constrained")
    colours = pyplot.get_cmap("turbo")
    for number, run in enumerate(runs):
        colour = colours(number / max(1, len(runs) - 1))
        loss.plot(run["losses"], label=names[number], color=colour, linewidth=1)
    loss.set(xlabel="step", ylabel="loss")
    loss.set_ylim(bottom=0)
    loss.grid(alpha=0.3)
    loss.legend(fontsize=7, ncols=2)
    figures = {
        "samples/s": [run["samples_per_s"] for run in runs],
        "MiB, largest rank": [_memory(run) for run in runs],
        "communication, % of a step": [100 * _communication(run) for run in runs],
    }
    for axes, (title, values) in zip(bars, figures.items(), strict=True):
        axes.barh(names, values)
        axes.set(title=title)
        axes.invert_yaxis()
        axes.tick_params(labelsize=7)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
