// SPDX-License-Identifier: Apache-2.0
// covers: topology/machine topology/formats
/* Files of machines become graphs: what is said is kept, what is odd is noted, what is wrong is
 * refused with its line. */
#include "machines.h"
#include "topology/formats/write.h"

#include <cstring>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace
{

using machines::Bus;
using machines::Count;
using machines::Graph;
using machines::Read;

const char kTwoGpus[] = R"(<!-- a comment may stand first -->
<system version="1">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49">
    <pci busid="ffff:ff:01.0" class="0x060400" link_speed="16 GT/s" link_width="16"> <!-- invented -->
      <pci busid="000d:01:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="90" rank="1" gdr="1"><nvlink target="000d:02:00.0" count="4" tclass="0x030200"/></gpu>
      </pci>
      <pci busid="000d:02:00.0" class="0x030200" link_speed="16.0 GT/s" link_width="8">
        <gpu dev="0" sm="90" rank="0" gdr="1"><nvlink target="000d:01:00.0" count="4" tclass="0x030200"/></gpu>
      </pci>
      <pci busid="000d:03:00.0" class="0x020700" link_speed="16 GT/s" link_width="16">
        <nic><net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x10" gdr="1"/></nic>
      </pci>
    </pci>
  </cpu>
  <cpu numaid="1" vendor="AuthenticAMD"/>
</system>
)";

double Gbs(const Graph &graph, int a, int b, int kind)
{
    const struct kolo_graph_edge *link = kolo_graph_link(graph.get(), a, b, kind);
    return link != nullptr ? link->gbs : -1;
}

/* Whether the dump of a machine reads as the same machine, and its dump is the same text. */
static void ExpectDumpReadsBack(const Graph &graph)
{
    struct kolo_text dump = {}, second = {};
    kolo_graph_write(graph.get(), &dump);
    const Graph again = Read(dump.chars);
    ASSERT_NE(nullptr, again) << kolo_error_text() << dump.chars;
    EXPECT_EQ(kolo_graph_hash(graph.get()), kolo_graph_hash(again.get())) << dump.chars;
    kolo_graph_write(again.get(), &second);
    const std::string a = dump.chars, b = second.chars;
    EXPECT_EQ(a.substr(a.find('\n')), b.substr(b.find('\n'))); /* but for the source */
    kolo_text_free(&dump);
    kolo_text_free(&second);
}

TEST(NcclXml, NodesLinksAndCapacitiesAreWhatTheFileSays)
{
    const Graph graph = Read(kTwoGpus);
    ASSERT_NE(nullptr, graph) << kolo_error_text();
    EXPECT_EQ(2, Count(graph.get(), KOLO_NODE_NUMA));
    EXPECT_EQ(1, Count(graph.get(), KOLO_NODE_SWITCH));
    ASSERT_EQ(2, graph->ngpus);
    ASSERT_EQ(1, graph->nnics);
    /* In the order of dev, which is not that of the buses. */
    EXPECT_EQ(0x0d0000u << 0 | 0u, 0x0d0000u);
    EXPECT_EQ(uint64_t{0xd} << 16 | 2 << 8, graph->node[graph->gpu[0]].bus);
    const int parent = graph->node[graph->gpu[0]].parent;
    EXPECT_DOUBLE_EQ(12, Gbs(graph, graph->gpu[0], parent, KOLO_LINK_PCI)); /* Gen4 x8 */
    EXPECT_DOUBLE_EQ(48, Gbs(graph, graph->gpu[1], parent, KOLO_LINK_PCI)); /* Gen5 x16 */
    EXPECT_DOUBLE_EQ(4 * 20.6, Gbs(graph, graph->gpu[0], graph->gpu[1], KOLO_LINK_NVLINK));
    EXPECT_DOUBLE_EQ(25, graph->node[graph->nic[0]].gbs);
    EXPECT_STREQ("mlx5_0", graph->node[graph->nic[0]].name);
    EXPECT_EQ(0, graph->nnotes);
}

