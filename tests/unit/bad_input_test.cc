// SPDX-License-Identifier: Apache-2.0
// covers: topology/formats
/* Bad input: each mistake gives its status and a text that names the argument, its value and what
 * is allowed; it changes nothing, and the communicator goes on working. */
#include <kolo/kolo.h>

#include <climits>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <vector>

namespace
{

class BadInput : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_EQ(KOLO_OK, kolo_comm_create_local(2, nullptr, comm_)) << kolo_error_text();
        std::memset(in_, 1, sizeof in_);
        std::memset(out_, 7, sizeof out_);
    }

    void TearDown() override
    {
        for (const unsigned char byte : out_) {
            ASSERT_EQ(7, byte) << "a refused call wrote to its buffer";
        }
        int x = 1, sum[2] = {};
        ASSERT_EQ(KOLO_OK, kolo_group_begin());
        for (int r = 0; r < 2; r++) {
            EXPECT_EQ(KOLO_OK,
                      kolo_all_reduce(&x, &sum[r], 1, KOLO_INT32, KOLO_SUM, comm_[r], nullptr));
        }
        EXPECT_EQ(KOLO_OK, kolo_group_end()) << "the communicator is not usable any more";
        EXPECT_EQ(2, sum[0]);
        EXPECT_EQ(2, sum[1]);
        kolo_comm_destroy(comm_[0]);
        kolo_comm_destroy(comm_[1]);
    }

    static void Refused(kolo_status st, const std::vector<std::string> &words,
                        kolo_status expected = KOLO_ERR_INVALID)
    {
        EXPECT_EQ(expected, st) << kolo_error_text();
        for (const std::string &word : words) {
            EXPECT_NE(std::string::npos, std::string(kolo_error_text()).find(word))
                << "\"" << word << "\" is not in: " << kolo_error_text();
        }
    }

    kolo_status Reduce(kolo_type type, kolo_op op)
    {
        return kolo_all_reduce(in_, out_, 1, type, op, comm_[0], nullptr);
    }

    kolo_comm *comm_[2] = {};
    alignas(16) unsigned char in_[256];
    alignas(16) unsigned char out_[256];
};

TEST_F(BadInput, NullBuffersAreNamed)
{
    Refused(kolo_all_reduce(nullptr, out_, 1, KOLO_INT32, KOLO_SUM, comm_[0], nullptr),
            {"send is NULL", "4 bytes"});
    Refused(kolo_all_reduce(in_, nullptr, 1, KOLO_INT32, KOLO_SUM, comm_[0], nullptr),
            {"recv is NULL"});
    Refused(kolo_broadcast(nullptr, out_, 1, KOLO_INT32, 0, comm_[0], nullptr), {"send is NULL"});
    Refused(kolo_gather(in_, nullptr, 1, KOLO_INT32, 0, comm_[0], nullptr), {"recv is NULL"});
    Refused(kolo_send(nullptr, 3, KOLO_INT32, 1, comm_[0], nullptr), {"buf is NULL", "3"});
}

TEST_F(BadInput, NullArgumentsAreNamed)
{
    kolo_comm *none = nullptr;
    Refused(kolo_all_reduce(in_, out_, 1, KOLO_INT32, KOLO_SUM, none, nullptr), {"comm is NULL"});
    Refused(kolo_barrier(nullptr, nullptr), {"comm is NULL"});
    Refused(kolo_comm_create_env(nullptr, nullptr), {"out is NULL"});
    Refused(kolo_comm_create_local(2, nullptr, nullptr), {"out is NULL"});
    Refused(kolo_comm_create(nullptr, 1, 0, nullptr, &none), {"id is NULL"});
    Refused(kolo_mem_alloc(8, nullptr), {"out is NULL"});
    Refused(kolo_comm_error(nullptr), {"comm is NULL"});
    Refused(kolo_stream_create(nullptr), {"out is NULL"});
    Refused(kolo_stream_sync(nullptr), {"stream is NULL"});
    Refused(kolo_all_gatherv(in_, out_, nullptr, nullptr, KOLO_INT32, comm_[0], nullptr),
            {"counts is NULL"});
    EXPECT_EQ(-1, kolo_comm_rank(nullptr));
    EXPECT_EQ(-1, kolo_comm_size(nullptr));
    kolo_comm_destroy(nullptr);
    kolo_mem_free(nullptr);
}

