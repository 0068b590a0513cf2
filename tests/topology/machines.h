// SPDX-License-Identifier: Apache-2.0
/* Machines for the tests, written by hand as files say them, and a few that are computed. */
#ifndef KOLO_TESTS_TOPOLOGY_MACHINES_H
#define KOLO_TESTS_TOPOLOGY_MACHINES_H

extern "C" {
#include "topology/formats/file.h"
#include "topology/layout/wiring.h"
#include "topology/machine/graph.h"
}

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

namespace machines
{

struct GraphFree {
    void operator()(struct kolo_graph *graph) const
    {
        kolo_graph_destroy(graph);
    }
};
using Graph = std::unique_ptr<struct kolo_graph, GraphFree>;

/* NULL where it is refused; kolo_error_text() then says why. */
inline Graph Read(const std::string &text)
{
    struct kolo_graph *graph = nullptr;
    return Graph(kolo_graph_read("machine", text.data(), text.size(), &graph) == KOLO_OK ? graph
                                                                                         : nullptr);
}

inline int Count(const struct kolo_graph *graph, enum kolo_node_kind kind)
{
    int count = 0;
    for (int i = 0; i < graph->nnodes; i++) {
        count += graph->node[i].kind == kind;
    }
    return count;
}

inline std::string Bus(int i)
{
    char bus[24];
    kolo_bus_print(static_cast<uint64_t>(i + 1) << 8, bus);
    return bus;
}

/* GPUs of one NUMA node with links by a matrix of counts; NICs of 100 Gb/s: one for each `nic_of`
 * GPUs, under a switch with them (0: none, and no switches). */
inline std::string Direct(const std::vector<std::vector<int>> &links, int nic_of = 0,
                          const char *tag = "nvlink")
{
    const int n = static_cast<int>(links.size());
    std::string text = "<system version=\"1\"><cpu numaid=\"0\" vendor=\"GenuineIntel\">\n";
    for (int i = 0; i < n; i++) {
        if (nic_of > 0 && i % nic_of == 0) {
            text +=
                "<pci busid=\"" + Bus(100 + i) +
                "\" class=\"0x060400\" link_speed=\"16 GT/s\" link_width=\"16\">\n<pci busid=\"" +
                Bus(200 + i) +
                "\" class=\"0x020700\" link_speed=\"16 GT/s\" link_width=\"16\">"
                "<nic><net name=\"mlx5_" +
                std::to_string(i / nic_of) + "\" speed=\"100000\" gdr=\"1\"/></nic></pci>\n";
        }
        text += "<pci busid=\"" + Bus(i) +
                "\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\"><gpu dev=\"" +
                std::to_string(i) + "\" sm=\"80\">\n";
        for (int j = 0; j < n; j++) {
            if (links[i][j] > 0) {
                text += std::string("<") + tag + " target=\"" + Bus(j) + "\" count=\"" +
                        std::to_string(links[i][j]) + "\" tclass=\"0x030200\"/>";
            }
        }
        text += "</gpu></pci>\n";
        text += nic_of > 0 && (i % nic_of == nic_of - 1 || i == n - 1) ? "</pci>\n" : "";
    }
    return text + "</cpu></system>\n";
}

inline std::vector<std::vector<int>> Mesh(int n, int count)
{
    std::vector<std::vector<int>> links(n, std::vector<int>(n, count));
    for (int i = 0; i < n; i++) {
        links[i][i] = 0;
    }
    return links;
}

/* Eight GPUs of a DGX-1V: a hybrid cube mesh of six links each. */
inline std::vector<std::vector<int>> CubeMesh()
{
    return {{0, 1, 1, 2, 2, 0, 0, 0}, {1, 0, 2, 1, 0, 2, 0, 0}, {1, 2, 0, 2, 0, 0, 1, 0},
            {2, 1, 2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 1, 1, 2}, {0, 2, 0, 0, 1, 0, 2, 1},
            {0, 0, 1, 0, 1, 2, 0, 2}, {0, 0, 0, 1, 2, 1, 2, 0}};
}

/* `count` links of each GPU to an NVSwitch. */
inline std::string Switched(int gpus, int count, int nic_of)
{
    std::vector<std::vector<int>> none(gpus, std::vector<int>(gpus, 0));
    std::string text = Direct(none, nic_of);
    const std::string link = "<nvlink target=\"0000:ff:00.0\" count=\"" + std::to_string(count) +
                             "\" tclass=\"0x068000\"/>";
    for (size_t at = 0; (at = text.find("</gpu>", at)) != std::string::npos;
         at += link.size() + 6) {
        text.insert(at, link);
    }
    return text;
}

/* `groups` switches of `each` GPUs on two sockets, no NVLink. */
inline std::string Pci(int groups, int each)
{
    std::string text = "<system version=\"1\">";
    for (int g = 0; g < groups; g++) {
        if (g % ((groups + 1) / 2) == 0) {
            text += g > 0 ? "</cpu>" : "";
            text += "<cpu numaid=\"" + std::to_string(g > 0) +
                    "\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\">";
        }
        text += "<pci busid=\"" + Bus(100 + g) +
                "\" class=\"0x060400\" link_speed=\"16 GT/s\" link_width=\"16\">";
        for (int i = 0; i < each; i++) {
            text += "<pci busid=\"" + Bus(g * each + i) +
                    "\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\"/>";
        }
        text += "</pci>";
    }
    return text + "</cpu></system>";
}

} // namespace machines

#endif
