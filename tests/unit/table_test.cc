// SPDX-License-Identifier: Apache-2.0
// covers: src/tune/table.c src/tune/table_read.c
/* Tables of measured choices: reading, what is refused and how, which row decides, files. */
extern "C" {
#include "core/setup/tune_table.h"
#include "plan/plan.h"
#include "topology/draw/draw.h"
#include "topology/machine/host.h"
#include "topology/source.h"
#include "tune/tune.h"
}

#include "../temp_file.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <unistd.h>

namespace
{

using Table = std::unique_ptr<kolo_table, decltype(&kolo_table_destroy)>;
using Chooser = std::unique_ptr<kolo_chooser, decltype(&kolo_chooser_destroy)>;
using Host = std::unique_ptr<kolo_host, decltype(&kolo_host_destroy)>;

const std::string kHead = "kolo-table 1\nmachine any\n";

int AlgoCount()
{
    return kolo_algos_count;
}

const kolo_algo *AlgoAt(int index)
{
    return kolo_algos[index];
}

Table Parse(const std::string &rows, const std::string &head = kHead)
{
    const kolo_table_source source = {"file", AlgoCount, AlgoAt};
    kolo_table *table = nullptr;
    EXPECT_EQ(KOLO_OK, kolo_table_parse((head + rows).c_str(), &source, &table))
        << kolo_error_text();
    return {table, kolo_table_destroy};
}

std::string Refusal(const std::string &text)
{
    const kolo_table_source source = {"file", AlgoCount, AlgoAt};
    kolo_table *table = nullptr;
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_table_parse(text.c_str(), &source, &table)) << text;
    EXPECT_EQ(nullptr, table);
    kolo_table_destroy(table);
    return kolo_error_text();
}

std::string RowRefusal(const std::string &rows)
{
    return Refusal(kHead + rows);
}

/* The algorithm of the first row that fits. */
std::string Find(const Table &table, kolo_coll coll, int nranks, size_t bytes, bool mapped = false)
{
    int at = 0;
    const kolo_row *row = kolo_table_next(table.get(), coll, nranks, bytes, mapped, &at);
    return row != nullptr ? kolo_algo_word(row->algo) : "none";
}

std::string Written(const kolo_row *row)
{
    kolo_text text = {};
    kolo_table_write_row(row, &text);
    const std::string written = text.chars != nullptr ? text.chars : "";
    kolo_text_free(&text);
    return written;
}

#define EXPECT_HAS(text, part)                                                                     \
    EXPECT_NE(std::string::npos, (text).find(part)) << "\"" << (text) << "\" lacks " << (part)

// ---- reading

TEST(Table, ARowIsReadAsItIsWritten)
{
    const std::string rows[] = {
        "allreduce 2 [32k,256k) direct default private us=12.30 default_us=15.10 gain=18.5% "
        "sigma=1.2%\n",
        "broadcast 3-8 * chain 64k any\n", "gather * [1M,) direct 1M shared\n",
        "barrier 4 * dissemination default any\n", "reduce 2 [0,100) chain 12345 any\n"};
    for (const std::string &row : rows) {
        const Table table = Parse(row);
        ASSERT_EQ(1, kolo_table_rows(table.get()));
        EXPECT_EQ(row, Written(kolo_table_row(table.get(), 0)));
    }
}

TEST(Table, CommentsBlanksAndEmptyLinesDoNotCount)
{
    const Table table = Parse("\n  # a comment\n\tallreduce  2   *  ring default any  # tail\r\n\n",
                              "# first\n\n kolo-table 1 # version\nmachine any\n");
    EXPECT_EQ(1, kolo_table_rows(table.get()));
    EXPECT_EQ("ring", Find(table, KOLO_COLL_ALL_REDUCE, 2, 8));
}

