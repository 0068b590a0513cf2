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

from kolo_train import communication, memory
from kolo_train.config import WAYS, Config, UsageError
from kolo_train.launch import start_ranks

SAME_LOSS = 1e-3

INTERRUPTED = 130
Run = dict[str, Any]

COLUMNS: dict[str, Callable[[Run], str]] = {
    "way": lambda run: str(run["config"]["parallel"]),
    "ranks": lambda run: str(run["ranks"]),
    "last loss": lambda run: f"{_last_loss(run):.4f}",
    "samples/s": lambda run: f"{run['samples_per_s']:,.0f}",
    "ms a step": lambda run: f"{run['step_seconds'] * 1e3:.1f}",
    "MiB, largest rank": lambda run: f"{_memory(run):.2f}",
    "MiB by formula": lambda run: _words(_memory_formula(run)),
    "communication": lambda run: f"{_communication(run):.1%}",
    "MiB to calls": lambda run: f"{run['handed_bytes'] / 2**20:.2f}",
    "to calls by formula": lambda run: _words(_handed_formula(run)),
}


def _last_loss(run: Run) -> float:
    """The mean of the last tenth."""
    tail = run["losses"][-max(1, len(run["losses"]) // 10) :]
    return float(sum(tail) / len(tail))


def _memory(run: Run) -> float:
    return float(max(sum(held.values()) for held in run["memory"]) / 2**20)


def _memory_formula(run: Run) -> tuple[str, float] | None:
    rule = memory.formula(Config(**run["config"]), run["ranks"])
    return (rule[0], rule[1] * run["parameters"]) if rule else None


def _handed_formula(run: Run) -> tuple[str, float] | None:
    return communication.formula(Config(**run["config"]), run["ranks"], run["parameters"])


def _words(rule: tuple[str, float] | None) -> str:
    return f"{rule[0]} = {rule[1] / 2**20:.2f}" if rule else ""


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


def curves(runs: Sequence[Run]) -> list[tuple[list[str], list[float]]]:
    """The ways by their losses: those of one curve would hide each other."""
    found: list[tuple[list[str], list[float]]] = []
    for run in runs:
        way, losses = run["config"]["parallel"], run["losses"]
        for ways, others in found:
            if len(losses) == len(others) and all(
                abs(one - other) < SAME_LOSS for one, other in zip(losses, others, strict=True)
            ):
                ways.append(way)
                break
        else:
            found.append(([way], losses))
    return found


def draw(runs: Sequence[Run], path: Path) -> None:
    """Loss, speed, memory and communication of all runs as one picture. Needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = [run["config"]["parallel"] for run in runs]
    size = (16, 2 + 0.3 * max(8, len(runs)))
    figure, (loss, *bars) = pyplot.subplots(1, 4, figsize=size, width_ratios=(2, 1, 1, 1), layout="constrained")
    for ways, losses in curves(runs):
        others = f" and {len(ways) - 1} ways with the same loss" if len(ways) > 1 else ""
        loss.plot(losses, label=ways[0] + others, linewidth=1.2)
    loss.set(xlabel="step", ylabel="loss")
    loss.grid(alpha=0.3)
    loss.legend(fontsize=9)
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
