# SPDX-License-Identifier: Apache-2.0
"""LightGBM over kolo: the network of its parallel learners, by LightGBM's hook for foreign collectives.

    import kolo.lightgbm, lightgbm
    network = kolo.lightgbm.attach()        # under kolo run, mpirun or srun
    lightgbm.train({"tree_learner": "data", **network}, dataset)

LightGBM's hooks can report no error. So a rank whose call fails says why and ends with status 1.
"""
from __future__ import annotations

import ctypes
import os
import sys
import traceback
from ctypes import CFUNCTYPE, POINTER, c_char, c_int, c_int32, c_void_p
from typing import Any, Callable, Optional

import lightgbm.basic

from ._comm import Comm

_REDUCE = CFUNCTYPE(None, c_void_p, c_void_p, c_int, c_int32)
_SIZES = POINTER(c_int32)
_REDUCE_SCATTER = CFUNCTYPE(None, c_void_p, c_int32, c_int, _SIZES, _SIZES, c_int, c_void_p, c_int32, POINTER(c_void_p))
_ALL_GATHER = CFUNCTYPE(None, c_void_p, c_int32, _SIZES, _SIZES, c_int, c_void_p, c_int32)

_attached: Any = None  # what LightGBM calls must live


def _at(address: int, length: int) -> Any:
    """The bytes at an address, as a buffer."""
    return (c_char * length).from_address(address)


def _or_end(function: Callable[..., None]) -> Callable[..., None]:
    def run(*arguments: Any) -> None:
        try:
            function(*arguments)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    return run


def _reduce_scatter(comm: Comm) -> Callable[..., None]:
    """Blocks go to the ranks that keep them, which add what came in rank order with LightGBM's function."""
    room = bytearray()  # of the blocks that come; histograms are of one size in most calls

    def run(given: int, size: int, width: int, starts: Any, lengths: Any, blocks: int, out: int, _: int,
            reducer: Any) -> None:
        nonlocal room
        sends, own = lengths[:blocks], lengths[comm.rank]
        comes = [own] * comm.size
        sends[comm.rank] = comes[comm.rank] = 0  # its own block is here
        places = [own * rank for rank in range(comm.size)]
        if len(room) < own * comm.size:
            room = bytearray(own * comm.size)
        comm.all_to_allv(_at(given, size), sends, room, comes, starts[:blocks], places)
        if own == 0:
            return
        reduce = _REDUCE(reducer[0])
        sources = [ctypes.addressof(c_char.from_buffer(room)) + place for place in places]
        sources[comm.rank] = given + starts[comm.rank]
        ctypes.memmove(out, sources[0], own)
        for source in sources[1:]:
            reduce(source, out, width, own)

    return run


def _all_gather(comm: Comm) -> Callable[..., None]:
    def run(given: int, size: int, starts: Any, lengths: Any, blocks: int, out: int, room: int) -> None:
        comm.all_gatherv(_at(given, size), _at(out, room), lengths[:blocks], starts[:blocks])

    return run


def attach(comm: Optional[Comm] = None) -> dict[str, Any]:
    """Make LightGBM's calls of this thread go over `comm`; None: a communicator of the launcher's ranks.

    Returns the parameters that training needs beside tree_learner. Each rank has its own rows. The learners
    are "data" and "voting": LightGBM's library refuses "feature" to programs in Python. Collective. Raises
    RuntimeError if LightGBM refuses.
    """
    global _attached
    comm = comm or Comm()
    hooks = _REDUCE_SCATTER(_or_end(_reduce_scatter(comm))), _ALL_GATHER(_or_end(_all_gather(comm)))
    library = lightgbm.basic._LIB
    if library.LGBM_NetworkInitWithFunctions(comm.size, comm.rank, *(ctypes.cast(hook, c_void_p) for hook in hooks)):
        library.LGBM_GetLastError.restype = ctypes.c_char_p
        raise RuntimeError(f"LightGBM takes no network: {library.LGBM_GetLastError().decode()}")
    _attached = comm, hooks
    return {"num_machines": comm.size, "pre_partition": True}


def detach() -> None:
    """Give LightGBM back to one rank, before the communicator is closed."""
    global _attached
    lightgbm.basic._LIB.LGBM_NetworkFree()
    _attached = None
