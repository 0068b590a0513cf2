// SPDX-License-Identifier: Apache-2.0
// covers: tools/topo/topo.c tools/topo/cpu.c tools/topo/diff.c tools/topo/peers.c tools/topo/probe.c
/* `kolo topo` as its user sees it: text, exit status, and what it says of a bad option. */
extern "C" {
#include "tools/topo/topo.h"
}

#include "../temp_file.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace
{

const std::string kMachine =
    std::string(KOLO_SOURCE_ROOT) + "/tests/data/hwloc-2pack-2l3-4core-2pu.xml";

struct Result {
    int status;
    std::string out, err;
};

Result Topo(std::vector<std::string> args)
{
    std::vector<char *> argv;
    args.insert(args.begin(), "topo");
    for (std::string &arg : args) {
        argv.push_back(arg.data());
    }
    argv.push_back(nullptr);
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int status = kolo_tool_topo(static_cast<int>(args.size()), argv.data());
    const std::string out = testing::internal::GetCapturedStdout();
    return {status, out, testing::internal::GetCapturedStderr()};
}

bool Contains(const std::string &text, const std::string &part)
{
    return text.find(part) != std::string::npos;
}

TEST(ToolTopo, TheMachineOfAFileAndItsLayoutArePrinted)
{
    const Result result = Topo({"--file", kMachine, "-n", "18"});
    EXPECT_EQ(0, result.status);
    EXPECT_EQ("", result.err);
    EXPECT_EQ(0u, result.out.rfind("2 packages, 16 cores, 32 PUs, ", 0)) << result.out;
    /* Cpus 16 and 17 are the second PUs of the cores of cpus 0 and 1. */
    EXPECT_TRUE(Contains(result.out, "Channel 00/02 :  0 16  1 17  2  3  4  5  6  7  8  9 10 11 12 "
                                     "13 14 15\nChannel 01/02 :"))
        << result.out;
    EXPECT_TRUE(Contains(result.out, "\nGroups : L3 0-3,16-17 4-7 8-11 12-15, package 0-7,16-17 "
                                     "8-15\n"))
        << result.out;
    EXPECT_TRUE(Contains(result.out, "Trees [0] -1/-1/-1->0->16 [1] 16/-1/-1->0->1\n"))
        << result.out;
    EXPECT_TRUE(Contains(result.out, "(0 16 1 17 2 3) (4 5 6 7) | (8 9 10 11) (12 13 14 15)\n"))
        << result.out;
}

TEST(ToolTopo, WithoutANumberEveryPuGetsARank)
{
    const Result result = Topo({"-f", kMachine});
    EXPECT_EQ(0, result.status);
    EXPECT_TRUE(Contains(result.out, "->31->")) << result.out;
    EXPECT_FALSE(Contains(result.out, "->32->")) << result.out;
}

TEST(ToolTopo, TheDrawingIsWrittenToTheNamedFile)
{
    const TempFile drawing;
    const Result result = Topo({"-f", kMachine, "--svg", drawing.path()});
    std::ifstream file(drawing.path());
    std::stringstream svg;
    svg << file.rdbuf();
    EXPECT_EQ(0, result.status);
    EXPECT_TRUE(Contains(result.out, "tree 1:"));
    EXPECT_EQ(0u, svg.str().rfind("<svg ", 0));
    EXPECT_TRUE(Contains(svg.str(), "</svg>"));
}

TEST(ToolTopo, ABadOptionIsNamedAndEndsWithTwo)
{
    const struct {
        std::vector<std::string> args;
        const char *message;
    } cases[] = {
        {{"--rings"}, "option --rings is unknown"},
        {{"-q"}, "option -q is unknown"},
        {{"-n"}, "option -n needs a value"},
        {{"-n", "0"}, "option -n: \"0\" is not a number of 1 to"},
        {{"-n", "4x"}, "option -n: \"4x\" is not"},
        {{"--file"}, "option --file needs a value"},
        {{"--help=1"}, "option --help takes no value"},
        {{"a.xml", "b.xml"}, "unexpected argument \"b.xml\""},
        {{"-f", "a.xml", "b.xml"}, "unexpected argument \"b.xml\""},
        {{"--diff", "a.xml"}, "--diff wants two files"},
        {{"-H", "0"}, "option -H: \"0\" is not a number of 1 to"},
    };
    for (const auto &test : cases) {
        const Result result = Topo(test.args);
        EXPECT_EQ(2, result.status) << test.message;
        EXPECT_EQ("", result.out) << test.message;
        EXPECT_TRUE(Contains(result.err, test.message)) << result.err;
    }
}

TEST(ToolTopo, AMissingFileIsNamedAndEndsWithOne)
{
    const Result result = Topo({"-f", "no-such-machine.xml"});
    EXPECT_EQ(1, result.status);
    EXPECT_TRUE(Contains(result.err, "no-such-machine.xml: No such file")) << result.err;
}

} // namespace
