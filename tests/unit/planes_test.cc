// SPDX-License-Identifier: Apache-2.0
// covers: transports/tcp/planes.c
// Lossless coding of floats: the same bits come back, trained numbers get shorter, and nothing gets
// much longer. tests/fuzz/planes.c has what a decoder must refuse.
extern "C" {
#include "transports/tcp/planes.h"
}

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace
{

using Bytes = std::vector<uint8_t>;

kolo_planes_room room;

Bytes Coded(unsigned float_bytes, const Bytes &from)
{
    Bytes out(from.size() + KOLO_PLANES_HEAD);
    out.resize(kolo_planes_encode(float_bytes, from.data(), from.size(), out.data(), &room));
    return out;
}

bool Decode(unsigned float_bytes, const Bytes &coded, Bytes *out)
{
    return kolo_planes_decode(float_bytes, coded.data(), coded.size(), out->data(), out->size(),
                              &room);
}

// Normal numbers, as gradients are, of one scale.
Bytes Normals(unsigned float_bytes, size_t bytes)
{
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0, 1e-3f);
    Bytes out(bytes);
    for (size_t at = 0; at + float_bytes <= bytes; at += float_bytes) {
        const float x = normal(random);
        std::memcpy(&out[at], reinterpret_cast<const char *>(&x) + 4 - float_bytes, float_bytes);
    }
    return out;
}

class Planes : public testing::TestWithParam<unsigned>
{
  protected:
    const unsigned float_bytes_ = GetParam();

    void ExpectSame(const Bytes &from) const
    {
        const Bytes coded = Coded(float_bytes_, from);
        Bytes back(from.size());
        ASSERT_LE(coded.size(), from.size() + KOLO_PLANES_HEAD);
        ASSERT_TRUE(Decode(float_bytes_, coded, &back)) << from.size();
        ASSERT_EQ(back, from) << from.size();
    }
};

INSTANTIATE_TEST_SUITE_P(Floats, Planes, testing::Values(2u, 4u),
                         [](const auto &bytes) { return bytes.param == 2 ? "bf16" : "float32"; });

TEST_P(Planes, BitsComeBackWhateverTheirLength)
{
    const Bytes normals = Normals(float_bytes_, KOLO_PLANES_BLOCK);
    for (size_t bytes = 0; bytes < 6000; bytes += bytes < 300 ? 1 : 37) {
        ExpectSame(Bytes(normals.begin(), normals.begin() + static_cast<ptrdiff_t>(bytes)));
    }
    ExpectSame(normals);
}

TEST_P(Planes, BitsComeBackWhateverTheyAre)
{
    std::mt19937 random(5);
    for (const unsigned often : {1u, 2u, 7u, 1000u}) { // one of so many bytes is any
        Bytes from(70001, 0x3c);
        for (uint8_t &byte : from) {
            byte = random() % often == 0 ? static_cast<uint8_t>(random()) : byte;
        }
        ExpectSame(from);
    }
}

// Symbols of Fibonacci's weights want codes longer than the longest.
TEST_P(Planes, CodesHaveALimit)
{
    Bytes from;
    size_t weight = 1, before = 1;
    for (uint8_t exponent = 0; from.size() + weight * float_bytes_ < KOLO_PLANES_BLOCK;
         exponent++) {
        for (size_t i = 0; i < weight; i++) {
            const uint32_t bits = static_cast<uint32_t>(exponent) << 23;
            const auto *byte = reinterpret_cast<const uint8_t *>(&bits);
            from.insert(from.end(), byte + 4 - float_bytes_, byte + 4);
        }
        std::swap(weight, before);
        weight += before;
    }
    ExpectSame(from);
}

TEST_P(Planes, TrainedNumbersGetShorter)
{
    const Bytes from = Normals(float_bytes_, KOLO_PLANES_BLOCK);
    const double shorter =
        static_cast<double>(from.size()) / static_cast<double>(Coded(float_bytes_, from).size());
    EXPECT_GT(shorter, float_bytes_ == 2 ? 1.45 : 1.18);
}

TEST_P(Planes, BytesWithoutAPatternStayAsTheyAre)
{
    std::mt19937 random(9);
    Bytes from(KOLO_PLANES_BLOCK);
    std::generate(from.begin(), from.end(), [&] { return static_cast<uint8_t>(random()); });
    const Bytes coded = Coded(float_bytes_, from);
    ASSERT_EQ(coded.size(), from.size() + KOLO_PLANES_HEAD);
    EXPECT_EQ(coded[0], KOLO_PLANES_RAW);
}

TEST_P(Planes, CutBlocksAreRefused)
{
    const Bytes from = Normals(float_bytes_, 8192), coded = Coded(float_bytes_, from);
    Bytes back(from.size());
    ASSERT_EQ(coded[0], KOLO_PLANES_CODED);
    for (size_t bytes = 0; bytes < coded.size(); bytes++) {
        const Bytes cut(coded.begin(), coded.begin() + static_cast<ptrdiff_t>(bytes));
        ASSERT_FALSE(Decode(float_bytes_, cut, &back)) << bytes;
    }
    Bytes longer = coded;
    longer.push_back(0);
    EXPECT_FALSE(Decode(float_bytes_, longer, &back));
}

TEST_P(Planes, LengthsThatAreNoCodeAreRefused)
{
    const Bytes from = Normals(float_bytes_, 8192), coded = Coded(float_bytes_, from);
    Bytes back(from.size());
    for (const uint8_t lengths : Bytes{0x00, 0x11, 0xcc, 0xff}) {
        Bytes wrong = coded;
        std::fill_n(wrong.begin() + KOLO_PLANES_HEAD, 128, lengths);
        EXPECT_FALSE(Decode(float_bytes_, wrong, &back)) << int{lengths};
    }
}

} // namespace
