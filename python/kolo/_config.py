# SPDX-License-Identifier: Apache-2.0
"""Options of communicators, and the ids by which ranks meet."""
from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any, Optional

from ._errors import InvalidError, check
from ._lib import UNSET, CConfig, CId, lib


@dataclass
class Config:
    """Options of a communicator. None takes the environment's value, or else the default.

    deterministic: sums are in rank order and rounded once. timeout: seconds without progress (600).
    device: a CUDA ordinal, or -1 for host memory. name: appears in the log. algo, transport: the values
    of KOLO_ALGO and KOLO_TRANSPORT.
    """

    deterministic: Optional[bool] = None
    timeout: Optional[float] = None
    device: Optional[int] = None
    name: Optional[str] = None
    algo: Optional[str] = None
    transport: Optional[str] = None

    def _c(self) -> CConfig:
        def number(value: Optional[float]) -> int:
            return UNSET if value is None else math.ceil(value)

        def text(value: Optional[str]) -> Optional[bytes]:
            return None if value is None else value.encode()

        timeout_ms = None if self.timeout is None else self.timeout * 1000
        return CConfig(ctypes.sizeof(CConfig), number(self.deterministic), number(timeout_ms), number(self.device),
                       text(self.name), text(self.algo), text(self.transport))


def config_of(config: Optional[Config]) -> Any:
    return None if config is None else ctypes.byref(config._c())


def id_of(id: bytes) -> CId:
    if len(id) != 128:
        raise InvalidError(f"an id has 128 bytes, not {len(id)}")
    return CId.from_buffer_copy(id)


def create_id() -> bytes:
    """Create an id of 128 bytes for Comm.create(). Bring it to every rank by safe means: it has a secret.

    This process answers the ranks that join with the id, so it must live until all have joined.
    Raises ResourceError if no socket can be opened.
    """
    out = CId()
    check(lib.kolo_id_create(ctypes.byref(out)))
    return bytes(out.bytes)
