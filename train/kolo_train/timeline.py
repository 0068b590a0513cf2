# SPDX-License-Identifier: Apache-2.0
"""When each rank of a pipeline computes, as measured: how much of a step is bubbles, and a picture."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kolo_train.config import Config

SHOWN = 2
"""Steps of the picture."""

KEPT = 4096
"""Spans that a rank keeps: those of the last steps."""


@dataclass
class Span:
    """Computation of one micro-batch, ns by the clock that all ranks of a host have."""

    kind: str  # forward or backward
    begin: int
    end: int


@dataclass
class Window:
    """Steps in a row of one rank that no profiler slowed."""

    begin: int
    end: int
    spans: list[Span]

    @property
    def busy(self) -> float:
        """The part of the time in which the rank computes."""
        inside = sum(min(span.end, self.end) - max(span.begin, self.begin) for span in self.spans)
        return inside / (self.end - self.begin)


class Timeline:
    """The last spans of this rank."""

    def __init__(self) -> None:
        self.spans: deque[Span] = deque(maxlen=KEPT)

    @contextmanager
    def span(self, kind: str) -> Iterator[None]:
        """Note the computation within."""
        begin = time.time_ns()
        yield
        self.spans.append(Span(kind, begin, time.time_ns()))

    def watch(self, stage: Any) -> None:
        """Note the computation of a stage of PyTorch's pipelines."""
        stage.forward_one_chunk = self._timed("forward", stage.forward_one_chunk)
        stage.backward_one_chunk = self._timed("backward", stage.backward_one_chunk)

    def _timed(self, kind: str, compute: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **options: Any) -> Any:
            with self.span(kind):
                return compute(*args, **options)

        return timed

    def window(self, begins: list[int], first: int, count: int) -> Window:
        """The last of these steps; steps.begins[k] is when step k began."""
        begin, end = begins[first + max(0, count - SHOWN)], begins[first + count]
        return Window(begin, end, [span for span in self.spans if begin < span.end and span.begin < end])


def bubbles(windows: list[Window]) -> float:
    """The part of the time in which a rank does not compute, on average over the ranks."""
    return 1 - sum(window.busy for window in windows) / len(windows)


def formula(config: Config, ranks: int) -> tuple[str, float] | None:
    """That part in words and as a number, if all stages took as long and messages no time. S: the stages, one
    a rank or two (2S), M: the micro-batches."""
    count = config.accumulate if config.accumulate > 1 else 2 * ranks
    match config.parallel:
        case "pp-gpipe" | "pp-1f1b":
            return "(S - 1)/(M + S - 1)", (ranks - 1) / (count + ranks - 1)
        case "pp-interleaved":
            return "(S - 1)/(2M + S - 1)", (ranks - 1) / (2 * count + ranks - 1)
        case "pp-pipedream" | "pp-2bw":
            return "0", 0.0
    return None


def draw(axes: Any, windows: list[Window]) -> None:
    """A line of boxes for each rank; where there are none, it waits, exchanges or updates."""
    start = min(span.begin for window in windows for span in window.spans)
    for kind, colour in (("forward", "C0"), ("backward", "C1")):
        for rank, window in enumerate(windows):
            spans = [span for span in window.spans if span.kind == kind]
            boxes = [((span.begin - start) / 1e6, (span.end - span.begin) / 1e6) for span in spans]
            label = kind if rank == 0 else None
            axes.broken_barh(boxes, (rank - 0.4, 0.8), facecolors=colour, edgecolor="white", linewidth=0.5, label=label)
    axes.set(xlabel="ms", ylabel="rank", yticks=range(len(windows)))
    axes.invert_yaxis()
    axes.legend(fontsize=8, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
