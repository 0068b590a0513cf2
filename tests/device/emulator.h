// SPDX-License-Identifier: Apache-2.0
// The fused kernels on the host: the same source as the GPU's, with threads as blocks.
#ifndef KOLO_TESTS_EMULATOR_H
#define KOLO_TESTS_EMULATOR_H

#include "exec/fused.h"

namespace emulator
{

// Runs a kernel over `blocks` blocks of `threads` threads each, blocks shared out to a few threads
// of the host. False: there is no kernel of this name.
bool Run(const char *name, const kolo_fused_launch &launch, unsigned blocks, unsigned threads);
bool Has(const char *name);

} // namespace emulator

#endif
