// SPDX-License-Identifier: Apache-2.0
/* Elements, and what they reduce to; see collectives_numbers.h. */
#include "collectives_numbers.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace collectives
{

/* ---- kinds of types ---- */

bool IsSmallFloat(kolo_type type)
{
    return type == KOLO_FLOAT16 || type == KOLO_BFLOAT16 || type == KOLO_FLOAT8_E4M3 ||
           type == KOLO_FLOAT8_E5M2;
}

bool IsFloat(kolo_type type)
{
    return IsSmallFloat(type) || type == KOLO_FLOAT32 || type == KOLO_FLOAT64;
}

bool IsPair(kolo_type type)
{
    return type >= KOLO_INT32_INT32 && type <= KOLO_FLOAT64_INT32;
}

bool IsSigned(kolo_type type)
{
    return type == KOLO_INT8 || type == KOLO_INT16 || type == KOLO_INT32 || type == KOLO_INT64;
}

bool OpFits(kolo_type type, kolo_op op)
{
    const bool pair_op = op == KOLO_MINLOC || op == KOLO_MAXLOC;
    const bool bit_op = op >= KOLO_LAND && op <= KOLO_BXOR;
    if (IsPair(type) || pair_op) {
        return IsPair(type) && pair_op;
    }
    return type == KOLO_BOOL ? bit_op : !(IsFloat(type) && bit_op);
}

/* ---- small floats, from their definition ---- */

struct Format {
    int exponent_bits, mantissa_bits;
    bool has_infinity;
};

static Format FormatOf(kolo_type type)
{
    switch (type) {
    case KOLO_FLOAT16:
        return {5, 10, true};
    case KOLO_BFLOAT16:
        return {8, 7, true};
    case KOLO_FLOAT8_E4M3:
        return {4, 3, false};
    default:
        return {5, 2, true};
    }
}

static double DecodeSmall(Format f, unsigned code)
{
    const int bias = (1 << (f.exponent_bits - 1)) - 1;
    const unsigned mantissa = code & ((1u << f.mantissa_bits) - 1);
    const unsigned exponent = code >> f.mantissa_bits & ((1u << f.exponent_bits) - 1);
    const unsigned top = (1u << f.exponent_bits) - 1;
    const double sign = code >> (f.exponent_bits + f.mantissa_bits) & 1 ? -1.0 : 1.0;
    const bool all_ones = mantissa == (1u << f.mantissa_bits) - 1;
    if (exponent == top && (f.has_infinity ? mantissa != 0 : all_ones)) {
        return std::copysign(std::nan(""), sign);
    }
    if (exponent == top && f.has_infinity) {
        return sign * INFINITY;
    }
    const double whole = exponent == 0 ? mantissa : mantissa + (1u << f.mantissa_bits);
    return sign *
           std::ldexp(whole, std::max(1, static_cast<int>(exponent)) - bias - f.mantissa_bits);
}

static unsigned EncodeSmall(Format f, double value)
{
    const int bias = (1 << (f.exponent_bits - 1)) - 1;
    const unsigned sign = std::signbit(value) ? 1u << (f.exponent_bits + f.mantissa_bits) : 0;
    const unsigned ones = (1u << (f.exponent_bits + f.mantissa_bits)) - 1;
    const unsigned infinity = ones - ((1u << f.mantissa_bits) - 1);
    const unsigned beyond = f.has_infinity ? infinity : ones; /* what is too large becomes */
    if (std::isnan(value)) {
        return sign | ones;
    }
    const double size = std::fabs(value);
    if (size == 0) {
        return sign;
    }
    if (std::isinf(size)) {
        return sign | beyond;
    }
    const int exponent = std::max(std::ilogb(size), 1 - bias);
    const double steps = std::nearbyint(std::ldexp(size, f.mantissa_bits - exponent));
    const double code = std::ldexp(exponent + bias - 1, f.mantissa_bits) + steps;
    return sign | (code >= beyond ? beyond : static_cast<unsigned>(code));
}

double Decode(kolo_type type, const void *element)
{
    uint16_t half = 0;
    float single = 0;
    double whole = 0;
    if (type == KOLO_FLOAT32) {
        std::memcpy(&single, element, sizeof single);
        return single;
    }
    if (type == KOLO_FLOAT64) {
        std::memcpy(&whole, element, sizeof whole);
        return whole;
    }
    std::memcpy(&half, element, kolo_type_bytes(type));
    return DecodeSmall(FormatOf(type), half);
}

void Encode(kolo_type type, double value, void *element)
{
    if (type == KOLO_FLOAT64) {
        std::memcpy(element, &value, sizeof value);
    } else if (type == KOLO_FLOAT32) {
        const float single = static_cast<float>(value);
        std::memcpy(element, &single, sizeof single);
    } else {
        const uint16_t code = static_cast<uint16_t>(EncodeSmall(FormatOf(type), value));
        std::memcpy(element, &code, kolo_type_bytes(type));
    }
}

/* ---- integers ---- */

static int64_t GetInteger(kolo_type type, const void *element)
{
    const size_t bits = 8 * kolo_type_bytes(type);
    uint64_t raw = 0;
    std::memcpy(&raw, element, bits / 8);
    if (IsSigned(type) && bits < 64 && (raw >> (bits - 1) & 1) != 0) {
        raw |= ~UINT64_C(0) << bits;
    }
    return static_cast<int64_t>(raw);
}

static void PutInteger(kolo_type type, int64_t value, void *element)
{
    std::memcpy(element, &value, kolo_type_bytes(type)); /* little endian: the low bytes */
}

/* ---- pairs ---- */

static kolo_type PairValue(kolo_type type)
{
    return type == KOLO_INT32_INT32     ? KOLO_INT32
           : type == KOLO_INT64_INT64   ? KOLO_INT64
           : type == KOLO_FLOAT32_INT32 ? KOLO_FLOAT32
                                        : KOLO_FLOAT64;
}

static kolo_type PairIndex(kolo_type type)
{
    return type == KOLO_INT64_INT64 ? KOLO_INT64 : KOLO_INT32;
}

static double GetPairValue(kolo_type type, const void *element)
{
    const kolo_type value = PairValue(type);
    return IsFloat(value) ? Decode(value, element)
                          : static_cast<double>(GetInteger(value, element));
}

static int64_t GetPairIndex(kolo_type type, const void *element)
{
    return GetInteger(PairIndex(type),
                      static_cast<const char *>(element) + kolo_type_bytes(PairValue(type)));
}

static void PutPair(kolo_type type, int value, int64_t index, void *element)
{
    const kolo_type first = PairValue(type);
    std::memset(element, 0, kolo_type_bytes(type));
    if (IsFloat(first)) {
        Encode(first, value, element);
    } else {
        PutInteger(first, value, element);
    }
    PutInteger(PairIndex(type), index, static_cast<char *>(element) + kolo_type_bytes(first));
}

void ClearUnused(kolo_type type, void *elements, size_t count)
{
    for (size_t i = 0; type == KOLO_FLOAT64_INT32 && i < count; i++) {
        std::memset(static_cast<char *>(elements) + 16 * i + 12, 0, 4);
    }
}

/* ---- elements ---- */

uint64_t Mix(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t x = a * UINT64_C(0x9E3779B97F4A7C15) + b * UINT64_C(0xC2B2AE3D27D4EB4F) + c;
    for (int i = 0; i < 2; i++) {
        x ^= x >> 32;
        x *= UINT64_C(0xD6E8FEB86659FD93);
    }
    return x ^ x >> 32;
}

/* Terms up to this, of 8 ranks, have sums that the type holds exactly, as it does each part. */
static int LargestTerm(kolo_type type)
{
    switch (type) {
    case KOLO_FLOAT8_E5M2:
        return 1;
    case KOLO_FLOAT8_E4M3:
        return 2;
    case KOLO_INT8:
        return 15;
    case KOLO_UINT8:
    case KOLO_BFLOAT16:
        return 31;
    case KOLO_FLOAT16:
        return 200;
    case KOLO_INT16:
    case KOLO_UINT16:
        return 4000;
    default:
        return 1000000;
    }
}

/* -most to most; 0 to most for unsigned types. */
static int Term(kolo_type type, uint64_t mix, int most)
{
    const bool negative = (IsFloat(type) || IsSigned(type)) && (mix >> 40 & 1) != 0;
    const int size = static_cast<int>(mix % (static_cast<uint64_t>(most) + 1));
    return negative ? -size : size;
}

static int Factor(kolo_type type, int r)
{
    return type == KOLO_FLOAT8_E5M2          ? (r % 2 != 0 ? -1 : 1)
           : IsFloat(type) || IsSigned(type) ? (r % 3 == 0   ? 2
                                                : r % 3 == 1 ? -1
                                                             : 1)
                                             : 1 + r % 2;
}

/* A sum that n divides: everybody has b, one has b + 1, another b - 1. */
static int Divisible(kolo_type type, int n, int r, size_t index)
{
    const uint64_t common = Mix(index, 77, 5);
    const int up = static_cast<int>(common % static_cast<uint64_t>(n));
    const int down = (up + 1) % n;
    const bool is_signed = IsFloat(type) || IsSigned(type);
    const int most = std::max(1, LargestTerm(type) - 1);
    const int base =
        is_signed ? Term(type, common >> 8, most) : 1 + static_cast<int>(common >> 8) % most;
    return base + (n > 1 ? (r == up) - (r == down) : 0);
}

static int NumberFor(kolo_type type, kolo_op op, int n, int r, size_t index)
{
    const uint64_t mix = Mix(static_cast<uint64_t>(r) + 1, index, op);
    switch (op) {
    case KOLO_PROD: /* at most four twos among eight ranks */
        return (r + static_cast<int>(index % 1000)) % 2 == 0       ? 2
               : (IsFloat(type) || IsSigned(type)) && mix % 3 == 0 ? -1
                                                                   : 1;
    case KOLO_AVG:
        return IsFloat(type) ? Divisible(type, n, r, index) : Term(type, mix, LargestTerm(type));
    case kPremulsum:
        return Term(type, mix, LargestTerm(type) < 2 ? 1 : LargestTerm(type) / 2);
    default:
        return Term(type, mix, LargestTerm(type));
    }
}

/* Any value that two bits of mantissa hold, for comparisons. */
static double FloatToCompare(uint64_t mix)
{
    const double size =
        std::ldexp(1.0 + 0.25 * static_cast<double>(mix & 3), static_cast<int>(mix >> 2 & 7) - 4);
    return (mix >> 5 & 1) != 0 ? -size : size;
}

static void MakeBytes(kolo_type type, uint64_t mix, void *out)
{
    const uint64_t words[2] = {mix, Mix(mix, 1, 2)};
    std::memcpy(out, words, kolo_type_bytes(type));
}

void MakeElement(kolo_type type, kolo_op op, int n, int r, size_t index, void *out)
{
    const uint64_t mix = Mix(static_cast<uint64_t>(r) + 1, index, 1000 + op);
    const bool logical = (op >= KOLO_LAND && op <= KOLO_LXOR) || (type == KOLO_BOOL && op != kMove);
    const bool compares = op == KOLO_MIN || op == KOLO_MAX;
    if (IsPair(type) && op != kMove) { /* few values, so that many are equal */
        PutPair(type, Term(KOLO_INT32, mix, 2), static_cast<int64_t>(mix >> 50), out);
    } else if (logical && mix % 3 == 0) {
        std::memset(out, 0, kolo_type_bytes(type));
    } else if (op >= KOLO_LAND && op <= KOLO_BXOR && op != KOLO_BAND) {
        MakeBytes(type, mix, out);
    } else if (op == KOLO_BAND) { /* mostly ones, else nothing is left */
        MakeBytes(type, mix | Mix(mix, 3, 3), out);
    } else if (op == kMove || (compares && !IsFloat(type))) {
        MakeBytes(type, mix, out);
    } else if (IsFloat(type)) {
        Encode(type, compares ? FloatToCompare(mix) : NumberFor(type, op, n, r, index), out);
    } else {
        PutInteger(type, NumberFor(type, op, n, r, index), out);
    }
}

void MakeFactor(kolo_type type, int r, void *out)
{
    if (IsFloat(type)) {
        Encode(type, Factor(type, r), out);
    } else {
        PutInteger(type, Factor(type, r), out);
    }
}

/* ---- reductions ---- */

static double FoldDouble(kolo_op op, double a, double b)
{
    switch (op) {
    case KOLO_PROD:
        return a * b;
    case KOLO_MIN:
        return std::min(a, b);
    case KOLO_MAX:
        return std::max(a, b);
    default:
        return a + b;
    }
}

static void FoldFloats(kolo_type type, kolo_op op, const std::vector<const void *> &in, void *out)
{
    double acc = 0;
    for (size_t r = 0; r < in.size(); r++) {
        double x = Decode(type, in[r]);
        x = op == kPremulsum ? x * Factor(type, static_cast<int>(r)) : x;
        acc = r == 0 ? x : FoldDouble(op, acc, x);
    }
    Encode(type, op == KOLO_AVG ? acc / static_cast<double>(in.size()) : acc, out);
}

/* On integers and truth values, the latter 0 or 1. Wraps as two's complement does. */
static uint64_t FoldBits(kolo_op op, uint64_t a, uint64_t b)
{
    switch (op) {
    case KOLO_PROD:
        return a * b;
    case KOLO_LAND:
    case KOLO_BAND:
        return a & b;
    case KOLO_LOR:
    case KOLO_BOR:
        return a | b;
    case KOLO_LXOR:
    case KOLO_BXOR:
        return a ^ b;
    default:
        return a + b;
    }
}

static bool IsLess(kolo_type type, int64_t a, int64_t b)
{
    return IsSigned(type) ? a < b : static_cast<uint64_t>(a) < static_cast<uint64_t>(b);
}

static void FoldIntegers(kolo_type type, kolo_op op, const std::vector<const void *> &in, void *out)
{
    const bool logical = (op >= KOLO_LAND && op <= KOLO_LXOR) || type == KOLO_BOOL;
    int64_t acc = 0;
    for (size_t r = 0; r < in.size(); r++) {
        int64_t x = GetInteger(type, in[r]);
        x = logical ? x != 0 : x;
        x = op == kPremulsum ? x * Factor(type, static_cast<int>(r)) : x;
        if (r == 0) {
            acc = x;
        } else if (op == KOLO_MIN || op == KOLO_MAX) {
            acc = IsLess(type, x, acc) == (op == KOLO_MIN) ? x : acc;
        } else {
            acc = static_cast<int64_t>(
                FoldBits(op, static_cast<uint64_t>(acc), static_cast<uint64_t>(x)));
        }
    }
    PutInteger(type, op == KOLO_AVG ? acc / static_cast<int64_t>(in.size()) : acc, out);
}

static void FoldPairs(kolo_type type, kolo_op op, const std::vector<const void *> &in, void *out)
{
    const void *best = in[0];
    for (const void *next : in) {
        const double a = GetPairValue(type, best), b = GetPairValue(type, next);
        const bool better = op == KOLO_MINLOC ? b < a : b > a;
        if (better || (a == b && GetPairIndex(type, next) < GetPairIndex(type, best))) {
            best = next;
        }
    }
    std::memcpy(out, best, kolo_type_bytes(type));
}

void Fold(kolo_type type, kolo_op op, const std::vector<const void *> &in, void *out)
{
    if (IsPair(type)) {
        FoldPairs(type, op, in, out);
    } else if (IsFloat(type)) {
        FoldFloats(type, op, in, out);
    } else {
        FoldIntegers(type, op, in, out);
    }
}

template <typename Accumulator>
static double AccumulateInRankOrder(kolo_type type, kolo_op op, const std::vector<const void *> &in)
{
    Accumulator acc = static_cast<Accumulator>(Decode(type, in[0]));
    for (size_t r = 1; r < in.size(); r++) {
        const Accumulator x = static_cast<Accumulator>(Decode(type, in[r]));
        acc = op == KOLO_PROD ? acc * x : acc + x;
    }
    return op == KOLO_AVG ? acc / static_cast<Accumulator>(in.size()) : acc;
}

void FoldInRankOrder(kolo_type type, kolo_op op, const std::vector<const void *> &in, void *out)
{
    Encode(type,
           type == KOLO_FLOAT64 ? AccumulateInRankOrder<double>(type, op, in)
                                : AccumulateInRankOrder<float>(type, op, in),
           out);
}

} // namespace collectives
