// SPDX-License-Identifier: Apache-2.0
// covers: src/sim
// Parts of the simulator by themselves: fair shares and machine files.
#include "sim_util.h"

extern "C" {
#include "sim/flows.h"
}

TEST(SimParts, OneFlowHasTheSlowerOfItsLinks)
{
    kolo_sim_flows flows = {};
    ASSERT_TRUE(kolo_sim_flows_open(&flows, 2));
    flows.link[0].rate = 4;
    flows.link[1].rate = 2;
    const int links[KOLO_SIM_FLOW_LINKS] = {0, 1, -1, -1};
    const int flow = kolo_sim_flow_begin(&flows, links, 10, 3);
    kolo_sim_flows_settle(
        &flows, 3, [](void *, int) {}, nullptr);
    EXPECT_DOUBLE_EQ(8, flows.flow[flow].end_us);
    kolo_sim_flows_close(&flows);
}
