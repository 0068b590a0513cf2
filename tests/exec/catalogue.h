// SPDX-License-Identifier: Apache-2.0
// What the tests that are made once for each algorithm share.
#ifndef KOLO_TESTS_CATALOGUE_H
#define KOLO_TESTS_CATALOGUE_H

#include <gtest/gtest.h>
#include <string>
#include <vector>

extern "C" {
#include "plan/plan.h"
}

inline std::string AlgorithmName(const ::testing::TestParamInfo<int> &param)
{
    return kolo_algos[param.param]->base.name;
}

// The places in the catalogue of those that climb groups of near ranks.
inline std::vector<int> Hierarchies()
{
    std::vector<int> found;
    for (int i = 0; i < kolo_algos_count; i++) {
        if (std::string(kolo_algos[i]->base.name).find("_hier") != std::string::npos) {
            found.push_back(i);
        }
    }
    return found;
}

#endif