TEST(NcclXml, WhatIsLeftOutOrOddIsReadAndNoted)
{
    const Graph graph = Read(R"(<system version="2"><cpu numaid="-1">
      <pci busid="0000:01:00.0" class="0x030200" link_speed="" link_width="0">
        <gpu dev="0" sm="80"><nvlink target="0000:01:00.0" count="12" tclass="0x030200"/>
          <nvlink target="0000:77:00.0" count="2" tclass="0x030200"/></gpu></pci>
      <pci busid="0000:02:00.0"/>
      <pci busid="0000:03:00.0" class="0x038000" link_speed="8 GT/s" link_width="16">
        <gpu dev="1" gcn="gfx942"><xgmi target="fffffff:ffff:ff" count="1"/></gpu></pci>
      <nic><net name="eth 0" speed="100000" gdr="0"/></nic>
      <unknown><further/></unknown></cpu></system>)");
    ASSERT_NE(nullptr, graph) << kolo_error_text();
    EXPECT_EQ(2, graph->ngpus);
    EXPECT_EQ(1, graph->nnics);
    EXPECT_EQ(1, Count(graph.get(), KOLO_NODE_DEVICE)); /* of no class */
    EXPECT_EQ(4, graph->nnotes) << graph->notes.chars;  /* itself, nobody, hidden, no class */
    const struct kolo_graph_edge *pci = kolo_graph_link(
        graph.get(), graph->gpu[0], graph->node[graph->gpu[0]].parent, KOLO_LINK_PCI);
    ASSERT_NE(nullptr, pci);
    EXPECT_TRUE(pci->assumed);
    EXPECT_DOUBLE_EQ(24, pci->gbs);                       /* the usual one of Ampere */
    EXPECT_EQ(1, Count(graph.get(), KOLO_NODE_NVSWITCH)); /* what a hidden target is taken for */
}

TEST(NcclXml, ALinkThatBothEndsClaimCountsOnceByTheSmallerClaim)
{
    const Graph graph = Read(R"(<system version="1"><cpu numaid="0">
      <pci busid="0000:01:00.0" class="0x030200"><gpu dev="0" sm="70">
        <nvlink target="0000:02:00.0" count="1" tclass="0x030200"/>
        <nvlink target="0000:02:00.0" count="1" tclass="0x030200"/></gpu></pci>
      <pci busid="0000:02:00.0" class="0x030200"><gpu dev="1" sm="70">
        <nvlink target="0000:01:00.0" count="1" tclass="0x030200"/></gpu></pci></cpu></system>)");
    ASSERT_NE(nullptr, graph) << kolo_error_text();
    EXPECT_DOUBLE_EQ(20, Gbs(graph, graph->gpu[0], graph->gpu[1], KOLO_LINK_NVLINK));
}

TEST(NcclXml, ACardWithSeveralPortsIsOneNic)
{
    const Graph graph = Read(R"(<system version="1"><cpu numaid="0">
      <pci busid="0000:01:00.0" class="0x020700" link_speed="16 GT/s" link_width="16"><nic>
        <net name="a" dev="0" speed="100000"/><net name="b" dev="1" speed="50000"/>
        <net name="c" dev="2" speed="50000"/></nic></pci></cpu></system>)");
    ASSERT_NE(nullptr, graph) << kolo_error_text();
    ASSERT_EQ(1, graph->nnics);
    EXPECT_EQ(0, Count(graph.get(), KOLO_NODE_SWITCH));
    EXPECT_STREQ("a+b+c", graph->node[graph->nic[0]].name);
    EXPECT_EQ(3, graph->node[graph->nic[0]].ports);
    EXPECT_DOUBLE_EQ(25, graph->node[graph->nic[0]].gbs);
    EXPECT_DOUBLE_EQ(24,
                     Gbs(graph, graph->nic[0], graph->node[graph->nic[0]].parent, KOLO_LINK_PCI));
    ExpectDumpReadsBack(graph);
}

TEST(NcclXml, EndsThatCountALinkDifferentlyAreNoted)
{
    const Graph graph = Read(R"(<system version="1"><cpu numaid="0">
      <pci busid="0000:01:00.0" class="0x030200"><gpu dev="0" sm="80">
        <nvlink target="0000:02:00.0" count="1" tclass="0x030200"/></gpu></pci>
      <pci busid="0000:02:00.0" class="0x030200"><gpu dev="1" sm="80">
        <nvlink target="0000:01:00.0" count="12" tclass="0x030200"/></gpu></pci></cpu></system>)");
    ASSERT_NE(nullptr, graph) << kolo_error_text();
    ASSERT_EQ(1, graph->nnotes);
    EXPECT_STREQ("0000:01:00.0 says 1 link to 0000:02:00.0, which says 12 back: taken as 1\n",
                 graph->notes.chars);
}

