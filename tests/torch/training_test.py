# SPDX-License-Identifier: Apache-2.0
# covers: torch/csrc
"""What PyTorch builds on a process group, over kolo: each way of training against one process on the
same global batch, and the machinery around it."""
import copy
import os
import tempfile
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
from ranks import DEVICE, alone, on_ranks, run_tests
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

warnings.filterwarnings("ignore")
STEPS, BATCH = 4, 12
COMPILERS = ["aot_eager", *(["inductor"] if os.environ.get("KOLO_TEST_FULL") == "1" else [])]  # that one takes 10 s
COMPILE_S = 240


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))


def batch(step):
    generator = torch.Generator().manual_seed(step)
    x, y = (torch.randn(BATCH, width, generator=generator, device="cpu") for width in (8, 4))
    return x.to(torch.get_default_device()), y.to(torch.get_default_device())


def share(tensor, rank):
    return tensor.chunk(dist.get_world_size())[rank]


def train(network, optimizer, rank):
    for step in range(STEPS):
        x, y = batch(step)
        optimizer.zero_grad()
        nn.functional.mse_loss(network(share(x, rank)), share(y, rank)).backward()
        optimizer.step()
    return network


def weights(network):
    return [p.detach().cpu().clone() for p in network.parameters()]


def in_one_process(rank):
    network = model()
    return weights(train(network, torch.optim.AdamW(network.parameters(), 0.01), 0))


def as_in_one_process(ranks, body):
    want = alone(in_one_process)
    for got in on_ranks(ranks, body):
        for g, w in zip(got, want):
            torch.testing.assert_close(g, w, rtol=1e-4, atol=1e-5)


def test_ddp_trains_as_one_process_does():
    def body(rank):
        network = DDP(model(), bucket_cap_mb=0.001)
        return weights(train(network, torch.optim.AdamW(network.parameters(), 0.01), rank))

    as_in_one_process(3, body)


def test_ddp_finds_unused_parameters_and_joins_uneven_inputs():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x, which):
            return (self.a if which else self.b)(x)

    def body(rank):
        network = DDP(Branches(), find_unused_parameters=True)
        for step in range(3):
            network(torch.ones(2, 4), step % 2 == rank % 2).sum().backward()
        assert network.module.a.weight.grad is not None
        even = DDP(nn.Linear(4, 4))
        with even.join():
            for _ in range(2 + rank):
                even(torch.ones(2, 4)).sum().backward()

    on_ranks(2, body)


def test_ddp_comm_hooks_compress_and_average_gradients():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    def body(rank):
        plain = DDP(model())
        hooks = {"allreduce": default_hooks.allreduce_hook, "fp16": default_hooks.fp16_compress_hook}
        x, _ = batch(0)
        plain(share(x, rank)).sum().backward()
        for name, hook in hooks.items():
            network = DDP(model())
            network.register_comm_hook(None, hook)
            network(share(x, rank)).sum().backward()
            for g, w in zip(network.parameters(), plain.parameters()):
                torch.testing.assert_close(g.grad, w.grad, rtol=3e-2, atol=3e-2, msg=name)
        network = DDP(model())
        state = powerSGD_hook.PowerSGDState(dist.group.WORLD, matrix_approximation_rank=4, start_powerSGD_iter=2)
        network.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        train(network, torch.optim.SGD(network.parameters(), 0.01), rank)
        mine = torch.cat([w.flatten() for w in weights(network)]).to(torch.get_default_device())
        every = torch.empty(dist.get_world_size(), mine.numel())
        dist.all_gather_into_tensor(every, mine)
        assert (every == mine).all()

    on_ranks(2, body)


def test_fsdp2_trains_as_one_process_does():
    from torch.distributed.fsdp import fully_shard

    def body(rank):
        network = model()
        for layer in network:
            if isinstance(layer, nn.Linear):
                fully_shard(layer)
        fully_shard(network)
        train(network, torch.optim.AdamW(network.parameters(), 0.01), rank)
        return [p.full_tensor().cpu() for p in network.parameters()]

    as_in_one_process(2, body)


def test_fsdp2_takes_its_buffers_from_shared_memory_and_reduces_in_bfloat16():
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    def body(rank):
        network = model()
        fully_shard(network, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
        network.set_allocate_memory_from_process_group_for_comm(True)
        network.set_gradient_divide_factor(4.0)  # a premultiplied sum
        losses = []
        optimizer = torch.optim.SGD(network.parameters(), 0.1)
        for _ in range(10):
            x, y = batch(0)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(network(share(x, rank)).float(), share(y, rank))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0], losses

    on_ranks(2, body)


