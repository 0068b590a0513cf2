// SPDX-License-Identifier: Apache-2.0
// covers: src/exec/reduce
// Codecs: what encoding makes of numbers of every kind, the same bits on every instruction set, and
// the told bound against exact sums. KOLO_TEST_WHOLE=1: 10^6 blocks of each codec.
extern "C" {
#include "exec/reduce/codec.h"
}
#include "kernel_sets.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace
{

#if defined(__x86_64__)
__extension__ typedef __float128 Exact;
#else
typedef long double Exact;
#endif

using Floats = std::vector<float>;
using Bytes = std::vector<uint8_t>;

constexpr kolo_codec kIntegers[] = {KOLO_CODEC_INT8, KOLO_CODEC_INT4};
constexpr kolo_codec kScaled[] = {KOLO_CODEC_INT8, KOLO_CODEC_INT4, KOLO_CODEC_FP8};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Bytes Encoded(kolo_codec codec, const Floats &x)
{
    Bytes out(kolo_codec_units(codec, x.size()) * kolo_codec_bytes(codec));
    kolo_encode(codec, out.data(), x.data(), x.size());
    return out;
}

Floats Decoded(kolo_codec codec, const Bytes &code, size_t count)
{
    Floats out(count + 1, 7.0f);
    kolo_decode(codec, out.data(), code.data(), count);
    EXPECT_EQ(out[count], 7.0f) << "a number behind the last one was written";
    out.resize(count);
    return out;
}

Floats Through(kolo_codec codec, const Floats &x)
{
    return Decoded(codec, Encoded(codec, x), x.size());
}

// ---- blocks of every kind ----

constexpr int kKinds = 10;

float AnyFinite(std::mt19937_64 &random)
{
    const uint32_t bits = static_cast<uint32_t>(random());
    const uint32_t exponent = bits >> 23 & 0xff;
    float x;
    const uint32_t finite = exponent >= 0xf8 ? bits & 0xbfffffff : bits;
    std::memcpy(&x, &finite, sizeof x);
    return x;
}

float Normal(std::mt19937_64 &random)
{
    return std::normal_distribution<float>()(random);
}

float OfKind(int kind, size_t i, float same, std::mt19937_64 &random)
{
    switch (kind) {
    case 0: // one scale
        return Normal(random);
    case 1: // every exponent
        return AnyFinite(random);
    case 2: // denormals
        return std::ldexp(Normal(random), -140);
    case 3: // all equal
        return same;
    case 4: // one outlier
        return i % 60 == 17 ? 1e6f : Normal(random);
    case 5: // near the floor
        return std::ldexp(Normal(random), -119);
    case 6: // mostly zeros of both signs
        return random() % 8 == 0 ? Normal(random) : random() % 2 == 0 ? 0.0f : -0.0f;
    case 7: // near FP8's floor
        return std::ldexp(Normal(random), -109);
    case 8: // every binade of an FP8
        return std::ldexp(Normal(random), -static_cast<int>(random() % 20));
    default: // halves of a step: ties
        return static_cast<float>(static_cast<int>(random() % 509) - 254) / 2.0f;
    }
}

Floats Block(int kind, size_t count, std::mt19937_64 &random)
{
    Floats x(count);
    const float same = AnyFinite(random);
    for (size_t i = 0; i < count; i++) {
        x[i] = OfKind(kind, i, same, random);
    }
    return x;
}

// ---- single blocks ----

TEST(Codec, UnitsAreAsTheHeaderSays)
{
    EXPECT_EQ(kolo_codec_units(KOLO_CODEC_INT8, 0), 0u);
    EXPECT_EQ(kolo_codec_units(KOLO_CODEC_INT8, 1), 1u);
    EXPECT_EQ(kolo_codec_units(KOLO_CODEC_INT8, 60), 1u);
    EXPECT_EQ(kolo_codec_units(KOLO_CODEC_INT8, 61), 2u);
    EXPECT_EQ(kolo_codec_units(KOLO_CODEC_INT4, 120), 1u);
    EXPECT_EQ(kolo_codec_units(KOLO_CODEC_INT4, 121), 2u);
    EXPECT_EQ(kolo_codec_units(KOLO_CODEC_BF16, 61), 61u);
    EXPECT_EQ(kolo_codec_bytes(KOLO_CODEC_INT8), 64u);
    EXPECT_EQ(kolo_codec_bytes(KOLO_CODEC_INT4), 64u);
    EXPECT_EQ(kolo_codec_units(KOLO_CODEC_FP8, 61), 2u);
    EXPECT_EQ(kolo_codec_bytes(KOLO_CODEC_FP8), 64u);
    EXPECT_EQ(kolo_codec_bytes(KOLO_CODEC_BF16), 2u);
}

class ScaledCodec : public testing::TestWithParam<kolo_codec>
{
  protected:
    const kolo_codec codec_ = GetParam();
    const size_t unit_ = kolo_codec_numbers(codec_);
};

INSTANTIATE_TEST_SUITE_P(Codecs, ScaledCodec, testing::ValuesIn(kScaled),
                         [](const auto &codec) { return kolo_codec_name(codec.param); });

class IntegerCodec : public ScaledCodec
{
  protected:
    const int most_ = codec_ == KOLO_CODEC_INT8 ? 127 : 7; // the largest code
};

INSTANTIATE_TEST_SUITE_P(Codecs, IntegerCodec, testing::ValuesIn(kIntegers),
                         [](const auto &codec) { return kolo_codec_name(codec.param); });

TEST_P(IntegerCodec, KeepsMultiplesOfTheScale)
{
    Floats x(unit_);
    for (size_t i = 0; i < unit_; i++) {
        x[i] = static_cast<float>(static_cast<int>(i * 4) % (2 * most_ + 1) - most_) * 0.5f;
    }
    EXPECT_EQ(x[0], static_cast<float>(most_) * -0.5f);
    EXPECT_EQ(Through(codec_, x), x);
}

TEST_P(IntegerCodec, RoundsTiesToEven)
{
    const float most = static_cast<float>(most_);
    Floats x(unit_, 0.0f);
    x[0] = most, x[1] = 0.5f, x[2] = 1.5f, x[3] = 2.5f, x[4] = -0.5f, x[5] = -1.5f;
    x[unit_ - 1] = most - 0.5f;
    const Floats out = Through(codec_, x);
    EXPECT_EQ(Floats(out.begin(), out.begin() + 6), (Floats{most, 0, 2, 2, 0, -2}));
    EXPECT_EQ(out[unit_ - 1], most - 1);
}

TEST_P(ScaledCodec, BlocksDoNotTouchEachOther)
{
    Floats x(3 * unit_, 1.0f);
    std::fill_n(x.begin() + static_cast<ptrdiff_t>(unit_), unit_, 1e30f);
    const Floats out = Through(codec_, x);
    EXPECT_EQ(out[unit_ - 1], 1.0f);
    EXPECT_EQ(out[unit_], Through(codec_, {1e30f})[0]);
    EXPECT_EQ(out[2 * unit_], 1.0f);
}

TEST_P(ScaledCodec, NeverHidesWhatIsNotFinite)
{
    for (const float bad : {kInfinity, -kInfinity, std::nanf(""), -std::nanf("3")}) {
        for (const size_t place : {size_t{0}, size_t{13}, unit_ - 1}) {
            Floats x(2 * unit_, 3.0f);
            x[place] = bad;
            const Floats out = Through(codec_, x);
            for (size_t i = 0; i < unit_; i++) {
                ASSERT_TRUE(std::isnan(out[i])) << bad << " at " << place << ", number " << i;
            }
            EXPECT_EQ(out[unit_], 3.0f);
        }
    }
}

TEST_P(ScaledCodec, SumsThatOverflowAreNaN)
{
    const Bytes large = Encoded(codec_, Floats(unit_, 3e38f));
    const void *src[] = {large.data(), large.data()};
    Bytes sum(large.size());
    kolo_codec_sum(codec_)(sum.data(), src, 2, 1, 0);
    EXPECT_TRUE(std::isnan(Decoded(codec_, sum, 1)[0]));
    kolo_codec_sum(codec_)(sum.data(), src, 1, 1, 0);
    EXPECT_EQ(sum, large) << "one source is copied";
}

TEST_P(ScaledCodec, SmallBlocksBecomeZero)
{
    const float floor = codec_ == KOLO_CODEC_FP8 ? KOLO_FP8_FLOOR : KOLO_CODEC_FLOOR;
    const float below = std::nextafter(floor, 0.0f);
    EXPECT_EQ(Through(codec_, {below, -below, 1e-45f}), (Floats{0, 0, 0}));
    EXPECT_NEAR(Through(codec_, {floor})[0] / floor, 1, 1e-6);
}

/* With 448 as the largest, the scale is 1: the codes are the 8-bit floats themselves. */
TEST(Codec, Fp8RoundsAsItsType)
{
    const Floats out =
        Through(KOLO_CODEC_FP8, {448, 431, 432, 433, 17, 19, -21, 0.0009765625f, 0.001f, 0x1p-9f});
    EXPECT_EQ(out, (Floats{448, 416, 448, 448, 16, 20, -20, 0, 0x1p-9f, 0x1p-9f}));
}

TEST(Codec, Bf16KeepsInfinitiesAndNaN)
{
    const Floats out = Through(KOLO_CODEC_BF16, {kInfinity, -kInfinity, std::nanf(""), 1.0f});
    EXPECT_EQ(out[0], kInfinity);
    EXPECT_EQ(out[1], -kInfinity);
    EXPECT_TRUE(std::isnan(out[2]));
    EXPECT_EQ(out[3], 1.0f);
}

// ---- instruction sets ----

struct Bits {
    Bytes code, sum;
    Floats decoded;

    Bits(const kolo_kernels *k, kolo_codec codec, const std::vector<Floats> &inputs,
         unsigned divisor)
        : code(kolo_codec_units(codec, inputs[0].size()) * KOLO_UNIT_BYTES), sum(code.size()),
          decoded(inputs[0].size())
    {
        const auto &of = k->codec[codec];
        std::vector<Bytes> codes(inputs.size(), code);
        std::vector<const void *> src;
        for (size_t q = 0; q < inputs.size(); q++) {
            of.encode(codes[q].data(), inputs[q].data(), inputs[q].size());
            src.push_back(codes[q].data());
        }
        code = codes[0];
        of.sum(sum.data(), src.data(), static_cast<unsigned>(src.size()),
               code.size() / KOLO_UNIT_BYTES, divisor);
        of.decode(decoded.data(), sum.data(), decoded.size());
    }
};

bool SameBits(const Floats &a, const Floats &b)
{
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_P(ScaledCodec, AllInstructionSetsGiveTheSameBits)
{
    std::mt19937_64 random(7);
    for (int kind = 0; kind < kKinds; kind++) {
        for (const size_t count : {size_t{1}, size_t{59}, size_t{60}, size_t{61}, size_t{120},
                                   size_t{121}, size_t{1000}}) {
            std::vector<Floats> inputs;
            for (int q = 0; q < 3; q++) {
                inputs.push_back(Block(kind, count, random));
            }
            inputs[1][count / 2] = count == 1000 ? kInfinity : inputs[1][count / 2];
            const Bits want(kolo_kernels_choose("generic"), codec_, inputs, 3);
            for (const kolo_kernels *k : Kernels()) {
                const Bits have(k, codec_, inputs, 3);
                ASSERT_EQ(have.code, want.code) << k->isa << " kind " << kind << " of " << count;
                ASSERT_EQ(have.sum, want.sum) << k->isa << " kind " << kind << " of " << count;
                ASSERT_TRUE(SameBits(have.decoded, want.decoded)) << k->isa << " kind " << kind;
            }
        }
    }
}

// ---- the bound ----

Exact Magnitude(Exact x)
{
    return x < 0 ? -x : x;
}

// A reduction as a plan makes it: each rank encodes, one rank adds, all decode.
struct Reduction {
    kolo_codec codec;
    std::vector<Floats> inputs;
    unsigned divisor;

    Floats Result() const
    {
        std::vector<Bytes> codes;
        std::vector<const void *> src;
        for (const Floats &x : inputs) {
            codes.push_back(Encoded(codec, x));
        }
        for (const Bytes &code : codes) {
            src.push_back(code.data());
        }
        Bytes sum(codes[0].size());
        kolo_codec_sum(codec)(sum.data(), src.data(), static_cast<unsigned>(src.size()),
                              sum.size() / kolo_codec_bytes(codec), divisor);
        return Decoded(codec, sum, inputs[0].size());
    }

    // Of the block that begins at `first`: the largest magnitudes of all ranks, added.
    Exact LargestOfBlock(size_t first, size_t block) const
    {
        Exact total = 0;
        for (const Floats &x : inputs) {
            float most = 0;
            for (size_t j = first; j < std::min(x.size(), first + block); j++) {
                most = std::max(most, std::fabs(x[j]));
            }
            total += static_cast<Exact>(most);
        }
        return total;
    }

    // The largest error of the block as a part of what the bound allows; -1 if it says nothing.
    double Worst() const
    {
        const int n = static_cast<int>(inputs.size());
        const Exact share = divisor > 1 ? static_cast<Exact>(divisor) : 1;
        const Floats out = Result();
        kolo_codec_bound bound;
        kolo_codec_bound_of(codec, 2, n, &bound);
        double worst = 0;
        Exact total = 0;
        for (size_t i = 0; i < out.size(); i++) {
            if (i % static_cast<size_t>(bound.block) == 0) {
                total = LargestOfBlock(i, static_cast<size_t>(bound.block));
            }
            Exact exact = 0;
            for (const Floats &x : inputs) {
                exact += static_cast<Exact>(x[i]);
            }
            const Exact error = Magnitude(static_cast<Exact>(out[i]) - exact / share);
            const Exact allowed =
                static_cast<Exact>(bound.factor) * total / share + static_cast<Exact>(bound.floor);
            worst = std::max(worst, static_cast<double>(error / allowed));
        }
        return worst;
    }
};

void ExpectBound(kolo_codec codec, long blocks)
{
    const size_t unit = codec == KOLO_CODEC_BF16 ? 60 : kolo_codec_numbers(codec);
    std::mt19937_64 random(20261126);
    double worst = 0;
    for (long done = 0; done < blocks; done++) {
        Reduction r = {codec, {}, 0};
        const unsigned n = 2 + static_cast<unsigned>(random() % 7);
        for (unsigned q = 0; q < n; q++) {
            r.inputs.push_back(Block(static_cast<int>(done % kKinds), unit, random));
        }
        r.divisor = done % 3 == 0 ? n : 0;
        const double part = r.Worst();
        ASSERT_LE(part, 1.0) << "block " << done << " of kind " << done % kKinds;
        worst = std::max(worst, part);
    }
    EXPECT_GT(worst, codec == KOLO_CODEC_BF16 ? 0.4 : 0.5) << "the bound is far too wide";
    std::printf("%s: %ld blocks, the largest error is %.3f of the bound\n", kolo_codec_name(codec),
                blocks, worst);
}

long Blocks()
{
    return std::getenv("KOLO_TEST_WHOLE") != nullptr ? 1000000 : 4000;
}

TEST_P(ScaledCodec, SumsKeepTheBound)
{
    ExpectBound(codec_, Blocks());
}

TEST(Codec, Bf16SumsKeepTheBound)
{
    ExpectBound(KOLO_CODEC_BF16, Blocks());
}

} // namespace
