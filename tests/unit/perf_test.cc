// SPDX-License-Identifier: Apache-2.0
// covers: perf
/* The parts of the sweep programs that need no communicator: options, data, comparison, statistics
 * and the text of the reports. */
#include "perf/perf.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace
{

const struct perf_collective *const kCollectives[] = {
    &perf_all_gather, &perf_all_reduce,     &perf_alltoall, &perf_alltoallv,
    &perf_barrier,    &perf_broadcast,      &perf_gather,   &perf_hypercube,
    &perf_reduce,     &perf_reduce_scatter, &perf_scatter,  &perf_sendrecv};

/* What was printed on a FILE. */
class Text
{
  public:
    Text() : file_(open_memstream(&chars_, &length_)) {}
    ~Text()
    {
        fclose(file_);
        free(chars_);
    }
    Text(const Text &) = delete;
    Text &operator=(const Text &) = delete;
    FILE *File()
    {
        return file_;
    }
    std::string Str()
    {
        fflush(file_);
        return std::string(chars_, length_);
    }

  private:
    char *chars_ = nullptr;
    size_t length_ = 0;
    FILE *file_;
};

struct Parsed {
    enum perf_parsed result;
    struct perf_options options;
    std::string out, err;
    std::vector<std::string> words; // that options point into
};

Parsed Parse(std::vector<std::string> words,
             const struct perf_collective *collective = &perf_all_reduce)
{
    std::vector<char *> argv;
    words.insert(words.begin(), "program");
    for (std::string &word : words) {
        argv.push_back(word.data());
    }
    argv.push_back(nullptr);
    Text out, err;
    Parsed parsed{};
    parsed.result = perf_options_parse(collective, static_cast<int>(words.size()), argv.data(),
                                       &parsed.options, out.File(), err.File());
    parsed.out = out.Str();
    parsed.err = err.Str();
    parsed.words = std::move(words);
    return parsed;
}

TEST(PerfOptions, DefaultsAreThoseOfNcclTests)
{
    const Parsed p = Parse({});
    ASSERT_EQ(PERF_RUN, p.result);
    EXPECT_EQ(size_t{32} << 20, p.options.min_bytes);
    EXPECT_EQ(size_t{32} << 20, p.options.max_bytes);
    EXPECT_EQ(size_t{1} << 20, p.options.step_bytes);
    EXPECT_EQ(20, p.options.iters);
    EXPECT_EQ(1, p.options.warmup);
    EXPECT_EQ(1, p.options.checks);
    EXPECT_EQ(PERF_AVERAGE, p.options.average);
    EXPECT_EQ(1u << KOLO_FLOAT32, p.options.types);
    EXPECT_EQ(1u << KOLO_SUM, p.options.ops);
}

TEST(PerfOptions, ShortAndLongNamesSetTheSameThings)
{
    for (const std::vector<std::string> &words :
         {std::vector<std::string>{"-b", "8", "-e4k", "-f", "2", "-n", "7", "-o", "mulsum", "-d",
                                   "half", "-r", "all"},
          std::vector<std::string>{"--minbytes", "8", "--maxbytes=4K", "--stepfactor", "2",
                                   "--iters", "7", "--op", "premulsum", "--datatype", "float16",
                                   "--root", "-1"}}) {
        const Parsed p = Parse(words);
        ASSERT_EQ(PERF_RUN, p.result) << p.err;
        EXPECT_EQ(8u, p.options.min_bytes);
        EXPECT_EQ(4096u, p.options.max_bytes);
        EXPECT_EQ(2, p.options.step_factor);
        EXPECT_EQ(7, p.options.iters);
        EXPECT_EQ(1u << PERF_OP_PREMULSUM, p.options.ops);
        EXPECT_EQ(1u << KOLO_FLOAT16, p.options.types);
        EXPECT_EQ(-1, p.options.root);
    }
}

TEST(PerfOptions, ABadOneNamesOptionValueAndWhatIsAllowed)
{
    const struct {
        std::vector<std::string> words;
        const char *option, *value, *allowed;
    } cases[] = {
        {{"-n", "0"}, "-n/--iters", "0", "from 1 to 1000000000"},
        {{"-n", "2x"}, "-n/--iters", "2x", "a whole number"},
        {{"-b", "4T"}, "-b/--minbytes", "4T", "K, M or G"},
        {{"-b", "-4"}, "-b/--minbytes", "-4", "bytes"},
        {{"-e", "99999999999999999999"}, "-e/--maxbytes", "99999999999999999999", "bytes"},
        {{"-b", "2M", "-e", "1M"}, "-b/--minbytes", "2097152", "1048576"},
        {{"-d", "complex"}, "-d/--datatype", "complex", "half bfloat16"},
        {{"-o", "xor"}, "-o/--op", "xor", "minloc maxloc"},
        {{"-o", "band"}, "-o/--op", "band", "float"},
        {{"-b", "1.5.1K"}, "-b/--minbytes", "1.5.1K", "bytes"},
        {{"-b", "4Mb/s"}, "-b/--minbytes", "4Mb/s", "bytes"},
        {{"-z", "4"}, "-z/--blocking", "4", "from 0 to 3"},
        {{"-a", "4"}, "-a/--average", "4", "from 0 to 3"},
        {{"-g", "4097"}, "-g/--ngpus", "4097", "from 1 to 4096"},
        {{"-t", "64", "-g", "65"}, "-g/--ngpus", "65", "at most 64"},
        {{"-K", "20", "-I"}, "-K/--per_iter_skip", "20", "less than -n/--iters, 20"},
        {{"-y", "1", "--stream"}, "-y/--stream_null", "1", "one of them"},
        {{"-I", "2"}, "-I/--per_iter_timing", "2", "0|1"},
        {{"-G", "1"}, "-G/--cudagraph", "1", "give 0: calls on host memory have no graph"},
        {{"-D", "3"}, "-D/--device_implementation", "3", "give 0: "},
        {{"-x", "2"}, "-x/--cta_policy", "2", "give 0: "},
        {{"-M", "1"}, "-M/--memory", "1", "give 0: "},
        {{"-V", "129"}, "-V/--device_cta_count", "129", "1 to 128"},
        {{"--spread", "nan"}, "--spread", "nan", "from 0 to 1"},
        {{"--style", "osu"}, "--style", "osu", "nccl"},
        {{"-n"}, "-n/--iters", "needs a value", "a whole number"},
        {{"-Q"}, "-Q", "no option", "-h"},
        {{"--quick"}, "--quick", "no option", "-h"},
        {{"more"}, "more", "not allowed", "options only"},
    };
    for (const auto &c : cases) {
        const Parsed p = Parse(c.words);
        SCOPED_TRACE(p.err);
        EXPECT_EQ(PERF_BAD, p.result);
        EXPECT_NE(std::string::npos, p.err.find(c.option));
        EXPECT_NE(std::string::npos, p.err.find(c.value));
        EXPECT_NE(std::string::npos, p.err.find(c.allowed));
        EXPECT_EQ(1, std::count(p.err.begin(), p.err.end(), '\n'));
        EXPECT_EQ("", p.out);
    }
}

/* Every option of nccl-tests 2.19 with the value that it has there by default. */
TEST(PerfOptions, TheDefaultsOfNcclTestsMayBeGiven)
{
    const std::vector<std::string> words = {
        "-t", "1",   "-g", "1",     "-b", "32M", "-e", "32M", "-i", "1M", "-f", "1",
        "-n", "20",  "-m", "1",     "-w", "1",   "-N", "1",   "-p", "0",  "-c", "1",
        "-o", "sum", "-d", "float", "-r", "0",   "-z", "0",   "-y", "0",  "-T", "0",
        "-G", "0",   "-C", "0",     "-S", "0",   "-a", "1",   "-R", "0",  "-x", "0",
        "-D", "0",   "-V", "16",    "-M", "0",   "-u", "0",   "-I", "0",  "-K", "0"};
    for (const struct perf_collective *collective : kCollectives) {
        const Parsed said = Parse(words, collective), unsaid = Parse({}, collective);
        ASSERT_EQ(PERF_RUN, said.result) << said.err;
        EXPECT_EQ(unsaid.options.max_bytes, said.options.max_bytes);
        EXPECT_EQ(unsaid.options.per_call, said.options.per_call);
        EXPECT_EQ(unsaid.options.timeout_s, said.options.timeout_s);
        EXPECT_EQ(unsaid.options.blocking, said.options.blocking);
    }
}

TEST(PerfOptions, SizesAreWrittenAsNcclTestsReadsThem)
{
    const struct {
        const char *text;
        size_t bytes;
    } cases[] = {{"8", 8},           {"4k", 4096},          {"1.5M", 3u << 19},
                 {"32MB", 32 << 20}, {"512KiB", 512 << 10}, {"8GB", size_t{8} << 30},
                 {"0.5G", 1u << 29}, {"1e3", 1000}};
    for (const auto &c : cases) {
        const Parsed p = Parse({"-b", "0", "-e", c.text});
        ASSERT_EQ(PERF_RUN, p.result) << p.err;
        EXPECT_EQ(c.bytes, p.options.max_bytes) << c.text;
    }
}

TEST(PerfOptions, ASwitchTakesItsValueOrGoesWithout)
{
    for (const std::vector<std::string> &words :
         {std::vector<std::string>{"-I", "1", "-J", "f.json"},
          {"-I", "-J", "f.json"},
          {"-I1", "-Jf.json"},
          {"--per_iter_timing", "1", "--output_file", "f.json"},
          {"--output_file=f.json", "--per_iter_timing=1"},
          {"-J", "f.json", "-I"}}) {
        const Parsed p = Parse(words);
        ASSERT_EQ(PERF_RUN, p.result) << p.err;
        EXPECT_EQ(1, p.options.per_call);
        EXPECT_STREQ("f.json", p.options.json);
    }
    EXPECT_EQ(0, Parse({"-I", "0"}).options.per_call);
}

TEST(PerfOptions, MessagesThatNeedOneAnotherAreNotGrouped)
{
    EXPECT_EQ(PERF_RUN, Parse({"-m", "2"}).result);
    const Parsed p = Parse({"-m", "2"}, &perf_hypercube);
    EXPECT_EQ(PERF_BAD, p.result);
    EXPECT_NE(std::string::npos, p.err.find("-m/--agg_iters"));
}

TEST(PerfOptions, HelpNamesEveryLongOption)
{
    const Parsed p = Parse({"-h"});
    EXPECT_EQ(PERF_HELP, p.result);
    EXPECT_EQ("", p.err);
    for (const char *name :
         {"--minbytes", "--output_file", "--vary", "--shared", "--deterministic", "--stream"}) {
        EXPECT_NE(std::string::npos, p.out.find(name)) << name;
    }
}

TEST(PerfOptions, OnlyReductionsMindAnOperationThatDoesNotFit)
{
    EXPECT_EQ(PERF_RUN, Parse({"-o", "band", "-d", "bool"}).result);
    EXPECT_EQ(PERF_RUN, Parse({"-o", "band"}, &perf_broadcast).result);
    EXPECT_EQ(PERF_RUN, Parse({"-o", "all", "-d", "f64_i32"}).result);
}

std::vector<size_t> Sizes(const std::vector<std::string> &words)
{
    const Parsed p = Parse(words);
    EXPECT_EQ(PERF_RUN, p.result) << p.err;
    std::vector<size_t> sizes;
    for (size_t b = p.options.min_bytes; b != SIZE_MAX; b = perf_next_bytes(&p.options, b)) {
        sizes.push_back(b);
    }
    return sizes;
}

TEST(PerfOptions, SizesGrowByFactorOrByStep)
{
    EXPECT_EQ((std::vector<size_t>{8, 32, 128}), Sizes({"-b", "8", "-e", "500", "-f", "4"}));
    EXPECT_EQ((std::vector<size_t>{8, 18, 28}), Sizes({"-b", "8", "-e", "28", "-i", "10"}));
    EXPECT_EQ((std::vector<size_t>{0, 1, 2, 4}), Sizes({"-b", "0", "-e", "4", "-f", "2"}));
}

/* ---- types ---- */

TEST(PerfTypes, SizesAgreeWithTheLibrary)
{
    for (int t = 0; t < KOLO_TYPES; t++) {
        const auto type = static_cast<enum kolo_type>(t);
        EXPECT_EQ(kolo_type_bytes(type), perf_type_bytes(type)) << perf_type_name(type);
    }
}

TEST(PerfTypes, NumbersHaveTheBitsOfTheirFormats)
{
    const struct {
        enum kolo_type type;
        double value;
        uint64_t bits;
    } cases[] = {{KOLO_FLOAT16, 1, 0x3C00},
                 {KOLO_FLOAT16, -65504, 0xFBFF},
                 {KOLO_FLOAT16, 0x1p-24, 1},
                 {KOLO_BFLOAT16, 1, 0x3F80},
                 {KOLO_BFLOAT16, 1 + 0x1p-8, 0x3F80},
                 {KOLO_BFLOAT16, 1 + 0x3p-8, 0x3F82},
                 {KOLO_FLOAT8_E4M3, 448, 0x7E},
                 {KOLO_FLOAT8_E4M3, 0x1p-9, 1},
                 {KOLO_FLOAT8_E5M2, 57344, 0x7B},
                 {KOLO_FLOAT8_E5M2, -0x1p-16, 0x81},
                 {KOLO_INT8, -128, 0x80},
                 {KOLO_UINT64, 0x1p63, 1ull << 63},
                 {KOLO_FLOAT32, -2, 0xC0000000},
                 {KOLO_FLOAT64, 1, 0x3FF0000000000000}};
    for (const auto &c : cases) {
        uint64_t bits = 0;
        perf_encode(c.type, c.value, reinterpret_cast<unsigned char *>(&bits));
        EXPECT_EQ(c.bits, bits) << perf_type_name(c.type) << " " << c.value;
    }
}

TEST(PerfTypes, EverySmallFloatSurvivesDecodingAndEncoding)
{
    for (enum kolo_type type : {KOLO_FLOAT16, KOLO_BFLOAT16, KOLO_FLOAT8_E4M3, KOLO_FLOAT8_E5M2}) {
        const uint32_t patterns = 1u << (8 * perf_type_bytes(type));
        for (uint32_t bits = 0; bits < patterns; bits++) {
            uint32_t again = 0;
            const double value = perf_decode(type, reinterpret_cast<const unsigned char *>(&bits));
            if (!std::isfinite(value)) {
                continue;
            }
            perf_encode(type, value, reinterpret_cast<unsigned char *>(&again));
            ASSERT_EQ(bits, again) << perf_type_name(type);
        }
    }
}

/* ---- data ---- */

double Combine(uint32_t op, double a, double b)
{
    return op == KOLO_PROD  ? a * b
           : op == KOLO_MIN ? std::min(a, b)
           : op == KOLO_MAX ? std::max(a, b)
                            : a + b;
}

double Rounded(enum kolo_type type, double value)
{
    unsigned char bytes[PERF_ELEMENT_MAX];
    perf_encode(type, value, bytes);
    return perf_decode(type, bytes);
}

/* Reduce in ranks' order, from the last, and pairwise, rounding after each operation; then divide.
 */
std::vector<double> EveryWay(const struct perf_data &data, size_t index)
{
    std::vector<double> inputs;
    for (int r = 0; r < data.nranks; r++) {
        unsigned char bytes[PERF_ELEMENT_MAX];
        perf_input(&data, r, index, bytes);
        const double scale = data.op == PERF_OP_PREMULSUM ? perf_premul_factor(r) : 1;
        inputs.push_back(Rounded(data.type, scale * perf_decode(data.type, bytes)));
    }
    std::vector<double> totals(3);
    totals[0] = inputs.front();
    totals[1] = inputs.back();
    for (size_t r = 1; r < inputs.size(); r++) {
        totals[0] = Rounded(data.type, Combine(data.op, totals[0], inputs[r]));
        totals[1] = Rounded(data.type, Combine(data.op, totals[1], inputs[inputs.size() - 1 - r]));
    }
    while (inputs.size() > 1) {
        for (size_t r = 0; 2 * r + 1 < inputs.size(); r++) {
            inputs[r] = Rounded(data.type, Combine(data.op, inputs[2 * r], inputs[2 * r + 1]));
        }
        if (inputs.size() % 2 == 1) {
            inputs[inputs.size() / 2] = inputs.back();
        }
        inputs.resize((inputs.size() + 1) / 2);
    }
    totals[2] = inputs.front();
    for (double &total : totals) {
        total = data.op == KOLO_AVG ? total / data.nranks : total;
    }
    return totals;
}

TEST(PerfData, NoOrderOfTheOperationsRounds)
{
    for (int t = 0; t < KOLO_BOOL; t++) {
        for (uint32_t op : {uint32_t{KOLO_SUM}, uint32_t{KOLO_PROD}, uint32_t{KOLO_MIN},
                            uint32_t{KOLO_MAX}, uint32_t{KOLO_AVG}, uint32_t{PERF_OP_PREMULSUM}}) {
            for (int nranks : {1, 2, 3, 7, 8, 20, 300}) {
                const struct perf_data data = {static_cast<enum kolo_type>(t), op, nranks, 5};
                for (size_t i = 0; i < 50; i++) {
                    unsigned char expected[PERF_ELEMENT_MAX] = {}, got[PERF_ELEMENT_MAX] = {};
                    perf_expected(&data, PERF_REDUCED, i, expected);
                    for (double total : EveryWay(data, i)) {
                        perf_encode(data.type, total, got);
                        ASSERT_EQ(0, memcmp(expected, got, sizeof(got)))
                            << perf_type_name(data.type) << " " << perf_op_name(op) << " of "
                            << nranks;
                    }
                }
            }
        }
    }
}

TEST(PerfData, ResultsDifferFromElementToElementAndFromRankToRank)
{
    for (int t = 0; t < KOLO_TYPES; t++) {
        for (uint32_t op = 0; op < PERF_OPS; op++) {
            const auto type = static_cast<enum kolo_type>(t);
            const struct perf_data data = {type, op, 4, 1}, later = {type, op, 4, 2};
            if (!perf_op_takes(op, type)) {
                continue;
            }
            int elements = 0, ranks = 0, calls = 0;
            for (size_t i = 0; i < 64; i++) {
                unsigned char a[PERF_ELEMENT_MAX] = {}, b[PERF_ELEMENT_MAX] = {};
                perf_expected(&data, op == PERF_OP_NONE ? 0 : PERF_REDUCED, i, a);
                perf_expected(&data, op == PERF_OP_NONE ? 0 : PERF_REDUCED, i + 1, b);
                elements += memcmp(a, b, sizeof(a)) != 0;
                perf_input(&data, 0, i, a);
                perf_input(&data, 1, i, b);
                ranks += memcmp(a, b, sizeof(a)) != 0;
                perf_input(&later, 0, i, b);
                calls += memcmp(a, b, sizeof(a)) != 0;
            }
            SCOPED_TRACE(std::string(perf_type_name(type)) + " " + perf_op_name(op));
            EXPECT_GT(elements, 4);
            EXPECT_GT(ranks, 4);
            EXPECT_GT(calls, 4);
        }
    }
}

struct perf_shape ShapeOf(const struct perf_collective *collective, int nranks, int rank, int root,
                          size_t count, std::vector<size_t> *counts)
{
    counts->assign(4 * static_cast<size_t>(nranks), 0);
    struct perf_shape shape = {};
    shape.rank = rank;
    shape.nranks = nranks;
    shape.root = root;
    shape.spread = 1;
    shape.count = count;
    shape.counts = counts->data();
    collective->shape(&shape);
    return shape;
}

TEST(PerfCollectives, BlocksCoverTheResultOnceAndComeFromWithinTheInputs)
{
    for (const struct perf_collective *collective : kCollectives) {
        for (int nranks = 1; nranks <= 9; nranks++) {
            for (int rank = 0; rank < nranks; rank++) {
                SCOPED_TRACE(std::string(collective->name) + " rank " + std::to_string(rank));
                const int root = nranks / 2;
                std::vector<size_t> counts, source_counts;
                const struct perf_shape shape =
                    ShapeOf(collective, nranks, rank, root, 37, &counts);
                std::vector<int> covered(shape.recv_elems, 0);
                struct perf_block block;
                for (size_t k = 0; collective->block(&shape, k, &block); k++) {
                    const int source = block.source == PERF_REDUCED ? 0 : block.source;
                    const struct perf_shape sender =
                        ShapeOf(collective, nranks, source, root, 37, &source_counts);
                    ASSERT_LE(block.first + block.elems, shape.recv_elems);
                    ASSERT_LE(block.source_first + block.elems, sender.send_elems);
                    for (size_t i = 0; i < block.elems; i++) {
                        covered[block.first + i]++;
                    }
                }
                EXPECT_EQ(shape.recv_elems,
                          static_cast<size_t>(std::count(covered.begin(), covered.end(), 1)));
                EXPECT_GE(std::max(shape.total, shape.count),
                          std::max(shape.send_elems, shape.recv_elems));
            }
        }
    }
}

TEST(PerfCollectives, BusBandwidthFactorsAreThoseOfNcclTests)
{
    const struct {
        const struct perf_collective *collective;
        double of_2, of_8;
    } cases[] = {{&perf_all_reduce, 1, 1.75},
                 {&perf_all_gather, 0.5, 0.875},
                 {&perf_reduce_scatter, 0.5, 0.875},
                 {&perf_alltoall, 0.5, 0.875},
                 {&perf_alltoallv, 0.5, 0.875},
                 {&perf_gather, 0.5, 0.875},
                 {&perf_scatter, 0.5, 0.875},
                 {&perf_broadcast, 1, 1},
                 {&perf_hypercube, 1, 1},
                 {&perf_reduce, 1, 1},
                 {&perf_sendrecv, 1, 1}};
    for (const auto &c : cases) {
        EXPECT_DOUBLE_EQ(c.of_2, c.collective->factor(2)) << c.collective->name;
        EXPECT_DOUBLE_EQ(c.of_8, c.collective->factor(8)) << c.collective->name;
    }
}

TEST(PerfCollectives, TheHypercubeCountsWhatARankReceivesAndNeedsAPowerOfTwo)
{
    EXPECT_DOUBLE_EQ(0.875, perf_hypercube.share(8));
    for (const int nranks : {1, 2, 4, 64}) {
        EXPECT_TRUE(perf_hypercube.runs(nranks)) << nranks;
    }
    for (const int nranks : {3, 6, 63}) {
        EXPECT_FALSE(perf_hypercube.runs(nranks)) << nranks;
    }
}

/* A right result of an all-to-all on rank 1 of 3. */
class PerfCheck : public ::testing::Test
{
  protected:
    PerfCheck()
    {
        shape = ShapeOf(&perf_alltoall, 3, 1, -1, 100, &counts);
        recv.resize(shape.recv_elems * sizeof(float));
        send.resize(shape.send_elems * sizeof(float));
        perf_fill_input(&data, 1, send.data(), shape.send_elems);
        struct perf_block block;
        for (size_t k = 0; perf_alltoall.block(&shape, k, &block); k++) {
            for (size_t i = 0; i < block.elems; i++) {
                perf_input(&data, block.source, block.source_first + i,
                           &recv[(block.first + i) * sizeof(float)]);
            }
        }
    }
    struct perf_data data = {KOLO_FLOAT32, PERF_OP_NONE, 3, 9};
    std::vector<size_t> counts;
    std::vector<unsigned char> recv, send;
    struct perf_shape shape;
    Text text;
};

TEST_F(PerfCheck, FindsNothingInARightResult)
{
    EXPECT_EQ(0, perf_check(&perf_alltoall, &data, &shape, recv.data(), text.File()));
    EXPECT_EQ(0, perf_check_send(&data, &shape, send.data(), recv.data()));
    EXPECT_EQ("", text.Str());
}

TEST_F(PerfCheck, FindsEachFlippedBitAndSaysWhere)
{
    for (size_t bit = 0; bit < 8 * recv.size(); bit += 7) {
        recv[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
        ASSERT_EQ(1, perf_check(&perf_alltoall, &data, &shape, recv.data(), text.File())) << bit;
        recv[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
    }
    EXPECT_NE(std::string::npos,
              text.Str().find("rank 1 of 3, float none, element 7 of 300: got "));
}

TEST_F(PerfCheck, CountsEveryWrongElementButDescribesOnlyThree)
{
    std::fill(recv.begin(), recv.end(), static_cast<unsigned char>(0xA5));
    EXPECT_EQ(300, perf_check(&perf_alltoall, &data, &shape, recv.data(), text.File()));
    const std::string described = text.Str();
    EXPECT_EQ(3, std::count(described.begin(), described.end(), '\n'));
}

TEST_F(PerfCheck, FindsAChangedInput)
{
    send[401] ^= 1;
    EXPECT_EQ(1, perf_check_send(&data, &shape, send.data(), recv.data()));
}

TEST(PerfBuffer, WritesBesideTheUsedPartAreCountedByteByByte)
{
    struct perf_buffer buffer;
    ASSERT_TRUE(perf_buffer_create(1000, false, &buffer));
    perf_poison(&buffer, 100);
    memset(buffer.bytes, 0, 100);
    EXPECT_EQ(0, perf_guard_check(&buffer, 100));
    buffer.bytes[-1] = 0;
    buffer.bytes[100] = 0;
    buffer.bytes[100 + PERF_GUARD_BYTES - 1] = 0;
    EXPECT_EQ(3, perf_guard_check(&buffer, 100));
    perf_buffer_destroy(&buffer);
}

/* ---- statistics and reports ---- */

TEST(PerfStats, PercentilesAreTheNearestRank)
{
    std::vector<double> values;
    for (int i = 100; i >= 1; i--) {
        values.push_back(i);
    }
    std::sort(values.begin(), values.end());
    EXPECT_EQ(50, perf_percentile(values.data(), values.size(), 0.5));
    EXPECT_EQ(99, perf_percentile(values.data(), values.size(), 0.99));
    EXPECT_EQ(1, perf_percentile(values.data(), values.size(), 0));
    EXPECT_EQ(1, perf_percentile(values.data(), 1, 0.99));
}

TEST(PerfStats, SingleCallsAreSummarised)
{
    double times[] = {4, 2, 3, 1, 10};
    struct perf_calls calls;
    perf_calls_summarise(times, 5, &calls);
    EXPECT_EQ(1, calls.min_us);
    EXPECT_EQ(10, calls.max_us);
    EXPECT_EQ(4, calls.avg_us);
    EXPECT_EQ(3, calls.p50_us);
    EXPECT_EQ(10, calls.p95_us);
    EXPECT_EQ(10, calls.p99_us);
    EXPECT_DOUBLE_EQ(std::sqrt(10.0), calls.stdev_us);
    EXPECT_DOUBLE_EQ(25 * std::sqrt(10.0), calls.cv_percent);
}

TEST(PerfStats, TimesOfRanksBecomeOneAsAsked)
{
    const double times[] = {4, -1, 2, -1, 6};
    EXPECT_EQ(4, perf_average_times(times, 3, 2, PERF_RANK0));
    EXPECT_EQ(4, perf_average_times(times, 3, 2, PERF_AVERAGE));
    EXPECT_EQ(2, perf_average_times(times, 3, 2, PERF_MIN));
    EXPECT_EQ(6, perf_average_times(times, 3, 2, PERF_MAX));
}

std::string NumberText(double value, int width)
{
    char text[32];
    perf_number_text(value, width, text, sizeof(text));
    return text;
}

TEST(PerfReport, NumbersLoseDecimalsToFitTheirColumn)
{
    EXPECT_EQ("0.00", NumberText(0, 7));
    EXPECT_EQ("9999.99", NumberText(9999.99, 7));
    EXPECT_EQ("10000.0", NumberText(9999.996, 7));
    EXPECT_EQ("99999.9", NumberText(99999.94, 7));
    EXPECT_EQ("1234567", NumberText(1234567.4, 7));
    EXPECT_EQ("1e+08", NumberText(123456789, 7));
}

struct perf_row Row()
{
    struct perf_row row = {};
    row.bytes = 1048576;
    row.count = 262144;
    row.type = KOLO_FLOAT32;
    row.op = KOLO_SUM;
    row.root = -1;
    row.iters = 20;
    row.halves[0] = {true, true, 61.814, 16.964, 29.686, 0, {}, nullptr, 0};
    row.halves[0].calls = {60.1, 70.5, 61.3, 61.2, 69, 70.2, 1.5, 2.447};
    row.halves[1] = {true, true, 12345.678, 0.085, 0.149, 12, {}, nullptr, 0};
    row.halves[1].calls = {12000, 123456.7, 12345.6, 12345.6, 99999, 99999.9, 12345.6, 100};
    return row;
}

TEST(PerfReport, ARowAndItsHeaderHaveTheColumnsOfNcclTests)
{
    Text text;
    struct perf_row row = Row();
    const struct perf_options options = {};
    perf_print_header(text.File(), &options);
    perf_print_row(text.File(), &row, &options);
    row.halves[1].ran = row.halves[1].checked = row.halves[0].checked = false;
    perf_print_row(text.File(), &row, &options);
    EXPECT_EQ("#                                                              out-of-place         "
              "              "
              "in-place          \n"
              "#       size         count      type   redop    root     time   algbw   busbw  "
              "#wrong     time   "
              "algbw   busbw  #wrong \n"
              "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)       "
              "      (us)  "
              "(GB/s)  (GB/s)         \n"
              "     1048576        262144     float     sum      -1    61.81   16.96   29.69       "
              "0  12345.7    "
              "0.09    0.15      12\n"
              "     1048576        262144     float     sum      -1    61.81   16.96   29.69     "
              "N/A      N/A     "
              "N/A     N/A     N/A\n",
              text.Str());
}

TEST(PerfReport, SingleCallTimesStandBehindTheWrongElements)
{
    Text text;
    const struct perf_row row = Row();
    struct perf_options options = {};
    options.per_call = 1;
    perf_print_row(text.File(), &row, &options);
    EXPECT_EQ(
        "     1048576        262144     float     sum      -1    61.81   16.96   29.69       0"
        "    60.10    70.50    70.20     2.45"
        "  12345.7    0.09    0.15      12  12000.0   123457  99999.9   100.00\n",
        text.Str());
}

TEST(PerfReport, EveryColumnHasATitle)
{
    for (const bool per_call : {false, true}) {
        for (const bool timestamps : {false, true}) {
            Text header, line;
            const struct perf_row row = Row();
            struct perf_options options = {};
            options.per_call = per_call;
            options.timestamps = timestamps;
            perf_print_header(header.File(), &options);
            perf_print_row(line.File(), &row, &options);
            const std::string all = header.Str();
            const size_t titles = all.find('\n') + 1;
            const size_t length = all.find('\n', titles) - titles;
            /* Without a timestamp, a blank stands where nccl-tests has one. */
            EXPECT_EQ(length, line.Str().size() - 1 + (timestamps ? 0 : 1)) << all << line.Str();
        }
    }
}

TEST(PerfReport, TheSummaryCountsBothHalvesAndDecidesTheExitStatus)
{
    struct perf_summary summary = {};
    summary.busbw_min = -1;
    struct perf_row row = Row();
    row.halves[1].wrong = 0;
    perf_summary_add(&summary, &row);
    EXPECT_EQ(PERF_EXIT_OK, perf_summary_exit(&summary));
    EXPECT_DOUBLE_EQ((29.686 + 0.149) / 2, perf_summary_busbw(&summary));
    Text text;
    perf_print_summary(text.File(), &perf_all_reduce, &summary);
    EXPECT_EQ(0u, text.Str().find(
                      "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 14.9175 \n#\n"));
    summary.busbw_min = 16;
    EXPECT_EQ(PERF_EXIT_OK, perf_summary_exit(&summary)) << "a tenth below is still well";
    summary.busbw_min = 17;
    EXPECT_EQ(PERF_EXIT_WRONG, perf_summary_exit(&summary));
    summary.busbw_min = -1;
    summary.out_of_bounds = 1;
    EXPECT_EQ(PERF_EXIT_WRONG, perf_summary_exit(&summary));
    summary.out_of_bounds = 0;
    row.halves[0].wrong = 1;
    perf_summary_add(&summary, &row);
    EXPECT_EQ(PERF_EXIT_WRONG, perf_summary_exit(&summary));
}

TEST(PerfJson, OddNamesAreEscapedAndAnExistingFileIsKept)
{
    char folder[] = "/tmp/kolo-perf-XXXXXX";
    ASSERT_NE(nullptr, mkdtemp(folder));
    const std::string path = std::string(folder) + "/a.json", next = path + ".0";
    std::string word = "q\"\\\n\xC3\xA9\xFF";
    char *argv[] = {word.data()};
    struct perf_device device = {};
    struct perf_summary summary = {};
    const struct perf_row row = Row();
    const Parsed parsed = Parse({"-J", path});
    for (int k = 0; k < 2; k++) {
        struct perf_json json;
        ASSERT_TRUE(perf_json_open(&json, path.c_str(), stderr));
        perf_json_begin(&json, &perf_all_reduce, &parsed.options, 1, argv, &device, 1);
        perf_json_row(&json, &perf_all_reduce, &row, &parsed.options);
        ASSERT_TRUE(perf_json_end(&json, &summary, nullptr));
    }
    char content[8192] = {};
    FILE *file = fopen(next.c_str(), "re");
    ASSERT_NE(nullptr, file);
    const size_t length = fread(content, 1, sizeof(content) - 1, file);
    fclose(file);
    ASSERT_GT(length, 0u);
    EXPECT_NE(nullptr, strstr(content, "\"args\":[\"q\\\"\\\\\\u000a\xC3\xA9\\u00ff\"]"));
    EXPECT_NE(nullptr, strstr(content, "\"nwrong\":12}"));
    EXPECT_EQ(0, remove(path.c_str()));
    EXPECT_EQ(0, remove(next.c_str()));
    EXPECT_EQ(0, rmdir(folder));
}

TEST(PerfMachine, RanksOfOneHostShareItsMemory)
{
    struct perf_device devices[3] = {};
    const char *const hosts[] = {"a", "b", "a"};
    for (int r = 0; r < 3; r++) {
        snprintf(devices[r].host, sizeof(devices[r].host), "%s", hosts[r]);
        devices[r].available_bytes = 16000;
    }
    devices[1].available_bytes = 40000;
    EXPECT_EQ(3000u, perf_memory_limit(devices, 3, 2));
    EXPECT_EQ(2000u, perf_memory_limit(devices, 3, 3));
    perf_number_devices(devices, 3);
    EXPECT_EQ(0, devices[0].device);
    EXPECT_EQ(0, devices[1].device);
    EXPECT_EQ(1, devices[2].device);
}

} // namespace
