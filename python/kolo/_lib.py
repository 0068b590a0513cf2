# SPDX-License-Identifier: Apache-2.0
"""libkolo by ctypes: where it is, and the prototypes of kolo/kolo.h."""
from __future__ import annotations

import ctypes
import enum
import os
import pathlib
from ctypes import POINTER, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p

PACKAGE = pathlib.Path(__file__).resolve().parent
NAME = "libkolo.so.0"
UNSET = -(2**31)


class Type(enum.IntEnum):
    """Element types, enum kolo_type. Pairs are {value, index}."""

    INT8 = 0
    UINT8 = 1
    INT16 = 2
    UINT16 = 3
    INT32 = 4
    UINT32 = 5
    INT64 = 6
    UINT64 = 7
    FLOAT16 = 8
    BFLOAT16 = 9
    FLOAT32 = 10
    FLOAT64 = 11
    FLOAT8_E4M3 = 12
    FLOAT8_E5M2 = 13
    BOOL = 14
    INT32_INT32 = 15
    INT64_INT64 = 16
    FLOAT32_INT32 = 17
    FLOAT64_INT32 = 18


class Op(enum.IntEnum):
    """Reductions, enum kolo_op. Comm.premulsum() makes more. kolo/kolo.h lists the types of each."""

    SUM = 0
    PROD = 1
    MIN = 2
    MAX = 3
    AVG = 4
    LAND = 5
    LOR = 6
    LXOR = 7
    BAND = 8
    BOR = 9
    BXOR = 10
    MINLOC = 11
    MAXLOC = 12


class Codec(enum.IntEnum):
    """How float32 travels, enum kolo_codec: kolo/codec.h."""

    NONE = 0
    INT8 = 1
    BF16 = 2
    INT4 = 3
    FP8 = 4


class CodecBound(ctypes.Structure):
    """The bound on the error of an element of a compressed call, struct kolo_codec_bound.

    It is factor * total + floor. total: the largest magnitude in the element's block of `block` elements,
    summed over the ranks' inputs. encodings: how often an element is encoded on its way.
    """

    block: int
    encodings: int
    factor: float
    floor: float
    _fields_ = [("size", c_uint32), ("block", c_int), ("encodings", c_int), ("factor", c_double),
                ("floor", c_double)]

    def __repr__(self) -> str:
        return (f"CodecBound(block={self.block}, encodings={self.encodings}, factor={self.factor}, "
                f"floor={self.floor})")


class CId(ctypes.Structure):
    """struct kolo_id."""

    _fields_ = [("bytes", ctypes.c_ubyte * 128)]


class CConfig(ctypes.Structure):
    """struct kolo_config."""

    _fields_ = [
        ("size", c_uint32),
        ("deterministic", c_int),
        ("timeout_ms", c_int),
        ("device", c_int),
        ("name", c_char_p),
        ("algo", c_char_p),
        ("transport", c_char_p),
    ]


class CFailure(ctypes.Structure):
    """struct kolo_failure."""

    _fields_ = [
        ("size", c_uint32),
        ("status", c_int),
        ("rank", c_int),
        ("seen_by", c_int),
        ("call", c_uint64),
        ("text", ctypes.c_char * 512),
    ]


class RecvInfo(ctypes.Structure):
    """What Comm.recv_tag() received; filled when the message is there.

    source: the rank it came from. tag: its tag. bytes: its length in bytes.
    """

    source: int
    tag: int
    bytes: int
    _fields_ = [("size", c_uint32), ("source", c_int), ("tag", c_int), ("bytes", c_size_t)]

    def __repr__(self) -> str:
        return f"RecvInfo(source={self.source}, tag={self.tag}, bytes={self.bytes})"


def _load() -> tuple[ctypes.CDLL, str]:
    """The library and where it is from. One that the process has already, such as that of
    kolo_torch, comes first: two would not know each other's communicators and memory."""
    try:
        return ctypes.CDLL(NAME, mode=os.RTLD_NOLOAD | os.RTLD_NOW), NAME
    except OSError:
        pass
    own = PACKAGE / "lib" / NAME
    path = os.environ.get("KOLO_LIBRARY") or (str(own) if own.exists() else NAME)
    try:
        return ctypes.CDLL(path, mode=os.RTLD_NOW), path
    except OSError as error:
        raise ImportError(f"{error}: install libkolo, or name {NAME} in KOLO_LIBRARY") from None


lib, loaded_from = _load()

_BUF, _COMM, _STREAM, _COUNTS = c_void_p, c_void_p, c_void_p, POINTER(c_size_t)
_CONFIG, _OUT = POINTER(CConfig), POINTER(c_void_p)
_MOVE = (_BUF, _BUF, c_size_t, c_int)
_ROOT = (c_int, _COMM, _STREAM)

