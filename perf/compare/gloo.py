# SPDX-License-Identifier: Apache-2.0
"""Gloo as a method of compare, through torch.distributed. The conversation, the clock and the check
are those of the C workers; here is only what makes a call.

All-reduce and reduce are in place in PyTorch. For the checked call, which is the first, the input is
copied to the output before; in the timed ones it is not.

usage: gloo.py LIBRARY STORE   (libcompare_worker.so, a file for torch's rendezvous)
"""
import ctypes
import os
import sys

import torch
import torch.distributed as dist

COLLECTIVES = ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "gather",
               "scatter", "barrier")
TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int32, torch.int64)


class Point(ctypes.Structure):
    """struct compare_point of worker.h."""
    _fields_ = [("collective", ctypes.c_int), ("type", ctypes.c_int), ("rank", ctypes.c_int),
                ("nranks", ctypes.c_int), ("root", ctypes.c_int), ("count", ctypes.c_size_t),
                ("elem_bytes", ctypes.c_size_t), ("send_elems", ctypes.c_size_t),
                ("recv_elems", ctypes.c_size_t), ("shared", ctypes.c_bool), ("rewritten", ctypes.c_bool),
                ("send", ctypes.c_void_p), ("recv", ctypes.c_void_p)]


START = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t)
PREPARE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(Point))
SHARE = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.POINTER(Point))
UNSHARE = ctypes.CFUNCTYPE(None, ctypes.POINTER(Point))
CALL = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.POINTER(Point))
SETTLE = ctypes.CFUNCTYPE(ctypes.c_bool)
STOP = ctypes.CFUNCTYPE(None)


class MethodTable(ctypes.Structure):
    """struct compare_method of worker.h."""
    _fields_ = [("start", START), ("prepare", PREPARE), ("share", SHARE), ("unshare", UNSHARE),
                ("call", CALL), ("settle", SETTLE), ("stop", STOP)]


class Calls:
    """The tensors of the open point and the call on them."""

    def __init__(self):
        self.run, self.texts = None, []

    def start(self, _team, version, cap):
        """Join the ranks."""
        torch.set_num_threads(1)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=int(os.environ["KOLO_RANK"]),
                                world_size=int(os.environ["KOLO_NRANKS"]))
        ctypes.memmove(version, f"Gloo of PyTorch {torch.__version__}".encode()[: cap - 1] + b"\0",
                       min(cap, len(f"Gloo of PyTorch {torch.__version__}") + 1))
        return True

    def prepare(self, point):
        """A new point begins: the tensors are made at its first call."""
        self.run = None
        if point.contents.collective >= len(COLLECTIVES):
            self.texts = [ctypes.create_string_buffer(b"is no collective")]
            return ctypes.addressof(self.texts[0])
        return None

    def call(self, point):
        """One call; false and the reason on stderr where it fails."""
        try:
            if self.run is None:
                self.run = bind(point.contents)
            self.run()
            return True
        except Exception as error:  # pylint: disable=broad-except  # crosses C: must not be raised
            print(f"gloo.py: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            return False

    def settle(self):
        """All ranks are done."""
        dist.barrier()
        return True


def tensor(address, elems, kind):
    """The memory of a point as a tensor."""
    size = elems * kind.itemsize
    return torch.frombuffer((ctypes.c_char * max(size, 1)).from_address(address), dtype=kind, count=elems) \
        if elems else torch.empty(0, dtype=kind)


def bind(p):
    """What makes the call of a point."""
    kind, root = TYPES[p.type], p.root
    send, recv = tensor(p.send, p.send_elems, kind), tensor(p.recv, p.recv_elems, kind)
    if p.collective == 1 and p.rank != root:
        recv = torch.empty(p.count, dtype=kind)
    if p.collective in (0, 1):
        recv.copy_(send)
    mine = p.rank == root
    table = {
        "all_reduce": lambda: dist.all_reduce(recv),
        "reduce": lambda: dist.reduce(recv, root),
        "broadcast": lambda: dist.broadcast(recv, root),
        "all_gather": lambda: dist.all_gather_into_tensor(recv, send),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(recv, send),
        "all_to_all": lambda: dist.all_to_all_single(recv, send),
        "gather": lambda blocks=list(recv.chunk(p.nranks)) if mine else None: dist.gather(send, blocks, root),
        "scatter": lambda blocks=list(send.chunk(p.nranks)) if mine else None: dist.scatter(recv, blocks, root),
        "barrier": dist.barrier,
    }
    return table[COLLECTIVES[p.collective]]


def main():
    """Hand the calls to the worker's loop."""
    library, calls = ctypes.CDLL(sys.argv[1]), Calls()
    method = MethodTable(START(calls.start), PREPARE(calls.prepare), SHARE(), UNSHARE(), CALL(calls.call),
                         SETTLE(calls.settle), STOP(dist.destroy_process_group))
    library.compare_worker.restype = ctypes.c_int
    sys.exit(library.compare_worker(ctypes.byref(method)))


main()
