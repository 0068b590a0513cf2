# SPDX-License-Identifier: Apache-2.0
"""What PyTorch programs call, as methods of compare: Gloo, kolo, and the operations that vLLM and
DeepSpeed have for ranks of one host. The conversation, the clock and the check are those of the C
workers; here is only what makes a call.

All-reduce and reduce are in place in PyTorch. For the checked call, which is the first, the input is
copied to the output before; in the timed ones it is not.

usage: torch_ops.py WHOSE LIBRARY STORE   (gloo, kolo, vllm or deepspeed; libcompare_worker.so; a file
for torch's rendezvous)
"""
import ctypes
import os
import sys
import time

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


class Backend:
    """The collectives of torch.distributed over a backend."""
    collectives, types = COLLECTIVES, TYPES

    def __init__(self, name):
        self.name = name

    def start(self, rank, nranks):
        """Join the ranks; returns a name and a number."""
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        if self.name == "kolo":
            import kolo_torch  # pylint: disable=unused-import,import-outside-toplevel  # makes the name known
        dist.init_process_group(self.name, init_method=f"file://{sys.argv[3]}", rank=rank, world_size=nranks)
        return f"{self.name.capitalize()} of PyTorch {torch.__version__}"

    def all_reduce(self, recv):
        """In place."""
        dist.all_reduce(recv)

    def all_gather(self, recv, send):
        """One block of each rank."""
        dist.all_gather_into_tensor(recv, send)


class Vllm(Backend):
    """The operations of vLLM for CPUs, as its CpuCommunicator calls them. PEER is the folder of its package."""
    collectives, types = ("all_reduce", "all_gather"), (torch.float32, torch.float16, torch.bfloat16)

    def __init__(self):
        super().__init__("gloo")
        self.handle = None

    def start(self, rank, nranks):
        super().start(rank, nranks)
        with open("/proc/cpuinfo", encoding="utf-8") as info:
            flags = info.read()
        name = "_C.abi3.so" if "amx_bf16" in flags and "avx512_bf16" in flags else \
            "_C_AVX512.abi3.so" if "avx512bw" in flags else "_C_AVX2.abi3.so"
        torch.ops.load_library(os.path.join(os.environ["KOLO_COMPARE_PEER"], "vllm", name))
        room = f"kolo-compare-{os.getppid()}"
        self.handle = torch.ops._C.init_shm_manager(room, nranks, rank, 1)
        dist.barrier()
        torch.ops._C.join_shm_manager(self.handle, room)
        dist.barrier()
        return f"vLLM's operations on PyTorch {torch.__version__}"

    def all_reduce(self, recv):
        torch.ops._C.shm_allreduce(self.handle, recv)

    def all_gather(self, recv, send):
        torch.ops._C.shm_all_gather(self.handle, send, recv)


STALE_S = 300


class DeepSpeed(Backend):
    """DeepSpeed's all-reduce for inference, compiled as its ShareMemCommBuilder compiles it."""
    collectives, types = ("all_reduce",), (torch.float32, torch.float16, torch.bfloat16)

    def __init__(self):
        super().__init__("gloo")

    def start(self, rank, nranks):
        from torch.utils import cpp_extension  # pylint: disable=import-outside-toplevel
        super().start(rank, nranks)
        peer = os.environ["KOLO_COMPARE_PEER"]
        source = os.path.join(peer, "deepspeed", "ops", "csrc", "cpu")
        os.environ.update(LOCAL_SIZE=str(nranks), MASTER_ADDR=f"{os.getppid()}", MASTER_PORT="")
        os.makedirs(os.path.join(peer, "kolo-compare"), exist_ok=True)
        lock = os.path.join(peer, "kolo-compare", "lock")  # PyTorch waits for it for ever
        if rank == 0 and os.path.exists(lock) and time.time() - os.path.getmtime(lock) > STALE_S:
            os.unlink(lock)  # of a compilation that was killed
        for turn in range(nranks):  # the first compiles
            if turn == rank:
                op = cpp_extension.load(
                    name="deepspeed_shm_comm", build_directory=os.path.join(peer, "kolo-compare"),
                    sources=[os.path.join(source, "comm", name) for name in ("shm_interface.cpp", "shm.cpp")],
                    extra_include_paths=[os.path.join(source, "includes")],
                    extra_cflags=["-O2", "-fopenmp"], extra_ldflags=["-fopenmp"])
            dist.barrier()
        op.initialize(nranks, rank)
        dist.barrier()
        return f"DeepSpeed's operation on PyTorch {torch.__version__}"

    def all_reduce(self, recv):
        torch.ops.deepspeed.inference_all_reduce_(recv)


class Calls:
    """The tensors of the open point and the call on them."""

    def __init__(self, whose):
        self.run, self.text, self.whose = None, None, whose

    def start(self, _team, version, cap):
        """Join the ranks."""
        torch.set_num_threads(1)
        try:
            name = self.whose.start(int(os.environ["KOLO_RANK"]), int(os.environ["KOLO_NRANKS"])).encode()
        except Exception as error:  # pylint: disable=broad-except  # crosses C: must not be raised
            print(f"torch_ops.py: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            return False
        ctypes.memmove(version, name[: cap - 1] + b"\0", min(cap, len(name) + 1))
        return True

    def prepare(self, point):
        """A new point begins: the tensors are made at its first call."""
        self.run = None
        p = point.contents
        if p.collective < len(COLLECTIVES) and COLLECTIVES[p.collective] in self.whose.collectives and \
                TYPES[p.type] in self.whose.types:
            return None
        self.text = ctypes.create_string_buffer(b"has no such operation")
        return ctypes.addressof(self.text)

    def call(self, point):
        """One call; false and the reason on stderr where it fails."""
        try:
            if self.run is None:
                self.run = bind(point.contents, self.whose)
            self.run()
            return True
        except Exception as error:  # pylint: disable=broad-except  # crosses C: must not be raised
            print(f"torch_ops.py: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
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


def bind(p, whose):
    """What makes the call of a point."""
    kind, root = TYPES[p.type], p.root
    send, recv = tensor(p.send, p.send_elems, kind), tensor(p.recv, p.recv_elems, kind)
    if p.collective == 1 and p.rank != root:
        recv = torch.empty(p.count, dtype=kind)
    if p.collective in (0, 1):
        recv.copy_(send)
    mine = p.rank == root
    table = {
        "all_reduce": lambda: whose.all_reduce(recv),
        "reduce": lambda: dist.reduce(recv, root),
        "broadcast": lambda: dist.broadcast(recv, root),
        "all_gather": lambda: whose.all_gather(recv, send),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(recv, send),
        "all_to_all": lambda: dist.all_to_all_single(recv, send),
        "gather": lambda blocks=list(recv.chunk(p.nranks)) if mine else None: dist.gather(send, blocks, root),
        "scatter": lambda blocks=list(send.chunk(p.nranks)) if mine else None: dist.scatter(recv, blocks, root),
        "barrier": dist.barrier,
    }
    return table[COLLECTIVES[p.collective]]


def main():
    """Hand the calls to the worker's loop."""
    whose = {"vllm": Vllm, "deepspeed": DeepSpeed}.get(sys.argv[1], lambda: Backend(sys.argv[1]))()
    library, calls = ctypes.CDLL(sys.argv[2]), Calls(whose)
    method = MethodTable(START(calls.start), PREPARE(calls.prepare), SHARE(), UNSHARE(), CALL(calls.call),
                         SETTLE(calls.settle), STOP(dist.destroy_process_group))
    library.compare_worker.restype = ctypes.c_int
    sys.exit(library.compare_worker(ctypes.byref(method)))


main()