TEST(NcclXml, WhatSoftwareMadeIsNoNic)
{
    const Graph graph = Read(R"(<system version="1"><cpu numaid="0"><nic>
      <net name="br-12ab" dev="0"/><net name="eth0" dev="1"/><net name="br0"/><net name="lo"/>
      <net name="bond0"/><net name="brocade"/></nic></cpu>
      <cpu numaid="1"><nic><net name="br-12ab" dev="0"/></nic></cpu></system>)");
    ASSERT_NE(nullptr, graph) << kolo_error_text();
    EXPECT_EQ(3, graph->nnics); /* eth0, bond0, brocade */
    EXPECT_EQ(3, Count(graph.get(), KOLO_NODE_INTERFACE));
    ExpectDumpReadsBack(graph);
}

TEST(NcclXml, AnUplinkSlowerThanAllBelowItIsMended)
{
    const Graph graph = Read(R"(<system version="1"><cpu numaid="0">
      <pci busid="0000:01:00.0" class="0x060400" link_speed="2.5 GT/s" link_width="1">
        <pci busid="0000:02:00.0" class="0x030200" link_speed="32 GT/s" link_width="16"/>
      </pci></cpu></system>)");
    ASSERT_NE(nullptr, graph) << kolo_error_text();
    const int up = graph->node[graph->gpu[0]].parent;
    EXPECT_DOUBLE_EQ(48, Gbs(graph, up, graph->node[up].parent, KOLO_LINK_PCI));
    EXPECT_EQ(1, graph->nnotes);
}

#define M      "<topology version=\"2.0\">\n<object type=\"Machine\">"
#define PU0    "\n<object type=\"PU\" os_index=\"0\" gp_index=\"9\"/>"
#define MATRIX "\n<distances2hetero name=\"NVLinkBandwidth\" "

