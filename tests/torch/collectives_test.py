# SPDX-License-Identifier: Apache-2.0
# covers: torch/csrc torch/kolo_torch
"""Every collective, operation and dtype over kolo against what torch computes of the same inputs."""
import threading
import warnings

import torch
import torch.distributed as dist
from ranks import DEVICE, on_ranks, run_tests

Op = dist.ReduceOp
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
COMPLEX = [torch.complex64, torch.complex128]
warnings.filterwarnings("ignore", category=FutureWarning)


def values(dtype, rank, *shape):
    """Small integers, so that every float type sums them exactly; others on every rank."""
    count = torch.Size(shape).numel()
    numbers = (torch.arange(count) * (rank + 2)) % 5 + 1
    return numbers.to(dtype).reshape(shape)


def all_values(dtype, *shape):
    return torch.stack([values(dtype, r, *shape) for r in range(dist.get_world_size())])


def expected(op, dtype, *shape):
    every = all_values(dtype, *shape).to(torch.complex128 if dtype.is_complex else torch.float64)
    if op == Op.SUM:
        return every.sum(0).to(dtype)
    if op == Op.AVG:
        mean = every.mean(0)
        return (mean if dtype.is_floating_point or dtype.is_complex else mean.trunc()).to(dtype)
    if op == Op.PRODUCT:
        return every.prod(0).to(dtype)
    return (every.amin(0) if op == Op.MIN else every.amax(0)).to(dtype)


def close(got, want):
    torch.testing.assert_close(got, want, rtol=1e-2 if want.dtype.itemsize == 2 else 1e-6, atol=0)


def test_all_reduce_is_right_for_every_operation_and_dtype():
    def body(rank):
        for dtype in FLOATS + INTEGERS:
            for op in (Op.SUM, Op.AVG, Op.PRODUCT, Op.MIN, Op.MAX):
                t = values(dtype, rank, 37)
                dist.all_reduce(t, op)
                close(t, expected(op, dtype, 37))
        for dtype in COMPLEX:
            for op in (Op.SUM, Op.AVG):
                t = values(dtype, rank, 5, 3) * (1 + 2j)
                dist.all_reduce(t, op)
                close(t, (expected(op, dtype, 5, 3) * (1 + 2j)).to(dtype))

    on_ranks(3, body)


def test_bitwise_operations_work_on_integers_and_bool():
    def body(rank):
        for dtype in INTEGERS + [torch.bool]:
            every = all_values(torch.int64, 11) % 3
            every = (every.bool() if dtype == torch.bool else every).to(dtype)
            for op, fold in ((Op.BAND, torch.bitwise_and), (Op.BOR, torch.bitwise_or), (Op.BXOR, torch.bitwise_xor)):
                t = every[rank].clone()
                dist.all_reduce(t, op)
                want = fold(fold(every[0], every[1]), every[2])
                assert torch.equal(t, want), (dtype, op, t, want)

    on_ranks(3, body)


def test_a_premultiplied_sum_takes_a_number_or_a_tensor():
    def body(rank):
        for dtype in FLOATS:
            for factor in (0.25, torch.tensor([0.25])):
                t = values(dtype, rank, 40)
                dist.all_reduce(t, dist._make_nccl_premul_sum(factor))
                close(t, expected(Op.SUM, dtype, 40) / 4)
                out = torch.empty(4, dtype=dtype)
                dist.reduce_scatter_tensor(out, values(dtype, rank, 12), dist._make_nccl_premul_sum(factor))
                close(out, expected(Op.SUM, dtype, 12)[rank * 4 : rank * 4 + 4] / 4)

    on_ranks(3, body)


def test_operations_that_make_no_sense_are_value_errors_and_harm_nothing():
    def body(rank):
        for t, op in ((torch.ones(2), Op.BAND), (torch.ones(2, dtype=torch.bool), Op.AVG)):
            try:
                dist.all_reduce(t, op)
            except ValueError as error:
                assert "makes no sense" in str(error), error
            else:
                raise AssertionError(f"{op} on {t.dtype} was accepted")
        t = torch.ones(2)
        dist.all_reduce(t)
        assert t.tolist() == [2, 2]

    on_ranks(2, body)


