// SPDX-License-Identifier: Apache-2.0
// covers: transports/tcp/price.c
// Whether floats go coded: by the rate of the connection, and never for long if they do not get
// shorter. The rates are so far from break-even that no machine's speed matters.
extern "C" {
#include "tcp_price_ask.h"
}

#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <vector>

namespace
{

constexpr size_t FRAME = 256 << 10;
constexpr int FRAMES = 320; // more than twice as many as a decision holds for
constexpr double SLOW = 1e-3, FAST = 1e9;

using Sender = std::unique_ptr<price_sender, decltype(&price_sender_end)>;
using Bytes = std::vector<uint8_t>;

Sender MakeSender(bool by_price, double rate)
{
    return {price_sender_make(by_price, rate), price_sender_end};
}

Bytes Normals(unsigned float_bytes)
{
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0, 1e-3f);
    Bytes out(FRAME);
    for (size_t at = 0; at < FRAME; at += float_bytes) {
        const float x = normal(random);
        std::memcpy(&out[at], reinterpret_cast<const char *>(&x) + 4 - float_bytes, float_bytes);
    }
    return out;
}

Bytes Noise()
{
    std::mt19937 random(5);
    Bytes out(FRAME);
    for (uint8_t &byte : out) {
        byte = static_cast<uint8_t>(random());
    }
    return out;
}

int Coded(const Sender &s, unsigned float_bytes, const Bytes &from, int frames)
{
    int coded = 0;
    for (int i = 0; i < frames; i++) {
        coded += price_sender_send(s.get(), float_bytes, from.data(), from.size()) > 0;
    }
    return coded;
}

class Price : public testing::TestWithParam<unsigned>
{
  protected:
    const unsigned float_bytes_ = GetParam();
    const Bytes normals_ = Normals(float_bytes_), noise_ = Noise();
};

INSTANTIATE_TEST_SUITE_P(Floats, Price, testing::Values(2u, 4u),
                         [](const auto &bytes) { return bytes.param == 2 ? "bf16" : "float32"; });

TEST_P(Price, SlowConnectionsCodeAndFastOnesDoNot)
{
    EXPECT_EQ(Coded(MakeSender(true, SLOW), float_bytes_, normals_, 10), 10);
    EXPECT_EQ(Coded(MakeSender(true, FAST), float_bytes_, normals_, FRAMES), 0);
}

TEST_P(Price, AnUnknownRateIsAwaited)
{
    EXPECT_EQ(Coded(MakeSender(true, 0), float_bytes_, normals_, 10), 0);
    EXPECT_EQ(Coded(MakeSender(false, 0), float_bytes_, normals_, 10), 10) << "always";
}

TEST_P(Price, NoiseIsGivenUpAndTriedAgain)
{
    for (const bool by_price : {false, true}) {
        const Sender s = MakeSender(by_price, SLOW);
        EXPECT_EQ(Coded(s, float_bytes_, normals_, 10), 10);
        EXPECT_LE(Coded(s, float_bytes_, noise_, FRAMES), 30) << by_price;
        EXPECT_GE(Coded(s, float_bytes_, normals_, FRAMES), FRAMES / 2) << by_price;
    }
}

} // namespace
