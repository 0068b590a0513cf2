// SPDX-License-Identifier: Apache-2.0
/* Inputs, expected results, and the comparison.
 *
 * Every rank can compute every rank's input, so only the tested data travel between ranks. Inputs
 * are chosen so that each partial result is exact in the element type, in any order of the
 * operations:
 * - Sums: whole numbers whose absolute values add up to at most 2^digits, scaled by a power of two
 *   that all ranks share.
 * - Products: signs and few twos.
 * - Minimum, maximum and bits: any value.
 *
 * So equality of bytes is the test for all operations. It holds for AVG too: an average is the
 * exact sum divided by the number of ranks and rounded once. Source: the mixing function is
 * SplitMix64's (Steele, Lea, Flood 2014, doi:10.1145/2714064.2660195). */
#include "perf.h"

#include <assert.h>
#include <string.h>

enum { DESCRIBED_MAX = 3 };

static uint64_t mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* Rank -1 gives the hash that all ranks share. */
static uint64_t hash(uint64_t call, int rank, size_t index)
{
    return mix(index + mix((uint64_t)(rank + 1) + mix(call)));
}

/* Map the top half of `bits` to 0 .. range-1. */
static uint32_t below(uint64_t bits, uint32_t range)
{
    return (uint32_t)((bits >> 32) * range >> 32);
}

double perf_premul_factor(int rank)
{
    return rank % 2 == 0 ? 1 : 2;
}

/* A whole number such that any sum over ranks stays in -limit .. limit. With more than `limit`
 * ranks, `limit` of them (different ones for each index) have +-1, and the others have 0. */
static double summand(const struct perf_data *data, int rank, uint64_t shared, uint64_t own)
{
    const uint32_t limit =
        perf_type_exact_max(data->type) / (data->op == PERF_OP_PREMULSUM ? 2 : 1);
    const uint32_t nranks = (uint32_t)data->nranks;
    uint32_t most = limit / nranks;
    if (most == 0) {
        const uint32_t turn = ((uint32_t)rank + below(shared, nranks)) % nranks;
        most = turn < limit ? 1 : 0;
    }
    if (!perf_type_is_signed(data->type)) {
        return below(own, most + 1);
    }
    const double value = (double)below(own, 2 * most + 1) - most;
    static const double scales[] = {1, 0.5, 0.25, 0.125};
    return perf_type_is_float(data->type) ? value * scales[shared & 3] : value;
}

/* A sign, and at most six ranks have a factor of two: 64 fits in every type. */
static double factor(const struct perf_data *data, int rank, uint64_t shared, uint64_t own)
{
    const uint32_t nranks = (uint32_t)data->nranks;
    const uint32_t turn = ((uint32_t)rank + below(shared, nranks)) % nranks;
    const double value = turn < 6 && (own & 1) != 0 ? 2 : 1;
    return perf_type_is_signed(data->type) && (own & 2) != 0 ? -value : value;
}

/* Any value of the type. 64-bit integers keep 53 leading bits, so that a double can hold them. */
static double anything(const struct perf_data *data, uint64_t own)
{
    const bool is_signed = perf_type_is_signed(data->type);
    if (perf_type_is_float(data->type)) {
        const uint32_t most = perf_type_exact_max(data->type);
        return ((double)below(own, 2 * most + 1) - most) / 4;
    }
    const unsigned width = 8 * (unsigned)perf_type_bytes(data->type);
    const unsigned kept = width < 53 ? width : 53;
    const uint64_t bits = own >> (64 - kept) << (width - kept);
    if (!is_signed) {
        return (double)bits;
    }
    return (double)((int64_t)(bits << (64 - width)) >> (64 - width));
}

static double number(const struct perf_data *data, int rank, uint64_t shared, uint64_t own)
{
    switch (data->op) {
    case KOLO_PROD:
        return factor(data, rank, shared, own);
    case KOLO_MIN:
    case KOLO_MAX:
        return anything(data, own);
    default:
        return summand(data, rank, shared, own);
    }
}

/* A truth value. Most are the operation's neutral value, so that long reductions do not all end
 * alike. Logical operations take any non-zero bits as true, so those occur too. A bitwise operation
 * on bool gets only 0 and 1. */
