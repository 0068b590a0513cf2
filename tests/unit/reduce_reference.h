// SPDX-License-Identifier: Apache-2.0
// What the reduction kernels must give, computed one element at a time by other means: small floats
// are decoded by ldexp and encoded by searching the table of all their values, float32 is rounded
// from double. And inputs with what is worth trying: NaNs with any payload, infinities, both zeros,
// subnormals, ties.
#ifndef KOLO_TESTS_REDUCE_REFERENCE_H
#define KOLO_TESTS_REDUCE_REFERENCE_H

#include <kolo/kolo.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

namespace reduce_reference
{

using Bytes = std::vector<uint8_t>;

class Random
{
  public:
    explicit Random(uint64_t seed) : state_(seed * 2 + 1) {}
    uint64_t Next() // xorshift64*, Vigna 2016, doi:10.1145/2845077
    {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return state_ * 2685821657736338717u;
    }

  private:
    uint64_t state_;
};

template <class T> T Get(const uint8_t *at)
{
    T x;
    std::memcpy(&x, at, sizeof x);
    return x;
}

template <class T> void Put(uint8_t *at, T x)
{
    std::memcpy(at, &x, sizeof x);
}

// ---- small floats ------------------------------------------------------------------------------

struct Format {
    int bits, mantissa, bias;
    bool infinity;
    uint32_t after,
        nan; // what follows the largest number, infinity or NaN; the NaN that is written

