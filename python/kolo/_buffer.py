# SPDX-License-Identifier: Apache-2.0
"""What a call reads and writes: anything with the buffer protocol, by its address."""
from __future__ import annotations

import ctypes
import weakref
from typing import TYPE_CHECKING, Any, Optional, Protocol, Union

from ._errors import InvalidError, check
from ._lib import TYPE_BYTES, Type, lib

if TYPE_CHECKING:
    from typing_extensions import Buffer as Exporter  # collections.abc.Buffer, from Python 3.12 on


class SupportsDLPack(Protocol):
    """A tensor of the CPU that numpy.from_dlpack() takes, such as one of torch."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...


class _PyBuffer(ctypes.Structure):
    """Py_buffer of CPython: part of its stable ABI from 3.11 on, and the same before."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


_get = ctypes.pythonapi.PyObject_GetBuffer
_get.argtypes = (ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)
_release = ctypes.pythonapi.PyBuffer_Release
_release.argtypes = (ctypes.POINTER(_PyBuffer),)
_release.restype = None
_start = (ctypes.c_char * 0).from_buffer


def _address_of(view: memoryview) -> Optional[int]:
    """Of its first byte. ctypes knows it of what can be written, and is quicker than a Py_buffer."""
    if not view.readonly:
        return ctypes.addressof(_start(view))
    c_view = _PyBuffer()
    _get(view, c_view, 0)
    address: Optional[int] = c_view.buf
    _release(c_view)
    return address


_OF_KIND = {
    **{letter: (Type.INT8, Type.INT16, Type.INT32, Type.INT64) for letter in "bhilqn"},
    **{letter: (Type.UINT8, Type.UINT16, Type.UINT32, Type.UINT64) for letter in "BHILQNc"},
    **{letter: (Type.FLOAT16, Type.FLOAT32, Type.FLOAT64) for letter in "efd"},
    "?": (Type.BOOL,),
}


def _find_type(form: str, itemsize: int) -> tuple[Type, int]:
    """The type of elements of a struct format, and how many make one number: a complex number is two
    reals. A standard size differs from a native one, so that the letter tells the kind, and the size
    is that of the item."""
    letters = form.lstrip("@=<")
    parts = 2 if letters in ("Zf", "Zd") else 1
    for candidate in _OF_KIND.get(form[-1], ()) if len(letters) == parts else ():
        if TYPE_BYTES[candidate] * parts == itemsize:
            return candidate, parts
    raise InvalidError(f"elements of format {form!r}, {itemsize} bytes each, have no type of kolo; "
                       "kolo.Buffer(object, type) says which to take")


_types: dict[tuple[str, int], tuple[int, int, int]] = {}  # of a format: type, bytes of an element, parts


class Buffer:
    """Memory for a call: the bytes of an object, as elements of a type.

    Every call makes a Buffer of its argument. A Buffer made once saves that time. It can also give
    another type than the object's own, such as bfloat16 for an array of uint16, or a pair:

        kolo.Buffer(array, kolo.Type.BFLOAT16)

    exporter: an object with the buffer protocol (numpy arrays, bytearray, memoryview, array.array,
    ctypes arrays, ...), C-contiguous; or with DLPack, if numpy is installed. It stays exported as long
    as the Buffer lives: a bytearray cannot change its size.
    type: of the elements; default: the exporter's own. A complex number is two elements.
    Raises InvalidError if the type does not fit, BufferError if the memory has gaps, TypeError if the
    object has neither protocol.
    """

    __slots__ = ("address", "count", "type", "readonly", "parts", "_view")

    def __init__(self, exporter: Union[Exporter, SupportsDLPack], type: Optional[Type] = None) -> None:
        readonly: Optional[bool] = None
        try:
            view = memoryview(exporter)  # type: ignore[arg-type]
        except TypeError:
            view, readonly = _by_dlpack(exporter)
        if not view.c_contiguous:
            raise BufferError("the buffer is not C-contiguous: there are gaps in it")
        nbytes = view.nbytes
        if type is None:
            key = view.format, view.itemsize
            found = _types.get(key)  # numbers, for a member of an enum takes long to look up
            if found is None:
                chosen, parts = _find_type(*key)
                found = _types[key] = int(chosen), TYPE_BYTES[chosen], parts
        else:
            found = int(type), TYPE_BYTES[type], 1
        self.type: int = found[0]
        self.parts: int = found[2]  # elements of a number: 2 if it is complex
        self.count: int = nbytes // found[1]
        if self.count * found[1] != nbytes:
            raise InvalidError(f"{nbytes} bytes are no whole number of {Type(self.type).name}, {found[1]} bytes each")
        self.address = _address_of(view)
        self.readonly: bool = view.readonly if readonly is None else readonly
        self._view: Optional[memoryview] = view  # what keeps the memory there

    @classmethod
    def at(cls, address: int, count: int, type: Type) -> Buffer:
        """`count` elements at an address, which must stay valid as long as calls use it. This is the way to give
        memory of a GPU."""
        self = cls.__new__(cls)
        self._view = None
        self.parts = 1
        self.address, self.count, self.type, self.readonly = address, count, type, False
        return self

    def __repr__(self) -> str:
        count, name = self.count // self.parts, Type(self.type).name
        name = f"complex numbers of {name}" if self.parts == 2 else name
        return f"<kolo.Buffer: {count} x {name} at {self.address or 0:#x}{', read-only' if self.readonly else ''}>"


BufferLike = Union[Buffer, "Exporter", SupportsDLPack]
"""What calls take as a buffer."""


def _by_dlpack(exporter: Any) -> tuple[memoryview, bool]:
    """A view of a tensor, and whether it is read-only, of which numpy knows from 2.1 on: before, it
    calls all of them so."""
    if not hasattr(exporter, "__dlpack__"):
        raise TypeError(f"a buffer is wanted, not {type(exporter).__name__}")
    try:
        import numpy
    except ImportError:
        raise TypeError(f"{type(exporter).__name__} is taken by DLPack, which needs numpy") from None
    array: Any = numpy.from_dlpack(exporter)
    view = memoryview(array)
    knows = tuple(map(int, numpy.__version__.split(".")[:2])) >= (2, 1)
    return view, view.readonly and knows


def readable(given: BufferLike) -> Buffer:
    """The Buffer of a call's input."""
    return given if type(given) is Buffer else Buffer(given)  # type: ignore[arg-type]


def writable(given: BufferLike) -> Buffer:
    """The Buffer of a call's output. Raises InvalidError if it is read-only."""
    buffer = given if type(given) is Buffer else Buffer(given)  # type: ignore[arg-type]
    if buffer.readonly:
        raise InvalidError("the buffer to receive into is read-only")
    return buffer


def mem_alloc(nbytes: int) -> memoryview:
    """Allocate `nbytes` zeroed bytes that the ranks of this host can map: large collectives copy less.

    They are freed when no view of them is left:

        numpy.frombuffer(kolo.mem_alloc(4 * n), numpy.float32)

    Raises InvalidError for 0 bytes, ResourceError if no shared memory is left.
    """
    pointer = ctypes.c_void_p()
    check(lib.kolo_mem_alloc(nbytes, ctypes.byref(pointer)))
    owner = (ctypes.c_ubyte * nbytes).from_address(pointer.value or 0)
    weakref.finalize(owner, lib.kolo_mem_free, pointer.value).atexit = False
    return memoryview(owner).cast("B")
