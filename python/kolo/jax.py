# SPDX-License-Identifier: Apache-2.0
"""JAX's collectives between processes on CPUs over kolo, without a launcher.

    import kolo.jax                         # before jax
    import jax
    jax.distributed.initialize("node1:29500", num_processes=2, process_id=rank)
    kolo.jax.join()                         # before JAX makes its devices

The import sets MPITRAMPOLINE_LIB, which jaxlib reads as it is loaded, and has JAX take its implementation
"mpi". Process 0 makes the id of the job and puts it into the key-value store of JAX's coordinator. So
whoever may read that store may join.
"""
from __future__ import annotations

import ctypes
import os
import sys

from ._config import create_id
from ._lib import NAME

JOIN_MS = int(os.environ.get("KOLO_TIMEOUT_MS", 600000))
_LIBRARY = "libkolo_mpitrampoline.so"
_KEY = "kolo_id"


def _find() -> str:
    """The library: near libkolo, as it is installed, or in a build folder."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        loaded = next(line.split()[-1] for line in maps if "/" + NAME in line)
    for below in ("kolo", "src/mpi/trampoline"):
        path = os.path.join(os.path.dirname(loaded), below, _LIBRARY)
        if os.path.exists(path):
            return path
    raise ImportError(f"there is no {_LIBRARY} near {loaded}: MPITRAMPOLINE_LIB may name it")


if "MPITRAMPOLINE_LIB" not in os.environ:
    if "jaxlib" in sys.modules:
        raise ImportError("jaxlib is loaded already, and has not found kolo: import kolo.jax before jax")
    os.environ["MPITRAMPOLINE_LIB"] = _find()
os.environ.setdefault("JAX_CPU_COLLECTIVES_IMPLEMENTATION", "mpi")


def join() -> None:
    """Meet the other processes of jax.distributed.initialize(), by its coordinator.

    Raises jax.errors.JaxRuntimeError if process 0 does not call this within KOLO_TIMEOUT_MS.
    """
    from jax._src.distributed import global_state

    client = global_state.client
    if client is None:
        raise RuntimeError("kolo.jax.join() comes after jax.distributed.initialize()")
    if global_state.process_id == 0:
        client.key_value_set(_KEY, create_id().hex())
    id = bytes.fromhex(client.blocking_key_value_get(_KEY, JOIN_MS))
    library = ctypes.CDLL(os.environ["MPITRAMPOLINE_LIB"])
    library.kolo_mpitrampoline_join(id, global_state.num_processes, global_state.process_id)
