# SPDX-License-Identifier: Apache-2.0
"""CUDA tensors without CUDA: loads fake_device.cpp, which is compiled when it is first needed.

usage: python -m fake_device SCRIPT [ARGUMENT...]
Runs a script where torch finds the device as it would find CUDA: before torch is imported, which asks
only then. Without that there are tensors and streams, but no backward.
Environment: KOLO_FAKE_DEVICE, the folder it is built in, and what the driver under it needs (see
tests/device/meson.build). `gpu` has what tests need beside.
"""
import contextlib
import ctypes
import fcntl
import importlib.util
import os
import pathlib
import runpy
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
NAME = "kolo_fake_device"


def _is_built(library, torch_folder):
    """Whether it is newer than its source and the torch it is for. To import torch for that takes seconds."""
    return library.exists() and all(library.stat().st_mtime > path.stat().st_mtime for path in (
        HERE / "fake_device.cpp", torch_folder / "version.py"))


def _run_script():
    library = pathlib.Path(os.environ["KOLO_FAKE_DEVICE"], f"{NAME}.so")
    torch_folder = pathlib.Path(importlib.util.find_spec("torch").origin).parent
    library.parent.mkdir(parents=True, exist_ok=True)
    with open(library.parent / "turn", "w", encoding="ascii") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)  # one test builds, others that start meanwhile wait
        if not _is_built(library, torch_folder):
            subprocess.run([sys.executable, "-c", "import fake_device"], check=True)
    if library.exists():
        torch_libraries = torch_folder / "lib"
        ctypes.CDLL(str(torch_libraries / "libtorch_global_deps.so"), ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(torch_libraries / "libtorch_python.so"))
        ctypes.CDLL(str(library))
        del sys.argv[0]
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    _run_script()
    sys.exit(0)

import torch  # noqa: E402
from torch.utils import cpp_extension  # noqa: E402


def _load():
    if torch.version.cuda is not None or not cpp_extension.is_ninja_available():
        print("1..0 # SKIP the driver of the tests takes a torch without CUDA, and ninja to build it")
        sys.exit(0)
    folder = os.environ["KOLO_FAKE_DEVICE"]
    os.makedirs(folder, exist_ok=True)
    return cpp_extension.load(NAME, [str(HERE / "fake_device.cpp")], build_directory=folder,
                              extra_cflags=["-O1", "-g0"])


class _Stream:  # types, for who asks whether something is one
    def __new__(cls, device=None, priority=0):
        return torch.Stream(device or "cuda")


class _Event:
    def __new__(cls, enable_timing=False):
        return torch.Event("cuda")


gpu = _load()
gpu.exact = True  # the block that was freed last is the next one of its size
# What torch.cuda has of NVIDIA's libraries, by torch's generic devices.
torch.cuda._initialized = True
torch.cuda._is_in_bad_fork = lambda: False
torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 2
torch.cuda.current_device = torch.accelerator.current_device_index
torch.cuda.set_device = torch.accelerator.set_device_index
torch.cuda.current_stream = torch.accelerator.current_stream
torch.cuda.synchronize = torch.accelerator.synchronize
torch.cuda.Stream, torch.cuda.Event = _Stream, _Event
torch.cuda.stream = lambda stream: stream or contextlib.nullcontext()
torch.cuda.get_device_capability = lambda device=None: (9, 0)  # that of a GPU which sums float8
_resize = torch.UntypedStorage.resize_
torch.UntypedStorage.resize_ = lambda storage, size: (gpu.resize_storage if storage.is_cuda else _resize)(storage, size)
