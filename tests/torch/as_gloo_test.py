# SPDX-License-Identifier: Apache-2.0
# covers: torch/csrc torch/kolo_torch_entry.py
"""KOLO_TORCH_AS=gloo: kolo serves a program that asks for gloo; without it nothing differs."""
import os
import subprocess
import sys
import tempfile
import time
from datetime import timedelta

os.environ["KOLO_TORCH_AS"] = "gloo"  # before kolo_torch is loaded

import torch
import torch.distributed as dist
from ranks import collect, on_ranks, run_tests, start

import kolo_torch

CPU = torch.device("cpu")
PROGRAM = """
import torch, torch.distributed as dist
before = dist.ProcessGroupGloo, dict(vars(dist.ProcessGroupGloo)), vars(dist.distributed_c10d).copy()
import kolo_torch_entry; kolo_torch_entry.autoload()
after = dist.ProcessGroupGloo, dict(vars(dist.ProcessGroupGloo)), vars(dist.distributed_c10d).copy()
dist.init_process_group(%s, store=dist.HashStore(), rank=0, world_size=1)
dist.new_group([0], backend="gloo")
backend = dist.group.WORLD._get_backend(torch.device("cpu"))
print(type(backend).__name__, isinstance(backend, dist.ProcessGroupGloo), before == after)
print("libkolo" in open("/proc/self/maps").read())
"""


def program(backend, **environment):
    """(what the program said, its log)"""
    environment = {**os.environ, **environment}
    ran = subprocess.run([sys.executable, "-c", PROGRAM % backend], env=environment, capture_output=True,
                         text=True, timeout=60, check=True)
    return ran.stdout.split(), ran.stderr.strip()


def total(group=None, value=1.0):
    t = torch.full((5,), value)
    dist.all_reduce(t, group=group)
    return t[0].item()


def failure(call):
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def is_kolos(group):
    backend = group._get_backend(CPU)
    kolos = isinstance(backend, kolo_torch._C.KoloBackend)
    assert kolos == (type(backend) is not dist.ProcessGroupGloo), type(backend)
    return kolos and isinstance(backend, dist.ProcessGroupGloo) and backend.name() == "gloo"


def test_a_program_that_asks_for_gloo_by_name_or_by_default_gets_kolo_and_one_line_says_so():
    for backend in ("'gloo'", "'cpu:gloo'", "'cpu:gloo,cuda:gloo'", "None"):
        said, log = program(backend)
        assert said[:2] == ["InPlaceOfGloo", "True"] and said[3] == "True", (backend, said)
        assert log == "gloo is served by kolo: KOLO_TORCH_AS=gloo", (backend, log)


def test_without_the_variable_gloo_is_gloo_and_kolo_is_not_even_loaded():
    warning = "KOLO_TORCH_AS: kolo serves in the place of gloo only"
    for value, expected in {"": "", "nccl": warning}.items():
        said, log = program("'gloo'", KOLO_TORCH_AS=value)
        assert said[:4] == ["ProcessGroupGloo", "True", "True", "False"] and log == expected, (value, said, log)


def test_groups_made_of_a_group_of_gloo_are_kolos_too():
    def body(rank):
        assert is_kolos(dist.group.WORLD) and dist.get_backend() == "gloo" and total() == 2
        for backend in (None, "gloo", "cpu:gloo", "cpu:gloo,cuda:gloo"):
            group = dist.new_group([0, 1], backend=backend)
            assert is_kolos(group) and total(group, rank) == 1, backend
        part = dist.group.WORLD.split_group([0, 1], group_name="part", timeout=timedelta(seconds=33))
        assert is_kolos(part) and part._get_backend(CPU).options._timeout == timedelta(seconds=33)
        part.allreduce([torch.ones(2)]).wait()
        alone = dist.new_subgroups(1)[0]
        assert is_kolos(alone) and total(alone) == 1
        plain = dist.new_group([0, 1], backend="kolo")
        assert type(plain._get_backend(CPU)) is kolo_torch._C.KoloBackend

    on_ranks(2, body, backend="gloo")
    on_ranks(2, body, backend=dist.Backend.GLOO)


