# SPDX-License-Identifier: Apache-2.0
# covers: torch/csrc
"""CUDA tensors over kolo: what is queued where, who waits for what, and what lives how long.

The GPU is the driver of tests/device/fake_cuda.cc, whose streams are threads, or a real one.
"""
import os
import tempfile
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import kolo_torch
from ranks import collect, gpu, on_ranks, run_tests, start

N = 1 << 14
LIMIT_S = 60


def host(value, count=N):
    return torch.full((count,), float(value), device="cpu")


def late(value):
    """A tensor whose elements come only after gpu.release()."""
    t, source = torch.empty(N), host(value).pin_memory()  # which may wait for the GPU
    gpu.hold()
    return t.copy_(source, non_blocking=True)  # others wait for what is before them


def failure(call):
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def ready():
    """The group's communicator on this device is there, and its streams are idle."""
    dist.all_reduce(torch.ones(1))
    gpu.synchronize()


def meet(value=0.0):
    """The ranks wait for one another, but for no stream; the sum of their values."""
    t = torch.tensor([value], dtype=torch.float64, device="cpu")
    dist.all_reduce(t)
    return t.item()


def becomes(true):
    end = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.001)
    return True


def test_a_call_comes_behind_what_its_stream_has_and_nobody_waits_on_the_host():
    def body(rank):
        ready()
        for async_op in (False, True):
            t = late(rank + 1)
            work = dist.all_reduce(t, async_op=async_op)
            if async_op:
                assert not work.is_completed() and not work.is_success()
                work.wait()
                assert not work.is_completed()
            after = torch.empty(N)
            after.copy_(t, non_blocking=True)
            assert not gpu.is_idle()
            meet()
            gpu.release()
            assert after.cpu().eq(3).all(), after
            assert work is None or (work.is_completed() and work.is_success())

    on_ranks(2, body)


def test_an_asynchronous_call_runs_beside_the_current_stream():
    def body(rank):
        ready()
        t = torch.ones(N)
        work = dist.all_reduce(t, async_op=True)
        gpu.hold()
        assert becomes(work.is_completed) and not gpu.is_idle()
        gpu.release()
        work.wait()
        assert t.cpu().eq(2).all()

    on_ranks(2, body)


def test_calls_on_several_streams_take_effect_in_their_order():
    def body(rank):
        ready()
        t, streams = torch.ones(N), [0, gpu.make_stream(), gpu.make_stream()]
        gpu.synchronize()
        for k in range(9):
            gpu.set_stream(streams[k % 3])
            work = dist.all_reduce(t, async_op=k % 2 == 1)
            if work is not None:
                work.wait()
        assert t.cpu().eq(2**9).all(), t.cpu()

    on_ranks(2, body)


def test_tensors_live_until_the_call_is_over_or_the_stream_comes_behind_it():
    def body(rank):
        ready()
        out, given = torch.empty(2 * N), torch.empty(N).copy_(host(rank + 5))
        at = given.data_ptr()
        if rank == 1:
            gpu.hold()  # rank 0's call waits for this one
        work = dist.all_gather_into_tensor(out, given, async_op=True)
        del given
        if rank == 0:
            others = [torch.empty(N).fill_(-1.0) for _ in range(3)]  # what is free is given again, spoiled
            assert at not in [other.data_ptr() for other in others]
        meet()
        gpu.release()
        work.wait()
        assert not gpu.exact or torch.empty(N).data_ptr() == at  # it is free as soon as the current stream waits
        assert out.cpu().tolist() == [5.0] * N + [6.0] * N

    on_ranks(2, body)


def test_a_work_that_nobody_keeps_is_done_and_its_tensors_are_let_go():
    def body(rank):
        ready()
        outs = [torch.zeros(2 * N) for _ in range(4)]
        given = [torch.empty(N).copy_(host(k + 1)) for k in range(4)]
        at = {t.data_ptr() for t in given}
        if rank == 1:
            gpu.hold()
        for out in outs:
            dist.all_gather_into_tensor(out, given.pop(0), async_op=True)
        if rank == 0:
            others = [torch.empty(N).fill_(-1.0) for _ in range(4)]
            assert at.isdisjoint(other.data_ptr() for other in others)
        meet()
        gpu.release()
        dist.barrier()
        ready()  # looks at what is over
        dist.all_reduce(torch.ones(1), async_op=True).wait()
        assert not gpu.exact or at <= {t.data_ptr() for t in [torch.empty(N) for _ in range(4)]}
        for k, out in enumerate(outs):
            assert out.cpu().eq(1 + k).all(), (k, out.cpu())

    on_ranks(2, body)