TEST_F(BadInput, CountsThatOverflowAreNamed)
{
    Refused(kolo_all_reduce(in_, out_, SIZE_MAX / 2, KOLO_INT64, KOLO_SUM, comm_[0], nullptr),
            {"count is 9223372036854775807", "at most"});
    Refused(kolo_all_gather(in_, out_, SIZE_MAX, KOLO_INT8, comm_[0], nullptr),
            {"count is 18446744073709551615"});
    const size_t counts[2] = {1, SIZE_MAX / 2}, displs[2] = {0, 4};
    Refused(kolo_all_gatherv(in_, out_, counts, displs, KOLO_INT32, comm_[0], nullptr),
            {"counts and displs", "rank 1", "overflow"});
    Refused(kolo_send(in_, SIZE_MAX, KOLO_INT8, 1, comm_[0], nullptr), {"count is", "at most"});
}

TEST_F(BadInput, UnknownTypesAndOperationsAreNamed)
{
    Refused(Reduce(static_cast<kolo_type>(99), KOLO_SUM), {"type is 99", "0 to 18"});
    Refused(Reduce(static_cast<kolo_type>(-1), KOLO_SUM), {"type is -1"});
    Refused(Reduce(KOLO_INT32, 500), {"op is 500"});
    Refused(kolo_send(in_, 1, static_cast<kolo_type>(19), 1, comm_[0], nullptr), {"type is 19"});
    EXPECT_EQ(0u, kolo_type_bytes(static_cast<kolo_type>(19)));
    EXPECT_STREQ("unknown", kolo_type_name(static_cast<kolo_type>(-1)));
}

// A wrong number that looked like one of a call that is known by now would be taken for it.
TEST_F(BadInput, UnknownTypesAndOperationsAreNamedAlsoAfterManyLikeCalls)
{
    static_assert(KOLO_INT8 == 0 && KOLO_PROD == 1, "256 is a bit of the operation");
    const auto multiply = [this](int rank, kolo_status *out) {
        int8_t x = 1, product = 0;
        *out = KOLO_OK;
        for (int i = 0; i < 4 && *out == KOLO_OK; i++) {
            *out = kolo_all_reduce(&x, &product, 1, KOLO_INT8, KOLO_PROD, comm_[rank], nullptr);
        }
    };
    kolo_status st[2];
    std::thread peer(multiply, 1, &st[1]);
    multiply(0, &st[0]);
    peer.join();
    ASSERT_EQ(KOLO_OK, st[0]);
    ASSERT_EQ(KOLO_OK, st[1]);
    Refused(Reduce(static_cast<kolo_type>(256), KOLO_SUM), {"type is 256"});
    Refused(Reduce(KOLO_INT8, 65536 + KOLO_PROD), {"op is 65537"});
}

TEST_F(BadInput, PairsOfTypeAndOperationThatMakeNoSenseNameBoth)
{
    Refused(Reduce(KOLO_FLOAT32, KOLO_BAND), {"band", "float32"});
    Refused(Reduce(KOLO_BFLOAT16, KOLO_LXOR), {"lxor", "bfloat16"});
    Refused(Reduce(KOLO_BOOL, KOLO_SUM), {"sum", "bool"});
    Refused(Reduce(KOLO_INT64_INT64, KOLO_SUM), {"sum", "int64_int64"});
    Refused(Reduce(KOLO_FLOAT64, KOLO_MINLOC), {"minloc", "float64"});
    Refused(kolo_reduce_scatter(in_, out_, 1, KOLO_BOOL, KOLO_AVG, comm_[0], nullptr),
            {"avg", "bool"});
}

