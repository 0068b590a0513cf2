# SPDX-License-Identifier: Apache-2.0
# covers: torch/csrc
"""Process groups: made of others, timed out, aborted, left by a rank that died, destroyed; and what
is said and left behind at the end."""
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from ranks import collect, on_ranks, run_tests, start

import kolo_torch


def failure(call):
    """(what call() raised, after how many seconds)"""
    began = time.monotonic()
    try:
        call()
    except Exception as error:
        return error, time.monotonic() - began
    raise AssertionError("nothing was raised")


def total(group=None, value=1.0):
    t = torch.full((5,), value)
    dist.all_reduce(t, group=group)
    return t[0].item()


def test_subgroups_work_beside_each_other():
    def body(rank):
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3]), dist.new_group([0, 3])]
        if rank in (0, 3):
            assert total(pairs[2]) == 2
        assert total(pairs[rank // 2], rank) == (1 if rank < 2 else 5)
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2, 2))
        assert total(mesh.get_group(0)) == total(mesh.get_group(1)) == 2

    on_ranks(4, body)


def test_members_alone_make_a_group_many_times_without_the_store():
    def body(rank):
        store = dist.distributed_c10d._get_default_store()
        if rank != 1:
            pair = dist.new_group([0, 2], use_local_synchronization=True)  # no number of groups is in its name
            keys = store.num_keys()
            for value in range(20):
                again = dist.new_group([0, 2], use_local_synchronization=True)
                assert total(again, value) == 2 * value
                dist.destroy_process_group(again)
            assert total(pair) == 2
            assert store.num_keys() == keys
        turned = dist.new_group([2, 1], sort_ranks=False)
        if rank in (1, 2):
            assert dist.get_group_rank(turned, 2) == 0 and turned.rank() == 2 - rank
            assert total(turned, rank) == 3

    on_ranks(3, body)


def test_a_group_with_a_dead_member_is_refused_at_once():
    def body(rank):
        if rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        error, seconds = failure(lambda: dist.new_group([0, 1, 2]))
        assert "rank 2" in str(error) and seconds < 20, (error, seconds)
        assert total(dist.new_group([0, 1], use_local_synchronization=True)) == 2

    with tempfile.TemporaryDirectory() as folder:
        states = collect(start(body, 3, folder))
    assert [state for state, _ in states] == ["ok", "ok", "died"], states


def test_a_group_is_split_by_its_backend():
    def body(rank):
        ranks = [0, 2] if rank != 1 else [1]
        parent = dist.group.WORLD
        part = parent.split_group(ranks, group_name=f"part{ranks}", group_desc="a part")
        t = torch.full((5,), float(rank))
        work = part.allreduce([t])
        work.wait()
        assert t[0] == sum(ranks)
        assert part._get_backend(torch.device("cpu")).options.global_ranks_in_group == ranks
        part.shutdown()

    on_ranks(3, body)


def test_survivors_shrink_their_group_and_go_on():
    def body(rank):
        assert total() == 3
        if rank == 1:
            return
        group = dist.distributed_c10d.shrink_group([1])
        assert dist.get_world_size() == 2 and dist.get_rank(group) == (0 if rank == 0 else 1)
        assert total() == 2

    on_ranks(3, body)


def test_members_agree_and_take_a_new_one_in():
    def body(rank):
        pair = dist.new_group([0, 1])
        store = dist.distributed_c10d._get_default_store()
        if rank == 0:
            store.set("id", kolo_torch._C.create_id().hex())
        met = bytes.fromhex(store.get("id").decode())
        if rank == 2:
            backend = kolo_torch._C.enter(store, met, 3, 2, kolo_torch.Options())
        else:
            old = pair._get_backend(torch.device("cpu"))
            assert old.agree(6 if rank == 0 else 3) == (2, [])
            backend = old.reconfigure(store, met, [1, 0, -1])
        assert (backend.rank(), backend.size()) == ({0: 1, 1: 0, 2: 2}[rank], 3)
        t = torch.full((5,), float(rank + 1))
        backend.allreduce([t]).wait()
        assert t[0] == 6
        assert backend.agree(~0 & (1 << rank ^ 7)) == (0, [])
        error, _ = failure(lambda: kolo_torch._C.enter(store, b"short", 3, 2, kolo_torch.Options()))
        assert isinstance(error, ValueError) and "an id has" in str(error), error
        backend.shutdown()

    on_ranks(3, body)