TEST(Files, WhatIsWrongIsRefusedWithFileAndLine)
{
    const struct {
        const char *text, *why;
    } cases[] = {
        {"", "none of: hwloc XML 2"},
        {"hello", "none of: hwloc XML 2"},
        {"<html></html>", "none of: hwloc XML 2"},
        {"<graphs version=\"1\"/>", "NCCL's graph XML"},
        {"<system version=\"1\">\n<cpu numaid=\"0\">\n", "machine:3: no element found"},
        {"<system version=\"1\">\n<cpu></system>", "machine:2: mismatched tag"},
        {"<system version=\"7\"/>", "machine:1: <system>: version 7 is not known"},
        {"<system>\n<cpu numaid=\"x\"/></system>", "machine:2: <cpu>: numaid is \"x\""},
        {"<system><cpu>\n\n<pci busid=\"nonsense\"/></cpu></system>", "machine:3: <pci>: busid"},
        {"<system><cpu><pci/></cpu></system>", "busid is \"\""},
        {"<system><gpu dev=\"0\"/></system>", "a GPU must lie within a <pci>"},
        {"<system><nvlink target=\"0000:01:00.0\"/></system>", "must lie within a <gpu>"},
        {"<system><cpu><nic><net speed=\"-1\"/></nic></cpu></system>", "not a number of 0 or more"},
        {"<system><cpu><nic><net speed=\"nan\"/></nic></cpu></system>",
         "not a number of 0 or more"},
        {"<!DOCTYPE system [<!ENTITY a \"aa\">]>\n<system/>", "document type with declarations"},
        {"<kolo-topology version=\"2\"/>", "version is \"2\""},
        {"<kolo-topology><node kind=\"gpu\" parent=\"0\"/></kolo-topology>", "parent is \"0\""},
        {"<kolo-topology><node kind=\"cat\"/></kolo-topology>", "kind is none of"},
        {"<kolo-topology><link a=\"0\" b=\"0\" kind=\"PCI\" gbs=\"1\"/></kolo-topology>",
         "a is \"0\""},
        {"<topology version=\"4.0\"/>", "machine:1: <topology>: its format is newer than 3"},
        {"<topology version=\"3.0\"><object type=\"Machine\" id=\"12\"/></topology>",
         "id is \"12\", not a name such as obj12"},
        {"<topology/>", "older than 2"},
        {"<topology version=\"2.0\">\n</topology>", "machine tells of no PU"},
        {"<topology version=\"2.0\">\n<object/></topology>",
         "machine:2: <object>: an object without"},
        {"<topology version=\"2.0\">\n<object type=\"PU\"/></topology>",
         "where the Machine stands"},
        {M "<object type=\"PU\"/></object></topology>",
         "machine:2: <object>: a PU without os_index"},
        {M "<object type=\"PU\" os_index=\"65536\"/></object></topology>", "os_index is \"65536\""},
        {M PU0 PU0 "</object></topology>", "machine tells of two PUs of OS index 0"},
        {M "<object type=\"NUMANode\" os_index=\"0\"/></object></topology>",
         "machine:2: <object>: a NUMA node without cpuset"},
        {M "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x1ffffffff\"/></object></topology>",
         "cpuset is \"0x1ffffffff\""},
        {M "<object type=\"PCIDev\" pci_busid=\"1\"/></object></topology>", "no address on PCI"},
        {M PU0 "</object>\n<x><object type=\"PU\"/></x></topology>",
         "machine:4: <object>: an object stands in what is none"},
        {M PU0 "</object>" MATRIX "nbobjs=\"257\"/></topology>", "nbobjs is \"257\""},
        {M PU0 "</object>" MATRIX "/></topology>", "a matrix without nbobjs"},
        {M PU0 "</object>" MATRIX
               "nbobjs=\"1\"><indexes>PU:7</indexes></distances2hetero></topology>",
         "\"PU:7\" is no object of the matrix's 1"},
        {M PU0 "</object>" MATRIX "nbobjs=\"1\"><indexes>PU:9</indexes><u64values>1 2"
               "</u64values></distances2hetero></topology>",
         "\"2\" is no value of a matrix of 1 objects"},
        {M PU0 "</object>" MATRIX "nbobjs=\"1\"></distances2hetero></topology>",
         "0 values, not those"},
        {"\tGPU0\tGPU1\nGPU0\t X \tNV1\nGPU7\tNV1\t X \n", "machine:3: a row of no device"},
        {"\tGPU0\tGPU1\tGPU2\nGPU0\t X \tNV1\tNV1\n",
         "the matrix is cut: no cell tells how GPU1 and GPU2"},
        {"\tGPU0\tGPU1\nGPU0\t X \tQQ\n", "machine:2: a cell is none of"},
    };
    for (const auto &test : cases) {
        const Graph graph = Read(test.text);
        EXPECT_EQ(nullptr, graph) << test.text;
        EXPECT_NE(std::string::npos, std::string(kolo_error_text()).find(test.why))
            << test.text << "\n"
            << kolo_error_text();
    }
}

#undef M
#undef PU0
#undef MATRIX

TEST(Files, AnElementTooDeepIsRefused)
{
    std::string text = "<system>";
    for (int i = 0; i < 300; i++) {
        text += "<a>";
    }
    EXPECT_EQ(nullptr, Read(text));
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "more than 256 deep"));
}

#if !defined(__SANITIZE_ADDRESS__) &&                                                              \
    !defined(__SANITIZE_THREAD__) /* which take memory themselves */
/* A process that may take what it has, 1 MiB, and 16 times the file; whether it reads it, or says
 * that it may not. */