def test_fsdp1_trains_as_one_process_does():
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

    def body(rank):
        network = FSDP(model(), device_id=torch.device("cpu"))
        train(network, torch.optim.AdamW(network.parameters(), 0.01), rank)
        with FSDP.summon_full_params(network):
            return weights(network)

    as_in_one_process(2, body)


def test_zero_redundancy_optimizer_trains_as_one_process_does():
    from torch.distributed.optim import ZeroRedundancyOptimizer

    def body(rank):
        network = DDP(model())
        optimizer = ZeroRedundancyOptimizer(network.parameters(), torch.optim.AdamW, lr=0.01)
        got = weights(train(network, optimizer, rank))
        optimizer.consolidate_state_dict(0)
        assert rank != 0 or len(optimizer.state_dict()["state"]) == 6
        return got

    as_in_one_process(3, body)


def test_tensor_parallel_trains_as_one_process_does():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    def body(rank):
        mesh = init_device_mesh("cpu", (2,))
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        network = parallelize_module(model(), mesh, plan)
        optimizer = torch.optim.AdamW(network.parameters(), 0.01, foreach=False)
        for step in range(STEPS):
            x, y = batch(step)
            optimizer.zero_grad()
            nn.functional.mse_loss(network(x), y).backward()
            optimizer.step()
        return [p.full_tensor() if hasattr(p, "full_tensor") else p.detach() for p in network.parameters()]

    as_in_one_process(2, body)


def test_dtensors_are_sharded_replicated_and_summed():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

    def body(rank):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        whole = torch.arange(48.0).reshape(8, 6)
        t = distribute_tensor(whole, mesh, [Shard(0), Shard(1)])
        assert t.to_local().shape == (4, 3)
        assert t.redistribute(mesh, [Replicate(), Replicate()]).to_local().equal(whole)
        assert t.redistribute(mesh, [Shard(1), Replicate()]).full_tensor().equal(whole)
        assert t.sum().full_tensor() == whole.sum()
        part = torch.distributed.tensor.DTensor.from_local(whole, mesh["tp"], [Partial()])
        assert part.redistribute(mesh["tp"], [Shard(0)]).full_tensor().equal(2 * whole)

    on_ranks(4, body)


def test_a_pipeline_gives_the_gradients_of_one_process():
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    def body(rank):
        for Schedule in (ScheduleGPipe, Schedule1F1B):
            whole = model()
            reference = copy.deepcopy(whole)
            part = whole[:2] if rank == 0 else whole[2:]
            stage = PipelineStage(part, rank, 2, torch.device("cpu"))
            schedule = Schedule(stage, 4, loss_fn=nn.functional.mse_loss)
            x, y = batch(0)
            if rank == 0:
                schedule.step(x)
            else:
                schedule.step(target=y)
            nn.functional.mse_loss(reference(x), y).backward()
            other = reference[:2] if rank == 0 else reference[2:]
            for got, want in zip(part.parameters(), other.parameters()):
                torch.testing.assert_close(got.grad, want.grad, rtol=1e-4, atol=1e-5)

    on_ranks(2, body)


def test_a_checkpoint_is_saved_by_all_and_loaded_by_other_shards():
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    def body(rank):
        mesh = init_device_mesh("cpu", (2,))
        whole = torch.arange(40.0).reshape(8, 5)
        saved = {"w": distribute_tensor(whole, mesh, [Shard(0)]), "step": 7}
        dcp.save(saved, checkpoint_id=folder)
        loaded = {"w": distribute_tensor(torch.zeros(8, 5), mesh, [Shard(1)]), "step": 0}
        dcp.load(loaded, checkpoint_id=folder)
        assert loaded["w"].full_tensor().equal(whole) and loaded["step"] == 7

    with tempfile.TemporaryDirectory() as name:
        folder = os.path.join(name, "checkpoint")
        on_ranks(2, body)


def test_objects_travel():
    def body(rank):
        n = dist.get_world_size()
        every = [None] * n
        dist.all_gather_object(every, {"rank": rank, "text": "x" * (1000 * rank)})
        assert [o["rank"] for o in every] == list(range(n)) and len(every[2]["text"]) == 2000
        one = [("from", 1)] if rank == 1 else [None]
        dist.broadcast_object_list(one, 1)
        assert one == [("from", 1)]
        into = [None]
        dist.scatter_object_list(into, [r * r for r in range(n)] if rank == 0 else None, 0)
        assert into == [rank * rank]
        gathered = [None] * n if rank == 2 else None
        dist.gather_object(rank, gathered, 2)
        assert rank != 2 or gathered == list(range(n))
        if rank == 0:
            dist.send_object_list([1, "two"], 1)
        elif rank == 1:
            got = [None, None]
            dist.recv_object_list(got, 0)
            assert got == [1, "two"]

    on_ranks(3, body)


