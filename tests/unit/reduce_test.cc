// SPDX-License-Identifier: Apache-2.0
// covers: src/exec/reduce
// The reduction kernels against the reference of reduce_reference.h, which shares nothing with
// them. Every comparison is of bits, for every instruction set that this machine runs.
#include "kernel_sets.h"
#include "reduce_reference.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

namespace
{

using namespace reduce_reference;

constexpr size_t kMost = 1023;

// Memory that begins `shift` elements behind a 64-byte boundary, with guard bytes on both sides.
class Buffer
{
  public:
    Buffer(const Bytes &data, size_t shift_bytes)
        : store_(data.size() + 512, kGuard), size_(data.size())
    {
        const size_t to_line = -reinterpret_cast<uintptr_t>(store_.data()) % 64;
        at_ = to_line + 128 + shift_bytes;
        std::copy(data.begin(), data.end(), begin());
    }
    uint8_t *begin()
    {
        return store_.data() + at_;
    }
    Bytes Prefix(size_t bytes)
    {
        return Bytes(begin(), begin() + bytes);
    }
    bool OnlyWrote(size_t bytes) const
    {
        const auto guard = [](uint8_t x) { return x == kGuard; };
        const auto first = store_.begin() + static_cast<std::ptrdiff_t>(at_);
        return std::all_of(store_.begin(), first, guard) &&
               std::all_of(first + static_cast<std::ptrdiff_t>(bytes), store_.end(), guard);
    }

  private:
    static constexpr uint8_t kGuard = 0xa5;
    Bytes store_;
    size_t size_, at_;
};

const std::vector<kolo_op> OpsOf(kolo_type type)
{
    if (IsPair(type)) {
        return {KOLO_MINLOC, KOLO_MAXLOC};
    }
    const std::vector<kolo_op> logic = {KOLO_LAND, KOLO_LOR, KOLO_LXOR,
                                        KOLO_BAND, KOLO_BOR, KOLO_BXOR};
    if (type == KOLO_BOOL) {
        return logic;
    }
    std::vector<kolo_op> ops = {KOLO_SUM, KOLO_PROD, KOLO_MIN, KOLO_MAX, KOLO_AVG};
    if (IsInteger(type)) {
        ops.insert(ops.end(), logic.begin(), logic.end());
    }
    return ops;
}

struct Case {
    kolo_type type;
    kolo_op op;
    std::vector<Bytes> data; // k sources of kMost elements
    unsigned divisor;
    Bytes want; // for all of them; fewer elements give a prefix