def test_a_backend_that_a_program_makes_of_the_class_is_kolos():
    def body(rank):
        store = dist.PrefixStore("own", dist.distributed_c10d._get_default_store())
        backend = dist.ProcessGroupGloo(store, rank, 2, timedelta(seconds=20))
        assert isinstance(backend, kolo_torch._C.KoloBackend) and isinstance(backend, dist.ProcessGroupGloo)
        t = torch.ones(3)
        backend.allreduce([t]).wait()
        assert t[0] == 2

    on_ranks(2, body, backend="gloo")


def test_options_are_of_gloos_type_and_a_time_out_that_is_set_holds():
    def body(rank):
        backend = dist.group.WORLD._get_backend(CPU)
        options = backend.options
        assert isinstance(options, dist.ProcessGroupGloo._Options) and options.backend == "gloo"
        assert options._timeout == timedelta(seconds=60) and options._threads == 2
        assert options.group_name == dist.group.WORLD.group_name
        dist.distributed_c10d._set_pg_timeout(timedelta(milliseconds=700))
        assert options._timeout == backend.options._timeout == timedelta(milliseconds=700)
        total()
        if rank == 1:
            time.sleep(6)
            return
        began = time.monotonic()
        error = failure(dist.barrier)
        assert isinstance(error, RuntimeError) and time.monotonic() - began < 5, error

    with tempfile.TemporaryDirectory() as folder:
        states = collect(start(body, 2, folder, backend="gloo"))
    assert states[0][0] == "ok", states


def test_a_monitored_barrier_names_the_rank_that_does_not_come():
    def body(rank):
        dist.monitored_barrier(timeout=timedelta(seconds=30))
        if rank == 1:
            time.sleep(1)
            return
        error = failure(lambda: dist.monitored_barrier(timeout=timedelta(milliseconds=200)))
        assert isinstance(error, RuntimeError) and "Rank 1 failed to pass monitoredBarrier" in str(error), error

    with tempfile.TemporaryDirectory() as folder:
        states = collect(start(body, 2, folder, backend="gloo"))
    assert states[0][0] == "ok", states


def test_objects_messages_and_profiles_are_as_with_gloo():
    def body(rank):
        objects = [None, None]
        dist.all_gather_object(objects, {"rank": rank})
        assert objects == [{"rank": 0}, {"rank": 1}]
        both = [rank, rank]
        dist.broadcast_object_list(both, src=1)
        assert both == [1, 1]
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            total()
        assert "gloo:all_reduce" in {event.name for event in profile.events()}
        t = torch.full((2,), float(rank))
        dist.send(t, 1) if rank == 0 else dist.recv(t)
        assert t[0] == 0

    on_ranks(2, body, backend="gloo")


def test_a_wrong_argument_is_a_value_error_and_a_runtime_error():
    def body(rank):
        for raised in (failure(lambda: dist.all_gather_into_tensor(torch.empty(3), torch.empty(2))),
                       failure(lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND))):
            assert type(raised) is kolo_torch.ArgumentError, repr(raised)
            assert isinstance(raised, ValueError) and isinstance(raised, RuntimeError)
        assert total() == 2

    on_ranks(2, body, backend="kolo")
    on_ranks(2, body, backend="gloo")


def test_ddp_reads_gloos_number_of_threads():
    def body(rank):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        assert model._get_ddp_logging_data()["gloo_num_threads"] == 2
        dist.group.WORLD._get_backend(CPU).options._threads = 3
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        assert model._get_ddp_logging_data()["gloo_num_threads"] == 3

    on_ranks(2, body, backend="gloo")