static uint64_t truth(const struct perf_data *data, uint64_t own)
{
    const bool rare = below(own, (uint32_t)data->nranks + 1) == 0;
    bool value = rare;
    if (data->op == KOLO_LXOR || data->op == KOLO_BXOR) {
        value = (own & 1) != 0;
    } else if (data->op == KOLO_LAND || data->op == KOLO_BAND) {
        value = !rare;
    }
    const bool logical = data->op == KOLO_LAND || data->op == KOLO_LOR || data->op == KOLO_LXOR;
    return !value ? 0 : logical ? (own & 0x7F) | 1 : 1;
}

/* Bits such that a long AND is not all zeros, and a long OR not all ones. */
static uint64_t bits_of(const struct perf_data *data, uint64_t own)
{
    uint64_t bits = own;
    for (int ranks = 1; data->op != KOLO_BXOR && ranks < data->nranks; ranks *= 2) {
        own = mix(own);
        bits = data->op == KOLO_BAND ? bits | own : bits & own;
    }
    return bits;
}

static uint64_t whole_bits(const struct perf_data *data, uint64_t own)
{
    const bool bitwise = data->op >= KOLO_BAND && data->op <= KOLO_BXOR;
    return bitwise && data->type != KOLO_BOOL ? bits_of(data, own) : truth(data, own);
}

static bool is_bits(uint32_t op)
{
    return op >= KOLO_LAND && op <= KOLO_BXOR;
}

/* A pair with one of few values, so that ties are common and the index decides. */
static void pair_of(const struct perf_data *data, int rank, uint64_t own, double *value,
                    int32_t *index)
{
    *value = (double)below(own, 7) - 3;
    *index = (int32_t)((own & 0xFFFF) * (uint32_t)data->nranks % 0x1000000) + rank;
}

void perf_input(const struct perf_data *data, int rank, size_t index, unsigned char *out)
{
    const uint64_t own = hash(data->call, rank, index);
    const size_t bytes = perf_type_bytes(data->type);
    if (data->op == PERF_OP_NONE) {
        const uint64_t raw[2] = {own, mix(own)};
        memcpy(out, raw, bytes);
    } else if (is_bits(data->op)) {
        const uint64_t bits = whole_bits(data, own);
        memcpy(out, &bits, bytes);
    } else if (perf_type_is_pair(data->type)) {
        double value;
        int32_t where;
        pair_of(data, rank, own, &value, &where);
        perf_encode_pair(data->type, value, where, out);
    } else {
        perf_encode(data->type, number(data, rank, hash(data->call, -1, index), own), out);
    }
}

static uint64_t combine_bits(uint32_t op, uint64_t a, uint64_t b)
{
    switch (op) {
    case KOLO_LAND:
        return a != 0 && b != 0;
    case KOLO_LOR:
        return a != 0 || b != 0;
    case KOLO_LXOR:
        return (a != 0) != (b != 0);
    case KOLO_BAND:
        return a & b;
    case KOLO_BOR:
        return a | b;
    default:
        return a ^ b;
    }
}

static void expected_bits(const struct perf_data *data, size_t index, unsigned char *out)
{
    uint64_t result = whole_bits(data, hash(data->call, 0, index));
    /* With one rank, the result of a logical operation is still a truth value. */
    result = data->op <= KOLO_LXOR ? result != 0 : result;
    for (int r = 1; r < data->nranks; r++) {
        result = combine_bits(data->op, result, whole_bits(data, hash(data->call, r, index)));
    }
    memcpy(out, &result, perf_type_bytes(data->type));
}

static void expected_pair(const struct perf_data *data, size_t index, unsigned char *out)
{
    double best = 0;
    int32_t best_index = 0;
    for (int r = 0; r < data->nranks; r++) {
        double value;
        int32_t where;
        pair_of(data, r, hash(data->call, r, index), &value, &where);
        const bool wins = data->op == KOLO_MINLOC ? value < best : value > best;
        if (r == 0 || wins || (value == best && where < best_index)) {
            best = value;
            best_index = where;
        }
    }
    perf_encode_pair(data->type, best, best_index, out);
}

static double combine(uint32_t op, double a, double b)
{
    switch (op) {
    case KOLO_PROD:
        return a * b;
    case KOLO_MIN:
        return a < b ? a : b;
    case KOLO_MAX:
        return a > b ? a : b;
    default:
        return a + b;
    }
}

