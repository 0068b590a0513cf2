# SPDX-License-Identifier: Apache-2.0
"""What each rank of python_test.py does: every test_*() with one communicator, and a line
"RANK NAME ok" or "RANK NAME what went wrong" for each. With the argument numpy those that need it."""
import array
import ctypes
import sys
import threading
import traceback

import kolo

# ---- buffers -------------------------------------------------------------------------------------


def floats(*values):
    return array.array("f", values)


def ints(*values):
    return array.array("i", values)


def raises(error, words, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except error as caught:
        assert all(word in str(caught) for word in words), caught
        return caught
    raise AssertionError(f"{function.__name__} raises no {error.__name__}")


def test_types_are_found_from_formats(comm):
    found = {letter: kolo.Type(kolo.Buffer(array.array(letter, [0])).type) for letter in "bBhHiIlLqQfd"}
    want = "INT8 UINT8 INT16 UINT16 INT32 UINT32 INT64 UINT64 INT64 UINT64 FLOAT32 FLOAT64"
    assert [t.name for t in found.values()] == want.split(), found
    of_ctypes = {ctypes.c_long: "INT64", ctypes.c_ulong: "UINT64", ctypes.c_bool: "BOOL", ctypes.c_double: "FLOAT64"}
    for kind, name in of_ctypes.items():
        assert kolo.Type(kolo.Buffer((kind * 3)()).type).name == name, (kind, name)
    raises(kolo.InvalidError, ["format"], kolo.Buffer, (ctypes.c_longdouble * 2)())
    raises(TypeError, ["a buffer is wanted", "list"], kolo.Buffer, [1, 2])
    raises(BufferError, [], kolo.Buffer, memoryview(bytearray(8))[::2])


def test_a_buffer_gives_bytes_another_type(comm):
    raw = bytearray(b"\x80\x3f" * 2)  # 1.0, 1.0 as bfloat16
    buffer = kolo.Buffer(raw, kolo.Type.BFLOAT16)
    assert (buffer.count, buffer.readonly) == (2, False)
    comm.all_reduce(buffer)
    assert raw == {1: b"\x80\x3f", 2: b"\x00\x40", 3: b"\x40\x40"}[comm.size] * 2, raw
    raises(BufferError, [], raw.append, 0)  # exported as long as the Buffer lives
    del buffer
    raw.append(0)
    raises(kolo.InvalidError, ["5 bytes", "BFLOAT16"], kolo.Buffer, raw, kolo.Type.BFLOAT16)


def test_a_buffer_at_an_address(comm):
    memory = (ctypes.c_int32 * 2)(comm.rank, 1)
    comm.all_reduce(kolo.Buffer.at(ctypes.addressof(memory), 2, kolo.Type.INT32))
    assert list(memory) == [sum(range(comm.size)), comm.size], list(memory)


def test_what_cannot_be_written_is_refused(comm):
    raises(kolo.InvalidError, ["read-only"], comm.all_reduce, b"\1\2")
    out = bytearray(2)
    comm.all_reduce(b"\1\2", out)
    assert out == bytes([comm.size, 2 * comm.size])


def test_memory_that_peers_map_is_a_buffer(comm):
    memory = kolo.mem_alloc(1 << 20)
    assert memory.nbytes == 1 << 20 and not any(memory[:100])
    values = memory.cast("f")
    values[0] = values[262143] = comm.rank
    comm.all_reduce(values)
    assert values[0] == values[262143] == sum(range(comm.size))
    raises(kolo.InvalidError, ["0"], kolo.mem_alloc, 0)


# ---- collectives ---------------------------------------------------------------------------------


def test_all_reduce(comm):
    mine, out = floats(comm.rank, 2), floats(0, 0)
    comm.all_reduce(mine, out)
    assert list(out) == [sum(range(comm.size)), 2 * comm.size] and list(mine) == [comm.rank, 2]
    comm.all_reduce(mine, op=kolo.Op.MAX)
    assert list(mine) == [comm.size - 1, 2]
    raises(kolo.InvalidError, ["2 elements", "3"], comm.all_reduce, out, floats(0, 0, 0))
    raises(kolo.InvalidError, ["FLOAT32", "INT32"], comm.all_reduce, out, ints(0, 0))


def test_codecs(comm):
    n, codec = comm.size, kolo.Codec.INT8
    mine, out, every = floats(*range(-60, 60)), floats(*[0] * 120), floats(*[0] * 120 * n)
    bound, moved = comm.codec_bound(codec), comm.codec_bound(codec, reduces=False)
    assert (bound.block, bound.encodings, moved.encodings) == (60, 2, 1), (bound, moved)
    comm.all_reduce(mine, out, codec=codec)
    assert all(abs(x - n * y) <= bound.factor * 60 * n + bound.floor for x, y in zip(out, mine)), out
    comm.all_gather(mine, every, codec=codec)
    assert all(abs(x - y) <= moved.factor * 60 + moved.floor for x, y in zip(every, list(mine) * n)), every
    comm.reduce_scatter(every, out, op=kolo.Op.AVG, codec=kolo.Codec.BF16)
    assert all(abs(x - y) <= 1 for x, y in zip(out, mine)), out
    for name in ("int4", "fp8"):
        comm.all_reduce(mine, out, codec=name)
        wide = comm.codec_bound(name)
        assert all(abs(x - n * y) <= wide.factor * 60 * n + wide.floor for x, y in zip(out, mine)), (name, out)
    assert comm.codec_within(60 * n, relative=1.01 * bound.factor) == codec
    assert comm.codec_within(60 * n, absolute=0.5 * bound.factor) == kolo.Codec.NONE
    raises(kolo.InvalidError, ["int5", "fp8"], comm.all_reduce, mine, codec="int5")
    raises(kolo.InvalidError, ["int8", "int32"], comm.all_reduce, ints(1), codec=codec)
    raises(kolo.InvalidError, ["int8", "max"], comm.all_reduce, mine, op=kolo.Op.MAX, codec=codec)


def test_reduce(comm):
    root = comm.size - 1
    mine, out = floats(comm.rank, 1), floats(-1, -1)
    comm.reduce(mine, out if comm.rank == root else None, root=root)
    assert list(out) == ([sum(range(comm.size)), comm.size] if comm.rank == root else [-1, -1])
    comm.reduce(mine, op=kolo.Op.MIN)
    assert list(mine) == ([0, 1] if comm.rank == 0 else [comm.rank, 1])


def test_broadcast(comm):
    root = comm.size - 1
    mine, out = ints(comm.rank, 7), ints(-1, -1)
    comm.broadcast(mine if comm.rank == root else None, out, root=root)
    assert list(out) == [root, 7]
    comm.broadcast(mine)
    assert list(mine) == [0, 7]


def test_gather_and_scatter(comm):
    root, n = comm.size - 1, comm.size
    every = ints(*range(2 * n))
    got = ints(-1, -1)
    comm.scatter(every if comm.rank == root else None, got, root=root)
    assert list(got) == [2 * comm.rank, 2 * comm.rank + 1]
    back = ints(*[0] * (2 * n))
    comm.gather(got, back if comm.rank == root else None, root=root)
    assert comm.rank != root or back == every
    if comm.rank == root:
        raises(kolo.InvalidError, ["needs recv on root"], comm.gather, got, root=root)


def test_all_gather_in_place_too(comm):
    n = comm.size
    every = ints(*[0] * n)
    comm.all_gather(ints(comm.rank), every)
    assert list(every) == list(range(n))
    every = ints(*[comm.rank] * n)
    comm.all_gather(memoryview(every)[comm.rank:comm.rank + 1], every)
    assert list(every) == list(range(n))
    raises(kolo.InvalidError, [f"{n} x 1"], comm.all_gather, ints(0), ints(*range(n + 1)))


def test_reduce_scatter(comm):
    got = ints(-1)
    comm.reduce_scatter(ints(*range(comm.size)), got)
    assert list(got) == [comm.rank * comm.size]


def test_all_to_all(comm):
    n = comm.size
    mine, out = ints(*(10 * comm.rank + q for q in range(n))), ints(*[0] * n)
    comm.all_to_all(mine, out)
    want = [10 * q + comm.rank for q in range(n)]
    assert list(out) == want
    comm.all_to_all(mine)
    assert list(mine) == want


def test_barrier(comm):
    comm.barrier()


def test_v_forms(comm):
    n, r = comm.size, comm.rank
    counts = [q + 1 for q in range(n)]
    total = sum(counts)
    blocks = [100 * q + i for q in range(n) for i in range(counts[q])]
    mine = ints(*(100 * r + i for i in range(counts[r])))
    out = ints(*[0] * total)
    comm.all_gatherv(mine, out, counts)
    assert list(out) == blocks
    out = ints(*[0] * total)
    comm.gatherv(mine, out if r == 0 else None, counts if r == 0 else None)
    assert r != 0 or list(out) == blocks
    back = ints(*[0] * counts[r])
    comm.scatterv(out if r == 0 else None, back, counts if r == 0 else None)
    assert back == mine
    comm.reduce_scatterv(ints(*range(total)), back, counts)
    start = sum(counts[:r])
    assert list(back) == [n * (start + i) for i in range(counts[r])]


def test_all_to_allv_with_gaps(comm):
    n, r = comm.size, comm.rank
    got = ints(*[-1] * (3 * n))  # a block of r+1 elements from each, 3 apart
    sent = ints(*(10 * r + q for q in range(n) for _ in range(q + 1)))
    comm.all_to_allv(sent, [q + 1 for q in range(n)], got, [r + 1] * n, recv_displs=[3 * q for q in range(n)])
    want = [-1] * (3 * n)
    for q in range(n):
        want[3 * q:3 * q + r + 1] = [10 * q + r] * (r + 1)
    assert list(got) == want, list(got)
    raises(kolo.InvalidError, ["lies outside"], comm.all_to_allv, sent, [9] * n, got, [1] * n)
    raises(kolo.InvalidError, [f"{n + 1} counts"], comm.all_to_allv, sent, [0] * (n + 1), got, [0] * n)


def test_premulsum(comm):
    double = comm.premulsum(floats(2))
    mine = floats(comm.rank)
    comm.all_reduce(mine, op=double)
    assert list(mine) == [2 * sum(range(comm.size))]


# ---- point to point, groups, streams -------------------------------------------------------------


def test_a_ring_in_a_group(comm):
    n, r = comm.size, comm.rank
    got = ints(-1)
    with kolo.group():
        comm.send(ints(r), (r + 1) % n)  # kept until the end of the group
        comm.recv(got, (r - 1) % n)
    assert list(got) == [(r - 1) % n]


def test_tags_from_any_source(comm):
    if comm.rank > 0:
        comm.send(ints(comm.rank, 5), 0, tag=40 + comm.rank)
        return
    for _ in range(comm.size - 1):
        room = ints(0, 0, 0)
        info = comm.recv_tag(room)
        assert (info.tag, info.bytes, list(room)) == (40 + info.source, 8, [info.source, 5, 0])


def test_a_stream_keeps_what_is_queued(comm):
    with kolo.Stream() as stream:
        stream.set_timeout(30)
        outs = [floats(*[0] * 1000) for _ in range(20)]
        for i, out in enumerate(outs):
            comm.all_reduce(floats(*[i] * 1000), out, stream=stream)
        stream.sync()
        assert stream.query()
        assert all(list(out) == [i * comm.size] * 1000 for i, out in enumerate(outs))


def test_threads_of_one_process(comm):
    comms = kolo.Comm.local(3)
    outs = [ints(c.rank) for c in comms]
    with kolo.group():  # all by one thread
        for c, out in zip(comms, outs):
            c.all_reduce(out)
    assert [list(out) for out in outs] == [[3]] * 3
    threads = [threading.Thread(target=c.all_reduce, args=(out,)) for c, out in zip(comms, outs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [list(out) for out in outs] == [[9]] * 3


# ---- communicators -------------------------------------------------------------------------------


def test_split(comm):
    part = comm.split(comm.rank % 2 if comm.rank < 2 else kolo.NO_COLOR)
    assert (part is None) == (comm.rank >= 2)
    if part is not None:
        with part:
            assert (part.rank, part.size) == (0, 1)
    with comm.split(0, key=-comm.rank) as turned:
        assert turned.rank == comm.size - 1 - comm.rank


def test_create_group(comm):
    raises(kolo.InvalidError, ["members[0]", "each once"], comm.create_group, [comm.size])
    members = [rank for rank in reversed(range(comm.size)) if rank != 1]  # without rank 1, which makes no call
    if comm.rank in members:
        for tag in ("one", "two"):
            with comm.create_group(members, tag) as group:
                assert group.rank == members.index(comm.rank), group
                one = ints(1)
                group.all_reduce(one)
                assert list(one) == [len(members)]


def test_grow(comm):
    raises(kolo.InvalidError, ["128 bytes"], comm.grow, b"short", comm.size)
    old = comm.split(0 if comm.rank == 0 else kolo.NO_COLOR)  # rank 0 takes in the others
    id = bytearray(kolo.create_id() if comm.rank == 0 else 128)
    comm.broadcast(id)
    with old.grow(bytes(id), comm.size) if old else kolo.Comm.join(bytes(id), comm.size, comm.rank) as grown:
        assert (grown.rank, grown.size) == (comm.rank, comm.size)
        one = ints(1)
        grown.all_reduce(one)
        assert list(one) == [comm.size]
    if old:
        old.close()


def test_shrink(comm):
    with comm.split(0) as copy:
        if copy.rank == 0 or copy.size == 1:
            pass  # the one that is left out
        else:
            with copy.shrink([0]) as rest:
                assert (rest.rank, rest.size) == (copy.rank - 1, copy.size - 1)
                one = ints(1)
                rest.all_reduce(one)
                assert list(one) == [rest.size]
        assert copy.failed_ranks() == []
        comm.barrier()


def test_agree(comm):
    with comm.split(0) as copy:
        assert copy.agree(~(1 << copy.rank) & 0xff) == (0xff & ~((1 << copy.size) - 1), [])
        assert copy.epoch == 0


def test_reconfigure(comm):
    """The others turn round, and rank 0 enters behind them as a new rank."""
    id = bytearray(kolo.create_id() if comm.rank == 0 else 128)
    comm.broadcast(id)
    old = comm.split(kolo.NO_COLOR if comm.rank == 0 and comm.size > 1 else 0)
    members = [*range(comm.size - 2, -1, -1), -1] if comm.size > 1 else [0]
    if old:
        raises(kolo.InvalidError, ["members[0]"], old.reconfigure, bytes(id), [comm.size])
    with (old.reconfigure(bytes(id), members) if old else
          kolo.Comm.enter(bytes(id), comm.size, comm.size - 1)) as made:
        assert (made.rank, made.size, made.epoch) == (comm.size - 1 - comm.rank, comm.size, 1)
        one = ints(1)
        made.all_reduce(one)
        assert list(one) == [comm.size]
    if old:
        old.close()


def test_an_id_joins(comm):
    id = bytearray(kolo.create_id()) if comm.rank == 0 else bytearray(128)
    comm.broadcast(id)
    config = kolo.Config(deterministic=True, timeout=30, name="by id")
    with kolo.Comm.join(bytes(id), comm.size, comm.rank, config) as other:
        assert (other.rank, other.size) == (comm.rank, comm.size)
        other.barrier()
    raises(kolo.InvalidError, ["128"], kolo.Comm.join, b"short", 1, 0)


def test_an_abort_reaches_every_rank(comm):
    with comm.split(0) as copy:
        assert copy.failure() is None
        comm.barrier()
        if copy.rank == copy.size - 1:
            copy.abort()
        raises(kolo.AbortedError, [], copy.barrier)
        assert isinstance(copy.failure(), kolo.AbortedError)


def test_operations_have_names(comm):
    values = ints(comm.rank, 1)
    comm.all_reduce(values, op="Sum")
    assert list(values) == [sum(range(comm.size)), comm.size], values
    comm.all_reduce(values, op="max")
    out = ints(0, 0)
    comm.reduce(values, out, op="min")
    assert list(out) == ([sum(range(comm.size)), comm.size] if comm.rank == 0 else [0, 0]), out
    raises(kolo.InvalidError, ["'summ'", "sum, prod"], comm.all_reduce, values, op="summ")


def test_a_sum_of_bools_is_or_and_a_product_is_and(comm):
    for op, want in ((kolo.Op.SUM, [comm.size > 0, False, True]), ("prod", [comm.size == 1, False, True])):
        values = (ctypes.c_bool * 3)(comm.rank == 0, False, True)
        comm.all_reduce(values, op=op)
        assert list(values) == want, (op, list(values))


def test_objects_say_what_they_are(comm):
    assert repr(comm) == f"<kolo.Comm: rank {comm.rank} of {comm.size}>", comm
    assert repr(kolo.Buffer(b"abc")).startswith("<kolo.Buffer: 3 x UINT8 at 0x"), kolo.Buffer(b"abc")
    assert "read-only" in repr(kolo.Buffer(b"abc"))
    assert repr(kolo.RecvInfo(source=1, tag=2, bytes=8)) == "RecvInfo(source=1, tag=2, bytes=8)"
    with kolo.Stream() as stream:
        assert repr(stream) == "<kolo.Stream>", stream
    assert repr(stream) == "<kolo.Stream, closed>", stream


def test_what_is_closed_says_so(comm):
    copy, stream = comm.split(0), kolo.Stream()
    copy.close()
    stream.close()
    stream.close()
    assert repr(copy) == f"<kolo.Comm: rank {comm.rank} of {comm.size}, closed>", copy
    for function, *arguments in ((copy.all_reduce, ints(1)), (copy.barrier,), (copy.split, 0), (copy.shrink, []),
                                 (copy.failure,), (copy.failed_ranks,), (copy.premulsum, floats(1))):
        raises(kolo.InvalidError, ["the communicator is closed"], function, *arguments)
    for function, *arguments in ((stream.sync,), (stream.query,), (stream.set_timeout, 1)):
        raises(kolo.InvalidError, ["the stream is closed"], function, *arguments)
    raises(kolo.InvalidError, ["the stream is closed"], comm.all_reduce, ints(1), stream=stream)
    copy.abort()
    comm.barrier()


def test_what_is_closed_is_refused(comm):
    copy = comm.split(0)
    copy.close()
    copy.close()
    raises(kolo.InvalidError, [], copy.barrier)


def test_a_mismatch_names_the_rank(comm):
    if comm.size == 1:
        return
    with comm.split(0) as copy:
        call = copy.barrier if copy.rank == 0 else lambda: copy.all_reduce(ints(1))
        error = raises(kolo.MismatchError, ["barrier", "allreduce"], call)
        assert error.rank is not None and error.call == 1, (error.rank, error.call)


# ---- numpy ---------------------------------------------------------------------------------------


def numpy_test_arrays(comm):
    import numpy

    for dtype in ("float16", "float32", "float64", "int8", "uint64", "bool"):
        values = numpy.ones((3, 4), dtype)
        comm.all_reduce(values, op=kolo.Op.LAND if dtype == "bool" else kolo.Op.SUM)
        assert (values == (1 if dtype == "bool" else comm.size)).all(), dtype
    table = numpy.zeros((comm.size, 5), numpy.int32)
    table[comm.rank] = comm.rank
    comm.all_gather(table[comm.rank], table)
    assert (table == numpy.arange(comm.size)[:, None]).all()
    raises((ValueError, BufferError), ["contiguous"], comm.all_reduce, numpy.ones((4, 4))[:, 0])
    raises(kolo.InvalidError, ["format"], comm.all_reduce, numpy.ones(3, numpy.clongdouble))
    raises(kolo.InvalidError, ["format"], comm.all_reduce, numpy.ones(3, ">f4"))


def numpy_test_complex_numbers_move_and_are_summed(comm):
    import numpy
    for dtype in (numpy.complex64, numpy.complex128):
        values = numpy.array([1 + 2j, comm.rank * 1j], dtype)
        comm.all_reduce(values)
        assert values.tolist() == [comm.size * (1 + 2j), sum(range(comm.size)) * 1j], values
        comm.all_reduce(values, op="avg")
        assert values.tolist() == [comm.size * (1 + 2j), sum(range(comm.size)) * 1j], values
        table = numpy.zeros((comm.size, 3), dtype)
        comm.all_gather(numpy.full(3, comm.rank + 1j, dtype), table)
        assert (table == numpy.arange(comm.size)[:, None] + 1j).all(), table
        counts = [rank + 1 for rank in range(comm.size)]
        parts = numpy.zeros(sum(counts) + 1, dtype)
        comm.all_gatherv(numpy.full(comm.rank + 1, comm.rank - 1j, dtype), parts, counts)
        want = [rank - 1j for rank in range(comm.size) for _ in range(rank + 1)]
        assert parts.tolist() == want + [0], parts
        block = numpy.zeros(comm.rank + 1, dtype)
        comm.reduce_scatterv(numpy.full(sum(counts), 2j, dtype), block, counts)
        assert block.tolist() == [2j * comm.size] * (comm.rank + 1), block
        raises(kolo.InvalidError, ["MAX", "complex"], comm.all_reduce, values, op="max")
        raises(kolo.InvalidError, ["complex", "reals"], comm.all_reduce, values, numpy.zeros(4, values.real.dtype))
        assert "2 x complex" in repr(kolo.Buffer(values)), kolo.Buffer(values)
    if comm.size == 2:
        raises(kolo.InvalidError, ["3 elements"], comm.all_to_all, numpy.zeros(3, complex))
    raises(kolo.InvalidError, ["3 elements, not 2"], comm.all_gatherv, numpy.zeros(3, complex),
           numpy.zeros(2 * comm.size, complex), [2] * comm.size)


def numpy_test_shared_memory_is_an_array(comm):
    import numpy

    array = numpy.frombuffer(kolo.mem_alloc(1 << 20), numpy.float64).reshape(2, -1)
    array[:] = comm.rank
    comm.all_reduce(array)
    assert (array == sum(range(comm.size))).all()


def numpy_test_dlpack(comm):
    import numpy

    class Tensor:
        """As a tensor of torch: DLPack, no buffer protocol."""

        def __init__(self, values):
            self.values = values

        def __dlpack__(self, **named):
            return self.values.__dlpack__(**named)

        def __dlpack_device__(self):
            return self.values.__dlpack_device__()

    values = numpy.full(10, comm.rank, numpy.float32)
    comm.all_reduce(Tensor(values))
    assert (values == sum(range(comm.size))).all()


def main():
    prefix = "numpy_test_" if "numpy" in sys.argv else "test_"
    with kolo.Comm() as comm:
        for name, test in list(globals().items()):
            if name.startswith(prefix):
                said = "ok"
                try:
                    test(comm)
                except Exception:  # the other ranks go on
                    said = traceback.format_exc().replace("\n", "|")
                sys.stdout.write(f"{comm.rank} {name} {said}\n")  # in one piece
                sys.stdout.flush()


main()
