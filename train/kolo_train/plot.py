# SPDX-License-Identifier: Apache-2.0
"""--plot: loss, communication and memory of a run as one picture; of a pipeline, when each rank computes, too."""

from __future__ import annotations

from pathlib import Path

from kolo_train.report import headline
from kolo_train.timeline import draw
from kolo_train.train import Report

KINDS = ("parameters", "gradients", "optimizer")


def plot(report: Report, path: Path) -> None:
    """Write the picture to `path`; the suffix decides the format. Needs matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(13, 7 if report.windows else 4), layout="constrained")
    upper, *lower = figure.subfigures(2, 1, height_ratios=(4, 3)) if report.windows else [figure]
    loss, share, memory = upper.subplots(1, 3, width_ratios=(2, 1, 1))
    if report.windows:
        draw(lower[0].subplots(), report.windows)
    upper.suptitle(headline(report), fontsize=10)
    if report.check:
        loss.plot(report.check.single_losses, label="single", color="0.6", linewidth=3)
    loss.plot(report.losses, label=report.config.parallel, color="C0", linewidth=1.2)
    loss.set(xlabel="step", ylabel="loss", title=f"{report.samples_per_s:,.0f} samples/s")
    loss.set_ylim(bottom=0)
    loss.grid(alpha=0.3)
    loss.legend()

    parts = sorted(
        (item for item in report.communication.items() if item[0] != "all"),
        key=lambda item: item[1],
    )
    share.barh([name for name, _ in parts], [100 * value for _, value in parts], color="C1")
    share.set(xlabel="% of a step", title=f"communication {report.communication.get('all', 0):.0%}")

    bottom = [0.0] * report.ranks
    for number, kind in enumerate(KINDS):
        heights = [getattr(held, kind) / 2**20 for held in report.memory]
        memory.bar(range(report.ranks), heights, bottom=bottom, label=kind, color=f"C{number + 2}")
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    memory.set(xlabel="rank", ylabel="MiB", title="memory", xticks=range(report.ranks))
    memory.set_ylim(top=max(bottom) * 1.3 or 1)
    memory.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