TEST(Table, TheFirstRowThatFitsDecides)
{
    const Table table = Parse("allreduce 2 [4k,64k) direct default any\n"
                              "allreduce 2-4 [1k,) ring default any\n"
                              "allreduce * * chain default any\n");
    EXPECT_EQ("chain", Find(table, KOLO_COLL_ALL_REDUCE, 2, 1023));
    EXPECT_EQ("ring", Find(table, KOLO_COLL_ALL_REDUCE, 2, 1024));
    EXPECT_EQ("direct", Find(table, KOLO_COLL_ALL_REDUCE, 2, 4096));
    EXPECT_EQ("direct", Find(table, KOLO_COLL_ALL_REDUCE, 2, 65535));
    EXPECT_EQ("ring", Find(table, KOLO_COLL_ALL_REDUCE, 2, 65536));
    EXPECT_EQ("ring", Find(table, KOLO_COLL_ALL_REDUCE, 4, SIZE_MAX));
    EXPECT_EQ("chain", Find(table, KOLO_COLL_ALL_REDUCE, 5, 4096));
    EXPECT_EQ("none", Find(table, KOLO_COLL_BROADCAST, 2, 4096));
}

TEST(Table, BuffersSelectRows)
{
    const Table table = Parse("allreduce 2 * direct default shared\n"
                              "allreduce 2 * ring default private\n");
    EXPECT_EQ("direct", Find(table, KOLO_COLL_ALL_REDUCE, 2, 8, true));
    EXPECT_EQ("ring", Find(table, KOLO_COLL_ALL_REDUCE, 2, 8, false));
}

TEST(Table, WhatWasMeasuredIsRead)
{
    const Table table =
        Parse("allreduce 2 * ring default any us=1.5 default_us=2 gain=25% sigma=0.5%\n");
    const kolo_row *row = kolo_table_row(table.get(), 0);
    EXPECT_DOUBLE_EQ(1.5, row->us);
    EXPECT_DOUBLE_EQ(2, row->default_us);
    EXPECT_DOUBLE_EQ(0.25, row->gain);
    EXPECT_DOUBLE_EQ(0.005, row->sigma);
}

// ---- refusing

TEST(TableRefusal, NamesFileLineColumnWordAndWhatIsAllowed)
{
    EXPECT_EQ(
        "file:3:31: \"none\" says nothing about buffers; \"private\", \"shared\" or \"any\" would",
        RowRefusal("broadcast 2 * chain   default none\n"));
}

TEST(TableRefusal, EveryWordOfARowIsChecked)
{
    const struct {
        const char *row, *place, *why;
    } cases[] = {
        {"all 2 * ring default any", ":3:1:", "is no collective; there are allreduce"},
        {"allreduce", ":3:10:", "is no number of ranks"},
        {"allreduce 0 * ring default any", ":3:11:", "is no number of ranks"},
        {"allreduce 4-2 * ring default any", ":3:11:", "is empty"},
        {"allreduce 2- * ring default any", ":3:11:", "is no number of ranks"},
        {"allreduce 2 4k-8k ring default any", ":3:13:", "is no range of bytes"},
        {"allreduce 2 [4k,8k] ring default any", ":3:13:", "is no range of bytes"},
        {"allreduce 2 [4q,8k) ring default any", ":3:14:", "is no number of bytes"},
        {"allreduce 2 [4k,8q) ring default any", ":3:17:", "is no number of bytes"},
        {"allreduce 2 [,8k) ring default any", ":3:13:", "is no number of bytes"},
        {"allreduce 2 [8k,4k) ring default any", ":3:13:", "is empty"},
        {"allreduce 2 * binomial default any", ":3:15:", "is no algorithm of allreduce"},
        {"allreduce 2 * ring 0 any", ":3:20:", "is no tile"},
        {"allreduce 2 * ring default both", ":3:28:", "says nothing about buffers"},
        {"allreduce 2 * ring default", ":3:27:", "says nothing about buffers"},
        {"allreduce 2 * ring default any fast", ":3:32:", "is not known"},
        {"allreduce 2 * ring default any us=1us", ":3:32:", "wants a decimal number"},
        {"allreduce 2 * ring default any gain=1", ":3:32:", "wants a decimal number and \"%\""},
        {"allreduce 2 * ring default any us=1 us=2", ":3:37:", "is there twice"},
    };
    for (const auto &c : cases) {
        SCOPED_TRACE(c.row);
        const std::string text = RowRefusal(std::string(c.row) + "\n");
        EXPECT_HAS(text, std::string("file") + c.place);
        EXPECT_HAS(text, c.why);
    }
}