bool ReadsInLittleMemory(const std::string &text)
{
    const pid_t child = fork();
    if (child == 0) {
        long pages = 0;
        FILE *file = fopen("/proc/self/statm", "r");
        if (file == nullptr || fscanf(file, "%ld", &pages) != 1) {
            _exit(2);
        }
        /* malloc's own pages: its arena grows by 132 KiB, mapped blocks by a page */
        const rlim_t most =
            static_cast<rlim_t>(pages) * 4096 + (1 << 20) + 16 * text.size() + 200000;
        const struct rlimit limit = {most, most};
        setrlimit(RLIMIT_AS, &limit);
        struct kolo_graph *graph = nullptr;
        const kolo_status st = kolo_graph_read("machine", text.data(), text.size(), &graph);
        _exit(st == KOLO_OK || st == KOLO_ERR_INVALID ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Files, ReadingTakesLittleMemoryWhateverTheFile)
{
    std::string many = "<system><cpu>", numas = "<system>", attributes = "<system ";
    for (int i = 0; i < 40000; i++) {
        many += "<pci busid=\"1:1.0\"/>";
        numas += "<cpu/>";
        attributes += "a" + std::to_string(i) + "=\"\" ";
    }
    EXPECT_TRUE(ReadsInLittleMemory(many + "</cpu></system>"));
    EXPECT_TRUE(ReadsInLittleMemory(numas + "</system>"));
    EXPECT_TRUE(ReadsInLittleMemory(attributes + "/>"));
    const std::string machine = "<topology version=\"2.0\"><object type=\"Machine\">";
    std::string objects = machine, nodes = machine, infos = machine, matrix = machine;
    matrix += "<object type=\"PU\" os_index=\"0\"/></object>"
              "<distances2hetero name=\"NVLinkBandwidth\" nbobjs=\"256\"><indexes>";
    for (int i = 0; i < 40000; i++) {
        objects += "<object type=\"\"/>";
        nodes += i < 1000 ? "<object type=\"NUMANode\" os_index=\"1\" cpuset=\"1" +
                                std::string(1000, ',') + "\"/>"
                          : "";
        infos += "<object type=\"OSDev\" name=\"a\"/>";
        matrix += i < 256 ? "a:0 " : "";
    }
    matrix += "</indexes><u64values>";
    for (int i = 0; i < 65536; i++) {
        matrix += "1 ";
    }
    EXPECT_TRUE(ReadsInLittleMemory(objects + "</object></topology>"));
    EXPECT_TRUE(ReadsInLittleMemory(nodes + "</object></topology>"));
    EXPECT_TRUE(ReadsInLittleMemory(infos + "</object></topology>"));
    EXPECT_TRUE(ReadsInLittleMemory(matrix + "</u64values></distances2hetero></topology>"));
}
#endif

TEST(HwlocXml, SwitchesDevicesAndNvSwitchesAreWhatTheFileSays)
{
    const std::string path = std::string(KOLO_SOURCE_ROOT) + "/tests/data/hwloc-4gpu-nvswitch.xml";
    struct kolo_graph *loaded = nullptr;
    ASSERT_EQ(KOLO_OK, kolo_graph_load(path.c_str(), &loaded)) << kolo_error_text();
    const Graph graph(loaded);
    EXPECT_EQ(4, graph->ngpus);
    EXPECT_EQ(2, graph->nnics);
    EXPECT_EQ(2, Count(graph.get(), KOLO_NODE_SWITCH));
    EXPECT_EQ(2, Count(graph.get(), KOLO_NODE_NUMA));
    for (int i = 0; i < 4; i++) {
        const int gpu = graph->gpu[i], up = graph->node[gpu].parent;
        EXPECT_EQ(up, graph->node[graph->nic[i / 2]].parent) << "GPU and NIC share a switch";
        EXPECT_EQ(i / 2, graph->node[graph->node[up].parent].number);
        EXPECT_NEAR(12, Gbs(graph, up, gpu, KOLO_LINK_PCI), 1e-3);
        EXPECT_DOUBLE_EQ(120, Gbs(graph, gpu, kolo_graph_nvswitch(graph.get()), KOLO_LINK_NVLINK));
    }
    EXPECT_STREQ("mlx5_1", graph->node[graph->nic[1]].name);
    EXPECT_EQ(2, graph->node[kolo_graph_nvswitch(graph.get())].count);
}

TEST(OwnDump, ReadsBackIntoAnEqualGraph)
{
    for (const std::string &text :
         {std::string(kTwoGpus), machines::Direct(machines::CubeMesh(), 2),
          machines::Switched(8, 18, 1), machines::Pci(4, 2)}) {
        const Graph graph = Read(text);
        ASSERT_NE(nullptr, graph) << kolo_error_text();
        ExpectDumpReadsBack(graph);
    }
}

TEST(Files, EverySlowLinkAboveSwitchesIsMendedAtOnce)
{
    const std::string slow = "class=\"0x060400\" link_speed=\"2.5 GT/s\" link_width=\"1\">";
    const Graph graph =
        Read("<system><cpu numaid=\"0\"><pci busid=\"0000:01:00.0\" " + slow +
             "<pci busid=\"0000:02:00.0\" " + slow + "<pci busid=\"0000:03:00.0\" " + slow +
             "<pci busid=\"0000:04:00.0\" class=\"0x030200\" link_speed=\"16 GT/s\" "
             "link_width=\"16\"><gpu dev=\"0\" sm=\"80\"/></pci></pci></pci></pci></cpu></system>");
    ASSERT_NE(nullptr, graph) << kolo_error_text();
    int links = 0;
    for (int i = 0; i < graph->nlinks; i++) {
        links += graph->link[i].kind == KOLO_LINK_PCI;
        EXPECT_DOUBLE_EQ(24, graph->link[i].gbs) << "link " << i;
    }
    EXPECT_EQ(4, links);
    ExpectDumpReadsBack(graph);
}

TEST(NcclXml, WhatWeWriteIsTheSameMachineWhenReadAgain)
{
    for (const std::string &text :
         {std::string(kTwoGpus), machines::Direct(machines::CubeMesh(), 2),
          machines::Switched(8, 18, 1), machines::Pci(4, 2),
          machines::Direct(machines::Mesh(8, 1), 0, "xgmi")}) {
        const Graph graph = Read(text);
        ASSERT_NE(nullptr, graph) << kolo_error_text();
        struct kolo_text out = {};
        ASSERT_EQ(KOLO_OK, kolo_graph_write_nccl(graph.get(), &out));
        const Graph again = Read(out.chars);
        ASSERT_NE(nullptr, again) << kolo_error_text() << out.chars;
        ASSERT_EQ(graph->ngpus, again->ngpus);
        EXPECT_EQ(graph->nnics, again->nnics);
        EXPECT_EQ(graph->nlinks, again->nlinks);
        for (int i = 0; i < graph->ngpus; i++) {
            for (int j = 0; j < graph->ngpus; j++) {
                for (const int kind : {KOLO_LINK_NVLINK, KOLO_LINK_XGMI}) {
                    EXPECT_DOUBLE_EQ(Gbs(graph, graph->gpu[i], graph->gpu[j], kind),
                                     Gbs(again, again->gpu[i], again->gpu[j], kind));
                }
            }
            EXPECT_EQ(graph->node[graph->gpu[i]].bus, again->node[again->gpu[i]].bus);
        }
        kolo_text_free(&out);
    }
}

TEST(Smi, SwitchesNumaNodesAndNamesFollowFromTheMatrix)
{
    const Graph graph = Read("\t\033[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA "
                             "Affinity\tGPU NUMA ID\033[0m\n"
                             "GPU0\t X \tPIX\tSYS\tSYS\tPXB\tSYS\t0-15\t0\tN/A\n"
                             "GPU1\tPIX\t X \tSYS\tSYS\tPXB\tSYS\t0-15\t0\tN/A\n"
                             "GPU2\tSYS\tSYS\t X \tNV4\tSYS\tNODE\t16-31\t1\tN/A\n"
                             "GPU3\tSYS\tSYS\tNV4\t X \tSYS\tNODE\t16-31\t1\tN/A\n"
                             "NIC0\tPXB\tPXB\tSYS\tSYS\t X \tSYS\n"
                             "NIC1\tSYS\tSYS\tNODE\tNODE\tSYS\t X \n"
                             "\nLegend:\n\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: bond 1\n");
    ASSERT_NE(nullptr, graph) << kolo_error_text();
    ASSERT_EQ(4, graph->ngpus);
    ASSERT_EQ(2, graph->nnics);
    EXPECT_EQ(2, Count(graph.get(), KOLO_NODE_NUMA));
    EXPECT_EQ(2, Count(graph.get(), KOLO_NODE_SWITCH));
    EXPECT_STREQ("mlx5_0", graph->node[graph->nic[0]].name);
    EXPECT_EQ(KOLO_PATH_PIX, kolo_pci_path(graph.get(), graph->gpu[0], graph->gpu[1]));
    EXPECT_EQ(KOLO_PATH_PHB, kolo_pci_path(graph.get(), graph->gpu[2], graph->nic[1]));
    EXPECT_EQ(KOLO_PATH_SYS, kolo_pci_path(graph.get(), graph->gpu[0], graph->nic[1]));
    EXPECT_EQ(1, graph->node[kolo_graph_numa(graph.get(), graph->gpu[3])].number);
    EXPECT_DOUBLE_EQ(80, Gbs(graph, graph->gpu[2], graph->gpu[3], KOLO_LINK_NVLINK));
}

TEST(Smi, MoreLinksThanAGpuHasLeadToAnNvSwitch)
{
    std::string text = "\t";
    for (int i = 0; i < 8; i++) {
        text += "GPU" + std::to_string(i) + "\t";
    }
    for (int i = 0; i < 8; i++) {
        text += "\nGPU" + std::to_string(i);
        for (int j = 0; j < 8; j++) {
            text += i == j ? "\tX" : "\tNV12";
        }
    }
    const Graph graph = Read(text + "\n");
    ASSERT_NE(nullptr, graph) << kolo_error_text();
    ASSERT_EQ(1, Count(graph.get(), KOLO_NODE_NVSWITCH));
    EXPECT_DOUBLE_EQ(240,
                     Gbs(graph, graph->gpu[5], kolo_graph_nvswitch(graph.get()), KOLO_LINK_NVLINK));
}

TEST(Merge, AFileWithoutNvlinksAndAMachineWithoutSwitchesAreOneMachine)
{
    const Graph machine = Read(machines::Direct(machines::CubeMesh()));
    std::string file = "<system><cpu numaid=\"0\"><pci busid=\"ffff:ff:01.0\" class=\"0x060400\" "
                       "link_speed=\"16 GT/s\" link_width=\"16\">";
    for (int i = 0; i < 4; i++) {
        file += "<pci busid=\"" + Bus(i) +
                "\" class=\"0x030200\" link_speed=\"8 GT/s\" link_width=\"16\"/>";
    }
    const Graph hint =
        Read(file + "<pci busid=\"0000:77:00.0\" class=\"0x020700\"><nic><net name=\"n\" "
                    "speed=\"100000\"/></nic></pci></pci></cpu></system>");
    ASSERT_NE(nullptr, machine);
    ASSERT_NE(nullptr, hint) << kolo_error_text();
    ASSERT_EQ(KOLO_OK, kolo_graph_merge(machine.get(), hint.get()));
    EXPECT_EQ(8, machine->ngpus);
    EXPECT_EQ(1, machine->nnics);
    EXPECT_EQ(1, Count(machine.get(), KOLO_NODE_NUMA));
    EXPECT_EQ(KOLO_PATH_PIX, kolo_pci_path(machine.get(), machine->gpu[0], machine->nic[0]));
    EXPECT_EQ(KOLO_PATH_PHB, kolo_pci_path(machine.get(), machine->gpu[4], machine->nic[0]));
    const int parent = machine->node[machine->gpu[0]].parent;
    EXPECT_DOUBLE_EQ(12, Gbs(machine, machine->gpu[0], parent, KOLO_LINK_PCI));
    EXPECT_DOUBLE_EQ(40, Gbs(machine, machine->gpu[0], machine->gpu[3], KOLO_LINK_NVLINK));
    ExpectDumpReadsBack(machine);
}

const char kMatrix[] = "\tGPU0\tGPU1\tmlx5_0\nGPU0\t X \tNV4\tPIX\nGPU1\tNV4\t X \tSYS\n"
                       "mlx5_0\tPIX\tSYS\t X \n";

TEST(Merge, AMatrixWithoutAddressesIsMatchedByTheOrderOfGpus)
{
    for (const bool matrix_first : {false, true}) {
        const Graph machine = Read(machines::Pci(2, 1));
        const Graph matrix = Read(kMatrix);
        ASSERT_NE(nullptr, matrix) << kolo_error_text();
        struct kolo_graph *base = matrix_first ? matrix.get() : machine.get();
        const int nodes = machine->nnodes;
        ASSERT_EQ(KOLO_OK, kolo_graph_merge(base, matrix_first ? machine.get() : matrix.get()))
            << kolo_error_text();
        ASSERT_EQ(2, base->ngpus);
        EXPECT_EQ(nodes, base->nnodes); /* nothing that would have no address */
        EXPECT_NE(KOLO_BUS_NONE, base->node[base->gpu[1]].bus);
        EXPECT_NE(nullptr, kolo_graph_link(base, base->gpu[0], base->gpu[1], KOLO_LINK_NVLINK));
        EXPECT_NE(nullptr, strstr(base->notes.chars, "matched by their order"));
    }
}

TEST(Merge, WithoutAddressesAndWithAnotherNumberOfGpusItIsRefused)
{
    const Graph machine = Read(machines::Pci(4, 1));
    const Graph matrix = Read(kMatrix);
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_graph_merge(machine.get(), matrix.get()));
    EXPECT_NE(nullptr, strstr(kolo_error_text(), "no PCI addresses, and 2 GPUs instead of 4"));
    EXPECT_EQ(4, machine->ngpus);
}

/* As lstopo writes it without --whole-io. */
TEST(Merge, AFileOfCpusAloneAddsThemToAMachineWithGpus)
{
    const std::string cpus = R"(<kolo-topology><node kind="numa" number="0" cpus="0-7"/>
      <node kind="numa" number="1" cpus="8-15"/></kolo-topology>)";
    for (const bool cpus_first : {false, true}) {
        const Graph machine = Read(machines::Pci(2, 1)), file = Read(cpus);
        ASSERT_NE(nullptr, file) << kolo_error_text();
        struct kolo_graph *base = cpus_first ? file.get() : machine.get();
        ASSERT_EQ(KOLO_OK, kolo_graph_merge(base, cpus_first ? machine.get() : file.get()))
            << kolo_error_text();
        EXPECT_EQ(2, base->ngpus);
        EXPECT_EQ(2, Count(base, KOLO_NODE_NUMA));
        const int numa = kolo_graph_numa(base, base->gpu[1]);
        ASSERT_GE(numa, 0);
        EXPECT_STREQ("8-15", base->node[numa].cpus);
        EXPECT_EQ(0, base->nnotes) << "nothing is matched by its order";
    }
}

