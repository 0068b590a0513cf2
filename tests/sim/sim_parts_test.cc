// SPDX-License-Identifier: Apache-2.0
// covers: src/sim
// Parts of the simulator by themselves: fair shares and machine files.
#include "sim_util.h"

#include <cstring>
#include <vector>

extern "C" {
#include "sim/flows.h"
}

namespace
{

struct Network { // flows over links of these rates
    kolo_sim_flows flows = {};

    explicit Network(const std::vector<double> &rates)
    {
        EXPECT_TRUE(kolo_sim_flows_open(&flows, static_cast<int>(rates.size())));
        for (size_t i = 0; i < rates.size(); i++) {
            flows.link[i].rate = rates[i];
        }
    }
    ~Network()
    {
        kolo_sim_flows_close(&flows);
    }
    int Begin(std::vector<int> links, double bytes, double now_us)
    {
        links.resize(KOLO_SIM_FLOW_LINKS, -1);
        return kolo_sim_flow_begin(&flows, links.data(), bytes, now_us);
    }
    void Settle(double now_us)
    {
        kolo_sim_flows_settle(
            &flows, now_us, [](void *, int) {}, nullptr);
    }
};

kolo_status Parse(const char *text, kolo_sim_machine *out)
{
    return kolo_sim_machine_parse("m.txt", text, out);
}

} // namespace

TEST(SimParts, OneFlowHasTheSlowerOfItsLinks)
{
    Network net({4, 2});
    const int flow = net.Begin({0, 1}, 10, 3);
    net.Settle(3);
    EXPECT_DOUBLE_EQ(8, net.flows.flow[flow].end_us);
}

// Bertsekas, Gallager, section 6.5.2: the first link gives three flows a third each, and the flow
// over the second link alone takes what the long one leaves.
TEST(SimParts, SharesAreMaxMinFair)
{
    Network net({1, 1, 1});
    const int across = net.Begin({0, 1}, 1, 0);
    const int near = net.Begin({0}, 1, 0), other = net.Begin({0, 2}, 1, 0);
    const int rest = net.Begin({1}, 1, 0);
    net.Settle(0);
    EXPECT_DOUBLE_EQ(3, net.flows.flow[across].end_us);
    EXPECT_DOUBLE_EQ(3, net.flows.flow[near].end_us);
    EXPECT_DOUBLE_EQ(3, net.flows.flow[other].end_us);
    EXPECT_DOUBLE_EQ(1.5, net.flows.flow[rest].end_us);
}

TEST(SimParts, AFlowThatEndsLeavesItsShareToTheOthers)
{
    Network net({1});
    const int a = net.Begin({0}, 10, 0), b = net.Begin({0}, 1, 0);
    net.Settle(0);
    EXPECT_DOUBLE_EQ(2, net.flows.flow[b].end_us);
    kolo_sim_flow_end(&net.flows, b);
    net.Settle(2);
    EXPECT_DOUBLE_EQ(11, net.flows.flow[a].end_us); // 1 byte in 2 us, then 9
}

TEST(SimParts, AMachineFileHasTheNamesOfCostsAndItsOwn)
{
    kolo_sim_machine m;
    ASSERT_EQ(KOLO_OK, Parse("# a cluster\nranks_per_host 8\nnet_gbs 12.5 # a NIC\n"
                             "latency_us 0.3\n\nhosts_per_switch 16\n"
                             "tile_bytes 2M\nerror 12.5\n",
                             &m))
        << kolo_error_text();
    EXPECT_EQ(8, m.ranks_per_host);
    EXPECT_EQ(16, m.hosts_per_switch);
    EXPECT_EQ(2u << 20, m.tile_bytes);
    EXPECT_DOUBLE_EQ(12.5, m.error);
    EXPECT_DOUBLE_EQ(8e-5, m.costs.net.copy_us_per_byte);
    EXPECT_DOUBLE_EQ(0.3, m.costs.latency_us);
}

TEST(SimParts, AWrongLineOfAMachineFileIsNamed)
{
    kolo_sim_machine m;
    for (const char *line : {"net_gbs", "net_gbs x", "no_such_name 3", "ranks_per_host -1",
                             "ranks_per_host 8 9", "net_message_us -1", "tile_bytes -1"}) {
        EXPECT_EQ(KOLO_ERR_INVALID, Parse((std::string("noise 0\n") + line).c_str(), &m)) << line;
        EXPECT_NE(nullptr, strstr(kolo_error_text(), "m.txt, line 2")) << kolo_error_text();
    }
    EXPECT_EQ(KOLO_ERR_INVALID, Parse("latency_us 1\nlatency_us 2\n", &m));
}