for _name, _arguments in {
    "id_create": (POINTER(CId),),
    "comm_create": (POINTER(CId), c_int, c_int, _CONFIG, _OUT),
    "comm_create_env": (_CONFIG, _OUT),
    "comm_create_local": (c_int, _CONFIG, _OUT),
    "comm_split": (_COMM, c_int, c_int, _CONFIG, _OUT),
    "comm_create_group": (_COMM, POINTER(c_int), c_int, c_char_p, _CONFIG, _OUT),
    "comm_grow": (_COMM, POINTER(CId), c_int, c_int, _CONFIG, _OUT),
    "comm_reconfigure": (_COMM, POINTER(CId), POINTER(c_int), c_int, _CONFIG, _OUT),
    "comm_enter": (POINTER(CId), c_int, c_int, _CONFIG, _OUT),
    "comm_agree": (_COMM, POINTER(c_uint64), POINTER(c_int), c_int, POINTER(c_int)),
    "comm_epoch": (_COMM,),
    "comm_shrink": (_COMM, POINTER(c_int), c_int, _CONFIG, _OUT),
    "comm_rank": (_COMM,),
    "comm_size": (_COMM,),
    "comm_failure": (_COMM, POINTER(CFailure)),
    "comm_failed_ranks": (_COMM, POINTER(c_int), c_int, POINTER(c_int)),
    "all_reduce": (*_MOVE, c_uint32, _COMM, _STREAM),
    "reduce": (*_MOVE, c_uint32, *_ROOT),
    "broadcast": (*_MOVE, *_ROOT),
    "gather": (*_MOVE, *_ROOT),
    "scatter": (*_MOVE, *_ROOT),
    "all_gather": (*_MOVE, _COMM, _STREAM),
    "reduce_scatter": (*_MOVE, c_uint32, _COMM, _STREAM),
    "all_to_all": (*_MOVE, _COMM, _STREAM),
    "all_reduce_codec": (*_MOVE, c_uint32, c_int, _COMM, _STREAM),
    "all_gather_codec": (*_MOVE, c_int, _COMM, _STREAM),
    "reduce_scatter_codec": (*_MOVE, c_uint32, c_int, _COMM, _STREAM),
    "comm_codec_bound": (_COMM, c_int, c_int, POINTER(CodecBound)),
    "comm_codec_within": (_COMM, c_int, c_double, c_double, c_double, POINTER(c_int)),
    "barrier": (_COMM, _STREAM),
    "gatherv": (_BUF, c_size_t, _BUF, _COUNTS, _COUNTS, c_int, *_ROOT),
    "scatterv": (_BUF, _COUNTS, _COUNTS, _BUF, c_size_t, c_int, *_ROOT),
    "all_gatherv": (_BUF, _BUF, _COUNTS, _COUNTS, c_int, _COMM, _STREAM),
    "reduce_scatterv": (_BUF, _BUF, _COUNTS, c_int, c_uint32, _COMM, _STREAM),
    "all_to_allv": (_BUF, _COUNTS, _COUNTS, _BUF, _COUNTS, _COUNTS, c_int, _COMM, _STREAM),
    "send": (_BUF, c_size_t, c_int, *_ROOT),
    "recv": (_BUF, c_size_t, c_int, *_ROOT),
    "send_tag": (_BUF, c_size_t, c_int, c_int, *_ROOT),
    "recv_tag": (_BUF, c_size_t, c_int, c_int, c_int, POINTER(RecvInfo), _COMM, _STREAM),
    "group_begin": (),
    "group_end": (),
    "stream_create": (_OUT,),
    "stream_set_timeout": (_STREAM, c_int),
    "stream_sync": (_STREAM,),
    "stream_query": (_STREAM,),
    "mem_alloc": (c_size_t, _OUT),
    "op_create_premulsum": (_BUF, c_int, _COMM, POINTER(c_uint32)),
    "version": (),
}.items():
    getattr(lib, "kolo_" + _name).argtypes = _arguments
    getattr(lib, "kolo_" + _name).restype = c_int

for _name, _arguments in {
    "comm_abort": (_COMM,),
    "comm_destroy": (_COMM,),
    "stream_destroy": (_STREAM,),
    "mem_free": (c_void_p,),
}.items():
    getattr(lib, "kolo_" + _name).argtypes = _arguments
    getattr(lib, "kolo_" + _name).restype = None

lib.kolo_error_text.argtypes = ()
lib.kolo_error_text.restype = c_char_p
lib.kolo_status_name.argtypes = (c_int,)
lib.kolo_status_name.restype = c_char_p
lib.kolo_type_bytes.argtypes = (c_int,)
lib.kolo_type_bytes.restype = c_size_t

TYPE_BYTES: dict[int, int] = {t: lib.kolo_type_bytes(t) for t in Type}