TEST(TableRefusal, TheHeadIsChecked)
{
    EXPECT_HAS(Refusal(""), "it ends before \"kolo-table 1\"");
    EXPECT_HAS(Refusal("kolo-table 1\n"), "it ends before \"machine\"");
    EXPECT_HAS(Refusal("allreduce 2 * ring default any\n"), "is not how a table begins");
    EXPECT_HAS(Refusal("kolo-table 2\nmachine any\n"), "file:1:12: \"2\" is no version");
    EXPECT_HAS(Refusal("kolo-table 1 1\nmachine any\n"), "is too much");
    EXPECT_HAS(Refusal("kolo-table 1\nallreduce 2 * ring default any\n"), "must be \"machine\"");
    EXPECT_HAS(Refusal("kolo-table 1\nmachine\n"), "where the machine must be named");
}

TEST(TableRefusal, ARowThatCanNeverMatchIsRefused)
{
    EXPECT_HAS(RowRefusal("allreduce 2 * ring default any\nallreduce 2 [4k,8k) chain default any"),
               "file:4:1: \"allreduce\" begins a row that can never match");
    EXPECT_HAS(RowRefusal("allreduce 2 [0,8k) ring default any\n"
                          "allreduce 2-3 [8k,) ring default any\n"
                          "allreduce 2 [4k,16k) chain default any\n"),
               "file:5:1:");
    EXPECT_HAS(RowRefusal("allreduce 2 * ring default shared\nallreduce 2 * ring default private\n"
                          "allreduce 2 * chain default any\n"),
               "can never match");
}

TEST(TableRefusal, ARowThatMatchesSomewhereIsNotRefused)
{
    EXPECT_EQ(3, kolo_table_rows(Parse("allreduce 2 [0,8k) ring default any\n"
                                       "allreduce 3 [8k,) ring default any\n"
                                       "allreduce 2-3 [4k,8k) chain default any\n")
                                     .get()))
        << "4k to 8k with 3 ranks";
    EXPECT_EQ(2, kolo_table_rows(Parse("allreduce 2 * ring default shared\n"
                                       "allreduce 2 * chain default any\n")
                                     .get()))
        << "private buffers";
    EXPECT_EQ(2, kolo_table_rows(Parse("allreduce 1-7 * ring default any\n"
                                       "allreduce * * chain default any\n")
                                     .get()))
        << "8 ranks";
}

TEST(TableRefusal, TooManyRowsAreRefused)
{
    std::string rows;
    for (int i = 1; i <= KOLO_TABLE_ROWS + 1; i++) {
        rows += "barrier " + std::to_string(i) + " * dissemination default any\n";
    }
    EXPECT_HAS(RowRefusal(rows), "is one row too many");
}

// ---- choosing

kolo_chooser_options Options(const Table &table, int nranks)
{
    kolo_chooser_options options = {};
    options.nranks = nranks;
    options.nhosts = 1;
    EXPECT_TRUE(kolo_costs_parse("cores=64,latency_us=0.2,copy_gbs=20", &options.costs));
    options.algo_count = AlgoCount;
    options.algo_at = AlgoAt;
    options.max_phases = 256;
    options.table = table.get();
    return options;
}

Chooser Make(const kolo_chooser_options &options)
{
    kolo_chooser *chooser = nullptr;
    EXPECT_EQ(KOLO_OK, kolo_chooser_create(&options, &chooser)) << kolo_error_text();
    return {chooser, kolo_chooser_destroy};
}

kolo_pick Choose(const Chooser &chooser, kolo_coll coll, size_t bytes, bool mapped = false)
{
    kolo_pick pick = {};
    EXPECT_EQ(KOLO_OK, (mapped ? kolo_choose_mapped : kolo_choose)(chooser.get(), coll, 0, bytes,
                                                                   KOLO_FLOAT32, &pick))
        << kolo_error_text();
    return pick;
}

