// SPDX-License-Identifier: Apache-2.0
// What tests ask of the driver in fake_cuda.cc beyond the functions of CUDA's. Where
// FAKE_CUDA_SHARES is set in the environment, other processes can open its memory.
#ifndef KOLO_TESTS_FAKE_CUDA_H
#define KOLO_TESTS_FAKE_CUDA_H

#include <cstddef>

extern "C" {
// What is there now: allocations, streams, events, modules and retained contexts together.
size_t FakeCudaLive();
// The n-th call from now on (1: the next) fails with CUDA_ERROR_OUT_OF_MEMORY; 0: none does.
void FakeCudaFailNth(long n);
// Whether that call has come.
bool FakeCudaHasFailed();
// Wait until all streams are idle. None may be made or destroyed meanwhile.
void FakeCudaDrain();
// Kernels launched so far.
size_t FakeCudaLaunches();
}

#endif