def test_a_work_takes_the_event_of_one_that_has_ended():
    def body(rank):
        t = torch.ones(N)
        for turn in range(2):
            before = gpu.events_made() if gpu.exact else 0
            for k in range(40):
                work = dist.all_reduce(t, async_op=k % 2 == 1)
                if work is not None:
                    work.wait()
                gpu.synchronize()
        assert not gpu.exact or gpu.events_made() - before < 4, gpu.events_made() - before

    on_ranks(2, body)


def test_a_wait_with_a_time_out_has_the_host_wait_and_says_when_it_is_over():
    def body(rank):
        ready()
        t = torch.ones(N)
        if rank == 1:
            gpu.hold()
        work = dist.all_reduce(t, async_op=True)
        if rank == 0:
            began = time.monotonic()
            error = failure(lambda: work.wait(timedelta(milliseconds=150)))
            assert isinstance(error, dist.DistBackendError) and "150 ms" in str(error), error
            assert time.monotonic() - began >= 0.15
        meet()
        gpu.release()
        assert work.wait(timedelta(seconds=LIMIT_S)) and work.is_completed()

    on_ranks(2, body)


def test_a_barrier_waits_on_the_host_for_what_every_rank_has_queued():
    def body(rank):
        for words in ({"device_ids": [torch.get_default_device().index]}, {}):
            ready()
            released_at = 0.0
            if rank == 1:
                gpu.hold()

                def let_go():
                    nonlocal released_at
                    released_at = time.monotonic()
                    gpu.release()

                threading.Timer(0.3, let_go).start()
            dist.barrier(**words)
            ended_at = time.monotonic()
            assert ended_at >= meet(released_at) > 0
            work = dist.barrier(async_op=True, **words)
            assert work.wait() and work.is_completed()

    on_ranks(2, body)


def test_a_future_orders_what_follows_it_behind_the_call():
    def body(rank):
        ready()
        t, copied = late(rank + 1), torch.empty(N)
        work = dist.all_reduce(t, async_op=True)
        future = work.get_future().then(lambda f: copied.copy_(f.value()[0], non_blocking=True))
        got = future.wait()
        assert not work.is_completed()
        meet()
        gpu.release()
        assert got.cpu().eq(3).all()
        work.wait()
        assert work.get_future_result().wait() == 0 and work.result()[0] is t

    on_ranks(2, body)