    uint32_t Sign() const
    {
        return 1u << (bits - 1);
    }
    uint32_t Magnitudes() const
    {
        return Sign();
    }
    double Decode(uint32_t code) const
    {
        const uint32_t fraction = code & ((1u << mantissa) - 1);
        const uint32_t exponent = (code & (Sign() - 1)) >> mantissa;
        const uint32_t top = (Sign() - 1) >> mantissa;
        const double sign = code & Sign() ? -1 : 1;
        if (infinity && exponent == top) {
            return fraction ? NAN : sign * INFINITY;
        }
        if (!infinity && (code & (Sign() - 1)) == Sign() - 1) {
            return NAN;
        }
        const int scale = std::max<int>(static_cast<int>(exponent), 1) - bias - mantissa;
        return sign * std::ldexp(fraction + (exponent ? 1 << mantissa : 0), scale);
    }
};

constexpr Format kFloat16 = {16, 10, 15, true, 0x7c00, 0x7e00};
constexpr Format kBfloat16 = {16, 7, 127, true, 0x7f80, 0x7fc0};
constexpr Format kE4m3 = {8, 3, 7, false, 0x7f, 0x7f};
constexpr Format kE5m2 = {8, 2, 15, true, 0x7c, 0x7e};

inline const Format &FormatOf(kolo_type type)
{
    switch (type) {
    case KOLO_FLOAT16:
        return kFloat16;
    case KOLO_BFLOAT16:
        return kBfloat16;
    case KOLO_FLOAT8_E4M3:
        return kE4m3;
    default:
        return kE5m2;
    }
}

constexpr kolo_type kFormats[] = {KOLO_FLOAT16, KOLO_BFLOAT16, KOLO_FLOAT8_E4M3, KOLO_FLOAT8_E5M2};

// The nearest, of two equally near the even one. The codes of magnitudes have the order of their
// values, and lie evenly between two powers of two.
inline uint32_t Encode(kolo_type type, float x)
{
    const Format &format = FormatOf(type);
    const uint32_t sign = std::signbit(x) ? format.Sign() : 0;
    const double magnitude = std::fabs(static_cast<double>(x));
    if (!std::isfinite(x)) {
        return std::isnan(x) ? format.nan : sign | format.after;
    }
    if (x == 0) {
        return sign;
    }
    const int exponent = std::max(std::ilogb(magnitude), 1 - format.bias);
    const double steps = std::nearbyint(std::ldexp(magnitude, format.mantissa - exponent));
    const double before = std::ldexp(exponent + format.bias - 1, format.mantissa);
    return sign | static_cast<uint32_t>(std::min<double>(before + steps, format.after));
}

// ---- the reference -----------------------------------------------------------------------------

inline bool IsInteger(kolo_type type)
{
    return type <= KOLO_UINT64;
}

inline bool IsPair(kolo_type type)
{
    return type >= KOLO_INT32_INT32 && type <= KOLO_FLOAT64_INT32;
}

template <class T> T IntegerOp(kolo_op op, T a, T b)
{
    const uint64_t x = static_cast<uint64_t>(a);
    const uint64_t y = static_cast<uint64_t>(b);
    switch (op) {
    case KOLO_PROD:
        return static_cast<T>(x * y);
    case KOLO_MIN:
        return std::min(a, b);
    case KOLO_MAX:
        return std::max(a, b);
    case KOLO_LAND:
        return a && b;
    case KOLO_LOR:
        return a || b;
    case KOLO_LXOR:
        return !a != !b;
    case KOLO_BAND:
        return static_cast<T>(x & y);
    case KOLO_BOR:
        return static_cast<T>(x | y);
    case KOLO_BXOR:
        return static_cast<T>(x ^ y);
    default:
        return static_cast<T>(x + y);
    }
}

template <class T> struct Integer {
    using Acc = T;
    static Acc Load(kolo_op op, const uint8_t *at)
    {
        const T x = Get<T>(at);
        return op == KOLO_LAND || op == KOLO_LOR || op == KOLO_LXOR ? static_cast<T>(x != 0) : x;
    }
    static Acc Apply(kolo_op op, Acc a, Acc b)
    {
        return IntegerOp(op, a, b);
    }
    static Acc Divide(Acc x, unsigned by)
    {
        using Long = std::conditional_t<std::is_signed<T>::value, int64_t, uint64_t>;
        return static_cast<T>(static_cast<Long>(x) / static_cast<Long>(by));
    }
    static void Store(uint8_t *at, Acc x)
    {
        Put(at, x);
    }
};

struct Bool {
    using Acc = bool;
    static Acc Load(kolo_op, const uint8_t *at)
    {
        return *at != 0;
    }
    static Acc Apply(kolo_op op, Acc a, Acc b)
    {
        const bool both = op == KOLO_LAND || op == KOLO_BAND;
        const bool either = op == KOLO_LOR || op == KOLO_BOR;
        return both ? a && b : either ? a || b : a != b;
    }
    static Acc Divide(Acc x, unsigned)
    {
        return x;
    }
    static void Store(uint8_t *at, Acc x)
    {
        *at = x;
    }
};

// -0 below +0, any NaN gives NaN.
template <class T> T Extreme(bool min, T a, T b)
{
    if (std::isnan(a) || std::isnan(b)) {
        return std::numeric_limits<T>::quiet_NaN();
    }
    if (a == b) {
        return std::signbit(a) == min ? a : b;
    }
    return (a < b) == min ? a : b;
}

// In double, then rounded: right for the sum, product and quotient of two floats (53 >= 2 * 24 +
// 2).
template <class T> T FloatOp(kolo_op op, T a, T b)
{
    switch (op) {
    case KOLO_PROD:
        return static_cast<T>(static_cast<double>(a) * static_cast<double>(b));
    case KOLO_MIN:
    case KOLO_MAX:
        return Extreme(op == KOLO_MIN, a, b);
    default:
        return static_cast<T>(static_cast<double>(a) + static_cast<double>(b));
    }
}

template <class T> struct Float {
    using Acc = T;
    static Acc Load(kolo_op, const uint8_t *at)
    {
        return Get<T>(at);
    }
    static Acc Apply(kolo_op op, Acc a, Acc b)
    {
        return FloatOp(op, a, b);
    }
    static Acc Divide(Acc x, unsigned by)
    {
        return static_cast<T>(static_cast<double>(x) / by);
    }
    static void Store(uint8_t *at, Acc x)
    {
        Put(at, std::isnan(x) ? std::numeric_limits<T>::quiet_NaN() : x);
    }
};

template <kolo_type kType, class Code> struct Small {
    using Acc = float;
    static Acc Load(kolo_op, const uint8_t *at)
    {
        return static_cast<float>(FormatOf(kType).Decode(Get<Code>(at)));
    }
    static Acc Apply(kolo_op op, Acc a, Acc b)
    {
        return FloatOp(op, a, b);
    }
    static Acc Divide(Acc x, unsigned by)
    {
        return Float<float>::Divide(x, by);
    }
    static void Store(uint8_t *at, Acc x)
    {
        Put(at, static_cast<Code>(Encode(kType, x)));
    }
};

template <class V, class I> struct Pair {
    struct Acc {
        V value;
        I index;
    };
    static Acc Load(kolo_op, const uint8_t *at)
    {
        return {Get<V>(at), Get<I>(at + sizeof(V))};
    }
    static Acc Apply(kolo_op op, Acc a, Acc b)
    {
        const bool min = op == KOLO_MINLOC;
        const bool a_nan = a.value != a.value;
        const bool b_nan = b.value != b.value;
        if (a_nan != b_nan) {
            return a_nan ? a : b;
        }
        if (!a_nan && a.value != b.value) {
            return (a.value < b.value) == min ? a : b;
        }
        return {Tie(min, a.value, b.value), std::min(a.index, b.index)};
    }
    static V Tie(bool min, V a, V b)
    {
        if constexpr (std::is_floating_point<V>::value) {
            return Extreme(min, a, b);
        } else {
            (void)min, (void)b;
            return a;
        }
    }
    static Acc Divide(Acc x, unsigned)
    {
        return x;
    }
    static void Store(uint8_t *at, Acc x)
    {
        std::memset(at, 0, 2 * sizeof(V));
        Put(at, x.value != x.value ? std::numeric_limits<V>::quiet_NaN() : x.value);
        Put(at + sizeof(V), x.index);
    }
};

struct Job {
    kolo_op op;
    std::vector<const uint8_t *> src;
    size_t count, element;
    unsigned divisor;
};

template <class T> Bytes Fold(const Job &job)
{
    Bytes out(job.count * job.element);
    for (size_t at = 0; at < out.size(); at += job.element) {
        auto total = T::Load(job.op, job.src[0] + at);
        for (size_t q = 1; q < job.src.size(); q++) {
            total = T::Apply(job.op, total, T::Load(job.op, job.src[q] + at));
        }
        T::Store(&out[at], job.divisor > 1 ? T::Divide(total, job.divisor) : total);
    }
    return out;
}

inline Bytes Reference(kolo_type type, const Job &job)
{
    switch (type) {
    case KOLO_INT8:
        return Fold<Integer<int8_t>>(job);
    case KOLO_UINT8:
        return Fold<Integer<uint8_t>>(job);
    case KOLO_INT16:
        return Fold<Integer<int16_t>>(job);
    case KOLO_UINT16:
        return Fold<Integer<uint16_t>>(job);
    case KOLO_INT32:
        return Fold<Integer<int32_t>>(job);
    case KOLO_UINT32:
        return Fold<Integer<uint32_t>>(job);
    case KOLO_INT64:
        return Fold<Integer<int64_t>>(job);
    case KOLO_UINT64:
        return Fold<Integer<uint64_t>>(job);
    case KOLO_FLOAT16:
        return Fold<Small<KOLO_FLOAT16, uint16_t>>(job);
    case KOLO_BFLOAT16:
        return Fold<Small<KOLO_BFLOAT16, uint16_t>>(job);
    case KOLO_FLOAT32:
        return Fold<Float<float>>(job);
    case KOLO_FLOAT64:
        return Fold<Float<double>>(job);
    case KOLO_FLOAT8_E4M3:
        return Fold<Small<KOLO_FLOAT8_E4M3, uint8_t>>(job);
    case KOLO_FLOAT8_E5M2:
        return Fold<Small<KOLO_FLOAT8_E5M2, uint8_t>>(job);
    case KOLO_BOOL:
        return Fold<Bool>(job);
    case KOLO_INT32_INT32:
        return Fold<Pair<int32_t, int32_t>>(job);
    case KOLO_INT64_INT64:
        return Fold<Pair<int64_t, int64_t>>(job);
    case KOLO_FLOAT32_INT32:
        return Fold<Pair<float, int32_t>>(job);
    default:
        return Fold<Pair<double, int32_t>>(job);
    }
}

// ---- inputs ------------------------------------------------------------------------------------

constexpr size_t kBytes[KOLO_TYPES] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1, 1, 8, 16, 8, 16};