def test_every_dtype_moves_also_where_the_tensor_is_not_contiguous_or_empty():
    dtypes = FLOATS + INTEGERS + COMPLEX + [torch.bool, torch.uint16, torch.float8_e4m3fn, torch.float8_e5m2]

    def same(a, b):
        return a.dtype == b.dtype and a.shape == b.shape and a.tolist() == b.tolist()

    def body(rank):
        n = dist.get_world_size()
        for dtype in dtypes:
            for shape in ((3, 4), (0,), ()):
                every = [values(torch.float32, r, *shape).to(dtype) for r in range(n)]
                t = every[rank].clone()
                dist.broadcast(t, 1)
                assert same(t, every[1]), (dtype, shape)
                into = [torch.empty_like(t) for _ in range(n)]
                dist.all_gather(into, every[rank])
                assert all(map(same, into, every)), (dtype, shape)
        strided = values(torch.float32, rank, 4, 6).t()[::2]
        dist.all_reduce(strided)
        close(strided, expected(Op.SUM, torch.float32, 4, 6).t()[::2])
        columns = torch.zeros(5, n)
        dist.all_gather(list(columns.unbind(1)), torch.full((5,), float(rank)))
        assert columns[3].tolist() == list(range(n)), columns

    on_ranks(3, body)


def test_every_collective_moves_what_it_says():
    def body(rank):
        n = dist.get_world_size()
        mine = values(torch.float32, rank, 6)
        every = all_values(torch.float32, 6)
        out = torch.empty(n, 6)
        dist.all_gather_into_tensor(out, mine)
        close(out, every)
        lists = [torch.empty(6) for _ in range(n)] if rank == 2 else None
        dist.gather(mine, lists, dst=2)
        assert rank != 2 or torch.equal(torch.stack(lists), every)
        got = torch.empty(6)
        dist.scatter(got, list(every.unbind()) if rank == 1 else None, src=1)
        close(got, every[rank])
        t = mine.clone()
        dist.reduce(t, 1)
        close(t, every.sum(0) if rank == 1 else mine)
        part = torch.empty(2)
        dist.reduce_scatter_tensor(part, mine, Op.AVG)
        close(part, every.mean(0)[rank * 2 : rank * 2 + 2])
        dist.reduce_scatter(part, list(mine.split(2)), Op.MAX)
        close(part, every.amax(0)[rank * 2 : rank * 2 + 2])
        back = torch.empty(6)
        dist.all_to_all_single(back, mine)
        close(back, torch.cat([every[r][rank * 2 : rank * 2 + 2] for r in range(n)]))
        for async_op in (False, True):
            work = dist.barrier(async_op=async_op)
            assert work is None or work.wait()

    on_ranks(3, body)


def test_ranks_may_have_parts_of_different_sizes():
    def body(rank):
        n = dist.get_world_size()
        sizes = [r + 1 for r in range(n)]
        into = [torch.empty(s) for s in sizes]
        dist.all_gather(into, torch.full((sizes[rank],), float(rank)))
        assert torch.cat(into).tolist() == [0, 1, 1, 2, 2, 2]
        out = torch.empty(sizes[rank])
        dist.reduce_scatter(out, [torch.full((s,), float(s)) for s in sizes])
        assert out.tolist() == [n * sizes[rank]] * sizes[rank]
        send = [torch.full((rank + q,), float(rank)) for q in range(n)]
        recv = [torch.empty(q + rank) for q in range(n)]
        dist.all_to_all(recv, send)
        assert torch.cat(recv).tolist() == [float(q) for q in range(n) for _ in range(q + rank)]
        flat = torch.empty(sum(q + rank for q in range(n)), 2)
        rows = torch.full((sum(rank + q for q in range(n)), 2), float(rank))
        splits = [rank + q for q in range(n)]
        dist.all_to_all_single(flat, rows, splits, splits)
        assert flat[:, 1].tolist() == torch.cat(recv).tolist()

    on_ranks(3, body)


