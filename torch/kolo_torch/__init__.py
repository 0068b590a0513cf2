# SPDX-License-Identifier: Apache-2.0
"""kolo as a backend of torch.distributed.

    import kolo_torch
    torch.distributed.init_process_group("kolo")

Importing this registers the backend; an installed package is also found without the import, by
torch's entry points. KOLO_TORCH_DEFAULT=cpu,cuda makes kolo the backend that
init_process_group() takes for these devices when it is given none.
KOLO_TORCH_AS=gloo makes it serve the groups of CPU tensors that programs ask gloo for.
KOLO_TORCH_SHARED=BYTES calls use_shared_memory(BYTES) at the import.
"""
import atexit
import os
import weakref

import torch
import torch.distributed as dist

from ._built_for import TORCH as _BUILT_FOR


def _require_this_torch():
    """c10d's classes change from one minor release to the next: a backend of another one crashes."""
    have = torch.__version__.split("+")[0].split(".")[:2]
    want = _BUILT_FOR.split("+")[0].split(".")[:2]
    if have != want:
        raise ImportError(
            f"kolo_torch was built for torch {_BUILT_FOR}, this is torch {torch.__version__}: "
            "build it again in this environment, pip install --force-reinstall --no-deps ./torch "
            "in kolo's source"
        )


_require_this_torch()

try:
    import kolo  # noqa: F401  (where it is installed, its libkolo is that of this process)
except ImportError:
    pass

from . import _C  # noqa: E402  (only for the right torch)
from ._C import ArgumentError, Options  # noqa: E402
from kolo_torch_entry import register  # noqa: E402

__all__ = [
    "ArgumentError",
    "Options",
    "empty_shared",
    "flight_recorder",
    "monitored_barrier",
    "register",
    "use_shared_memory",
]

_backends = weakref.WeakSet()


def _members(group):
    """The default group's backend and the new group's ranks in it, where kolo serves both: then the members
    meet without the store. None and [] otherwise. All ranks come to the same answer."""
    default = dist.distributed_c10d._world.default_pg
    if default is None or not group.global_ranks_in_group:
        return None, []
    numbers = dist.distributed_c10d._world.pg_group_ranks[default]
    cpu = torch.device("cpu")
    parent = default._get_backend(cpu) if cpu in default._device_types else None
    if not isinstance(parent, _C.KoloBackend) or any(rank not in numbers for rank in group.global_ranks_in_group):
        return None, []
    return parent, [numbers[rank] for rank in group.global_ranks_in_group]


def create(group, options):
    """The backend of one process group; torch.distributed calls it.

    group: torch's DistributedBackendOptions. options: None or kolo_torch.Options.
    Raises TypeError for other options, DistBackendError where the ranks do not come together.
    """
    if options is not None and not isinstance(options, Options):
        raise TypeError(
            f"pg_options is {type(options).__name__}; the kolo backend takes kolo_torch.Options"
        )
    backend = getattr(options, "made", None)  # of kolo_torch.elastic
    if backend is None:
        backend = _C.create(group, options, *_members(group))
    _backends.add(backend)
    return backend


def rendezvous(timeout=dist.default_pg_timeout):
    """store, rank and world_size for init_process_group(), in a job of mpirun or srun."""
    from ._launch import rendezvous

    return rendezvous(timeout)


def create_as_gloo(group):
    """The backend of one process group in gloo's place: as create(), with gloo's name and options."""
    backend = _C.create_as_gloo(group)
    _backends.add(backend)
    return backend


@atexit.register
def _leave():
    """Say goodbye to the other ranks, which else take the end of this process for a death."""
    for backend in list(_backends):
        backend.shutdown()


def flight_recorder():
    """The last calls of this process on groups of kolo, oldest first, as torch's flight recorder
    keeps them for other backends: a dict with "version" and "entries". An entry says which call
    (profiling_name, collective_seq_id), on what (input_sizes, input_dtypes, ...), since when, and
    whether it is "started", "completed" or "failed". TORCH_FR_BUFFER_SIZE: how many are kept (2000).
    """
    return {"version": "2.10", "entries": _C.flight_record()}


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """Like torch.distributed.monitored_barrier(), which serves gloo alone: a barrier that names the
    rank which does not come, and leaves the group as it is.

    group: a process group of kolo on CPU (default: the default group).
    timeout: a datetime.timedelta, or seconds (default: the group's).
    wait_all_ranks: name all ranks that do not come, not only the first.
    Raises RuntimeError on the ranks that came. Ranks outside the group return at once.
    """
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        return  # as the other calls do
    group = group or dist.group.WORLD
    if timeout is None:
        timeout = group._get_backend(torch.device("cpu")).options._timeout
    _C.monitored_barrier(group._get_backend(torch.device("cpu")), timeout, wait_all_ranks)


def empty_shared(*size, dtype=None):
    """An uninitialised CPU tensor that the ranks of this host read and write without a copy.

    size: as for torch.empty(). dtype: default torch.get_default_dtype().
    Raises DistBackendError where there is no shared memory left.
    """
    if len(size) == 1 and not isinstance(size[0], int):
        size = tuple(size[0])
    return _C.empty_shared(size, dtype or torch.get_default_dtype())


def use_shared_memory(min_bytes=1 << 16):
    """From now on every CPU tensor of at least `min_bytes` bytes that torch makes lies in shared
    memory: gradient buckets of DDP, buffers of FSDP2, and whatever else is all-reduced as it is.

    Where there is none left, tensors are private as ever. A forked process sees such a tensor as it
    is and writes into it, where private memory would be copied. Cannot be taken back.
    """
    if min_bytes < 1:
        raise ValueError(f"min_bytes is {min_bytes}; it must be positive")
    _C.use_shared_memory(min_bytes)


register()
if os.environ.get("KOLO_TORCH_SHARED"):
    use_shared_memory(int(os.environ["KOLO_TORCH_SHARED"]))