TEST(TableChoice, ARowDecidesAlgorithmAndTile)
{
    const Table table = Parse("allreduce 4 [1k,) chain 64k any\n");
    const Chooser chooser = Make(Options(table, 4));
    const kolo_pick pick = Choose(chooser, KOLO_COLL_ALL_REDUCE, 1 << 20);
    EXPECT_STREQ("allreduce_chain", pick.algo->base.name);
    EXPECT_STREQ("table", pick.source);
    EXPECT_EQ(65536u, pick.tile_bytes);
    EXPECT_GT(pick.predicted_us, 0);
    EXPECT_STREQ("price", Choose(chooser, KOLO_COLL_ALL_REDUCE, 512).source);
    EXPECT_STREQ("price", Choose(chooser, KOLO_COLL_BROADCAST, 1 << 20).source);
}

TEST(TableChoice, CallsOnSharedBuffersHaveTheirOwnRows)
{
    const Table table = Parse("allreduce 4 * chain default shared\n"
                              "allreduce 4 * ring default private\n");
    const Chooser chooser = Make(Options(table, 4));
    EXPECT_TRUE(kolo_chooser_looks_at_buffers(chooser.get()));
    EXPECT_STREQ("allreduce_ring", Choose(chooser, KOLO_COLL_ALL_REDUCE, 8192).algo->base.name);
    EXPECT_STREQ("allreduce_chain",
                 Choose(chooser, KOLO_COLL_ALL_REDUCE, 8192, true).algo->base.name);
}

TEST(TableChoice, RulesGoBeforeTheTable)
{
    const Table table = Parse("allreduce * * chain default any\n");
    kolo_rules *rules = nullptr;
    ASSERT_EQ(KOLO_OK, kolo_rules_parse("allreduce:4k-:ring", &rules));
    kolo_chooser_options options = Options(table, 4);
    options.rules = rules;
    const Chooser chooser = Make(options);
    EXPECT_STREQ("rules", Choose(chooser, KOLO_COLL_ALL_REDUCE, 8192).source);
    EXPECT_STREQ("table", Choose(chooser, KOLO_COLL_ALL_REDUCE, 8).source);
    kolo_rules_destroy(rules);
}

TEST(TableChoice, ARowWhoseAlgorithmCannotRunIsPassedOver)
{
    const Table table = Parse("allgather 3-4 * doubling default any\n"
                              "allgather 2-4 * bruck default any\n");
    EXPECT_STREQ("allgather_doubling",
                 Choose(Make(Options(table, 4)), KOLO_COLL_ALL_GATHER, 8).algo->base.name);
    EXPECT_STREQ("allgather_bruck",
                 Choose(Make(Options(table, 3)), KOLO_COLL_ALL_GATHER, 8).algo->base.name);
}

TEST(TableChoice, WhereSumsMustBeInRankOrderOnlySuchRowsCount)
{
    const Table table = Parse("allreduce * * ring default any\n");
    kolo_chooser_options options = Options(table, 4);
    options.deterministic = true;
    EXPECT_STREQ("price", Choose(Make(options), KOLO_COLL_ALL_REDUCE, 8192).source);
}

TEST(TableChoice, TheLogLineTellsTileAndBuffers)
{
    const Table table = Parse("allreduce 4 * chain 64k shared\n");
    const Chooser chooser = Make(Options(table, 4));
    kolo_text text = {};
    Choose(chooser, KOLO_COLL_ALL_REDUCE, 1 << 20, true);
    kolo_choice_line(chooser.get(), KOLO_COLL_ALL_REDUCE, 0, 1 << 20, &text);
    EXPECT_HAS(std::string(text.chars), "-> Algo CHAIN (table, tiles of 65536, shared buffers): ");
    kolo_text_free(&text);
}