def test_coalesced_collectives_do_all_of_theirs():
    def body(rank):
        n = dist.get_world_size()
        ts = [values(torch.float32, rank, k) for k in (3, 70000, 1)]
        with dist._coalescing_manager():
            for t in ts:
                dist.all_reduce(t)
        for t in ts:
            close(t, expected(Op.SUM, torch.float32, t.numel()))
        outs = [torch.empty(n * k) for k in (2, 5)]
        with dist._coalescing_manager(async_ops=True) as coalesced:
            for out in outs:
                dist.all_gather_into_tensor(out, values(torch.float32, rank, out.numel() // n))
        coalesced.wait()
        for out in outs:
            close(out, all_values(torch.float32, out.numel() // n).flatten())
        parts = [torch.empty(k) for k in (2, 5)]
        with dist._coalescing_manager():
            for part in parts:
                dist.reduce_scatter_tensor(part, values(torch.float32, rank, part.numel() * n))
        for part in parts:
            k = part.numel()
            close(part, expected(Op.SUM, torch.float32, k * n)[rank * k : rank * k + k])
        with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as coalesced:
            dist.all_reduce(ts[0])
            dist.broadcast(ts[1], 0)
        coalesced.wait()
        close(ts[0], expected(Op.SUM, torch.float32, 3) * n)

    on_ranks(3, body)


def test_asynchronous_calls_run_in_order_and_keep_their_tensors():
    def body(rank):
        t = torch.ones(100000)
        works = [dist.all_reduce(t, async_op=True) for _ in range(6)]
        for _ in range(20):
            dist.all_reduce(torch.ones(3000), async_op=True)  # nobody keeps it
        alike = torch.ones(10)
        dist.all_reduce(alike)
        assert alike[0] == 2
        for work in works:
            work.wait()
        assert t.min() == t.max() == 2**6
        assert all(work.is_completed() for work in works)

    on_ranks(2, body)


def test_a_callback_on_a_future_may_start_a_call_and_wait_for_it():
    def again(future):
        return dist.all_reduce(future.value()[0], async_op=True).get_future().then(once_more).wait()[0]

    def once_more(future):
        dist.all_reduce(future.value()[0])
        return future.value()

    def body(rank):
        for k in range(20):
            t = torch.full((1000,), 1.0 + k)
            got = dist.all_reduce(t, async_op=True).get_future().then(again).wait()
            assert got[0] == 8 * (1 + k), got[0]
        done = dist.all_reduce(t, async_op=True)
        done.wait()
        assert done.get_future().wait()[0].equal(t) and done.get_future().done()

    on_ranks(2, body)


def test_lists_may_begin_with_a_tensor_without_elements():
    def body(rank):
        parts = [torch.empty(0, 3), torch.empty(1, 3)]
        dist.all_gather(parts, torch.full((rank, 3), 7.0))
        assert parts[1].eq(7).all()
        got = [torch.empty(0), torch.empty(2 * rank)]  # rank 0 sends nothing, and rank 1 only to itself
        dist.all_to_all(got, [torch.empty(0), torch.full((2 * rank,), 5.0)])
        assert got[1].eq(5).all()

    on_ranks(2, body)


def test_a_future_that_was_taken_is_done_when_wait_returns():
    def body(rank):
        for _ in range(300):
            t, seen = torch.ones(3), []
            work = dist.all_reduce(t, async_op=True)
            future = work.get_future()
            work.wait()
            assert future.done() and work.get_future() is not None
            future.then(lambda f, seen=seen: seen.append(threading.get_ident()))
            assert seen == [threading.get_ident()]  # it ran here, at once

    on_ranks(2, body)


def test_a_callback_that_blocks_does_not_keep_others_from_running():
    def body(rank):
        store, later = dist.distributed_c10d._get_default_store(), threading.Event()
        if rank == 1:  # a callback of a call that has ended would run, and block, where it is added
            store.wait(["callbacks"])
        first, second = (dist.all_reduce(torch.ones(3), async_op=True) for _ in range(2))
        if rank == 0:
            first = first.get_future().then(lambda f: later.wait(30))
            second = second.get_future().then(lambda f: later.set())
            store.set("callbacks", "added")
        second.wait()
        assert first.wait()

    on_ranks(2, body)


def test_a_sparse_tensor_is_summed():
    def body(rank):
        t = torch.sparse_coo_tensor(torch.tensor([[rank, 2], [0, 1]]), torch.tensor([1.0, 2.0]), (4, 2), check_invariants=True)
        dist.all_reduce(t)
        want = torch.zeros(4, 2)
        for r in range(3):
            want[r, 0] += 1
            want[2, 1] += 2
        assert t.to_dense().equal(want), t

    on_ranks(3, body)


def test_shapes_that_do_not_fit_are_value_errors_that_name_both():
    def body(rank):
        for call, words in (
            (lambda: dist.all_gather_into_tensor(torch.empty(5), torch.empty(2)), ["[5]", "[2]"]),
            (lambda: dist.reduce_scatter_tensor(torch.empty(2), torch.empty(7)), ["[7]", "[2]"]),
            (lambda: dist.all_gather([torch.empty(2)] * 2, torch.empty(3)), ["[3]", "[2]"]),
            (lambda: dist.all_to_all_single(torch.empty(4), torch.empty(4), [1, 1], [2, 2]), ["4"]),
        ):
            try:
                call()
            except ValueError as error:
                assert all(word in str(error) for word in words), error
            else:
                raise AssertionError("accepted")
        dist.barrier()

    on_ranks(2, body)


if DEVICE != "cpu":
    # There futures are complete from the beginning: their callbacks run in the caller.
    del test_a_callback_that_blocks_does_not_keep_others_from_running
    del test_a_sparse_tensor_is_summed

if __name__ == "__main__":
    run_tests(globals(), gpus_by_turns=True)
