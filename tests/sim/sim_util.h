// SPDX-License-Identifier: Apache-2.0
// What the tests of the simulator share.
#ifndef KOLO_TESTS_SIM_UTIL_H
#define KOLO_TESTS_SIM_UTIL_H

#include <gtest/gtest.h>
#include <string>

extern "C" {
#include "sim/sim.h"
}

constexpr double kAlphaUs = 1.5;
constexpr double kBeta = 0.0005;  // us a byte on the wire
constexpr double kGamma = 0.0002; // us a byte added

// A host for each rank, one switch, and processors that take no time but for additions.
inline kolo_sim_machine Flat(double gamma = kGamma)
{
    kolo_sim_machine m;
    kolo_sim_machine_init(&m);
    m.ranks_per_host = 1;
    m.call_us = m.local_us_per_byte = m.costs.copy_us_per_byte = m.costs.step_us =
        m.costs.switch_us = 0;
    m.costs.reduce_us_per_byte = gamma;
    m.costs.net = {kAlphaUs, kBeta};
    m.costs.net_sum_us_per_byte = 0;
    return m;
}

inline const kolo_algo *Named(const std::string &name)
{
    for (int i = 0; i < kolo_algos_count; i++) {
        if (name == kolo_algos[i]->base.name) {
            return kolo_algos[i];
        }
    }
    ADD_FAILURE() << "no algorithm " << name;
    return nullptr;
}

inline kolo_status Try(const std::string &name, int n, size_t bytes, const kolo_sim_machine &m,
                       bool fold, kolo_sim_result *out, bool moments = false)
{
    kolo_sim_options options = {};
    options.algo = Named(name);
    options.machine = &m;
    options.nranks = n;
    options.bytes = bytes;
    options.fold = fold;
    options.moments = moments;
    return kolo_sim_run(&options, out);
}

inline kolo_sim_result Sim(const std::string &name, int n, size_t bytes, const kolo_sim_machine &m,
                           bool fold = false)
{
    kolo_sim_result result = {};
    EXPECT_EQ(KOLO_OK, Try(name, n, bytes, m, fold, &result)) << kolo_error_text();
    return result;
}

inline double Near(double us)
{
    return 1e-9 * us;
}

#endif