    Case(kolo_type t, kolo_op o, unsigned k, unsigned d) : type(t), op(o), divisor(d)
    {
        Job job = {o, {}, kMost, kBytes[t], d};
        for (unsigned q = 0; q < k; q++) {
            data.push_back(Fill(t, kMost, 1000u * t + q));
        }
        for (const Bytes &source : data) {
            job.src.push_back(source.data());
        }
        want = Reference(t, job);
    }
    std::string Name() const
    {
        return std::string(kolo_type_name(type)) + " " + kolo_op_name(op) + " k " +
               std::to_string(data.size()) + " divisor " + std::to_string(divisor);
    }
};

// `in_place`: the source that is the destination as well, or -1.
void ExpectFold(const kolo_kernels *kernels, const Case &c, size_t count, size_t shift,
                int in_place)
{
    const size_t element = kBytes[c.type];
    const size_t bytes = count * element;
    std::vector<Buffer> sources;
    std::vector<const void *> src;
    for (size_t q = 0; q < c.data.size(); q++) {
        const Bytes part(c.data[q].begin(), c.data[q].begin() + static_cast<std::ptrdiff_t>(bytes));
        sources.emplace_back(part, shift ? (shift + q) % 4 * element : 0);
    }
    for (Buffer &source : sources) {
        src.push_back(source.begin());
    }
    Buffer apart(Bytes{}, 0);
    Buffer room(Bytes(bytes, 0xa5), shift * element);
    Buffer &dst = in_place < 0 ? room : sources[static_cast<size_t>(in_place)];
    kernels->reduce[c.type][c.op](dst.begin(), src.data(), static_cast<unsigned>(src.size()), count,
                                  c.divisor);
    const Bytes want(c.want.begin(), c.want.begin() + static_cast<std::ptrdiff_t>(bytes));
    EXPECT_EQ(want, dst.Prefix(bytes)) << kernels->isa << " " << c.Name() << " count " << count
                                       << " shift " << shift << " in place " << in_place;
    EXPECT_TRUE(dst.OnlyWrote(bytes)) << kernels->isa << " " << c.Name() << " count " << count;
}

void ExpectFolds(const Case &c)
{
    const int last = static_cast<int>(c.data.size()) - 1;
    for (const kolo_kernels *kernels : Kernels()) {
        for (size_t count : {0, 1, 3, 7, 64, 1023}) {
            ExpectFold(kernels, c, count, 0, -1);
            ExpectFold(kernels, c, count, 1, -1);
        }
        for (int j = 0; j <= last; j++) {
            ExpectFold(kernels, c, 71, 0, j);
        }
    }
}

class EveryType : public testing::TestWithParam<int>
{
  protected:
    kolo_type type() const
    {
        return static_cast<kolo_type>(GetParam());
    }
};

// ---- folding -----------------------------------------------------------------------------------

TEST_P(EveryType, EveryOperationGivesTheBitsOfTheScalarReference)
{
    for (kolo_op op : OpsOf(type())) {
        for (unsigned k : {1, 2, 3, 5, 8}) {
            ExpectFolds(Case(type(), op, k, 1));
        }
        ExpectFolds(Case(type(), op, 4, 1)); // has a loop of its own
    }
}

// Whole steps, vectors and what is left of one, in all their mixtures.
TEST_P(EveryType, EveryShortCountIsFoldedToItsLastElementAndNoFurther)
{
    for (kolo_op op : OpsOf(type())) {
        for (unsigned k : {1, 2, 3, 4, 7, 8, 9}) {
            const Case c(type(), op, k, op == KOLO_AVG ? k : 1);
            for (const kolo_kernels *kernels : Kernels()) {
                for (size_t count = 0; count <= 130; count++) {
                    ExpectFold(kernels, c, count, count % 4, -1);
                }
            }
        }
    }
}

TEST_P(EveryType, TheAverageIsDividedBeforeItIsRounded)
{
    if (!kolo_op_valid(type(), KOLO_AVG)) {
        GTEST_SKIP() << kolo_type_name(type()) << " has no average";
    }
    for (unsigned k : {1, 2, 3, 8}) {
        ExpectFolds(Case(type(), KOLO_AVG, k, k));
        ExpectFolds(Case(type(), KOLO_AVG, k, 300)); // more than an int8 holds
    }
}

TEST_P(EveryType, TheOrderOfOperandsDoesNotMatterToMinimaAndMaxima)
{
    for (kolo_op op : OpsOf(type())) {
        if (op != KOLO_MIN && op != KOLO_MAX && op != KOLO_MINLOC && op != KOLO_MAXLOC) {
            continue;
        }
        Case c(type(), op, 5, 1);
        std::reverse(c.data.begin(), c.data.end());
        std::swap(c.data[0], c.data[2]);
        for (const kolo_kernels *kernels : Kernels()) {
            ExpectFold(kernels, c, kMost, 0, -1);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Reduce, EveryType, testing::Range(0, static_cast<int>(KOLO_TYPES)),
                         [](const auto &info) {
                             return std::string(kolo_type_name(static_cast<kolo_type>(info.param)));
                         });

TEST(Reduce, ZerosAreOrderedAndNanWins)
{
    const float a[] = {0.0f, -0.0f, NAN, 1.0f};
    const float b[] = {-0.0f, 0.0f, 1.0f, -NAN};
    const void *src[] = {a, b};
    for (const kolo_kernels *kernels : Kernels()) {
        float min[4];
        float max[4];
        kernels->reduce[KOLO_FLOAT32][KOLO_MIN](min, src, 2, 4, 1);
        kernels->reduce[KOLO_FLOAT32][KOLO_MAX](max, src, 2, 4, 1);
        for (int i = 0; i < 2; i++) {
            EXPECT_TRUE(min[i] == 0 && std::signbit(min[i])) << kernels->isa;
            EXPECT_TRUE(max[i] == 0 && !std::signbit(max[i])) << kernels->isa;
        }
        EXPECT_TRUE(std::isnan(min[2]) && std::isnan(min[3]) && std::isnan(max[2]) &&
                    std::isnan(max[3]))
            << kernels->isa;
    }
}

TEST(Reduce, EqualValuesOfPairsTakeTheSmallerIndexAndSoDoNans)
{
    struct {
        float value;
        int32_t index;
    } a[] = {{2, 7}, {NAN, 9}, {NAN, 4}}, b[] = {{2, 3}, {1, 1}, {-NAN, 2}}, out[3];
    const void *src[] = {a, b};
    for (kolo_op op : {KOLO_MINLOC, KOLO_MAXLOC}) {
        kolo_reduce_kernel(KOLO_FLOAT32_INT32, op)(out, src, 2, 3, 1);
        EXPECT_EQ(3, out[0].index);
        EXPECT_EQ(9, out[1].index);
        EXPECT_EQ(2, out[2].index);
        EXPECT_TRUE(out[0].value == 2 && std::isnan(out[1].value) && std::isnan(out[2].value));
    }
}

// ---- which pairs exist -------------------------------------------------------------------------

TEST(ReduceTable, OnlyThePairsOfThePublicHeaderAreValid)
{
    //                        SPMMA LLL BBB LL: sum prod min max avg, logical, bitwise, minloc
    //                        maxloc
    const char *integer = "11111"
                          "111"
                          "111"
                          "00";
    const char *real = "11111"
                       "000"
                       "000"
                       "00";
    const char *truth = "00000"
                        "111"
                        "111"
                        "00";
    const char *pair = "00000"
                       "000"
                       "000"
                       "11";
    for (int t = 0; t < KOLO_TYPES; t++) {
        const auto type = static_cast<kolo_type>(t);
        const char *row = IsInteger(type) ? integer : IsPair(type) ? pair : real;
        row = type == KOLO_BOOL ? truth : row;
        for (kolo_op op = 0; op < KOLO_OPS; op++) {
            EXPECT_EQ(row[op] == '1', kolo_op_valid(type, op)) << kolo_type_name(type) << " " << op;
            for (const kolo_kernels *kernels : Kernels()) {
                EXPECT_EQ(row[op] == '1', kernels->reduce[type][op] != nullptr) << kernels->isa;
            }
        }
        EXPECT_EQ(row[KOLO_SUM] == '1', kolo_op_valid(type, KOLO_OPS + 5)) << "premulsum";
    }
    EXPECT_FALSE(kolo_op_valid(KOLO_TYPES, KOLO_SUM));
    EXPECT_FALSE(kolo_op_valid(static_cast<kolo_type>(-1), KOLO_SUM));
}

TEST(ReduceTable, AverageAndCreatedOperationsAreSums)
{
    kolo_reduce_fn *sum = kolo_reduce_kernel(KOLO_FLOAT32, KOLO_SUM);
    EXPECT_EQ(sum, kolo_reduce_kernel(KOLO_FLOAT32, KOLO_AVG));
    EXPECT_EQ(sum, kolo_reduce_kernel(KOLO_FLOAT32, KOLO_OPS + 1));
    EXPECT_EQ(nullptr, kolo_reduce_kernel(KOLO_BOOL, KOLO_OPS + 1));
}

TEST(ReduceIsa, ALimitLowersTheChoiceAndNothingRaisesIt)
{
    const std::string best = kolo_kernels_choose(nullptr)->isa;
    EXPECT_EQ("generic", std::string(kolo_kernels_choose("generic")->isa));
    EXPECT_EQ(best == "avx512" ? "avx2" : best, kolo_kernels_choose("avx2")->isa);
    EXPECT_EQ(best, kolo_kernels_choose("avx512")->isa);
    EXPECT_EQ(best, kolo_kernels_choose("no such name")->isa);
    EXPECT_EQ(kolo_kernels_choose(getenv("KOLO_ISA"))->isa, std::string(kolo_reduce_isa()));
}

TEST(ReduceIsaDeathTest, AWordThatIsNoneIsTold)
{
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            setenv("KOLO_ISA", "sse9", 1);
            setenv("KOLO_DEBUG", "WARN", 1);
            setenv("KOLO_DEBUG_FILE", "/dev/stderr", 1);
            exit(kolo_reduce_isa() == kolo_kernels_choose(nullptr)->isa ? 0 : 1);
        },
        testing::ExitedWithCode(0), "KOLO_ISA: \"sse9\" is not known");
}

// ---- conversion, scaling, copying --------------------------------------------------------------

Bytes AllCodes(kolo_type type)
{
    Bytes codes;
    for (uint32_t code = 0; code < 2 * FormatOf(type).Sign(); code++) {
        for (size_t byte = 0; byte < kBytes[type]; byte++) {
            codes.push_back(static_cast<uint8_t>(code >> 8 * byte));
        }
    }
    return codes;
}

TEST(Convert, EveryCodeWidensToItsValueAndComesBack)
{
    for (kolo_type type : kFormats) {
        const Format &format = FormatOf(type);
        const Bytes codes = AllCodes(type);
        const size_t count = codes.size() / kBytes[type];
        for (const kolo_kernels *kernels : Kernels()) {
            std::vector<float> wide(count);
            Bytes back(codes.size());
            kernels->widen[type](wide.data(), codes.data(), count);
            kernels->narrow[type](back.data(), wide.data(), count);
            for (uint32_t code = 0; code < count; code++) {
                const double want = format.Decode(code);
                uint32_t got = 0;
                std::memcpy(&got, &back[code * kBytes[type]], kBytes[type]);
                if (std::isnan(want)) {
                    ASSERT_TRUE(std::isnan(wide[code])) << kernels->isa << " " << code;
                    ASSERT_EQ(format.nan, got) << kernels->isa << " " << code;
                } else {
                    ASSERT_EQ(want, wide[code]) << kernels->isa << " " << code;
                    ASSERT_EQ(std::signbit(want), std::signbit(wide[code])) << code;
                    ASSERT_EQ(code, got) << kernels->isa << " " << kolo_type_name(type);
                }
            }
        }
    }
}

TEST(Convert, EveryInstructionSetWidensToTheSameBits)
{
    for (kolo_type type : kFormats) {
        const Bytes codes = AllCodes(type);
        const size_t count = codes.size() / kBytes[type];
        std::vector<float> want(count);
        kolo_kernels_choose("generic")->widen[type](want.data(), codes.data(), count);
        for (const kolo_kernels *kernels : Kernels()) {
            std::vector<float> got(count);
            kernels->widen[type](got.data(), codes.data(), count);
            EXPECT_EQ(0, std::memcmp(want.data(), got.data(), 4 * count)) << kernels->isa;
        }
    }
}

// Values of all finite magnitudes in order, so that the index is the code.
std::vector<double> Values(const Format &format)
{
    std::vector<double> values;
    for (uint32_t code = 0; code < format.after; code++) {
        values.push_back(format.Decode(code));
    }
    return values;
}

// The nearest of them all, of two equally near the even one. For rounding, infinity or NaN is the
// number that would have followed the largest.
uint32_t Nearest(const Format &format, const std::vector<double> &values, float x)
{
    if (std::isnan(x)) {
        return format.nan;
    }
    const uint32_t sign = std::signbit(x) ? format.Sign() : 0;
    const double magnitude = std::fabs(static_cast<double>(x));
    const auto above = static_cast<size_t>(
        std::lower_bound(values.begin(), values.end(), magnitude) - values.begin());
    if (above == 0) {
        return sign;
    }
    const double below = values[above - 1];
    const double next = above < values.size() ? values[above] : 2 * below - values[above - 2];
    const double to_below = magnitude - below, to_next = next - magnitude;
    const bool up = to_next < to_below || (to_next == to_below && above % 2 == 0);
    return sign | static_cast<uint32_t>(up ? above : above - 1);
}

// Between any two neighbours: the middle goes to the even one, its neighbours to the nearer one.
TEST(Convert, RoundingIsToNearestAndTiesGoToEven)
{
    for (kolo_type type : kFormats) {
        const Format &format = FormatOf(type);
        const std::vector<double> values = Values(format);
        std::vector<float> wide = {INFINITY, -INFINITY, NAN, -NAN, 3e38f, -3e38f, 1e-45f, -1e-45f};
        for (size_t code = 0; code < values.size(); code++) {
            const double next =
                code + 1 < values.size() ? values[code + 1] : 2 * values[code] - values[code - 1];
            const auto middle = static_cast<float>(values[code] / 2 + next / 2);
            for (float x :
                 {middle, std::nextafterf(middle, 0), std::nextafterf(middle, INFINITY)}) {
                wide.push_back(x);
                wide.push_back(-x);
            }
        }
        for (const float x : wide) {
            ASSERT_EQ(Nearest(format, values, x), Encode(type, x)) << kolo_type_name(type) << x;
        }
        for (const kolo_kernels *kernels : Kernels()) {
            Bytes got(wide.size() * kBytes[type]);
            kernels->narrow[type](got.data(), wide.data(), wide.size());
            for (size_t i = 0; i < wide.size(); i++) {
                uint32_t code = 0;
                std::memcpy(&code, &got[i * kBytes[type]], kBytes[type]);
                ASSERT_EQ(Encode(type, wide[i]), code)
                    << kernels->isa << " " << kolo_type_name(type) << " " << wide[i];
            }
        }
    }
}

TEST(Convert, KnownCodesAreThoseOfTheSpecifications)
{
    const float in[] = {1.0f, 448.0f, 464.0f, 465.0f, -500.0f, 0.001953125f};
    uint8_t e4m3[6];
    kolo_narrow(KOLO_FLOAT8_E4M3, e4m3, in, 6);
    EXPECT_EQ((std::vector<uint8_t>{0x38, 0x7e, 0x7e, 0x7f, 0xff, 0x01}),
              std::vector<uint8_t>(e4m3, e4m3 + 6));
    const uint16_t half[] = {0x3c00, 0x7bff, 0x0001, 0xfc00};
    float wide[4];
    kolo_widen(KOLO_FLOAT16, wide, half, 4);
    EXPECT_EQ(1.0f, wide[0]);
    EXPECT_EQ(65504.0f, wide[1]);
    EXPECT_EQ(std::ldexp(1.0f, -24), wide[2]);
    EXPECT_EQ(-INFINITY, wide[3]);
}

// Scaling is the product with an array of factors, which the folding tests have shown to be right.
TEST(Scale, EveryElementIsMultipliedByTheFactor)
{
    for (int t = 0; t < KOLO_BOOL; t++) {
        const auto type = static_cast<kolo_type>(t);
        const size_t element = kBytes[t];
        const Bytes data = Fill(type, kMost, 77);
        for (size_t pick = 0; pick < 9; pick++) {
            Bytes factors;
            for (size_t i = 0; i < kMost; i++) {
                factors.insert(factors.end(), &data[pick * element],
                               &data[pick * element] + element);
            }
            const Bytes want =
                Reference(type, {KOLO_PROD, {data.data(), factors.data()}, kMost, element, 1});
            for (const kolo_kernels *kernels : Kernels()) {
                Buffer room(data, element);
                kernels->scale[t](room.begin(), data.data(), kMost, factors.data());
                EXPECT_EQ(want, room.Prefix(data.size())) << kernels->isa << " " << t;
                Buffer same(data, 0);
                kernels->scale[t](same.begin(), same.begin(), kMost, factors.data());
                EXPECT_EQ(want, same.Prefix(data.size())) << kernels->isa << " " << t;
                EXPECT_TRUE(same.OnlyWrote(data.size()));
            }
        }
    }
}

} // namespace