def test_a_graph_captures_calls_of_both_kinds_and_brings_them_again():
    def body(rank):
        ready()
        a, b, c = torch.empty(N), torch.empty(2 * N), torch.empty(N)
        gpu.set_stream(gpu.make_stream())
        a.copy_(host(rank + 1))
        pending = dist.all_reduce(torch.ones(N), async_op=True)
        gpu.begin_capture()
        dist.all_reduce(a)
        work = dist.all_gather_into_tensor(b, a, async_op=True)
        strided = torch.empty(2, N // 2).t()
        strided.copy_(a.view(N // 2, 2))
        work.wait()
        dist.all_reduce(strided)
        c.view(N // 2, 2).copy_(strided)
        assert "captured in a graph" in str(failure(work.is_completed))
        graph = gpu.end_capture()
        pending.wait()
        assert a.cpu().eq(rank + 1).all()  # nothing ran yet
        for k in range(3):
            gpu.launch(graph)
            ready()  # calls between graphs
            assert a.cpu().eq(3 * 2**k).all() and b.cpu().eq(3 * 2**k).all() and c.cpu().eq(3 * 2 ** (k + 1)).all(), (k, a.cpu(), b.cpu(), c.cpu())

    on_ranks(2, body)


def test_what_cannot_be_captured_says_so_and_the_group_goes_on():
    def body(rank):
        t = torch.ones(4)
        gpu.set_stream(gpu.make_stream())
        gpu.synchronize()
        gpu.begin_capture()
        error = failure(lambda: dist.all_reduce(t))
        assert "cannot be captured" in str(error), error
        gpu.end_capture()
        ready()
        dist.all_reduce(t)
        assert t.tolist() == [2] * 4

    on_ranks(2, body)


def test_coalesced_calls_and_batches_of_messages_are_one_work_in_the_stream():
    def body(rank):
        ready()
        ts = [late(rank + 1), late(rank + 2)]
        with dist._coalescing_manager(device=torch.get_default_device(), async_ops=True) as both:
            dist.all_reduce(ts[0])
            dist.broadcast(ts[1], 1)
        both.wait()
        assert len(both.works) == 1 and not both.works[0].is_completed()
        gpu.release()
        assert ts[0].cpu().eq(3).all() and ts[1].cpu().eq(3).all()
        got = torch.empty(N)
        ops = [dist.P2POp(dist.isend, late(rank), 1 - rank), dist.P2POp(dist.irecv, got, 1 - rank)]
        (work,) = dist.batch_isend_irecv(ops)
        work.wait()
        assert not work.is_completed()
        gpu.release()
        assert got.cpu().eq(1 - rank).all()

    on_ranks(2, body)


def test_messages_need_no_rank_but_their_two_and_are_queued():
    def body(rank):
        if rank == 2:
            return
        got = torch.empty(3)
        if rank == 0:
            dist.send(torch.ones(3), 1)
            dist.recv(got, 1)
            assert got.tolist() == [2, 2, 2]
        else:
            dist.recv(got, 0)
            dist.send(got * 2, 0)
        for k in range(3):
            t = late(k) if rank == 0 else torch.empty(N)
            work = dist.isend(t, 1, tag=k) if rank == 0 else dist.irecv(t, 0, tag=k)
            work.wait()
            assert rank == 1 or not work.is_completed()
            gpu.release()
            assert t.cpu().eq(k).all()

    on_ranks(3, body)


def test_what_a_device_does_not_serve_is_refused_and_harms_nothing():
    def body(rank):
        ready()
        cpu = torch.empty(2, device="cpu")
        assert isinstance(failure(lambda: dist.recv(torch.empty(2))), NotImplementedError)
        assert isinstance(failure(lambda: dist.all_gather_into_tensor(torch.empty(4), cpu)), ValueError)
        assert isinstance(failure(lambda: dist.isend(torch.empty(2), dist.get_rank())), ValueError)
        t = torch.ones(2)
        dist.all_reduce(t)
        dist.all_reduce(cpu.fill_(1.0))
        assert t.tolist() == cpu.tolist() == [2, 2]

    on_ranks(2, body)


def test_groups_of_their_own_and_tensors_of_the_host_go_on_beside():
    def body(rank):
        ready()
        pairs = [dist.new_group([0, 1]), dist.new_group([1, 2])]
        for group in pairs if rank == 1 else [pairs[rank // 2]]:
            t = torch.ones(N)
            work = dist.all_reduce(t, group=group, async_op=True)
            host = torch.ones(7, device="cpu")
            beside = dist.all_reduce(host, group=group, async_op=True)
            work.wait()
            beside.wait()
            assert t.cpu().eq(2).all() and host.tolist() == [2] * 7
        objects = [None] * 3
        dist.all_gather_object(objects, {"rank": rank})
        assert [o["rank"] for o in objects] == [0, 1, 2]

    on_ranks(3, body)


def call_and_wait(works):
    """Processes that share a GPU meet in the call; others meet in the stream, so the wait fails."""
    works.append(dist.all_reduce(torch.ones(N), async_op=True))
    works[0].wait(timedelta(seconds=LIMIT_S))


def test_calls_that_nobody_records_run_as_well():
    def body(_rank):
        t = torch.ones(N)
        dist.all_reduce(t)
        work = dist.all_reduce(t, async_op=True)
        work.wait()
        ready()
        assert t.cpu().eq(4).all() and not kolo_torch.flight_recorder()["entries"]

    os.environ["TORCH_FR_BUFFER_SIZE"] = "0"
    try:
        on_ranks(2, body)
    finally:
        del os.environ["TORCH_FR_BUFFER_SIZE"]


def test_a_rank_that_dies_ends_the_others_calls_with_its_number():
    def body(rank):
        ready()
        if rank == 1:
            os._exit(7)
        works = []
        error = failure(lambda: call_and_wait(works))
        assert "rank 1" in str(error), error
        assert all(work.is_completed() and not work.is_success() for work in works)
        assert "rank 1" in str(failure(ready))
        gpu.synchronize()  # streams do not wait for the dead

    with tempfile.TemporaryDirectory() as folder:
        states = collect(start(body, 2, folder))
    assert states == [("ok", None), ("died", 7)], states


def test_an_abort_lets_streams_go_on():
    def body(rank):
        ready()
        if rank == 1:
            time.sleep(2)
            os._exit(0)
        threading.Timer(0.3, dist.group.WORLD._get_backend(torch.device("cuda")).abort).start()
        assert "ABORTED" in str(failure(lambda: call_and_wait([])))
        gpu.synchronize()

    with tempfile.TemporaryDirectory() as folder:
        states = collect(start(body, 2, folder))
    assert states[0][0] == "ok", states


if __name__ == "__main__":
    run_tests(globals())