def test_synchronised_batch_norm_is_batch_norm_of_the_whole_batch():
    import syncbn_kernels
    from torch.nn.modules._functions import SyncBatchNorm

    def body(rank):
        syncbn_kernels.install()
        n = dist.get_world_size()
        whole = torch.randn(12, 3, 5, generator=torch.Generator().manual_seed(2))
        weight, bias = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.1, 0.2, 0.3])
        seen = torch.zeros(3), torch.ones(3)
        x = share(whole, rank).clone().requires_grad_()
        y = SyncBatchNorm.apply(x, weight, bias, *seen, 1e-5, 0.1, dist.group.WORLD, n)
        (y**3).sum().backward()
        reference, seen_whole = whole.clone().requires_grad_(), (torch.zeros(3), torch.ones(3))
        want = nn.functional.batch_norm(reference, *seen_whole, weight, bias, True, 0.1, 1e-5)
        (want**3).sum().backward()
        torch.testing.assert_close(y, share(want, rank), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(x.grad, share(reference.grad, rank), rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(seen, seen_whole)

    on_ranks(3, body)


def test_functional_collectives_run_eagerly_and_compiled():
    import torch.distributed._functional_collectives as funcol

    def collectives(x):
        y = funcol.all_reduce(x * 2, "sum", dist.group.WORLD)
        z = funcol.all_gather_tensor(y, 0, dist.group.WORLD)
        w = funcol.reduce_scatter_tensor(z, "avg", 0, dist.group.WORLD)
        return funcol.all_to_all_single(w, None, None, dist.group.WORLD) + 1

    def body(rank):
        os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # in this process
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        x = torch.arange(8.0) + rank
        want = collectives(x)
        y = 2 * (2 * torch.arange(8.0) + 1)
        local = torch.cat([y[rank * 4 : rank * 4 + 4]] * 2) + 1
        assert want.equal(local), (want, local)
        for compiler in COMPILERS:
            compiled = torch.compile(collectives, backend=compiler, fullgraph=True)
            assert compiled(x).equal(want), compiler

    # Both ranks compile the same code, so they share a cache. On a busy machine it takes a minute and more.
    with tempfile.TemporaryDirectory(prefix="torch-test-") as cache:
        on_ranks(2, body, limit_s=COMPILE_S, timeout=timedelta(seconds=COMPILE_S))


def test_a_profiler_sees_the_calls():
    def body(rank):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as seen:
            dist.all_reduce(torch.ones(7))
            dist.broadcast(torch.ones(3), 0, async_op=True).wait()
        names = {event.name: event for event in seen.events()}
        assert names["kolo:all_reduce"].input_shapes == [[7]], names.keys()
        assert "kolo:broadcast" in names

    on_ranks(2, body)


def test_detailed_debugging_of_torch_distributed_works():
    def body(rank):
        torch.distributed.set_debug_level(torch.distributed.DebugLevel.DETAIL)
        group = dist.new_group([0, 1])
        t = torch.ones(3)
        dist.all_reduce(t, group=group)
        assert t[0] == 2
        try:
            dist.all_reduce(torch.ones(3 + rank), group=group)
        except RuntimeError as error:
            assert "Detected mismatch" in str(error), error
        else:
            raise AssertionError("shapes that differ were accepted")

    on_ranks(2, body)


# The others ask for more of torch.cuda than the tests' device has, or are of the CPU.
ON_DEVICES = {"a_checkpoint_is_saved_by_all_and_loaded_by_other_shards", "a_profiler_sees_the_calls",
              "ddp_trains_as_one_process_does", "detailed_debugging_of_torch_distributed_works",
              "dtensors_are_sharded_replicated_and_summed", "fsdp2_trains_as_one_process_does",
              "fsdp2_takes_its_buffers_from_shared_memory_and_reduces_in_bfloat16", "objects_travel"}
if DEVICE != "cpu":
    for other in [name for name in globals() if name.startswith("test_") and name[len("test_"):] not in ON_DEVICES]:
        del globals()[other]

if __name__ == "__main__":
    run_tests(globals(), gpus_by_turns=True)
