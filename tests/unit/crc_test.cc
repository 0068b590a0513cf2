// SPDX-License-Identifier: Apache-2.0
// covers: src/util/crc.c
extern "C" {
#include "util/crc.h"
}

#include <gtest/gtest.h>
#include <random>
#include <string>
#include <vector>

namespace
{

TEST(Crc32c, GivesTheValuesOfRfc3720)
{
    std::vector<unsigned char> up(32), down(32);
    for (int i = 0; i < 32; i++) {
        up[i] = static_cast<unsigned char>(i);
        down[i] = static_cast<unsigned char>(31 - i);
    }
    for (auto *crc : {kolo_crc32c, kolo_crc32c_table}) {
        EXPECT_EQ(0x8a9136aau, crc(0, std::string(32, '\0').data(), 32));
        EXPECT_EQ(0x62a8ab43u, crc(0, std::string(32, '\xff').data(), 32));
        EXPECT_EQ(0x46dd794eu, crc(0, up.data(), 32));
        EXPECT_EQ(0x113fdb5cu, crc(0, down.data(), 32));
        EXPECT_EQ(0xe3069283u, crc(0, "123456789", 9));
        EXPECT_EQ(0u, crc(0, "", 0));
    }
}

TEST(Crc32c, TheInstructionAndTheTablesAgreeOnAnyLengthPlaceAndCut)
{
    std::mt19937 random(7);
    std::vector<unsigned char> bytes(4096);
    for (auto &b : bytes) {
        b = static_cast<unsigned char>(random());
    }
    for (int i = 0; i < 2000; i++) {
        const size_t at = random() % 64, len = random() % 2000, cut = random() % (len + 1);
        const uint32_t whole = kolo_crc32c_table(0, &bytes[at], len);
        ASSERT_EQ(whole, kolo_crc32c(0, &bytes[at], len)) << at << " " << len;
        ASSERT_EQ(whole, kolo_crc32c(kolo_crc32c(0, &bytes[at], cut), &bytes[at + cut], len - cut));
    }
}

TEST(Crc32c, EveryBitCounts)
{
    std::vector<unsigned char> bytes(300, 0x5a);
    const uint32_t right = kolo_crc32c(0, bytes.data(), bytes.size());
    for (size_t bit = 0; bit < 8 * bytes.size(); bit++) {
        bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
        ASSERT_NE(right, kolo_crc32c(0, bytes.data(), bytes.size())) << bit;
        bytes[bit / 8] ^= static_cast<unsigned char>(1 << bit % 8);
    }
}

} // namespace
