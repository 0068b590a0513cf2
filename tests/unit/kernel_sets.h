// SPDX-License-Identifier: Apache-2.0
// The reduction kernels that this machine runs: one set for each instruction set.
#ifndef KOLO_TESTS_KERNEL_SETS_H
#define KOLO_TESTS_KERNEL_SETS_H

extern "C" {
#include "exec/reduce/reduce_isa.h"
}

#include <algorithm>
#include <vector>

inline std::vector<const kolo_kernels *> Kernels()
{
    std::vector<const kolo_kernels *> all;
    for (const char *isa : {"generic", "avx2", "avx512"}) {
        const kolo_kernels *k = kolo_kernels_choose(isa);
        if (std::find(all.begin(), all.end(), k) == all.end()) {
            all.push_back(k);
        }
    }
    return all;
}

#endif
