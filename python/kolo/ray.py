# SPDX-License-Identifier: Apache-2.0
"""kolo as a backend of ray.util.collective, for numpy arrays and CPU tensors of torch.

    import kolo.ray
    kolo.ray.register()                     # on the driver and in every actor
    ray.util.collective.init_collective_group(size, rank, backend="KOLO")

Rank 0 makes the id of a group and puts it into Ray's key-value store, where the other ranks find it. So
whoever may read that store may join the group.
"""
from __future__ import annotations

import os
import time
from typing import Any, Optional

from ray.experimental import internal_kv
from ray.util.collective.backend_registry import _global_registry, register_collective_backend
from ray.util.collective.collective_group.base_collective_group import BaseGroup
from ray.util.collective.types import ReduceOp

from ._comm import Comm
from ._config import create_id
from ._lib import Op

_OPS = {ReduceOp.SUM: Op.SUM, ReduceOp.PRODUCT: Op.PROD, ReduceOp.MIN: Op.MIN, ReduceOp.MAX: Op.MAX}
JOIN_S = float(os.environ.get("KOLO_TIMEOUT_MS", 600000)) / 1000


def _key(name: str) -> str:
    return f"kolo_group_{name}"


def _find_id(name: str, rank: int) -> bytes:
    if rank == 0:
        id = create_id()
        internal_kv._internal_kv_put(_key(name), id, overwrite=True)
        return id
    end = time.monotonic() + JOIN_S
    while time.monotonic() < end:
        found: Optional[bytes] = internal_kv._internal_kv_get(_key(name))
        if found is not None:
            return found
        time.sleep(0.01)
    raise TimeoutError(f"rank 0 of the group {name} has not come within {JOIN_S:.0f} s")


class KoloGroup(BaseGroup):  # type: ignore[misc]
    """A group of Ray's actors. Ray makes it; see register()."""

    def __init__(self, world_size: int, rank: int, group_name: str) -> None:
        super().__init__(world_size, rank, group_name)
        self._comm = Comm.join(_find_id(group_name, rank), world_size, rank)
        if rank == 0:
            internal_kv._internal_kv_del(_key(group_name))

    def destroy_group(self) -> None:
        self._comm.close()

    @classmethod
    def backend(cls) -> str:
        return "KOLO"

    @classmethod
    def check_backend_availability(cls) -> bool:
        return True

    def allreduce(self, tensor: Any, allreduce_options: Any) -> None:
        self._comm.all_reduce(tensor[0], op=_OPS[allreduce_options.reduceOp])

    def barrier(self, barrier_options: Any = None) -> None:
        self._comm.barrier()

    def reduce(self, tensor: Any, reduce_options: Any) -> None:
        self._comm.reduce(tensor[0], op=_OPS[reduce_options.reduceOp], root=reduce_options.root_rank)

    def broadcast(self, tensor: Any, broadcast_options: Any) -> None:
        self._comm.broadcast(tensor[0], root=broadcast_options.root_rank)

    def allgather(self, tensor_list: Any, tensor: Any, allgather_options: Any = None) -> None:
        """Outputs lie anywhere: each rank broadcasts into the outputs of that rank."""
        for rank, out in enumerate(tensor_list[0]):
            self._comm.broadcast(tensor[0] if rank == self._rank else None, out, root=rank)

    def reducescatter(self, tensor: Any, tensor_list: Any, reducescatter_options: Any) -> None:
        for rank, part in enumerate(tensor_list[0]):
            self._comm.reduce(part, tensor[0], op=_OPS[reducescatter_options.reduceOp], root=rank)

    def send(self, tensor: Any, send_options: Any) -> None:
        self._comm.send(tensor[0], send_options.dst_rank)

    def recv(self, tensor: Any, recv_options: Any) -> None:
        self._comm.recv(tensor[0], recv_options.src_rank)


def register() -> None:
    """Make "KOLO" known to ray.util.collective in this process. Again does nothing."""
    if not _global_registry.is_registered("KOLO"):
        register_collective_backend("KOLO", KoloGroup)