TEST_F(BadInput, RanksOutOfRangeAreNamed)
{
    Refused(kolo_broadcast(in_, out_, 1, KOLO_INT32, -1, comm_[0], nullptr),
            {"root is -1", "0 to 1"});
    Refused(kolo_reduce(in_, out_, 1, KOLO_INT32, KOLO_SUM, 2, comm_[0], nullptr), {"root is 2"});
    const size_t one[2] = {1, 1}, at[2] = {0, 1};
    Refused(kolo_gatherv(in_, 1, out_, one, at, KOLO_INT32, 7, comm_[0], nullptr), {"root is 7"});
    Refused(kolo_send(in_, 1, KOLO_INT32, 2, comm_[0], nullptr), {"peer is 2", "0 to 1"});
    Refused(kolo_recv(out_, 1, KOLO_INT32, KOLO_ANY_SOURCE, comm_[0], nullptr), {"peer is -1"});
    Refused(kolo_send_tag(in_, 1, KOLO_INT32, 1, -3, comm_[0], nullptr), {"tag is -3"});
    Refused(kolo_recv_tag(out_, 1, KOLO_INT32, 1, -3, nullptr, comm_[0], nullptr), {"tag is -3"});
    kolo_comm *made = nullptr;
    kolo_id id;
    ASSERT_EQ(KOLO_OK, kolo_id_create(&id));
    Refused(kolo_comm_create(&id, 0, 0, nullptr, &made), {"nranks is 0"});
    Refused(kolo_comm_create(&id, 2, 2, nullptr, &made), {"rank is 2", "0 to 1"});
    Refused(kolo_comm_create_local(0, nullptr, &made), {"nranks is 0"});
    EXPECT_EQ(nullptr, made);
}

TEST_F(BadInput, BuffersThatOverlapPartlyAreRefused)
{
    Refused(kolo_all_reduce(in_, in_ + 4, 4, KOLO_INT32, KOLO_SUM, comm_[0], nullptr),
            {"send", "recv", "overlap"});
    Refused(kolo_all_gather(in_ + 4, in_, 4, KOLO_INT32, comm_[0], nullptr), {"overlap"});
    Refused(kolo_reduce_scatter(in_, in_ + 8, 4, KOLO_INT32, KOLO_SUM, comm_[0], nullptr),
            {"overlap"});
}

TEST_F(BadInput, RulesThatCannotBeFollowedAreRefused)
{
    kolo_comm *made[2] = {};
    kolo_config config = KOLO_CONFIG_INIT;
    for (const char *text : {"allreduce:foo", "allgather", "foo:ring", "allreduce:4k-0:ring",
                             "allreduce:0-8k:ring,4k-:direct"}) {
        config.algo = text;
        Refused(kolo_comm_create_local(2, &config, made), {"rules", text});
    }
    config.algo = "allreduce:ring";
    config.deterministic = 1;
    ASSERT_EQ(KOLO_OK, kolo_comm_create_local(2, &config, made)) << kolo_error_text();
    Refused(kolo_all_reduce(in_, out_, 1, KOLO_FLOAT32, KOLO_SUM, made[0], nullptr), {"ring"});
    kolo_comm_destroy(made[0]);
    kolo_comm_destroy(made[1]);
}

TEST_F(BadInput, ConfigurationsAreChecked)
{
    kolo_comm *made[2] = {};
    kolo_config config = KOLO_CONFIG_INIT;
    config.size = 0;
    Refused(kolo_comm_create_local(2, &config, made), {"config.size is 0", "KOLO_CONFIG_INIT"});
    config = KOLO_CONFIG_INIT;
    config.deterministic = 2;
    Refused(kolo_comm_create_local(2, &config, made), {"config.deterministic is 2", "0 or 1"});
    config = KOLO_CONFIG_INIT;
    config.timeout_ms = 0;
    Refused(kolo_comm_create_local(2, &config, made), {"config.timeout_ms is 0", "positive"});
    config = KOLO_CONFIG_INIT;
    config.device = -2;
    Refused(kolo_comm_create_local(2, &config, made), {"config.device is -2", "CUDA ordinal"});
    config.device = 3;
    setenv("KOLO_CUDA_PATH", "/nowhere/libcuda.so", 1);
    Refused(kolo_comm_create_local(2, &config, made), {"config.device is 3", "/nowhere/libcuda.so"},
            KOLO_ERR_UNSUPPORTED);
    unsetenv("KOLO_CUDA_PATH");
    config = KOLO_CONFIG_INIT;
    setenv("KOLO_TIMEOUT_MS", "10s", 1);
    Refused(kolo_comm_create_local(2, &config, made), {"KOLO_TIMEOUT_MS is \"10s\"", "1 to"});
    unsetenv("KOLO_TIMEOUT_MS");
    setenv("KOLO_DETERMINISTIC", "yes", 1);
    Refused(kolo_comm_create_local(2, &config, made), {"KOLO_DETERMINISTIC is \"yes\"", "0 to 1"});
    unsetenv("KOLO_DETERMINISTIC");
    setenv("KOLO_VERIFY", "yes", 1);
    Refused(kolo_comm_create_local(2, &config, made), {"KOLO_VERIFY is \"yes\"", "0 to 1"});
    unsetenv("KOLO_VERIFY");
    setenv("KOLO_ISA", "sse4", 1);
    Refused(kolo_comm_create_local(2, &config, made), {"KOLO_ISA is \"sse4\"", "generic, avx2"});
    unsetenv("KOLO_ISA");
    config.transport = "pigeon";
    Refused(kolo_comm_create_local(2, &config, made), {"no transport", "pigeon"});
    EXPECT_EQ(nullptr, made[0]);
}

