# SPDX-License-Identifier: Apache-2.0
"""kolo: collective communication between the ranks of a job.

    import kolo, numpy
    comm = kolo.Comm()                 # under `kolo run`, mpirun, torchrun, srun
    x = numpy.full(1000, comm.rank, numpy.float32)
    comm.all_reduce(x)                 # x is the sum over all ranks now

A buffer is any object with the buffer protocol; numpy is not needed. A call that waits lets other
Python threads run. A failure is an exception that names the rank at fault: see Error.
"""
from __future__ import annotations

from ._arguments import CodecLike, OpLike
from ._buffer import Buffer, BufferLike, SupportsDLPack, mem_alloc
from ._comm import ANY_SOURCE, ANY_TAG, NO_COLOR, Comm
from ._config import Config, create_id
from ._errors import (AbortedError, Error, ForkedError, InternalError, InvalidError, LinkError, MismatchError,
                      PeerError, ResourceError, TimedOutError, UnsupportedError, VersionError)
from ._lib import PACKAGE as _PACKAGE
from ._lib import Codec, CodecBound, Op, RecvInfo, Type, lib, loaded_from
from ._stream import Stream, StreamLike, group

__all__ = [
    "ANY_SOURCE", "ANY_TAG", "NO_COLOR", "AbortedError", "Buffer", "BufferLike", "Codec", "CodecBound",
    "CodecLike", "Comm",
    "Config", "Error", "ForkedError", "InternalError", "InvalidError", "LinkError", "MismatchError", "Op", "OpLike", "PeerError", "RecvInfo",
    "ResourceError", "Stream", "StreamLike", "SupportsDLPack", "TimedOutError", "Type", "UnsupportedError",
    "VersionError", "create_id", "group", "include_dir", "loaded_from", "mem_alloc", "version",
]


def version() -> tuple[int, int, int]:
    """The version of the loaded library: major, minor, patch."""
    number = int(lib.kolo_version())
    return number // 10000, number // 100 % 100, number % 100


def include_dir() -> str:
    """The folder of the package's kolo/kolo.h; "" if the package uses the system's header."""
    folder = _PACKAGE / "include"
    return str(folder) if folder.exists() else ""