def test_a_model_learns_under_ddp_and_fsdp():
    def body(rank):
        from torch.distributed.fsdp import fully_shard

        for wrap in (torch.nn.parallel.DistributedDataParallel, fully_shard):
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
            model = wrap(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            x, losses = torch.randn(16, 4), []
            for _ in range(3):
                optimizer.zero_grad()
                loss = (model(x[rank::2]) ** 2).mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            assert losses[2] < losses[0], losses

    on_ranks(2, body, backend="gloo")


def test_calls_that_kolo_does_not_serve_go_to_the_kept_gloo():
    def body(rank):
        backend = dist.group.WORLD._get_backend(CPU)
        several = [torch.ones(2), torch.full((2,), 2.0)]
        backend.allreduce(several).wait()
        assert [t[0].item() for t in several] == [6, 6], several
        error = failure(lambda: backend.allreduce([torch.empty(2, device="meta")]))
        assert "ProcessGroupGloo" in str(error) and "meta" in str(error), error
        assert total() == 2

    on_ranks(2, body, backend="gloo")


def test_a_call_of_the_kept_gloo_waits_for_nobody_before_it_is_waited_for():
    def body(rank):
        groups = [dist.new_group([0, 1]) for _ in range(2)]
        backends, works = [group._get_backend(CPU) for group in groups], []
        for turn in (rank, 1 - rank):  # the other rank calls the other group first
            tensors = [torch.full((2,), value) for value in (1.0, 2.0)]
            works.append((backends[turn].allreduce(tensors), tensors))
        for work, tensors in works:
            work.wait()
            assert [t[0].item() for t in tensors] == [6, 6], tensors

    on_ranks(2, body, backend="gloo")


def test_a_group_makes_its_gloo_at_once_where_there_is_an_accelerator():
    def body(rank):
        backend = dist.group.WORLD._get_backend(CPU)
        assert gloos == ([True] if accelerated else []), gloos
        assert total() == 2
        backend.allreduce([torch.ones(2), torch.ones(2)]).wait()
        assert gloos == [True], gloos

    import kolo_torch_entry

    kept, asked, gloos = kolo_torch_entry.kept_gloo, kolo_torch_entry.needs_gloo, []

    def note(*arguments):
        gloos.append(True)
        return kept(*arguments)

    for accelerated in (False, True):
        kolo_torch_entry.kept_gloo, kolo_torch_entry.needs_gloo = note, lambda: accelerated
        try:
            on_ranks(2, body, backend="gloo")
        finally:
            kolo_torch_entry.kept_gloo, kolo_torch_entry.needs_gloo = kept, asked


def test_gloo_with_devices_of_its_own_stays_gloo():
    def body(rank):
        gloo = dist.ProcessGroupGloo
        options = gloo._Options()
        options._devices = [gloo.create_device(interface="lo")]
        store = dist.PrefixStore("own", dist.distributed_c10d._get_default_store())
        backend = gloo(store, rank, 2, options)
        assert type(backend) is gloo
        t = torch.ones(3)
        backend.allreduce([t]).wait()
        assert t[0] == 2

    on_ranks(2, body, backend="gloo")


def test_debug_detail_names_a_call_that_differs():
    program = (
        "import sys, torch, torch.distributed as dist, kolo_torch\n"
        "rank = int(sys.argv[2])\n"
        "dist.init_process_group('gloo', init_method='file://' + sys.argv[1], rank=rank, world_size=2)\n"
        "t = torch.ones(3)\n"
        "dist.all_reduce(t); assert t[0] == 2\n"
        "try: dist.all_reduce(t[:2 + rank])\n"
        "except RuntimeError as error: print('mismatch' in str(error))\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
        ranks = [subprocess.Popen([sys.executable, "-c", program, folder + "/store", str(rank)], env=environment,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in (0, 1)]
        for rank in ranks:
            said, log = rank.communicate(timeout=60)
            assert said == "True\n", (said, log)


if __name__ == "__main__":
    run_tests(globals())
