# SPDX-License-Identifier: Apache-2.0
# covers: torch
"""Tensors in shared memory, and the record of calls."""
import torch
import torch.distributed as dist
from ranks import on_ranks, run_tests
from torch.nn.parallel import DistributedDataParallel as DDP

import kolo_torch


def is_shared(tensor):
    """Whether its memory is one of kolo's segments, by the kernel's word."""
    address = tensor.data_ptr()
    with open("/proc/self/maps", encoding="ascii") as maps:
        for line in maps:
            begin, end = (int(x, 16) for x in line.split()[0].split("-"))
            if begin <= address < end:
                return "memfd:kolo" in line
    return False


def test_an_empty_shared_tensor_is_a_tensor_that_peers_map():
    def body(rank):
        t = kolo_torch.empty_shared(300, 400, dtype=torch.float64).fill_(rank + 1)
        assert t.shape == (300, 400) and t.dtype == torch.float64 and is_shared(t)
        assert kolo_torch.empty_shared((2, 3)).dtype == torch.float32
        dist.all_reduce(t)
        assert t.min() == t.max() == 3
        whole = kolo_torch.empty_shared(2, 50000)
        dist.all_gather_into_tensor(whole, torch.full((50000,), float(rank)))
        assert whole[0].max() == 0 and whole[1].min() == 1
        part = kolo_torch.empty_shared(25000)
        dist.reduce_scatter_tensor(part, whole[0])
        assert part.max() == 0

    on_ranks(2, body)


def test_freed_memory_serves_the_next_tensor_of_its_size():
    def body(rank):
        places = set()
        for _ in range(5):
            t = kolo_torch.empty_shared(1 << 18)
            places.add(t.data_ptr())
            del t
        assert len(places) == 1, places

    on_ranks(1, body)


def test_gradient_buckets_of_ddp_lie_in_shared_memory_where_that_was_asked_for():
    def body(rank):
        kolo_torch.use_shared_memory(4096)
        assert is_shared(torch.empty(5000)) and not is_shared(torch.empty(5))
        network = DDP(torch.nn.Linear(100, 100), gradient_as_bucket_view=True)
        for _ in range(3):
            network(torch.ones(4, 100) * (rank + 1)).sum().backward()
        assert is_shared(network.module.weight.grad)
        assert network.module.weight.grad[0, 0] == 3 * 4 * 1.5
        grown = torch.empty(0)
        grown.resize_(20000).fill_(1)
        assert is_shared(grown) and grown.sum() == 20000

    on_ranks(2, body)


def test_the_flight_recorder_knows_what_was_called_and_what_has_not_ended():
    def body(rank):
        dist.all_reduce(torch.ones(3, 4))
        if rank == 0:
            pending = dist.all_reduce(torch.ones(5), async_op=True)
            first, second = kolo_torch.flight_recorder()["entries"][-2:]
            assert first["profiling_name"] == "kolo:all_reduce" and first["state"] == "completed"
            assert first["input_sizes"] == [[3, 4]] and first["input_dtypes"] == ["Float"]
            assert second["state"] == "started" and second["collective_seq_id"] == 2, second
            assert second["time_waited_ns"] is None
            dist.send(torch.ones(1), 1)
            pending.wait()
            third = kolo_torch.flight_recorder()["entries"][-2]
            assert third["time_waited_ns"] > third["time_created_ns"]
            assert kolo_torch.flight_recorder()["entries"][-1]["profiling_name"] == "kolo:send 0->1"
        else:
            dist.recv(torch.ones(1), 0)
            dist.all_reduce(torch.ones(5))
        assert kolo_torch.flight_recorder()["entries"][-1]["state"] == "completed"

    on_ranks(2, body)


if __name__ == "__main__":
    run_tests(globals())
