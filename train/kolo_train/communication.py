# SPDX-License-Identifier: Apache-2.0
"""How long communication takes in a step, by collective.

PyTorch's profiler tells: a backend opens a range for each operation, "kolo:all_reduce", which ends when
the operation does, also for those that run while backward goes on. So a share says how long a
collective was under way, which may hide behind computation. As the profiler costs time, a few steps
are sampled, and they do not count for samples/s. The ranges also tell what tensors a rank hands to a call, to
be sent, reduced or gathered; what it receives by `recv` does not count. On a GPU the range of kolo ends
when the call is queued, and its kernels run in one rank for all: nothing is said there.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.autograd.profiler import profile

from kolo_train.config import Config

FIRST_STEP = 2  # the first ones set up communicators and buffers
SAMPLES = 5
RECEIVE = ("recv", "recvAnySource")
ITEM_BYTES = {
    "float": 4, "double": 8, "c10::BFloat16": 2, "c10::Half": 2, "int": 4, "long int": 8, "long": 8,
    "unsigned char": 1, "signed char": 1, "bool": 1, "short": 2,
}  # fmt: skip
"""By the names that the profiler has for types."""


def sampled(step: int, steps: int, period: int = 1) -> bool:
    """This step is profiled. A way whose calls come once in a period has all steps of one period profiled."""
    if period > 1:
        return FIRST_STEP <= step < FIRST_STEP + period
    every = max(SAMPLES, steps // SAMPLES)
    return step >= FIRST_STEP and step % every == FIRST_STEP % every


def formula(config: Config, ranks: int, parameters: int) -> tuple[str, float] | None:
    """The bytes that a step hands to calls, on the rank with the most, in words and as a number. P: the parameters,
    N: the ranks, S: --local-steps, A: the activations between two blocks. None where there is no formula here."""
    hosts = ranks // config.host_ranks if config.host_ranks else 1
    if config.accumulate > 1 or config.compresses or hosts > 1:
        return None
    between = config.batch * config.context * config.width if config.reads else 0
    match config.parallel:
        case "dp" | "ddp" | "horovod":
            told = "P", float(parameters)
        case "zero1":
            told = "2P", 2.0 * parameters
        case "zero2":
            told = "P + P/N", parameters * (1 + 1 / ranks)
        case "zero3" | "fsdp" | "hpz" | "qwz" | "qgz" | "zero++":
            told = "P + 2P/N", parameters * (1 + 2 / ranks)
        case "local-sgd" if not config.half:
            told = "P/S", parameters / config.local_steps
        case "ps-sync" | "ps-async" | "ps-hybrid":
            told = "(N - 1)P", (ranks - 1.0) * parameters
        case "pp-gpipe" | "pp-1f1b" | "pp-pipedream" | "pp-2bw" if between and ranks > 2:
            told = "2A", 2.0 * between
        case "pp-interleaved" if between and ranks > 2:
            told = "4A", 4.0 * between
        case _:
            return None
    return told[0], told[1] * (2 if config.half else 4)


class Communication:
    """Whether it is seen at all; seconds in each collective, and in all, over the sampled steps of this rank."""

    def __init__(self, backend: str, device: str) -> None:
        self.prefix = backend + ":"
        self.device = device
        self.is_seen = device == "cpu" or backend == "nccl"
        self.step_seconds = 0.0
        self.seconds: dict[str, float] = defaultdict(float)
        self.samples = 0
        self.handed = 0  # bytes

    @contextmanager
    def sample(self) -> Iterator[None]:
        """Profile the step within."""
        with profile(use_device="cuda" if self.device == "cuda" else None, record_shapes=True) as profiler:
            start = time.perf_counter()
            yield
            self.step_seconds += time.perf_counter() - start
        self._add(profiler)

    def _add(self, profiler: profile) -> None:
        spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.samples += 1
        recorded = profiler.kineto_results
        # The events as they were recorded: to make a tree of them takes longer than a step.
        for event in recorded.events() if recorded else ():
            name = self._collective(event.name())
            if name:
                span = (event.start_ns(), event.start_ns() + event.duration_ns())
                spans[name].append(span)
                spans["all"].append(span)
                if name not in RECEIVE and event.name().startswith(self.prefix):
                    self.handed += _bytes_of(event)
        for name, of_name in spans.items():
            self.seconds[name] += _covered(of_name) / 1e9

    def _collective(self, name: str) -> str | None:
        """The collective that an event of the profiler is of: by the backend's range, or by the name of
        NCCL's kernel, as its ranges on the CPU only cover the launch."""
        if name.startswith("ncclDevKernel_"):
            return name.removeprefix("ncclDevKernel_").split("_")[0].split("(")[0]
        if self.prefix != "nccl:" and name.startswith(self.prefix):
            # "_all_gather_base" is what c10d calls all_gather_into_tensor.
            return name.removeprefix(self.prefix).split(" ")[0].removeprefix("_").removesuffix("_base")
        return None

    def bytes_a_step(self) -> float:
        """What this rank handed to calls in a sampled step."""
        return self.handed / self.samples if self.samples else 0.0

    def shares(self) -> dict[str, float]:
        """Part of the sampled steps, 0 to 1, in which each collective was under way; "all" is any."""
        if self.step_seconds == 0:
            return {}
        return {name: min(1.0, seconds / self.step_seconds) for name, seconds in self.seconds.items()}


def _bytes_of(event: torch._C._autograd._KinetoEvent) -> int:
    """Of the tensors that a call was given."""
    return sum(
        math.prod(shape) * ITEM_BYTES.get(dtype, 0) for shape, dtype in zip(event.shapes(), event.dtypes(), strict=True)
    )


def _covered(spans: list[tuple[int, int]]) -> int:
    """Length of the union of intervals."""
    total = end = 0
    for first, last in sorted(spans):
        total += max(0, last - max(first, end))
        end = max(end, last)
    return total