def test_options_are_taken_and_strangers_refused():
    def body(rank):
        options = kolo_torch.Options(deterministic=True, algo="allreduce:direct")
        group = dist.new_group([0, 1], pg_options=options)
        assert total(group) == 2
        assert group._get_backend(torch.device("cpu")).options.algo == "allreduce:direct"
        error, _ = failure(lambda: dist.new_group([0, 1], pg_options=object()))
        assert isinstance(error, TypeError) and "kolo_torch.Options" in str(error), error

    on_ranks(2, body)


def test_a_codec_compresses_what_it_can():
    def body(rank):
        error, _ = failure(lambda: dist.new_group([0, 1], pg_options=kolo_torch.Options(codec="int5")))
        assert isinstance(error, ValueError) and "int8" in str(error), error
        group = dist.new_group([0, 1], pg_options=kolo_torch.Options(codec="int8"))
        x = torch.linspace(-1, 1, 6007)
        dist.all_reduce(total := x.clone(), group=group)
        dist.all_gather_into_tensor(every := torch.empty(2 * 6007), x, group=group)
        dist.reduce_scatter_tensor(mine := torch.empty(3000), x[:6000].clone(), op=dist.ReduceOp.AVG, group=group)
        for have, want in ((total, 2 * x), (every, torch.cat([x, x])), (mine, x[rank * 3000:][:3000])):
            assert 0 < (have - want).abs().max() < 2e-2, (have - want).abs().max()
        dist.all_reduce(most := x.clone(), op=dist.ReduceOp.MAX, group=group)
        dist.all_reduce(exact := x.double(), group=group)
        assert torch.equal(most, x) and torch.equal(exact, 2 * x.double())

    os.environ["KOLO_CODEC"] = "always"
    try:
        on_ranks(2, body)
    finally:
        del os.environ["KOLO_CODEC"]


def test_a_call_that_takes_longer_than_its_time_out_raises_and_says_so():
    def body(rank):
        if rank == 1:
            time.sleep(10)
            return
        error, took = failure(dist.barrier)
        assert isinstance(error, dist.DistBackendError) and "Timed out" in str(error), repr(error)
        assert took < 5, took

    with tempfile.TemporaryDirectory() as folder:
        states = collect(start(body, 2, folder, timeout=timedelta(seconds=1)))
    assert states[0][0] == "ok", states


def test_a_time_out_may_be_set_for_one_call():
    def body(rank):
        if rank == 1:
            dist.recv(torch.empty(1), 0, group=other)
            return
        options = dist.AllreduceOptions()
        options.timeout = timedelta(milliseconds=300)
        error, took = failure(lambda: dist.group.WORLD.allreduce([torch.ones(2)], options).wait())
        assert "300 ms" in str(error) and took < 5, (error, took)
        dist.send(torch.ones(1), 1, group=other)

    def with_other(rank):
        global other
        other = dist.new_group([0, 1])
        body(rank)

    on_ranks(2, with_other)


def test_wait_with_a_limit_leaves_the_call_to_go_on():
    def body(rank):
        t = torch.ones(3)
        if rank == 1:
            dist.recv(torch.empty(1), 0)
            dist.all_reduce(t)
            return
        work = dist.all_reduce(t, async_op=True)
        error, _ = failure(lambda: work.wait(timedelta(milliseconds=50)))
        assert "timed out" in str(error), error
        dist.send(torch.ones(1), 1)
        work.wait()
        assert t[0] == 2

    on_ranks(2, body)


def test_a_monitored_barrier_names_who_does_not_come_and_harms_nothing():
    def body(rank):
        kolo_torch.monitored_barrier()
        if rank == 0:
            error, _ = failure(lambda: kolo_torch.monitored_barrier(timeout=0.3, wait_all_ranks=True))
            assert "Ranks 1, 2 failed to pass monitoredBarrier" in str(error), error
        kolo_torch.monitored_barrier(timeout=timedelta(seconds=20)) if rank else None
        assert total() == 3

    def only_first(rank):
        kolo_torch.monitored_barrier()
        if rank == 0:
            error, _ = failure(lambda: kolo_torch.monitored_barrier(timeout=0.3, wait_all_ranks=True))
            assert "Ranks 1, 2 failed to pass monitoredBarrier" in str(error), error
        assert total() == 3

    on_ranks(3, only_first)


