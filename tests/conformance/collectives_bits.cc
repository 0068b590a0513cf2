// SPDX-License-Identifier: Apache-2.0
/* Bits of sums; see collectives_bits.h. */
#include "collectives_bits.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string_view>

namespace collectives
{

const std::vector<kolo_type> &FloatTypes()
{
    static const std::vector<kolo_type> types = {KOLO_FLOAT32,  KOLO_FLOAT64,     KOLO_FLOAT16,
                                                 KOLO_BFLOAT16, KOLO_FLOAT8_E4M3, KOLO_FLOAT8_E5M2};
    return types;
}

std::string Describe(const Bits &b, int n)
{
    return std::string(NameOf(b.coll)) + " " + kolo_op_name(b.op) + " of " +
           std::to_string(b.count) + " " + kolo_type_name(b.type) + ", " + std::to_string(n) +
           " ranks" + (b.special ? ", special values" : "") +
           (b.calls > 1 ? ", in " + std::to_string(b.calls) + " calls" : "");
}

static double SpecialValue(kolo_type type, uint64_t mix)
{
    const double smallest = type == KOLO_FLOAT64       ? 5e-324
                            : type == KOLO_FLOAT32     ? 1.5e-45
                            : type == KOLO_BFLOAT16    ? std::ldexp(1.0, -133)
                            : type == KOLO_FLOAT16     ? std::ldexp(1.0, -24)
                            : type == KOLO_FLOAT8_E5M2 ? std::ldexp(1.0, -16)
                                                       : std::ldexp(1.0, -9);
    switch (mix % 6) {
    case 0:
        return -0.0;
    case 1:
        return INFINITY;
    case 2:
        return -INFINITY;
    case 3:
        return std::nan("");
    default:
        return mix % 2 != 0 ? smallest : -smallest;
    }
}

/* Rank r's element: random, of very different sizes. */
static void MakeFloat(const Bits &b, int r, size_t index, void *out)
{
    const uint64_t mix = Mix(b.seed * 64 + static_cast<uint64_t>(r), index, 7);
    const double fraction = static_cast<double>(mix >> 11) / 9007199254740992.0;
    const int exponent = static_cast<int>(mix % 13) - 8;
    const bool negative = (mix >> 5 & 1) != 0;
    double value = std::ldexp(1.0 + fraction, exponent);
    value = negative ? -value : value;
    if (b.special && Mix(mix, 1, 1) % 10 == 0) {
        value = SpecialValue(b.type, Mix(mix, 2, 2));
    }
    Encode(b.type, value, out);
}

/* `count` elements, which repeat: many sums are compared, few are made. */
static std::vector<char> MakeFloats(const Bits &b, int r, size_t count)
{
    const size_t elem = kolo_type_bytes(b.type);
    std::vector<char> data(count * elem);
    for (size_t i = 0; i < std::min(count, kPeriod); i++) {
        MakeFloat(b, r, i, &data[i * elem]);
    }
    for (size_t i = kPeriod; i < count; i += kPeriod) {
        std::memcpy(&data[i * elem], data.data(), std::min(kPeriod, count - i) * elem);
    }
    return data;
}

static kolo_status CallOnce(kolo_comm *comm, const Bits &b, const char *send, char *recv,
                            size_t count)
{
    switch (b.coll) {
    case Coll::kReduce:
        return kolo_reduce(send, recv, count, b.type, b.op, 0, comm, nullptr);
    case Coll::kReduceScatter:
        return kolo_reduce_scatter(send, recv, count, b.type, b.op, comm, nullptr);
    default:
        return kolo_all_reduce(send, recv, count, b.type, b.op, comm, nullptr);
    }
}

static kolo_status CallInParts(kolo_comm *comm, const Bits &b, const char *send, char *recv)
{
    const size_t elem = kolo_type_bytes(b.type);
    size_t from = 0;
    kolo_status st = KOLO_OK;
    for (size_t i = 1; i <= b.calls && st == KOLO_OK; i++) { /* of growing lengths */
        const size_t to = b.count * i * i / (b.calls * b.calls);
        st = CallOnce(comm, b, send + from * elem, recv + from * elem, to - from);
        from = to;
    }
    return st;
}

/* What the expression gives for the elements of one period. */
static std::vector<char> ExpectedPeriod(const Bits &b, int n, size_t count)
{
    const size_t elem = kolo_type_bytes(b.type);
    std::vector<std::vector<char>> data;
    std::vector<const void *> in(static_cast<size_t>(n));
    std::vector<char> expected(count * elem);
    for (int r = 0; r < n; r++) {
        data.push_back(MakeFloats(b, r, count));
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t r = 0; r < in.size(); r++) {
            in[r] = &data[r][i * elem];
        }
        FoldInRankOrder(b.type, b.op, in, &expected[i * elem]);
    }
    return expected;
}

