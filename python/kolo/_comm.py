# SPDX-License-Identifier: Apache-2.0
"""Communicators."""
from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any, Optional

from ._arguments import CodecLike, OpLike, address_of, agree, codec_of, has, number_of, same_type, sizes_of, wanted
from ._buffer import Buffer, BufferLike, readable, writable
from ._config import Config, config_of, id_of
from ._errors import Error, InvalidError, check, error_of, failure_of
from ._lib import Codec, CodecBound, Op, RecvInfo, lib
from ._stream import Stream, StreamLike, groups

ANY_SOURCE = -1
ANY_TAG = -1
NO_COLOR = -1


class Comm:
    """A communicator: one rank's view of `size` ranks. Every rank makes the same calls in the same order.

    Comm(config) takes rank, size and rendezvous from the launcher: kolo run, mpirun, torchrun or srun.
    Without a launcher it is a job of 1 rank.

    Buffers are host memory with the buffer protocol, C-contiguous, of any shape. Only the number of
    elements counts. Types must be equal. Complex numbers move, and can be summed and averaged. On bool
    SUM is LOR and PROD is LAND. A call is in place if both buffers are one. In gather,
    all_gather, scatter and reduce_scatter it is in place if the smaller buffer is this rank's block of
    the larger buffer.

    A call with a stream is queued and returns at once. A call in a group begins at the end of the group.
    Do not read or write its buffers before it is done.

    Errors are subclasses of Error. A wrong number of elements, a wrong type or a wrong rank raises
    InvalidError. After InvalidError and UnsupportedError the communicator is usable. After any other
    error only failure(), failed_ranks(), shrink(), abort() and close() may follow.
    """

    def __init__(self, config: Optional[Config] = None) -> None:
        out = ctypes.c_void_p()
        check(lib.kolo_comm_create_env(config_of(config), ctypes.byref(out)))
        self._take(out.value)

    def _take(self, handle: Optional[int]) -> None:
        self._handle = handle
        self.rank: int = lib.kolo_comm_rank(handle)
        self.size: int = lib.kolo_comm_size(handle)
        # Also when the process ends: the others take a rank that says no goodbye for dead.
        self._end = weakref.finalize(self, lib.kolo_comm_destroy, handle)

    @classmethod
    def _of(cls, handle: Optional[int]) -> Comm:
        comm = cls.__new__(cls)
        comm._take(handle)
        return comm

    @classmethod
    def join(cls, id: bytes, nranks: int, rank: int, config: Optional[Config] = None) -> Comm:
        """Join as `rank` of `nranks` ranks with the id of create_id(). Returns when all ranks have joined.

        Raises InvalidError (the id, the rank), PeerError or TimedOutError (a rank did not come)."""
        out = ctypes.c_void_p()
        check(lib.kolo_comm_create(id_of(id), nranks, rank, config_of(config), ctypes.byref(out)))
        return cls._of(out.value)

    @classmethod
    def local(cls, nranks: int, config: Optional[Config] = None) -> list[Comm]:
        """`nranks` communicators in this process: one for each thread, or all for one thread with group()."""
        out = (ctypes.c_void_p * max(nranks, 0))()
        check(lib.kolo_comm_create_local(nranks, config_of(config), out))
        return [cls._of(handle) for handle in out]

    def _open(self) -> Optional[int]:
        if self._handle is None:
            raise InvalidError("the communicator is closed")
        return self._handle

    def __repr__(self) -> str:
        return f"<kolo.Comm: rank {self.rank} of {self.size}{', closed' if self._handle is None else ''}>"

    def split(self, color: int, key: int = 0, config: Optional[Config] = None) -> Optional[Comm]:
        """Form a communicator of the ranks with equal color (>= 0), ordered by key, then by rank. Collective.

        Returns None for NO_COLOR. config None: the options of this communicator.
        """
        out = ctypes.c_void_p()
        check(lib.kolo_comm_split(self._open(), color, key, config_of(config), ctypes.byref(out)), self._handle)
        return None if out.value is None else Comm._of(out.value)

    def create_group(self, members: Sequence[int], tag: str = "", config: Optional[Config] = None) -> Comm:
        """Form a communicator of the ranks `members`, which are on one host; members[i] becomes rank i.

        Only they call this, all with the same `members` and the same `tag`, a new one for each call with this list.
        """
        ranks = (ctypes.c_int * len(members))(*members)
        out = ctypes.c_void_p()
        check(lib.kolo_comm_create_group(self._open(), ranks, len(members), tag.encode(), config_of(config),
                                         ctypes.byref(out)), self._handle)
        return Comm._of(out.value)

    def shrink(self, exclude: Sequence[int], config: Optional[Config] = None) -> Comm:
        """Form a communicator without the ranks `exclude`, in the old order; also after a failure.

        Only the other ranks call this, all with the same `exclude`. Close the old communicator, too.
        """
        ranks = (ctypes.c_int * len(exclude))(*exclude)
        out = ctypes.c_void_p()
        check(lib.kolo_comm_shrink(self._open(), ranks, len(exclude), config_of(config), ctypes.byref(out)))
        return Comm._of(out.value)

    def grow(self, id: bytes, nranks: int, config: Optional[Config] = None) -> Comm:
        """Form a communicator of these ranks, with their numbers, and new ones, which Comm.join() it with `id`,
        a new one of create_id() for each attempt. Other threads may go on calling on this communicator."""
        out = ctypes.c_void_p()
        check(lib.kolo_comm_grow(self._open(), id_of(id), nranks, self.rank, config_of(config), ctypes.byref(out)))
        return Comm._of(out.value)

    def agree(self, word: int = 0) -> tuple[int, list[int]]:
        """The bitwise AND of the survivors' words of 64 bits, and the ranks that have failed: the same on all
        survivors, whoever dies meanwhile. All ranks that live call it, also after a failure.

        Raises PeerError on a rank without which the others have gone on, and TimedOutError on all ranks if
        one of several hosts lives, and does not come."""
        agreed = ctypes.c_uint64(word)
        ranks = (ctypes.c_int * self.size)()
        count = ctypes.c_int()
        check(lib.kolo_comm_agree(self._open(), ctypes.byref(agreed), ranks, self.size, ctypes.byref(count)))
        return agreed.value, ranks[:count.value]

    def reconfigure(self, id: bytes, members: Sequence[int], config: Optional[Config] = None) -> Comm:
        """Form a communicator of any of these ranks and new ones, in any order: members[i] becomes rank i; -1 is a
        new rank, which calls Comm.enter() with `id`, a new one of create_id() for each call. The ranks in the
        list call this, also after a failure. Who dies meanwhile is left out, and others move up."""
        ranks = (ctypes.c_int * len(members))(*members)
        out = ctypes.c_void_p()
        check(lib.kolo_comm_reconfigure(self._open(), id_of(id), ranks, len(members), config_of(config),
                                        ctypes.byref(out)))
        return Comm._of(out.value)

    @classmethod
    def enter(cls, id: bytes, nranks: int, rank: int, config: Optional[Config] = None) -> Comm:
        """Enter a communicator of `nranks` ranks that others form by reconfigure(), as a new rank."""
        out = ctypes.c_void_p()
        check(lib.kolo_comm_enter(id_of(id), nranks, rank, config_of(config), ctypes.byref(out)))
        return cls._of(out.value)

    @property
    def epoch(self) -> int:
        """How many changes of its members have led to this communicator."""
        return int(lib.kolo_comm_epoch(self._open()))

    def failure(self) -> Optional[Error]:
        """The error that ended this communicator, with the rank at fault, or None. Any thread may call this."""
        return failure_of(self._open())

    def failed_ranks(self) -> list[int]:
        """The ranks that this communicator has lost, for shrink(); [] if it has not failed. Any thread
        may call this. If shrink() raises PeerError, one more rank has died: ask again."""
        ranks = (ctypes.c_int * self.size)()
        count = ctypes.c_int()
        check(lib.kolo_comm_failed_ranks(self._open(), ranks, self.size, ctypes.byref(count)))
        return ranks[:count.value]

    def abort(self) -> None:
        """Make every call on it, on all ranks, raise AbortedError. Any thread may call this. It does nothing
        after close()."""
        lib.kolo_comm_abort(self._handle)

    def close(self) -> None:
        """Wait until the sent messages are taken, then end; so do the ends of a `with` and of the
        process. Later calls raise InvalidError."""
        self._handle = None
        self._end()

    def __enter__(self) -> Comm:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, function: Any, stream: StreamLike, borrowed: tuple[object, ...], *arguments: Any) -> None:
        queued = isinstance(stream, Stream)
        place = stream._open() if queued else stream  # type: ignore[union-attr]
        status = function(*arguments, self._handle, place)
        if status < 0:
            self._open()
            raise error_of(status, self._handle)
        if groups.depth > 0:
            groups.borrowed.append(borrowed)
        if queued:
            stream._borrowed.append(borrowed)  # type: ignore[union-attr]

    # ---- collectives ----

    def codec_bound(self, codec: CodecLike, reduces: bool = True) -> CodecBound:
        """The bound on the error of reductions with this codec; reduces False: of the all-gather."""
        out = CodecBound(size=ctypes.sizeof(CodecBound))
        check(lib.kolo_comm_codec_bound(self._open(), codec_of(codec), reduces, ctypes.byref(out)))
        return out

    def codec_within(self, total: float, absolute: float = 0, relative: float = 0, reduces: bool = True) -> Codec:
        """The codec of the fewest bytes within absolute or relative * total (see CodecBound), or NONE."""
        check(lib.kolo_comm_codec_within(self._open(), reduces, total, absolute, relative,
                                         ctypes.byref(out := ctypes.c_int())))
        return Codec(out.value)

    def all_reduce(self, send: BufferLike, recv: Optional[BufferLike] = None, op: OpLike = Op.SUM,
                   stream: StreamLike = None, codec: CodecLike = Codec.NONE) -> None:
        """recv[i] = the reduction of all ranks' send[i]. send[n], recv[n]; recv None: in place. See codec_bound()."""
        src = readable(send) if recv is not None else writable(send)
        dst = src if recv is None else writable(recv)
        agree(src, dst)
        self._call(lib.kolo_all_reduce_codec, stream, (src, dst), src.address, dst.address, src.count, src.type,
                   number_of(op, src), codec_of(codec))

    def reduce(self, send: BufferLike, recv: Optional[BufferLike] = None, op: OpLike = Op.SUM, root: int = 0,
               stream: StreamLike = None) -> None:
        """On rank `root`: recv[i] = the reduction of all ranks' send[i].

        send[n], recv[n]. Only root's recv is used; None on root: in place.
        """
        here = self.rank == root
        src = writable(send) if here and recv is None else readable(send)
        dst = (src if recv is None else writable(recv)) if here else None
        if dst is not None:
            agree(src, dst)
        self._call(lib.kolo_reduce, stream, (src, dst), src.address, address_of(dst), src.count, src.type, number_of(op, src), root)

    def broadcast(self, send: Optional[BufferLike], recv: Optional[BufferLike] = None, root: int = 0,
                  stream: StreamLike = None) -> None:
        """recv[i] = root's send[i], on every rank.

        send[n], recv[n]. Only root's send is used; recv None: in place, in `send` on every rank.
        """
        if send is None and (recv is None or self.rank == root):
            raise InvalidError("broadcast needs a buffer to send on root, and one to receive into")
        dst = writable(recv if recv is not None else send)  # type: ignore[arg-type]
        src = dst if recv is None or self.rank != root else readable(send)  # type: ignore[arg-type]
        agree(src, dst)
        self._call(lib.kolo_broadcast, stream, (src, dst), src.address, dst.address, dst.count, dst.type, root)

    def gather(self, send: BufferLike, recv: Optional[BufferLike] = None, root: int = 0,
               stream: StreamLike = None) -> None:
        """On rank `root`: block r of recv = rank r's send.

        send[n], recv[size * n]. Only root's recv is used.
        """
        src = readable(send)
        dst = writable(wanted(recv, "gather", "recv")) if self.rank == root else None
        if dst is not None:
            agree(src, dst, self.size)
        self._call(lib.kolo_gather, stream, (src, dst), src.address, address_of(dst), src.count, src.type, root)

    def scatter(self, send: Optional[BufferLike], recv: BufferLike, root: int = 0, stream: StreamLike = None) -> None:
        """On rank r: recv = block r of root's send. send[size * n], recv[n]. Only root's send is used."""
        dst = writable(recv)
        src = readable(wanted(send, "scatter", "send")) if self.rank == root else None
        if src is not None:
            agree(dst, src, self.size)
        self._call(lib.kolo_scatter, stream, (src, dst), address_of(src), dst.address, dst.count, dst.type, root)

    def all_gather(self, send: BufferLike, recv: BufferLike, stream: StreamLike = None,
                   codec: CodecLike = Codec.NONE) -> None:
        """On every rank: block r of recv = rank r's send. send[n], recv[size * n]. codec: as in all_reduce()."""
        src, dst = readable(send), writable(recv)
        agree(src, dst, self.size)
        self._call(lib.kolo_all_gather_codec, stream, (src, dst), src.address, dst.address, src.count, src.type, codec_of(codec))

    def reduce_scatter(self, send: BufferLike, recv: BufferLike, op: OpLike = Op.SUM, stream: StreamLike = None,
                       codec: CodecLike = Codec.NONE) -> None:
        """On rank r: recv = block r of the reduction of all ranks' send. send[size * n], recv[n]. codec: as there."""
        src, dst = readable(send), writable(recv)
        agree(dst, src, self.size)
        self._call(lib.kolo_reduce_scatter_codec, stream, (src, dst), src.address, dst.address, dst.count, dst.type,
                   number_of(op, dst), codec_of(codec))

    def all_to_all(self, send: BufferLike, recv: Optional[BufferLike] = None, stream: StreamLike = None) -> None:
        """On rank r: block q of recv = block r of rank q's send.

        send[size * n], recv[size * n]; recv None: in place.
        """
        src = readable(send) if recv is not None else writable(send)
        dst = src if recv is None else writable(recv)
        agree(src, dst)
        if src.count % (self.size * src.parts) != 0:
            raise InvalidError(f"all_to_all: {src.count // src.parts} elements are not {self.size} equal blocks")
        self._call(lib.kolo_all_to_all, stream, (src, dst), src.address, dst.address, src.count // self.size, src.type)

    def barrier(self, stream: StreamLike = None) -> None:
        """Return after every rank has entered."""
        self._call(lib.kolo_barrier, stream, ())

    # ---- v-forms: block r has counts[r] elements, from element displs[r] on ----

    def gatherv(self, send: BufferLike, recv: Optional[BufferLike] = None, counts: Optional[Sequence[int]] = None,
                displs: Optional[Sequence[int]] = None, root: int = 0, stream: StreamLike = None) -> None:
        """gather() of blocks of different lengths: rank r's send has counts[r] elements.

        counts[size] and displs[size], in elements of recv, and recv matter only on root. displs None:
        one block after the other.
        """
        src = readable(send)
        dst, sizes, places = None, None, None
        if self.rank == root:
            dst = writable(wanted(recv, "gatherv", "recv"))
            sizes, places = self._blocks(dst, wanted(counts, "gatherv", "counts"), displs)
            same_type(src, dst)
        self._call(lib.kolo_gatherv, stream, (src, dst), src.address, src.count, address_of(dst), sizes, places, src.type,
                   root)

    def scatterv(self, send: Optional[BufferLike], recv: BufferLike, counts: Optional[Sequence[int]] = None,
                 displs: Optional[Sequence[int]] = None, root: int = 0, stream: StreamLike = None) -> None:
        """scatter() of blocks of different lengths: rank r's recv has counts[r] elements.

        counts[size] and displs[size], in elements of send, and send matter only on root. displs None:
        one block after the other.
        """
        dst = writable(recv)
        src, sizes, places = None, None, None
        if self.rank == root:
            src = readable(wanted(send, "scatterv", "send"))
            sizes, places = self._blocks(src, wanted(counts, "scatterv", "counts"), displs)
            same_type(src, dst)
        self._call(lib.kolo_scatterv, stream, (src, dst), address_of(src), sizes, places, dst.address, dst.count, dst.type,
                   root)

    def all_gatherv(self, send: BufferLike, recv: BufferLike, counts: Sequence[int],
                    displs: Optional[Sequence[int]] = None, stream: StreamLike = None) -> None:
        """all_gather() of blocks of different lengths: rank r's send has counts[r] elements.

        counts[size] and displs[size], in elements of recv, are the same on every rank. displs None: one
        block after the other.
        """
        src, dst = readable(send), writable(recv)
        sizes, places = self._blocks(dst, counts, displs)
        same_type(src, dst)
        has(src, counts[self.rank], "send")
        self._call(lib.kolo_all_gatherv, stream, (src, dst), src.address, dst.address, sizes, places, src.type)

    def reduce_scatterv(self, send: BufferLike, recv: BufferLike, counts: Sequence[int], op: OpLike = Op.SUM,
                        stream: StreamLike = None) -> None:
        """reduce_scatter() of blocks of different lengths: rank r's recv has counts[r] elements.

        send[sum(counts)], one block after the other. counts[size] is the same on every rank.
        """
        src, dst = readable(send), writable(recv)
        sizes, _ = self._blocks(src, counts, None)
        same_type(src, dst)
        has(dst, counts[self.rank], "recv")
        self._call(lib.kolo_reduce_scatterv, stream, (src, dst), src.address, dst.address, sizes, src.type, number_of(op, src))

    def all_to_allv(self, send: BufferLike, send_counts: Sequence[int], recv: BufferLike, recv_counts: Sequence[int],
                    send_displs: Optional[Sequence[int]] = None, recv_displs: Optional[Sequence[int]] = None,
                    stream: StreamLike = None) -> None:
        """all_to_all() of blocks of different lengths: send_counts[q] elements go to rank q, and
        recv_counts[q] elements come from rank q.

        Counts and displacements have size entries, in elements. displs None: one block after the other.
        """
        src, dst = readable(send), writable(recv)
        same_type(src, dst)
        self._call(lib.kolo_all_to_allv, stream, (src, dst), src.address, *self._blocks(src, send_counts, send_displs),
                   dst.address, *self._blocks(dst, recv_counts, recv_displs), src.type)

    def _blocks(self, buffer: Buffer, counts: Sequence[int], displs: Optional[Sequence[int]]) -> tuple[Any, Any]:
        """The arrays of a v-form, whose blocks all lie in the buffer."""
        if displs is None:
            displs = [sum(counts[:rank]) for rank in range(len(counts))]
        if len(counts) != self.size or len(displs) != self.size:
            raise InvalidError(f"{len(counts)} counts and {len(displs)} displacements for {self.size} ranks")
        parts = buffer.parts
        sizes, places = sizes_of([n * parts for n in counts]), sizes_of([n * parts for n in displs])
        for rank, (count, place) in enumerate(zip(counts, displs)):
            if count > 0 and (place + count) * parts > buffer.count:
                raise InvalidError(f"block {rank}, elements {place} to {place + count - 1}, lies outside of a buffer "
                                   f"of {buffer.count // parts}")
        return sizes, places

    # ---- point to point ----

    def send(self, buffer: BufferLike, peer: int, tag: Optional[int] = None, stream: StreamLike = None) -> None:
        """Send all elements of a buffer to rank `peer`: for its recv(), or with a tag (>= 0) for its recv_tag().

        A short message returns at once; a long one waits for the receive.
        """
        src = readable(buffer)
        if tag is None:
            self._call(lib.kolo_send, stream, (src,), src.address, src.count, src.type, peer)
        else:
            self._call(lib.kolo_send_tag, stream, (src,), src.address, src.count, src.type, peer, tag)

    def recv(self, buffer: BufferLike, peer: int, stream: StreamLike = None) -> None:
        """Receive a message that rank `peer` sent without a tag. It may be shorter than the buffer.

        A longer message raises InvalidError.
        """
        dst = writable(buffer)
        self._call(lib.kolo_recv, stream, (dst,), dst.address, dst.count, dst.type, peer)

    def recv_tag(self, buffer: BufferLike, peer: int = ANY_SOURCE, tag: int = ANY_TAG,
                 stream: StreamLike = None) -> RecvInfo:
        """Receive a message with a tag, by default with any tag from any rank. It may be shorter than the buffer.

        The result has source, tag and bytes of the message. With a stream or in a group it is filled when
        the message is there. A longer message raises InvalidError.
        """
        dst, info = writable(buffer), RecvInfo(size=ctypes.sizeof(RecvInfo))
        self._call(lib.kolo_recv_tag, stream, (dst, info), dst.address, dst.count, dst.type, peer, tag,
                   ctypes.byref(info))
        return info

    # ---- operations ----

    def premulsum(self, factor: BufferLike) -> int:
        """Create an operation: the sum of inputs, each multiplied first by its rank's factor.

        factor is a buffer of one element. The operation is for elements of its type, on this
        communicator, for as long as the communicator exists.
        """
        buffer, out = readable(factor), ctypes.c_uint32()
        has(buffer, 1, "factor")
        check(lib.kolo_op_create_premulsum(buffer.address, buffer.type, self._open(), ctypes.byref(out)))
        return out.value
