# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Optional

import torch
from torch._C._distributed_c10d import Backend

class Options(Backend.Options):
    """Options of a process group, for init_process_group(pg_options=...).

    deterministic: every algorithm sums in rank order and rounds once. algo, transport: in the forms of
    KOLO_ALGO and KOLO_TRANSPORT; "": kolo chooses. codec: "int8" or "bf16": float32 on the CPU travels
    compressed in all-reduce (sum, mean), all-gather and reduce-scatter, where that is faster.
    """

    deterministic: bool
    algo: str
    transport: str
    codec: str
    def __init__(
        self, timeout: timedelta = ..., *, deterministic: bool = False, algo: str = "", transport: str = "",
        codec: str = ""
    ) -> None: ...

class KoloBackend(Backend):
    @property
    def options(self) -> Options: ...
    def raise_failure(self) -> None: ...

class InPlaceOfGloo(KoloBackend):
    """A group of kolo's that isinstance() takes for a torch.distributed.ProcessGroupGloo."""

    def _set_default_timeout(self, timeout: timedelta) -> None: ...

class ArgumentError(ValueError, RuntimeError): ...

def create_as_gloo(group: Any) -> InPlaceOfGloo: ...
def create(group: Any, options: Optional[Options]) -> KoloBackend: ...
def meet_at_launch(card: Callable[[int], str], timeout: timedelta) -> tuple[int, list[str]]: ...
def flight_record() -> list[dict[str, Any]]: ...
def monitored_barrier(backend: Backend, timeout: timedelta, wait_all_ranks: bool) -> None: ...
def empty_shared(sizes: Sequence[int], dtype: torch.dtype) -> torch.Tensor: ...
def use_shared_memory(min_bytes: int) -> None: ...
def library_version() -> int: ...
