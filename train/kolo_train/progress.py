# SPDX-License-Identifier: Apache-2.0
"""The line that tells how far a run is: a bar that moves on a terminal, else a line for each tenth."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from kolo_train.config import Config

WIDTH = 24


class Progress:
    """Bar, loss, samples/s since the last line, share of communication."""

    def __init__(self, total: int, config: Config, show: bool) -> None:
        self.total, self.config, self.show = total, config, show
        self.moves = sys.stderr.isatty()
        self.shown_step, self.shown_at = 0, time.perf_counter()
        self.samples_per_s = 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self.show and self.moves:
            print(file=sys.stderr)

    def update(self, step: int, loss: float | None, communication: float | None) -> None:
        """`step` steps are made; `loss` is that of the last one, `communication` a share, 0 to 1."""
        now = time.perf_counter()
        if not self.show or not self._is_due(step, now):
            return
        if now > self.shown_at:
            self.samples_per_s = (step - self.shown_step) * self.config.batch / (now - self.shown_at)
        self.shown_step, self.shown_at = step, now
        filled = WIDTH * step // max(step, self.total)
        line = f"[{'#' * filled}{'.' * (WIDTH - filled)}] {step}/{max(step, self.total)}"
        line += f"  loss {loss:.4f}" if loss is not None else ""
        line += f"  {self.samples_per_s:.0f} samples/s"
        line += f"  communication {communication:.0%}" if communication is not None else ""
        print(
            f"\r{line}\033[K" if self.moves else line,
            end="" if self.moves else "\n",
            file=sys.stderr,
            flush=True,
        )

    def _is_due(self, step: int, now: float) -> bool:
        if self.moves:
            return now - self.shown_at > 0.1 or step >= self.total
        return step % max(1, self.total // 10) == 0