template <class T> T AnyFloat(Random &random)
{
    const T specials[] = {0,
                          -T(0),
                          INFINITY,
                          -INFINITY,
                          std::numeric_limits<T>::quiet_NaN(),
                          -std::numeric_limits<T>::quiet_NaN(),
                          std::numeric_limits<T>::denorm_min(),
                          std::numeric_limits<T>::max()};
    const uint64_t r = random.Next();
    const uint64_t bits = random.Next();
    if (r % 16 == 0) {
        return specials[bits % 8];
    }
    if (r % 16 == 1) {
        T x;
        std::memcpy(&x, &bits, sizeof x);
        return x;
    }
    return static_cast<T>(static_cast<int64_t>(bits) >> 40) / T(12345);
}

inline void FillPair(kolo_type type, uint8_t *at, Random &random)
{
    const auto index = static_cast<int32_t>(random.Next() % 5);
    const auto value = static_cast<int32_t>(random.Next() % 5) - 2;
    switch (type) {
    case KOLO_INT32_INT32:
        Put(at, value);
        Put(at + 4, index);
        break;
    case KOLO_INT64_INT64:
        Put(at, value * (int64_t{1} << 40));
        Put(at + 8, index * (int64_t{1} << 40));
        break;
    case KOLO_FLOAT32_INT32:
        Put(at, random.Next() % 4 ? static_cast<float>(value) : AnyFloat<float>(random));
        Put(at + 4, index);
        break;
    default:
        Put(at, random.Next() % 4 ? static_cast<double>(value) : AnyFloat<double>(random));
        Put(at + 8, index);
        Put(at + 12, static_cast<uint32_t>(random.Next()));
        break;
    }
}