TEST(TableChoice, TilesGoByTheSizeAndBySharedCoresAndBuffers)
{
    const Table table = Parse("scatter * * direct default any\n");
    kolo_chooser_options options = Options(table, 4);
    const Chooser roomy = Make(options);
    EXPECT_EQ(512u << 10, Choose(roomy, KOLO_COLL_ALL_REDUCE, 1 << 20).tile_bytes);
    EXPECT_EQ(512u << 10, Choose(roomy, KOLO_COLL_ALL_REDUCE, 1 << 20, true).tile_bytes);
    EXPECT_EQ(32u << 10, Choose(roomy, KOLO_COLL_BROADCAST, 128 << 10).tile_bytes);
    EXPECT_EQ(64u << 10, Choose(roomy, KOLO_COLL_BROADCAST, 512 << 10).tile_bytes);
    EXPECT_EQ(512u << 10, Choose(roomy, KOLO_COLL_BROADCAST, 1 << 20).tile_bytes);
    EXPECT_EQ(0u, Choose(roomy, KOLO_COLL_ALL_REDUCE, 256 << 10, true).tile_bytes) << "one tile";
    options.costs.cores = 3;
    const Chooser crowded = Make(options);
    EXPECT_EQ(0u, Choose(crowded, KOLO_COLL_ALL_REDUCE, 1 << 20).tile_bytes);
    EXPECT_EQ(1u << 20, Choose(crowded, KOLO_COLL_SCATTER, 1 << 20).tile_bytes) << "a default row";
    EXPECT_EQ(1u << 20, Choose(crowded, KOLO_COLL_GATHER, 128 << 10).tile_bytes);
    EXPECT_EQ(0u, Choose(crowded, KOLO_COLL_GATHER, 64 << 10).tile_bytes) << "one tile";
}

TEST(TableChoice, AForcedAlgorithmGoesBeforeAll)
{
    const Table table = Parse("allreduce * * chain default private\n");
    const Chooser chooser = Make(Options(table, 4));
    const kolo_algo *ring = nullptr;
    for (int i = 0; i < kolo_algos_count; i++) {
        ring = strcmp(kolo_algos[i]->base.name, "allreduce_ring") == 0 ? kolo_algos[i] : ring;
    }
    kolo_chooser_force(chooser.get(), ring, 4096);
    EXPECT_EQ(ring, Choose(chooser, KOLO_COLL_ALL_REDUCE, 8).algo);
    EXPECT_EQ(4096u, Choose(chooser, KOLO_COLL_ALL_REDUCE, 8).tile_bytes);
    EXPECT_STREQ("price", Choose(chooser, KOLO_COLL_BROADCAST, 8).source);
    kolo_chooser_force(chooser.get(), nullptr, 0);
    EXPECT_STREQ("table", Choose(chooser, KOLO_COLL_ALL_REDUCE, 8).source);
}

// ---- files and machines

class TableFile : public testing::Test
{
  protected:
    static Host Recorded(const char *file)
    {
        kolo_host *host = nullptr;
        const std::string name = std::string(KOLO_SOURCE_ROOT "/tests/data/") + file;
        EXPECT_EQ(KOLO_OK, kolo_host_load(name.c_str(), &host)) << kolo_error_text();
        return {host, kolo_host_destroy};
    }
    static std::string Fingerprint(const Host &host)
    {
        kolo_text text = {};
        kolo_host_fingerprint(host.get(), &text);
        const std::string words = text.chars != nullptr ? text.chars : "";
        kolo_text_free(&text);
        return words;
    }
    kolo_status Load(const std::string &text, const kolo_host *host)
    {
        char *read = nullptr;
        kolo_table *table = nullptr;
        std::ofstream(path) << text;
        const kolo_status st = kolo_table_load(path.c_str(), host, &read, &table);
        EXPECT_EQ(st == KOLO_OK, table != nullptr);
        free(read);
        kolo_table_destroy(table);
        return st;
    }

    const TempFile file_;
    const std::string &path = file_.path();
};

