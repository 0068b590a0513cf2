# SPDX-License-Identifier: Apache-2.0
"""The calls of Horovod's PyTorch interface (Sergeev and Del Balso 2018, arXiv:1802.05799) over kolo.

    import kolo_train.horovod as hvd      # instead of: import horovod.torch as hvd

Calls of all ranks must come in the same order: nothing is negotiated, and so nothing waits for a cycle.
`name` arguments are accepted and not needed. HOROVOD_FUSION_THRESHOLD (bytes, 128 MiB) is the most that
one all-reduce of gradients takes; HOROVOD_CYCLE_TIME has no effect. Adasum and join() are left out.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from kolo_train.fusion import DistributedOptimizer, Half, Plain, fusion_threshold
from kolo_train.job import whereabouts

__all__ = [
    "Average", "Compression", "DistributedOptimizer", "Max", "Min", "Product", "Sum", "allgather",
    "allgather_async", "allgather_object", "allreduce", "allreduce_", "allreduce_async", "allreduce_async_",
    "alltoall", "barrier", "broadcast", "broadcast_", "broadcast_async_", "broadcast_object",
    "broadcast_optimizer_state", "broadcast_parameters", "cross_rank", "cross_size", "fusion_threshold",
    "grouped_allreduce", "init", "is_initialized", "local_rank", "local_size", "poll", "rank", "shutdown",
    "size", "synchronize",
]  # fmt: skip

Average, Sum, Min, Max, Product = "average", "sum", "min", "max", "product"
_OPS = {Sum: dist.ReduceOp.SUM, Average: dist.ReduceOp.SUM, Min: dist.ReduceOp.MIN, Max: dist.ReduceOp.MAX,
        Product: dist.ReduceOp.PRODUCT}  # fmt: skip


class Compression:
    """How tensors travel: as they are, or floats as float16."""

    none = Plain
    fp16 = Half


# ---- who is here


def init(backend: str = "kolo") -> None:
    """Join the job of torchrun, kolo run, mpirun or srun, unless this process has joined one."""
    if backend == "kolo":
        import kolo_torch  # noqa: F401  registers the backend
    if not dist.is_initialized():
        method, number, ranks = whereabouts()
        dist.init_process_group(backend, init_method=method, rank=number, world_size=ranks)


def shutdown() -> None:
    """Leave the job."""
    _hosts.clear()
    if dist.is_initialized():
        dist.destroy_process_group()


def is_initialized() -> bool:
    """init() has been called."""
    return dist.is_initialized()


def rank() -> int:
    """The number of this rank."""
    return dist.get_rank()


def size() -> int:
    """The number of ranks."""
    return dist.get_world_size()


_hosts: list[str] = []


def _host_of_each() -> list[str]:
    """The host of each rank. The first call is one of all ranks."""
    if not _hosts:
        _hosts.extend(allgather_object(socket.gethostname()))
    return _hosts


def local_rank() -> int:
    """The number of this rank among those of its host: the launcher's, else found by a first call of all."""
    given = os.environ.get("LOCAL_RANK", os.environ.get("KOLO_LOCAL_RANK"))
    hosts = [] if given else _host_of_each()
    return int(given) if given else hosts[: rank()].count(hosts[rank()])


def local_size() -> int:
    """The ranks of this host."""
    given = os.environ.get("LOCAL_WORLD_SIZE")
    hosts = [] if given else _host_of_each()
    return int(given) if given else hosts.count(hosts[rank()])


def cross_size() -> int:
    """The hosts that have a rank of this local rank."""
    hosts = _host_of_each()
    mine = hosts[: rank()].count(hosts[rank()])
    return sum(hosts.count(host) > mine for host in set(hosts))


def cross_rank() -> int:
    """The number of this host among those, in the order of their first ranks."""
    hosts = _host_of_each()
    mine = hosts[: rank()].count(hosts[rank()])
    order = [host for host in dict.fromkeys(hosts) if hosts.count(host) > mine]
    return order.index(hosts[rank()])


# ---- calls


class Handle:
    """A call under way. synchronize() gives its result."""

    def __init__(self, work: dist.Work, finish: Callable[[], Any], *kept: object) -> None:
        self.work, self.finish, self.kept = work, finish, kept


def synchronize(handle: Handle) -> Any:
    """Wait for a call, and return its result."""
    handle.work.wait()
    return handle.finish()


def poll(handle: Handle) -> bool:
    """Whether synchronize() would return at once."""
    return handle.work.is_completed()


def _op_of(op: str | None, average: bool | None) -> str:
    if op is None:
        return Sum if average is False else Average
    if op not in _OPS:
        raise ValueError(f"op is {op!r}; it must be Average, Sum, Min, Max or Product")
    return op


def _reduce_into(to: Tensor, tensors: Sequence[Tensor], op: str, compression: type[Plain], before: float,
                 after: float) -> Handle:  # fmt: skip
    """Reduce the tensors, one after the other in `to`, by one call."""
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
    if before != 1:
        flat.mul_(before)
    sent, context = compression.compress(flat)
    work = dist.all_reduce(sent, op=_OPS[op], async_op=True)

    def finish() -> Tensor:
        result = compression.decompress(sent, context)
        if op == Average:
            result = result.div_(size()) if result.is_floating_point() else result.div(size()).trunc()
        if after != 1:
            result = result * after
        return to.copy_(result.view(to.shape))

    return Handle(work, finish)