TEST_F(BadInput, AnIdThatIsNotOursIsRefused)
{
    kolo_id id;
    kolo_comm *made = nullptr;
    std::memset(&id, 0x5A, sizeof id);
    EXPECT_EQ(KOLO_ERR_INVALID, kolo_comm_create(&id, 1, 0, nullptr, &made));
    EXPECT_STRNE("", kolo_error_text());
    EXPECT_EQ(nullptr, made);
}

TEST_F(BadInput, ARankThatJoinsTwiceFailsTheJobByName)
{
    kolo_id id;
    kolo_config config = KOLO_CONFIG_INIT;
    config.timeout_ms = 20000;
    ASSERT_EQ(KOLO_OK, kolo_id_create(&id));
    kolo_status st[2] = {};
    std::string text[2];
    std::vector<std::thread> joiners;
    for (int i = 0; i < 2; i++) {
        joiners.emplace_back([&, i] {
            kolo_comm *made = nullptr;
            st[i] = kolo_comm_create(&id, 3, 1, &config, &made);
            text[i] = kolo_error_text();
        });
    }
    for (std::thread &joiner : joiners) {
        joiner.join();
    }
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ(KOLO_ERR_INVALID, st[i]);
        EXPECT_NE(std::string::npos, text[i].find("rank 1")) << text[i];
    }
}

TEST_F(BadInput, OperationsBelongToTheirTypeAndCommunicator)
{
    kolo_op op = 0;
    const float factor = 2;
    Refused(kolo_op_create_premulsum(nullptr, KOLO_FLOAT32, comm_[0], &op), {"factor is NULL"});
    Refused(kolo_op_create_premulsum(&factor, KOLO_BOOL, comm_[0], &op), {"bool"});
    ASSERT_EQ(KOLO_OK, kolo_op_create_premulsum(&factor, KOLO_FLOAT32, comm_[0], &op));
    Refused(Reduce(KOLO_FLOAT64, op), {"premulsum", "float32", "float64"});
    kolo_op_destroy(op, comm_[0]);
    Refused(Reduce(KOLO_FLOAT32, op), {"op is"});
}

TEST_F(BadInput, SplitShrinkAndGroupsCheckTheirArguments)
{
    kolo_comm *made = nullptr;
    Refused(kolo_comm_split(comm_[0], -5, 0, nullptr, &made), {"color is -5"});
    Refused(kolo_comm_split(comm_[0], 0, 0, nullptr, nullptr), {"out is NULL"});
    const int self = 0, beyond = 9;
    Refused(kolo_comm_shrink(comm_[0], &self, 1, nullptr, &made), {"exclude[0] is 0"});
    Refused(kolo_comm_shrink(comm_[0], &beyond, 1, nullptr, &made), {"exclude[0] is 9", "0 to 1"});
    Refused(kolo_comm_shrink(comm_[0], nullptr, 1, nullptr, &made), {"exclude is NULL"});
    Refused(kolo_comm_shrink(comm_[0], nullptr, -1, nullptr, &made), {"nexclude is -1"});
    kolo_id id;
    ASSERT_EQ(KOLO_OK, kolo_id_create(&id));
    Refused(kolo_comm_grow(comm_[0], nullptr, 3, 0, nullptr, &made), {"id is NULL"});
    Refused(kolo_comm_grow(comm_[0], &id, 3, 0, nullptr, nullptr), {"out is NULL"});
    Refused(kolo_comm_grow(comm_[0], &id, 3, 1, nullptr, &made), {"rank is 1", "rank 0"});
    Refused(kolo_comm_grow(comm_[0], &id, 1, 0, nullptr, &made), {"nranks is 1"});
    Refused(kolo_group_end(), {"kolo_group_begin"});
    EXPECT_EQ(nullptr, made);
}

