# SPDX-License-Identifier: Apache-2.0
"""Streams and groups: calls that are made, and run later."""
from __future__ import annotations

import contextlib
import ctypes
import math
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Optional, Union

from ._errors import InvalidError, check
from ._lib import lib


class Groups(threading.local):
    """The open groups of a thread, and the buffers that their calls borrow."""

    def __init__(self) -> None:
        self.depth = 0
        self.borrowed: list[Any] = []


groups = Groups()


@contextlib.contextmanager
def group() -> Iterator[None]:
    """The calls inside the `with` start together at its end, which raises their first error.

    An exchange by send() and recv() needs a group, and so do several ranks of one thread. Groups nest.
    """
    check(lib.kolo_group_begin())
    groups.depth += 1
    status = 0
    try:
        yield
    finally:
        status = lib.kolo_group_end()
        groups.depth -= 1
        if groups.depth == 0:
            groups.borrowed = []
    check(status)


class Stream:
    """A queue of calls. They return at once and run in order, on a thread of kolo. Do not read or write
    their buffers before sync(). close() and the end of a `with` wait for the calls."""

    def __init__(self) -> None:
        handle = ctypes.c_void_p()
        check(lib.kolo_stream_create(ctypes.byref(handle)))
        self._handle = handle.value
        self._borrowed: list[Any] = []
        self._end: Callable[[], Any] = weakref.finalize(self, lib.kolo_stream_destroy, handle.value)

    def _open(self) -> Optional[int]:
        if self._handle is None:
            raise InvalidError("the stream is closed")
        return self._handle

    def close(self) -> None:
        """Wait for the calls, and end. Later calls raise InvalidError."""
        self._handle = None
        self._end()

    def set_timeout(self, seconds: float) -> None:
        """Set the time-out in seconds of later calls: they end with TimedOutError. 0: the communicator's."""
        check(lib.kolo_stream_set_timeout(self._open(), math.ceil(seconds * 1000)))

    def sync(self) -> None:
        """Wait until all queued calls are done. Raises the first error since the last sync()."""
        handle = self._open()
        borrowed, self._borrowed = self._borrowed, []
        status = lib.kolo_stream_sync(handle)
        del borrowed
        check(status)

    def query(self) -> bool:
        """Whether all queued calls are done. Raises the first error since the last sync()."""
        status = lib.kolo_stream_query(self._open())
        check(status)
        return bool(status == 0)

    def __repr__(self) -> str:
        return f"<kolo.Stream{', closed' if self._handle is None else ''}>"

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


StreamLike = Union[Stream, int, None]
"""A Stream; None: the call returns when its result is there; an int: a cudaStream_t."""
