# SPDX-License-Identifier: Apache-2.0
"""A rank's state in files, for models larger than memory: ZeRO-Infinity (Rajbhandari et al. 2021, arXiv:2104.07857).

Masters and moments are streamed. A step reads them chunk by chunk, updates them, and writes them back, past
the page cache; the next chunk is read and the last one written meanwhile. Three chunks are all that they
take of memory. Parameters and gradients are mapped from files: the kernel reads the pages that a layer
touches, and writes and drops them where memory is short. No file has a name that could stay.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.modules.module import register_module_parameter_registration_hook

CHUNK = 1 << 19
"""The most elements of a chunk."""
PAGE_ELEMENTS = 1024
"""A chunk has a multiple of this: O_DIRECT wants whole pages."""
BUFFERS = 3
PAGE = 4 * PAGE_ELEMENTS
MS_SYNC = 4
LIBC = ctypes.CDLL(None, use_errno=True)


def give_back_freed_memory() -> None:
    """Tensors are to leave no holes: malloc() maps each on its own, instead of learning to keep such memory."""
    m_mmap_threshold, least = -3, 256 << 10
    mallopt = getattr(LIBC, "mallopt", None)  # glibc's; others have nothing to be told
    if mallopt:
        mallopt(m_mmap_threshold, least)


def write_back(part: Tensor) -> None:
    """Write what was changed of a mapped tensor at once: pages that are clean cost the kernel nothing to drop."""
    size = part.numel() * part.element_size()
    before = part.data_ptr() % PAGE
    if size and LIBC.msync(ctypes.c_void_p(part.data_ptr() - before), ctypes.c_size_t(size + before), MS_SYNC):
        raise OSError(ctypes.get_errno(), "msync() of a file of parameters or gradients")


def mapped(tensor: Tensor) -> Tensor:
    """A copy of a tensor, or of a DTensor's part on this rank, in a file that is mapped."""
    if isinstance(tensor, DTensor):
        part = mapped(tensor.to_local())
        mesh, placements = tensor.device_mesh, tensor.placements
        return DTensor.from_local(part, mesh, placements, shape=tensor.shape, stride=tensor.stride())
    size = tensor.numel()
    # The mapping outlives the file's name.
    with tempfile.NamedTemporaryFile(prefix="kolo-train-") as file:
        file.truncate(max(1, size) * tensor.element_size())
        kept = torch.from_file(file.name, shared=True, size=max(1, size), dtype=tensor.dtype)
    result = kept[:size].view(tensor.shape).copy_(tensor.detach())
    write_back(result)
    return result


@contextmanager
def parameters_in_files() -> Iterator[None]:
    """What is made in here has its parameters in files before they get their first values."""

    def place(_module: nn.Module, _name: str, param: Tensor | None) -> nn.Parameter | None:
        return None if param is None else nn.Parameter(mapped(param), param.requires_grad)

    handle = register_module_parameter_registration_hook(place)
    try:
        yield
    finally:
        handle.remove()


def keep_gradients_in_files(params: Sequence[Tensor]) -> None:
    """Each gradient moves to its file when backward has made it."""
    files: dict[int, Tensor] = {}

    def move(param: Tensor) -> None:
        gradient = param.grad
        assert gradient is not None
        part = gradient.to_local() if isinstance(gradient, DTensor) else gradient
        kept = files.get(id(param))
        if kept is None:
            kept = files[id(param)] = mapped(part)
        elif kept.data_ptr() != part.data_ptr():
            kept.copy_(part)
            write_back(kept)
        if isinstance(gradient, DTensor):
            gradient._local_tensor = kept
        else:
            param.grad = kept

    for param in params:
        param.register_post_accumulate_grad_hook(move)


@dataclass
class Piece:
    """Elements of one parameter in a chunk."""

    param: int
    first: int  # in the parameter
    size: int
    place: int  # in the chunk
    ends: bool  # the parameter