TEST_F(TableFile, AMachineIsNamedByAHashAndTheWordsItIsOf)
{
    const Host big = Recorded("hwloc-2pack-2l3-4core-2pu.xml");
    const std::string words = Fingerprint(big);
    EXPECT_EQ(16u, words.find(' '));
    EXPECT_EQ(16u, words.find_first_not_of("0123456789abcdef"));
    EXPECT_HAS(words, "2 packages, 16 cores, 32 PUs, L3 4 x 32 MiB shared by 8");
    EXPECT_HAS(words, "NUMA node");
    EXPECT_EQ(std::string::npos, words.find('\n'));
    EXPECT_EQ(words, Fingerprint(Recorded("hwloc-2pack-2l3-4core-2pu.xml")));
    EXPECT_NE(words.substr(0, 16),
              Fingerprint(Recorded("hwloc-2pack-2l3-2core.xml")).substr(0, 16));
}

TEST_F(TableFile, ATableOfAnotherMachineIsRefusedNamingBoth)
{
    const Host here = Recorded("hwloc-2pack-2l3-2core.xml");
    const Host there = Recorded("hwloc-2pack-2l3-4core-2pu.xml");
    const std::string text = "kolo-table 1\nmachine " + Fingerprint(there) + "\n";
    EXPECT_EQ(KOLO_ERR_INVALID, Load(text, here.get()));
    EXPECT_HAS(std::string(kolo_error_text()), Fingerprint(here));
    EXPECT_HAS(std::string(kolo_error_text()), Fingerprint(there));
    EXPECT_EQ(KOLO_OK, Load(text, there.get()));
    EXPECT_EQ(KOLO_OK, Load(kHead, here.get()));
    EXPECT_EQ(KOLO_OK, Load(text, nullptr));
}

TEST_F(TableFile, TheHashOfAMachineCountsNotItsWords)
{
    const Host here = Recorded("hwloc-2pack-2l3-2core.xml");
    const std::string hash = Fingerprint(here).substr(0, 16);
    EXPECT_EQ(KOLO_OK, Load("kolo-table 1\nmachine " + hash + " my own words\n", here.get()));
    EXPECT_EQ(KOLO_ERR_INVALID, Load("kolo-table 1\nmachine " + hash + "0\n", here.get()));
}

TEST_F(TableFile, WhatIsNoTextOfItsSizeIsRefused)
{
    EXPECT_EQ(KOLO_ERR_INVALID, Load(kHead + std::string(1, '\0') + "\n", nullptr));
    EXPECT_EQ(KOLO_ERR_INVALID, Load(kHead + std::string(KOLO_TABLE_BYTES, '#'), nullptr));
    EXPECT_EQ(KOLO_ERR_INVALID, Load(kHead + "nonsense\n", nullptr));
    EXPECT_HAS(std::string(kolo_error_text()), path + ":3:1: \"nonsense\"");
    unlink(path.c_str());
    char *read = nullptr;
    kolo_table *table = nullptr;
    EXPECT_EQ(KOLO_ERR_SYSTEM, kolo_table_load(path.c_str(), nullptr, &read, &table));
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_table_load("/tmp", nullptr, &read, &table));
}

TEST_F(TableFile, TheDefaultFileIsNamedByTheMachine)
{
    const Host here = Recorded("hwloc-2pack-2l3-2core.xml");
    const std::string end = "/kolo/" + Fingerprint(here).substr(0, 16) + ".tune";
    const auto where = [&here] {
        kolo_text text = {};
        kolo_table_path(here.get(), &text);
        const std::string file = text.chars != nullptr ? text.chars : "";
        kolo_text_free(&text);
        return file;
    };
    const char *home = getenv("HOME"), *config = getenv("XDG_CONFIG_HOME");
    const std::string old_home = home != nullptr ? home : "", old_config = config ? config : "";
    setenv("HOME", "/h", 1);
    setenv("XDG_CONFIG_HOME", "/c", 1);
    EXPECT_EQ("/c" + end, where());
    setenv("XDG_CONFIG_HOME", "relative", 1);
    EXPECT_EQ("/h/.config" + end, where());
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("HOME");
    EXPECT_EQ("", where());
    if (home != nullptr) {
        setenv("HOME", old_home.c_str(), 1);
    }
    if (config != nullptr) {
        setenv("XDG_CONFIG_HOME", old_config.c_str(), 1);
    }
}

} // namespace