/* The exact sum divided by the number of ranks, rounded as the type's accumulator is. */
static double divided(enum kolo_type type, double sum, int nranks)
{
    const double quotient = sum / nranks;
    return perf_type_is_float(type) && type != KOLO_FLOAT64 ? (double)(float)quotient : quotient;
}

static void expected_number(const struct perf_data *data, size_t index, unsigned char *out)
{
    const uint64_t shared = hash(data->call, -1, index);
    double result = 0;
    for (int r = 0; r < data->nranks; r++) {
        double value = number(data, r, shared, hash(data->call, r, index));
        value *= data->op == PERF_OP_PREMULSUM ? perf_premul_factor(r) : 1;
        result = r == 0 ? value : combine(data->op, result, value);
    }
    if (data->op == KOLO_AVG) {
        result = divided(data->type, result, data->nranks);
    }
    perf_encode(data->type, result, out);
}

void perf_expected(const struct perf_data *data, int source, size_t index, unsigned char *out)
{
    if (source != PERF_REDUCED) {
        perf_input(data, source, index, out);
    } else if (is_bits(data->op)) {
        expected_bits(data, index, out);
    } else if (perf_type_is_pair(data->type)) {
        expected_pair(data, index, out);
    } else {
        expected_number(data, index, out);
    }
}

void perf_fill_input(const struct perf_data *data, int rank, void *send, size_t elems)
{
    const size_t bytes = perf_type_bytes(data->type);
    unsigned char *at = send;
    for (size_t i = 0; i < elems; i++, at += bytes) {
        perf_input(data, rank, i, at);
    }
}

/* ---- comparison ---- */

/* A pair's padding is not compared: a reduction may leave any bytes there. */
static size_t compared_bytes(const struct perf_data *data)
{
    return perf_type_is_pair(data->type) && data->op != PERF_OP_NONE ? perf_pair_used(data->type)
                                                                     : perf_type_bytes(data->type);
}

static void print_element(const struct perf_data *data, const unsigned char *element, FILE *text)
{
    fprintf(text, "%.9g (0x", perf_decode(data->type, element));
    for (size_t b = perf_type_bytes(data->type); b > 0; b--) {
        fprintf(text, "%02x", element[b - 1]);
    }
    fprintf(text, ")");
}

static void describe(const struct perf_collective *collective, const struct perf_data *data,
                     const struct perf_shape *shape, size_t index, const unsigned char *got,
                     const unsigned char *expected, FILE *text)
{
    fprintf(text, "%s: rank %d of %d, %s %s, element %zu of %zu: got ", collective->name,
            shape->rank, shape->nranks, perf_type_name(data->type), perf_op_name(data->op), index,
            shape->recv_elems);
    print_element(data, got, text);
    fprintf(text, ", expected ");
    print_element(data, expected, text);
    fprintf(text, "\n");
}

int64_t perf_check(const struct perf_collective *collective, const struct perf_data *data,
                   const struct perf_shape *shape, const void *recv, FILE *text)
{
    const size_t bytes = perf_type_bytes(data->type), compared = compared_bytes(data);
    int64_t wrong = 0;
    struct perf_block block;
    for (size_t k = 0; collective->block(shape, k, &block); k++) {
        assert(block.first + block.elems <= shape->recv_elems);
        for (size_t i = 0; i < block.elems; i++) {
            const unsigned char *got = (const unsigned char *)recv + (block.first + i) * bytes;
            unsigned char expected[PERF_ELEMENT_MAX];
            perf_expected(data, block.source, block.source_first + i, expected);
            if (memcmp(got, expected, compared) != 0 && wrong++ < DESCRIBED_MAX) {
                describe(collective, data, shape, block.first + i, got, expected, text);
            }
        }
    }
    return wrong;
}

int64_t perf_check_send(const struct perf_data *data, const struct perf_shape *shape,
                        const void *send, const void *recv)
{
    const size_t bytes = perf_type_bytes(data->type);
    const uintptr_t from = (uintptr_t)recv, to = from + shape->recv_elems * bytes;
    int64_t changed = 0;
    for (size_t i = 0; i < shape->send_elems; i++) {
        const unsigned char *at = (const unsigned char *)send + i * bytes;
        if ((uintptr_t)at >= from && (uintptr_t)at < to) {
            continue;
        }
        unsigned char expected[PERF_ELEMENT_MAX];
        perf_input(data, shape->rank, i, expected);
        changed += memcmp(at, expected, bytes) != 0;
    }
    return changed;
}