def test_abort_ends_a_call_under_way_in_another_thread():
    def body(rank):
        if rank == 0:
            work = dist.all_reduce(torch.ones(3), async_op=True)
            dist.group.WORLD._get_backend(torch.device("cpu")).abort()
            error, took = failure(work.wait)
            assert "ABORTED" in str(error) and took < 5, (error, took)

    with tempfile.TemporaryDirectory() as folder:
        states = collect(start(body, 2, folder))
    assert states[0][0] == "ok", states


def test_a_rank_killed_in_a_ddp_step_is_named_by_the_others_within_5_seconds():
    def body(rank):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1000, 1000))

        def steps():
            while True:
                model(torch.randn(4, 1000)).sum().backward()
                if rank == 1 and steps.taken == 3:
                    os.kill(os.getpid(), signal.SIGKILL)
                steps.taken += 1
                steps.at = time.monotonic()

        steps.taken, steps.at = 0, time.monotonic()
        error, _ = failure(steps)
        return str(error), time.monotonic() - steps.at

    with tempfile.TemporaryDirectory() as folder:
        states = collect(start(body, 3, folder), limit_s=30)
    assert states[1] == ("died", -signal.SIGKILL), states
    for rank in (0, 2):
        state, result = states[rank]
        assert state == "ok", states
        assert "rank 1" in result[0] and result[1] < 5, result


def test_a_rank_that_left_before_a_call_is_named_at_once():
    def body(rank):
        total()
        if rank == 1:
            dist.destroy_process_group()
            return "left"
        error, took = failure(total)
        return str(error), took

    with tempfile.TemporaryDirectory() as folder:
        states = collect(start(body, 3, folder, timeout=timedelta(seconds=30)), limit_s=60)
    for rank in (0, 2):
        state, result = states[rank]
        assert state == "ok", states
        assert "rank 1" in result[0] and "left" in result[0] and result[1] < 5, states


def test_ranks_that_differ_in_shape_raise_and_name_both():
    def body(rank):
        total()
        error, took = failure(lambda: dist.all_reduce(torch.ones(1000 + 24 * rank)))
        return str(error), took

    with tempfile.TemporaryDirectory() as folder:
        states = collect(start(body, 2, folder), limit_s=30)
    for state, result in states:
        assert state == "ok" and "1000" in result[0] and "1024" in result[0] and result[1] < 5, states


def test_groups_are_destroyed_in_any_order():
    def body(rank):
        groups = [dist.new_group([0, 1, 2]) for _ in range(4)]
        for group in groups:
            total(group)
        work = dist.all_reduce(torch.ones(100000), group=groups[0], async_op=True)
        for k in range(4):
            dist.destroy_process_group(groups[(k + rank) % 4])
        assert work.wait()
        error, _ = failure(lambda: groups[0].allreduce([torch.ones(1)]))
        assert "destroyed" in str(error), error
        assert total() == 3

    on_ranks(3, body)


def test_a_group_can_be_made_again_after_its_end():
    def body(rank):
        for again in range(3):
            assert total() == 2
            dist.destroy_process_group()
            store = dist.FileStore(os.path.join(folder, f"again{again}"), 2)
            dist.init_process_group("kolo", store=store, rank=rank, world_size=2)

    with tempfile.TemporaryDirectory() as folder:
        on_ranks(2, body)


def test_workers_of_a_data_loader_harm_nothing():
    def body(rank):
        data = torch.utils.data.TensorDataset(torch.arange(64.0))
        loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2)
        pending = dist.all_reduce(torch.ones(50000), async_op=True)
        for (batch,) in loader:
            dist.all_reduce(batch)
        pending.wait()
        assert total() == 2

    on_ranks(2, body)


PROGRAM = """
import sys, torch, torch.distributed as dist, kolo_torch
dist.init_process_group("kolo", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=2)
t = torch.ones(100000)
work = dist.all_reduce(t, async_op=True)
work.get_future().then(lambda f: None)
dist.broadcast(t, 0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 10))
model(torch.ones(1, 10)).sum().backward()
if sys.argv[3] == "destroy":
    dist.destroy_process_group()
"""


def test_nothing_is_printed_at_the_end_with_and_without_destroy_process_group():
    for end in ("destroy", "just leave"):
        with tempfile.TemporaryDirectory() as folder:
            store = os.path.join(folder, "store")
            ranks = [
                subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, store, str(rank), end],
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                )
                for rank in range(2)
            ]
            for rank in ranks:
                said, _ = rank.communicate(timeout=60)
                assert rank.returncode == 0 and said == "", (end, rank.returncode, said)


if __name__ == "__main__":
    run_tests(globals())