TEST_F(BadInput, AGroupMakesNoCommunicators)
{
    kolo_comm *made = nullptr;
    const int other = 1;
    ASSERT_EQ(KOLO_OK, kolo_group_begin());
    Refused(kolo_comm_split(comm_[0], 0, 0, nullptr, &made), {"kolo_comm_split", "group"});
    Refused(kolo_comm_shrink(comm_[0], &other, 1, nullptr, &made), {"kolo_comm_shrink", "group"});
    kolo_id id{};
    Refused(kolo_comm_grow(comm_[0], &id, 3, 0, nullptr, &made), {"kolo_comm_grow", "group"});
    EXPECT_EQ(KOLO_OK, kolo_group_end()) << "the group has no calls";
    EXPECT_EQ(nullptr, made);
}

TEST_F(BadInput, FailedRanksAreListedAsFarAsThereIsRoom)
{
    int ranks[2] = {-7, -7}, count = -1;
    Refused(kolo_comm_failed_ranks(nullptr, ranks, 2, &count), {"comm is NULL"});
    Refused(kolo_comm_failed_ranks(comm_[0], nullptr, 2, &count), {"ranks is NULL"});
    Refused(kolo_comm_failed_ranks(comm_[0], ranks, 2, nullptr), {"count_out is NULL"});
    Refused(kolo_comm_failed_ranks(comm_[0], ranks, -1, &count), {"room is -1"});
    EXPECT_EQ(-1, count);
    EXPECT_EQ(KOLO_OK, kolo_comm_failed_ranks(comm_[0], nullptr, 0, &count));
    EXPECT_EQ(0, count) << "it has not failed";
    EXPECT_EQ(-7, ranks[0]);
}

TEST_F(BadInput, MemoryIsChecked)
{
    void *memory = nullptr;
    Refused(kolo_mem_alloc(0, &memory), {"0"});
    Refused(kolo_mem_register(nullptr, 8), {"ptr is NULL"});
    Refused(kolo_mem_register(in_, 0), {"bytes is 0"});
    Refused(kolo_mem_register(in_, sizeof in_), {"private", "kolo_mem_alloc"},
            KOLO_ERR_UNSUPPORTED);
    Refused(kolo_mem_unregister(in_), {"not registered"});
    ASSERT_EQ(KOLO_OK, kolo_mem_alloc(100, &memory));
    EXPECT_EQ(KOLO_OK, kolo_mem_register(memory, 100));
    EXPECT_EQ(KOLO_OK, kolo_mem_unregister(memory));
    kolo_mem_free(memory);
}

/* The call is not refused: the contract of kolo_op defines the result. */
TEST(Average, OfIntegersWhoseSumDoesNotFitIsThatOfTheWrappedSum)
{
    kolo_comm *comm[2] = {};
    ASSERT_EQ(KOLO_OK, kolo_comm_create_local(2, nullptr, comm)) << kolo_error_text();
    const int8_t in[3] = {100, -100, 7};
    const uint32_t big = 0x80000001u;
    int8_t out[2][3] = {};
    uint32_t wrapped[2] = {};
    ASSERT_EQ(KOLO_OK, kolo_group_begin());
    for (int r = 0; r < 2; r++) {
        EXPECT_EQ(KOLO_OK, kolo_all_reduce(in, out[r], 3, KOLO_INT8, KOLO_AVG, comm[r], nullptr));
        EXPECT_EQ(KOLO_OK,
                  kolo_all_reduce(&big, &wrapped[r], 1, KOLO_UINT32, KOLO_AVG, comm[r], nullptr));
    }
    ASSERT_EQ(KOLO_OK, kolo_group_end()) << kolo_error_text();
    for (int r = 0; r < 2; r++) {
        EXPECT_EQ(-28, out[r][0]) << "200 is -56 in int8";
        EXPECT_EQ(28, out[r][1]);
        EXPECT_EQ(7, out[r][2]);
        EXPECT_EQ(1u, wrapped[r]);
        kolo_comm_destroy(comm[r]);
    }
}

} // namespace
