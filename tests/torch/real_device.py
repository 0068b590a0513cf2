# SPDX-License-Identifier: Apache-2.0
"""What fake_device.py gives tests, on a GPU: for a torch that is built for CUDA."""
import ctypes

import torch

_GEQUAL = 0  # CU_STREAM_WAIT_VALUE_GEQ


class _Device:
    exact = False  # which free block an allocation gets is torch's to say

    def __init__(self):
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._gate, self._held, self._graph = None, 0, None

    def set_device(self, index):
        torch.cuda.set_device(index)

    def _ready(self):
        if self._gate is None:  # pinned memory has the same address on the GPU
            self._gate = torch.zeros(1, dtype=torch.int32, device="cpu").pin_memory()

    def hold(self):
        """The current stream goes no further until release()."""
        self._ready()
        self._held += 1
        stream = torch.cuda.current_stream().cuda_stream
        wait = self._driver.cuStreamWaitValue32_v2
        error = wait(ctypes.c_void_p(stream), ctypes.c_uint64(self._gate.data_ptr()), ctypes.c_uint32(self._held),
                     ctypes.c_uint(_GEQUAL))
        assert error == 0, f"cuStreamWaitValue32 failed: {error}"

    def release(self):
        self._ready()
        self._gate.numpy()[0] = self._held

    def make_stream(self):
        return torch.cuda.Stream()

    def set_stream(self, stream):
        torch.cuda.set_stream(stream or torch.cuda.default_stream())

    def is_idle(self):
        return torch.cuda.current_stream().query()

    def synchronize(self):
        torch.cuda.current_stream().synchronize()

    def begin_capture(self):
        self._graph = torch.cuda.CUDAGraph()
        self._graph.capture_begin()

    def end_capture(self):
        self._graph.capture_end()
        return self._graph

    def launch(self, graph):
        graph.replay()


gpu = _Device()
