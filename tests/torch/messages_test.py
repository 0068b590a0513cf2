# SPDX-License-Identifier: Apache-2.0
# covers: torch/csrc
"""Sends and receives: tags, any source, batches, sizes."""
import torch
import torch.distributed as dist
from ranks import on_ranks, run_tests


def test_messages_match_by_source_and_tag():
    def body(rank):
        if rank == 0:
            for tag in (5, 3):
                dist.send(torch.full((3,), float(tag)), 1, tag=tag)
        elif rank == 1:
            t = torch.empty(3)
            for tag in (3, 5):
                assert dist.recv(t, 0, tag=tag) == 0
                assert t.tolist() == [tag] * 3

    on_ranks(3, body)


def test_a_receive_from_any_source_says_who_sent():
    def body(rank):
        if rank == 0:
            seen = set()
            for _ in (1, 2):
                t = torch.empty(100000)
                source = dist.recv(t)
                assert t.min() == t.max() == source, (source, t)
                seen.add(source)
            work = dist.irecv(t)
            work.wait()
            assert work._source_rank() == 2
            assert seen == {1, 2}
        else:
            dist.send(torch.full((100000,), float(rank)), 0)
            dist.barrier(group=pair) if rank else None
            if rank == 2:
                dist.send(torch.zeros(100000), 0)

    def with_pair(rank):
        global pair
        pair = dist.new_group([1, 2])
        body(rank)

    on_ranks(3, with_pair)


def test_neighbours_exchange_large_tensors_in_any_order():
    def body(rank):
        n = dist.get_world_size()
        out, into = torch.full((300000,), float(rank)), torch.empty(300000)
        ops = [
            dist.P2POp(dist.isend, out, (rank + 1) % n),
            dist.P2POp(dist.irecv, into, (rank - 1) % n),
        ]
        for work in dist.batch_isend_irecv(ops if rank % 2 else ops[::-1]):
            work.wait()
        assert into.min() == into.max() == (rank - 1) % n
        works = [dist.isend(out, (rank + 1) % n), dist.irecv(into, (rank - 1) % n)]
        for work in works:
            work.wait()
        assert into.min() == into.max() == (rank - 1) % n

    on_ranks(3, body)


def test_a_message_of_another_size_is_an_error_that_names_both():
    def body(rank):
        if rank == 0:
            dist.send(torch.ones(4), 1)
        else:
            try:
                dist.recv(torch.empty(6), 0)
            except ValueError as error:
                assert "16 bytes" in str(error) and "24" in str(error), error
            else:
                raise AssertionError("accepted")

    on_ranks(2, body)


def test_messages_pass_while_a_collective_waits():
    def body(rank):
        t, token = torch.ones(10), torch.zeros(1)
        if rank == 0:
            work = dist.all_reduce(t, async_op=True)
            dist.send(token, 1)
            work.wait()
        else:
            dist.recv(token, 0)
            dist.all_reduce(t)
        assert t[0] == 2

    on_ranks(2, body)


if __name__ == "__main__":
    run_tests(globals())