def allreduce_async_(tensor: Tensor, average: bool | None = None, name: str | None = None, op: str | None = None,
                     prescale_factor: float = 1, postscale_factor: float = 1,
                     compression: type[Plain] = Plain) -> Handle:  # fmt: skip
    """Reduce a tensor in its place. op: Average by default; integers are averaged toward zero."""
    return _reduce_into(tensor, [tensor], _op_of(op, average), compression, prescale_factor, postscale_factor)


def allreduce_async(tensor: Tensor, *arguments: Any, **named: Any) -> Handle:
    """As allreduce_async_(), into a new tensor."""
    return allreduce_async_(tensor.detach().clone(), *arguments, **named)


def allreduce_(tensor: Tensor, *arguments: Any, **named: Any) -> Tensor:
    """As allreduce_async_(), and wait."""
    result: Tensor = synchronize(allreduce_async_(tensor, *arguments, **named))
    return result


def allreduce(tensor: Tensor, average: bool | None = None, name: str | None = None,
              compression: type[Plain] = Plain, op: str | None = None, **factors: float) -> Tensor:  # fmt: skip
    """Reduce a tensor into a new one."""
    return allreduce_(tensor.detach().clone(), average, name, op, compression=compression, **factors)


def grouped_allreduce(tensors: Sequence[Tensor], average: bool | None = None, name: str | None = None,
                      compression: type[Plain] = Plain, op: str | None = None) -> list[Tensor]:  # fmt: skip
    """Reduce tensors of one type by one call."""
    flat = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=tensors[0].dtype, device=tensors[0].device)
    synchronize(_reduce_into(flat, tensors, _op_of(op, average), compression, 1, 1))
    parts = flat.split([tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape).clone() for part, tensor in zip(parts, tensors, strict=True)]


def allgather_async(tensor: Tensor, name: str | None = None) -> Handle:
    """Join the tensors of all ranks along their first dimension, in which they may differ."""
    tensor = tensor.detach().reshape(1) if tensor.dim() == 0 else tensor.detach().contiguous()
    rows = torch.empty(size(), dtype=torch.int64, device=tensor.device)
    dist.all_gather(list(rows.split(1)), torch.tensor([len(tensor)], device=tensor.device))
    parts = [tensor.new_empty((count, *tensor.shape[1:])) for count in rows.tolist()]
    work = dist.all_gather(parts, tensor, async_op=True)
    return Handle(work, lambda: torch.cat(parts), tensor)


def allgather(tensor: Tensor, name: str | None = None) -> Tensor:
    """As allgather_async(), and wait."""
    result: Tensor = synchronize(allgather_async(tensor, name))
    return result


def broadcast_async_(tensor: Tensor, root_rank: int, name: str | None = None) -> Handle:
    """Give all ranks the tensor of root_rank, in place."""
    return Handle(dist.broadcast(tensor, src=root_rank, async_op=True), lambda: tensor)


def broadcast_(tensor: Tensor, root_rank: int, name: str | None = None) -> Tensor:
    """As broadcast_async_(), and wait."""
    dist.broadcast(tensor, src=root_rank)
    return tensor


def broadcast(tensor: Tensor, root_rank: int, name: str | None = None) -> Tensor:
    """A new tensor: that of root_rank."""
    return broadcast_(tensor.detach().clone(), root_rank)


def alltoall(tensor: Tensor, splits: Tensor | None = None, name: str | None = None) -> Any:
    """Send splits[q] rows of the tensor to rank q; all the same by default, or how many came is returned, too."""
    tensor, given = tensor.detach().contiguous(), splits is not None
    if splits is None:
        if len(tensor) % size():
            raise ValueError(f"{len(tensor)} rows are not divided by {size()} ranks: give splits")
        splits = torch.full((size(),), len(tensor) // size())
    sent = splits.to(torch.int64)
    came = torch.empty_like(sent)
    dist.all_to_all_single(came, sent)
    out = tensor.new_empty((int(came.sum()), *tensor.shape[1:]))
    dist.all_to_all_single(out, tensor, came.tolist(), sent.tolist())
    return (out, came) if given else out


def barrier() -> None:
    """Wait for all ranks."""
    dist.barrier()


def broadcast_object(obj: Any = None, root_rank: int = 0, name: str | None = None) -> Any:
    """The object of root_rank."""
    box = [obj]
    dist.broadcast_object_list(box, src=root_rank)
    return box[0]


def allgather_object(obj: Any, name: str | None = None) -> list[Any]:
    """The objects of all ranks."""
    all_of: list[Any] = [None] * size()
    dist.all_gather_object(all_of, obj)
    return all_of


# ---- training


def broadcast_parameters(params: dict[str, Any] | Iterable[tuple[str, Any]], root_rank: int = 0) -> None:
    """Give all ranks the parameters of root_rank: of model.state_dict() or model.named_parameters()."""
    pairs: Iterator[tuple[str, Any]] = iter(params.items() if isinstance(params, dict) else params)
    for _, value in pairs:
        if isinstance(value, nn.Parameter):
            broadcast_(value.data, root_rank)
        elif isinstance(value, Tensor):
            broadcast_(value, root_rank)


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int = 0) -> None:
    """Give all ranks the state and the options of root_rank's optimizer."""
    state = broadcast_object(optimizer.state_dict() if rank() == root_rank else None, root_rank)
    if rank() != root_rank:
        optimizer.load_state_dict(state)