TEST(NcclXml, AMachineWithoutAddressesIsNotWritten)
{
    const Graph graph = Read(kMatrix);
    struct kolo_text out = {};
    EXPECT_EQ(KOLO_ERR_UNSUPPORTED, kolo_graph_write_nccl(graph.get(), &out));
    EXPECT_EQ(nullptr, out.chars);
    kolo_text_free(&out);
}

TEST(NvLink, TheRateOfALaneCanBeGiven)
{
    const Graph graph = Read(kMatrix);
    kolo_graph_set_nvlink(graph.get(), 40.1);
    EXPECT_DOUBLE_EQ(4 * 40.1, Gbs(graph, graph->gpu[0], graph->gpu[1], KOLO_LINK_NVLINK));
}

TEST(BusAddress, IsReadInEveryUsualForm)
{
    uint64_t bus = 0;
    char text[24];
    for (const char *form : {"0000:3b:00.0", "00000000:3B:00.0", "3b:00.0", "0000:3b:00"}) {
        ASSERT_TRUE(kolo_bus_parse(form, &bus)) << form;
        EXPECT_EQ(uint64_t{0x3b} << 8, bus) << form;
    }
    ASSERT_TRUE(kolo_bus_parse("10000:00:1f.7", &bus));
    kolo_bus_print(bus, text);
    EXPECT_STREQ("10000:00:1f.7", text);
    for (const char *form : {"", ":", "fffffff:ffff:ff", "0000:3b", "3b:20.0", "3b:00.8", "g:0.0",
                             "0000:3b:00.0x", "123456789:00:00.0"}) {
        EXPECT_FALSE(kolo_bus_parse(form, &bus)) << form;
    }
}

TEST(PciSpeed, IsReadFromItsNumberWhateverStandsBehind)
{
    EXPECT_DOUBLE_EQ(12, kolo_pci_gbs("8 GT/s", 16));
    EXPECT_DOUBLE_EQ(24, kolo_pci_gbs("16.0 GT/s PCIe", 16));
    EXPECT_DOUBLE_EQ(48, kolo_pci_gbs("32.0 GT/s PCIe/s", 16));
    EXPECT_DOUBLE_EQ(0.1875, kolo_pci_gbs("2.5 GT/s PCIe", 1));
    EXPECT_DOUBLE_EQ(12, kolo_pci_gbs("8 GT/s", 0));
    EXPECT_DOUBLE_EQ(0, kolo_pci_gbs("", 16));
    EXPECT_DOUBLE_EQ(0, kolo_pci_gbs("Unknown", 16));
}

} // namespace
