# SPDX-License-Identifier: Apache-2.0
"""Checks of a call's arguments, and what the library takes for them."""
from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Optional, Union

from ._buffer import Buffer
from ._errors import InvalidError
from ._lib import Codec, Op, Type

OpLike = Union[int, str]
"""An Op, its name in any case ("sum"), or an operation of Comm.premulsum()."""

CodecLike = Union[Codec, str]
"""A Codec, or its name in any case ("fp8")."""

_BOOL = int(Type.BOOL)


def sizes_of(values: Optional[Sequence[int]]) -> Any:
    """A C array of counts or displacements."""
    if values is None:
        return None
    values = [int(value) for value in values]
    if any(value < 0 for value in values):
        raise InvalidError(f"counts and displacements are not negative: {values}")
    return (ctypes.c_size_t * len(values))(*values)


def address_of(buffer: Optional[Buffer]) -> Optional[int]:
    return None if buffer is None else buffer.address


def wanted(value: Any, call: str, name: str) -> Any:
    if value is None:
        raise InvalidError(f"{call} needs {name} on root")
    return value


_OPS = {name.lower(): int(op) for name, op in Op.__members__.items()}
_ON_BOOL = {int(Op.SUM): int(Op.LOR), int(Op.PROD): int(Op.LAND)}


def codec_of(codec: CodecLike) -> Codec:
    """The codec, if it is given by its name too."""
    if not isinstance(codec, str):
        return Codec(codec)
    found = Codec.__members__.get(codec.upper())
    if found is None:
        raise InvalidError(f"codec is {codec!r}; it must be one of {', '.join(each.name.lower() for each in Codec)}")
    return found


def number_of(op: OpLike, buffer: Buffer) -> int:
    """The number of an operation on the buffer's elements."""
    if isinstance(op, str):
        found = _OPS.get(op.lower())
        if found is None:
            raise InvalidError(f"op is {op!r}; it must be one of {', '.join(_OPS)}")
        op = found
    if buffer.parts != 1 and op not in (Op.SUM, Op.AVG):
        name = Op(op).name if op in _OPS.values() else "a pre-multiplied sum"
        raise InvalidError(f"op is {name}; complex numbers have SUM and AVG only")
    if buffer.type == _BOOL:
        op = _ON_BOOL.get(op, op)
    return op


def same_type(a: Buffer, b: Buffer) -> None:
    if a.type != b.type:
        raise InvalidError(f"one buffer has elements of {Type(a.type).name}, the other of {Type(b.type).name}")
    if a.parts != b.parts:
        raise InvalidError("one buffer has complex numbers, the other has reals")


def agree(small: Buffer, large: Buffer, blocks: int = 1) -> None:
    if small.type != large.type:
        same_type(small, large)
    if small.parts != large.parts:
        same_type(small, large)
    if small.count * blocks != large.count:
        raise InvalidError(f"{blocks} x {small.count} elements do not match {large.count}")


def has(buffer: Buffer, count: int, name: str) -> None:
    if buffer.count != count * buffer.parts:
        raise InvalidError(f"{name} has {buffer.count // buffer.parts} elements, not {count}")