inline void FillElement(kolo_type type, uint8_t *at, Random &random)
{
    const uint64_t bits = random.Next();
    if (type == KOLO_FLOAT32) {
        Put(at, AnyFloat<float>(random));
    } else if (type == KOLO_FLOAT64) {
        Put(at, AnyFloat<double>(random));
    } else if (IsPair(type)) {
        FillPair(type, at, random);
    } else if (IsInteger(type) || type == KOLO_BOOL) {
        const uint64_t x = random.Next() % 4 ? bits : bits % 2; // zeros for the logical ones
        std::memcpy(at, &x, kBytes[type]);
    } else { // half of them around 1 lest most sums be NaN or infinite
        const Format &format = FormatOf(type);
        const uint32_t near = Encode(type, static_cast<float>(AnyFloat<double>(random)) / 999.f);
        const uint32_t code =
            bits % 8 ? near : static_cast<uint32_t>(bits >> 32) % (2 * format.Sign());
        std::memcpy(at, &code, kBytes[type]);
    }
}

// They repeat after a prime number of elements, which is no multiple of a block or a tile.
inline Bytes Fill(kolo_type type, size_t count, uint64_t seed)
{
    Random random(seed);
    Bytes data(count * kBytes[type]);
    const size_t period = std::min(data.size(), 65521 * kBytes[type]);
    for (size_t at = 0; at < period; at += kBytes[type]) {
        FillElement(type, &data[at], random);
    }
    for (size_t at = period; at < data.size(); at += period) {
        memcpy(&data[at], &data[0], std::min(period, data.size() - at));
    }
    return data;
}

} // namespace reduce_reference

#endif
