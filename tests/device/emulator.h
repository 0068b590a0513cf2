// SPDX-License-Identifier: Apache-2.0
// The kernels on the host: the same source as the GPU's, with threads as blocks.
#ifndef KOLO_TESTS_EMULATOR_H
#define KOLO_TESTS_EMULATOR_H

#include "exec/gpu/copies/copies_layout.h"
#include "exec/gpu/fused/fused.h"
#include "exec/gpu/ll/ll_layout.h"

namespace emulator
{

// Bytes of the argument of a kernel of any kind; 0: there is none of this name.
size_t ArgumentBytes(const char *name);

// Runs a fused kernel over `blocks` blocks of `threads` threads each, blocks shared out to a few
// threads of the host. False: there is no kernel of this name.
bool Run(const char *name, const kolo_fused_launch &launch, unsigned blocks, unsigned threads);
bool Has(const char *name);

// Runs a kernel of peers, each block in a thread of the host: they wait for those of other
// launches.
bool Run(const char *name, const kolo_program_launch &launch, unsigned blocks, unsigned threads);
bool Run(const char *name, const kolo_ll_launch &launch, unsigned blocks, unsigned threads);

// Runs the kernel that copies.
void Run(const kolo_copies_launch &launch, unsigned blocks, unsigned threads);

// What happens when a kernel reads or writes at an address that is not a multiple of the access's
// size: `what`, and the kernel goes on. Until this is called, the program ends.
void OnFault(void (*what)());

} // namespace emulator

#endif
