// SPDX-License-Identifier: Apache-2.0
// What tests ask of the driver in fake_cuda.cc beyond the functions of CUDA's. Where
// FAKE_CUDA_SHARES is set in the environment, other processes can open its memory;
// FAKE_CUDA_DEVICES says how many GPUs there are (2), FAKE_CUDA_SMS how many multiprocessors each
// has (4); FAKE_CUDA_BUSES on which buses those are that a process sees ("1b,2b", and eight at
// most;
// "-" is one without an address). FAKE_CUDA_STRICT is the matter of fake_strict.h.
#ifndef KOLO_TESTS_FAKE_CUDA_H
#define KOLO_TESTS_FAKE_CUDA_H

#include <cstddef>

extern "C" {
// How many GPUs there are.
int FakeCudaDevices();
// What is there now: allocations, streams, events, modules, retained contexts and
// peers that may be reached together.
size_t FakeCudaLive();
// Ranges of addresses among them at which memory of other processes lies, or that are reserved.
size_t FakeCudaOpened();
// The n-th call from now on (1: the next) fails with CUDA_ERROR_OUT_OF_MEMORY; 0: none does.
void FakeCudaFailNth(long n);
// Whether that call has come.
bool FakeCudaHasFailed();
// Wait until all streams are idle. None may be made or destroyed meanwhile.
void FakeCudaDrain();
// From now on peer access "work"s (at the start, where FAKE_CUDA_PEERS in the environment says
// nothing else), does so by PCIe ("slow"), is not claimed ("none"), or is claimed and "refuse"d; or
// copies by it "hang" until the next word, "lose" all bytes, "lose reads of 1", of GPU 1, only,
// "spoil" a byte, or end the process ("die").
void FakeCudaPeers(const char *word);
// Calls of cuStreamSynchronize so far.
size_t FakeCudaSyncs();
// Calls of cuEventRecord so far.
size_t FakeCudaRecords();
// From now on each copy between the host and a GPU takes `ms` longer. Returns how many went at once
// on one GPU, at most, since the last call of this.
int FakeCudaSlowCopies(int ms);
// Bytes copied between the host and GPUs so far.
size_t FakeCudaCopied();
// What GPUs say of GPUDirect from now on: "work" (at the start), "no dma-bufs", "refuse" (there are
// some, but not of the memory that is asked for), "unordered" (writes of NICs must be flushed) or
// "unflushed" (and cannot be).
void FakeCudaDirect(const char *word);
// Calls of cuFlushGPUDirectRDMAWrites so far.
size_t FakeCudaFlushes();
// Kernels launched so far, but for those that copy between the host and a GPU; those of
// exec/gpu/ll/ll.h among them, those whose buffers other GPUs may use, those of several lanes.
size_t FakeCudaLaunches();
size_t FakeCudaLaunchesLow();
size_t FakeCudaLaunchesDirect();
size_t FakeCudaLaunchesLanes();
}

#endif
