# SPDX-License-Identifier: Apache-2.0
"""A failure of libkolo as an exception."""
from __future__ import annotations

import ctypes
from typing import Optional

from ._lib import CFailure, lib


class Error(Exception):
    """The base of all errors of kolo. Its text says what went wrong.

    status: the value of kolo_status. rank: the rank at fault. seen_by: the rank that found the fault.
    Both are None if unknown. call: the number of collectives that seen_by had begun.
    """

    status = -24
    rank: Optional[int] = None
    seen_by: Optional[int] = None
    call: Optional[int] = None


class InvalidError(Error, ValueError):
    """An argument is wrong; nothing happened."""

    status = -1


class UnsupportedError(Error):
    """The request is not supported here; nothing happened."""

    status = -2


class MismatchError(Error):
    """Ranks called different collectives."""

    status = -16


class PeerError(Error, ConnectionError):
    """A rank died, left, or could not start."""

    status = -17


class TimedOutError(Error, TimeoutError):
    """No progress for the communicator's timeout."""

    status = -18


class LinkError(Error, ConnectionError):
    """A connection broke."""

    status = -19


class AbortedError(Error):
    """abort() was called."""

    status = -20


class ResourceError(Error, OSError):
    """The system has no memory, descriptors, ... left."""

    status = -21


class ForkedError(Error):
    """Called in a child of the process that owns the communicator."""

    status = -22


class VersionError(Error):
    """Ranks or plug-ins of another version."""

    status = -23


class InternalError(Error):
    """A bug in kolo."""

    status = -24


_CLASSES: dict[int, type[Error]] = {
    c.status: c
    for c in (InvalidError, UnsupportedError, MismatchError, PeerError, TimedOutError, LinkError, AbortedError,
              ResourceError, ForkedError, VersionError, InternalError)
}


def failure_of(handle: Optional[int]) -> Optional[Error]:
    """What ended a communicator, or None."""
    failure = CFailure(size=ctypes.sizeof(CFailure))
    if lib.kolo_comm_failure(handle, ctypes.byref(failure)) < 0 or failure.status >= 0:
        return None
    error = _CLASSES.get(failure.status, Error)(failure.text.decode(errors="replace"))
    error.rank = failure.rank if failure.rank >= 0 else None
    error.seen_by = failure.seen_by if failure.seen_by >= 0 else None
    error.call = failure.call
    return error


def error_of(status: int, handle: Optional[int] = None) -> Error:
    """The exception for this thread's last failed call, on that communicator if it had one."""
    text = lib.kolo_error_text().decode(errors="replace")
    error = _CLASSES.get(status, Error)(text or lib.kolo_status_name(status).decode())
    failure = failure_of(handle) if handle is not None and status <= MismatchError.status else None
    if failure is not None:
        error.rank, error.seen_by, error.call = failure.rank, failure.seen_by, failure.call
    return error


def check(status: int, handle: Optional[int] = None) -> None:
    """Raise the error of a negative kolo_status; `handle` is the communicator, if there is one."""
    if status < 0:
        raise error_of(status, handle)