class Streamed:
    """Float32 masters and the state of an elementwise optimizer, in one file."""

    def __init__(self, shards: Sequence[Tensor], base: type[torch.optim.Optimizer], **defaults: object) -> None:
        self.shards = shards
        probe = torch.zeros(1)
        probe.grad = torch.zeros(1)
        self.optimizer = base([probe], fused=True, **defaults)  # type: ignore[call-arg]
        self.optimizer.step()
        first = self.optimizer.state[probe]
        self.moments = [name for name, value in first.items() if torch.is_tensor(value) and value.dim() > 0]
        start = {name: torch.zeros_like(value) for name, value in first.items() if name not in self.moments}
        self.scalars = [dict(start) for _ in shards]
        sizes = [shard.numel() for shard in shards]
        pages = max(1, -(-sum(sizes) // PAGE_ELEMENTS))
        elements = min(CHUNK, pages * PAGE_ELEMENTS)
        self.chunks = list(_chunks(sizes, elements))
        self.bytes_of_chunk = (1 + len(self.moments)) * elements * 4
        self.views = [_on_pages((1 + len(self.moments)) * elements).view(-1, elements) for _ in range(BUFFERS)]
        self.buffers = [view.numpy() for view in self.views]
        self.file = _file_past_the_cache()
        self.threads = ThreadPoolExecutor(2)
        self.seconds, self.moved = 0.0, 0
        for number, pieces in enumerate(self.chunks):
            for piece in pieces:
                master = self.views[0][0, piece.place : piece.place + piece.size]
                master.copy_(self._part(self.shards[piece.param], piece))
            self._write(number, 0)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self.chunks) * self.bytes_of_chunk

    def said(self) -> str:
        """What was read and written, for a report."""
        rate = self.moved / self.seconds / 1e6 if self.seconds else 0
        return f"{self.size / 2**20:.0f} MiB of optimizer on disk, its steps read and wrote at {rate:,.0f} MB/s together"

    @staticmethod
    def _part(tensor: Tensor, piece: Piece) -> Tensor:
        return tensor.detach().view(-1)[piece.first : piece.first + piece.size]

    def step(self, gradient_of: Callable[[int], Tensor | None], scale: float) -> None:
        """Update all that has a gradient, and the parameters from their masters. Gradients are divided by the scale."""
        start, before = time.perf_counter(), _bytes_of_disk()
        reads: list[Future[None]] = [self.threads.submit(self._read, 0, 0)] if self.chunks else []
        writes: list[Future[None]] = []
        for number, pieces in enumerate(self.chunks):
            reads[number].result()
            if number + 1 < len(self.chunks):
                if number + 1 >= BUFFERS:
                    writes[number + 1 - BUFFERS].result()
                reads.append(self.threads.submit(self._read, number + 1, (number + 1) % BUFFERS))
            for piece in pieces:
                self._update(piece, self.views[number % BUFFERS], gradient_of(piece.param), scale)
            writes.append(self.threads.submit(self._write, number, number % BUFFERS))
        for write in writes:
            write.result()
        self.seconds += time.perf_counter() - start
        self.moved += max(2 * self.size, _bytes_of_disk() - before)

    def _update(self, piece: Piece, view: Tensor, gradient: Tensor | None, scale: float) -> None:
        if gradient is None:
            return
        master, *moments = view[:, piece.place : piece.place + piece.size]
        gradient = self._part(gradient.contiguous(), piece).cpu().float()
        master.grad = gradient if scale == 1.0 else gradient / scale
        # An optimizer of this piece alone: those of a parameter's other pieces begin with the same scalars.
        state = {name: value.clone() for name, value in self.scalars[piece.param].items()}
        state.update(zip(self.moments, moments, strict=True))
        self.optimizer.param_groups[0]["params"] = [master]
        self.optimizer.state.clear()
        self.optimizer.state[master] = state
        self.optimizer.step()
        master.grad = None
        if piece.ends:
            self.scalars[piece.param] = {name: state[name] for name in self.scalars[piece.param]}
        self._part(self.shards[piece.param], piece).copy_(master)

    def _read(self, number: int, buffer: int) -> None:
        if os.preadv(self.file, [self.buffers[buffer]], number * self.bytes_of_chunk) != self.bytes_of_chunk:
            raise OSError("the file of the optimizer's state is too short")

    def _write(self, number: int, buffer: int) -> None:
        if os.pwritev(self.file, [self.buffers[buffer]], number * self.bytes_of_chunk) != self.bytes_of_chunk:
            raise OSError("the file of the optimizer's state cannot be written: is the disk full?")

    def __del__(self) -> None:
        if hasattr(self, "threads"):
            self.threads.shutdown()
            os.close(self.file)


def _chunks(sizes: Sequence[int], elements: int) -> Iterator[list[Piece]]:
    """Parameters of these sizes one after the other, cut into chunks of so many elements."""
    chunk: list[Piece] = []
    place = 0
    for param, size in enumerate(sizes):
        first = 0
        while first < size:
            taken = min(size - first, elements - place)
            chunk.append(Piece(param, first, taken, place, first + taken == size))
            first, place = first + taken, place + taken
            if place == elements:
                yield chunk
                chunk, place = [], 0
    if chunk:
        yield chunk


def _bytes_of_disk() -> int:
    """What this process has read from disks and written to them, pages of mapped files included; 0 if unknown."""
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            counts = dict(line.split(": ") for line in file)
    except OSError:
        return 0
    return int(counts["read_bytes"]) + int(counts["write_bytes"])


def _on_pages(elements: int) -> Tensor:
    """Zeros that begin on a page."""
    more = torch.zeros(elements + PAGE_ELEMENTS)
    first = -more.data_ptr() % PAGE // 4
    return more[first : first + elements]


def _file_past_the_cache() -> int:
    """A file without a name, opened with O_DIRECT where the file system has that."""
    folder = tempfile.gettempdir()
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_DIRECT, 0o600)
    except OSError:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o600)