/* The first element that is not as expected, or `count`; any NaN is as good as another. */
static size_t FirstWrong(const Bits &b, const std::vector<char> &expected, size_t first,
                         const std::vector<char> &result)
{
    const size_t elem = kolo_type_bytes(b.type), period = expected.size() / elem;
    for (size_t i = 0; i < b.count; i++) {
        const size_t at = (first + i) % period, most = std::min(period - at, b.count - i);
        const char *want = &expected[at * elem], *got = &result[i * elem];
        if (std::memcmp(want, got, most * elem) == 0) {
            i += most - 1;
            continue;
        }
        if (std::memcmp(want, got, elem) != 0 &&
            !(std::isnan(Decode(b.type, want)) && std::isnan(Decode(b.type, got)))) {
            return i;
        }
    }
    return b.count;
}

static std::string CompareHashes(kolo_comm *comm, const std::vector<char> &result)
{
    const size_t n = static_cast<size_t>(kolo_comm_size(comm));
    const uint64_t mine = std::hash<std::string_view>{}({result.data(), result.size()});
    std::vector<uint64_t> all(n);
    if (kolo_all_gather(&mine, all.data(), 1, KOLO_UINT64, comm, nullptr) != KOLO_OK) {
        return std::string("all_gather of hashes: ") + kolo_error_text();
    }
    return std::all_of(all.begin(), all.end(), [&](uint64_t hash) { return hash == all[0]; })
               ? ""
               : "ranks hold different bits";
}

std::string PlayBits(kolo_comm *comm, const Bits &b)
{
    const int n = kolo_comm_size(comm), rank = kolo_comm_rank(comm);
    const size_t elem = kolo_type_bytes(b.type);
    const bool blocks = b.coll == Coll::kReduceScatter;
    const size_t inputs = b.count * (blocks ? static_cast<size_t>(n) : 1);
    const std::vector<char> send = MakeFloats(b, rank, inputs);
    std::vector<char> recv(b.count * elem);
    const kolo_status st = CallInParts(comm, b, send.data(), recv.data());
    if (st != KOLO_OK) {
        return Describe(b, n) + ": " + kolo_status_name(st) + ": " + kolo_error_text();
    }
    const bool has_result = b.coll != Coll::kReduce || rank == 0;
    const size_t first = blocks ? static_cast<size_t>(rank) * b.count : 0;
    /* All ranks compare hashes, also those that found a wrong sum. */
    std::string wrong = b.coll == Coll::kAllReduce ? CompareHashes(comm, recv) : "";
    if (b.in_rank_order && has_result) {
        const std::vector<char> expected = ExpectedPeriod(b, n, std::min(inputs, kPeriod));
        const size_t i = FirstWrong(b, expected, first, recv);
        wrong = i == b.count ? wrong
                             : "element " + std::to_string(i) + " of rank " + std::to_string(rank) +
                                   " is not the sum in rank order";
    }
    return wrong.empty() ? wrong : Describe(b, n) + ": " + wrong;
}

} // namespace collectives
