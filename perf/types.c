// SPDX-License-Identifier: Apache-2.0
/* Element types and operations of the programs: names, sizes, the types of each operation, and the
 * conversion of numbers to bytes and back. The conversions here are slow and follow the formats'
 * definitions. The library's own are not used, because the checks test them.
 * Source: OCP 8-bit Floating Point Specification 1.0; IEEE 754-2019. */
#include "perf.h"

#include <assert.h>
#include <math.h>
#include <string.h>
#include <strings.h>

enum type_kind { INTEGER, UNSIGNED, FLOAT, BOOL, PAIR };

/* digits: whole numbers up to 2^digits are exact (capped at 2^30). */
struct type_row {
    const char *name, *alias;
    size_t bytes;
    enum type_kind kind;
    int digits, exponent_bits;
};
static const struct type_row types[KOLO_TYPES] = {
    [KOLO_INT8] = {"int8", "int8", 1, INTEGER, 7, 0},
    [KOLO_UINT8] = {"uint8", "uint8", 1, UNSIGNED, 8, 0},
    [KOLO_INT16] = {"int16", "int16", 2, INTEGER, 15, 0},
    [KOLO_UINT16] = {"uint16", "uint16", 2, UNSIGNED, 16, 0},
    [KOLO_INT32] = {"int32", "int32", 4, INTEGER, 30, 0},
    [KOLO_UINT32] = {"uint32", "uint32", 4, UNSIGNED, 30, 0},
    [KOLO_INT64] = {"int64", "int64", 8, INTEGER, 30, 0},
    [KOLO_UINT64] = {"uint64", "uint64", 8, UNSIGNED, 30, 0},
    [KOLO_FLOAT16] = {"half", "float16", 2, FLOAT, 11, 5},
    [KOLO_BFLOAT16] = {"bfloat16", "bfloat16", 2, FLOAT, 8, 8},
    [KOLO_FLOAT32] = {"float", "float32", 4, FLOAT, 24, 8},
    [KOLO_FLOAT64] = {"double", "float64", 8, FLOAT, 30, 11},
    [KOLO_FLOAT8_E4M3] = {"f8e4m3", "float8_e4m3", 1, FLOAT, 4, 4},
    [KOLO_FLOAT8_E5M2] = {"f8e5m2", "float8_e5m2", 1, FLOAT, 3, 5},
    [KOLO_BOOL] = {"bool", "bool", 1, BOOL, 1, 0},
    [KOLO_INT32_INT32] = {"i32_i32", "int32_int32", 8, PAIR, 30, 0},
    [KOLO_INT64_INT64] = {"i64_i64", "int64_int64", 16, PAIR, 30, 0},
    [KOLO_FLOAT32_INT32] = {"f32_i32", "float32_int32", 8, PAIR, 24, 0},
    [KOLO_FLOAT64_INT32] = {"f64_i32", "float64_int32", 16, PAIR, 30, 0},
};

static const char *const ops[PERF_OPS] = {
    [KOLO_SUM] = "sum",       [KOLO_PROD] = "prod",
    [KOLO_MIN] = "min",       [KOLO_MAX] = "max",
    [KOLO_AVG] = "avg",       [KOLO_LAND] = "land",
    [KOLO_LOR] = "lor",       [KOLO_LXOR] = "lxor",
    [KOLO_BAND] = "band",     [KOLO_BOR] = "bor",
    [KOLO_BXOR] = "bxor",     [KOLO_MINLOC] = "minloc",
    [KOLO_MAXLOC] = "maxloc", [PERF_OP_PREMULSUM] = "mulsum",
    [PERF_OP_NONE] = "none",
};

const char *perf_type_name(enum kolo_type type)
{
    return types[type].name;
}

size_t perf_type_bytes(enum kolo_type type)
{
    return types[type].bytes;
}

bool perf_type_find(const char *name, enum kolo_type *out)
{
    for (int t = 0; t < KOLO_TYPES; t++) {
        if (strcasecmp(name, types[t].name) == 0 || strcasecmp(name, types[t].alias) == 0) {
            *out = (enum kolo_type)t;
            return true;
        }
    }
    return false;
}

const char *perf_op_name(uint32_t op)
{
    assert(op < PERF_OPS);
    return ops[op];
}

bool perf_op_find(const char *name, uint32_t *out)
{
    if (strcasecmp(name, "premulsum") == 0) {
        *out = PERF_OP_PREMULSUM;
        return true;
    }
    for (uint32_t op = 0; op < PERF_OP_NONE; op++) {
        if (strcasecmp(name, ops[op]) == 0) {
            *out = op;
            return true;
        }
    }
    return false;
}

bool perf_op_takes(uint32_t op, enum kolo_type type)
{
    const enum type_kind kind = types[type].kind;
    switch (op) {
    case PERF_OP_NONE:
        return true;
    case KOLO_LAND:
    case KOLO_LOR:
    case KOLO_LXOR:
    case KOLO_BAND:
    case KOLO_BOR:
    case KOLO_BXOR:
        return kind == INTEGER || kind == UNSIGNED || kind == BOOL;
    case KOLO_MINLOC:
    case KOLO_MAXLOC:
        return kind == PAIR;
    default:
        return kind == INTEGER || kind == UNSIGNED || kind == FLOAT;
    }
}

bool perf_type_is_float(enum kolo_type type)
{
    return types[type].kind == FLOAT;
}

bool perf_type_is_signed(enum kolo_type type)
{
    return types[type].kind == FLOAT || types[type].kind == INTEGER;
}

bool perf_type_is_pair(enum kolo_type type)
{
    return types[type].kind == PAIR;
}

uint32_t perf_type_exact_max(enum kolo_type type)
{
    const struct type_row *row = &types[type];
    /* A float also holds 2^digits itself, an integer stops one before. */
    return (1u << row->digits) - (row->kind == FLOAT ? 0u : 1u);
}

/* Encode a small float. Its exponent and mantissa fields together are
 * (exponent - smallest) * 2^m + q, where q counts quanta. The formula also holds for subnormals,
 * which have the smallest exponent, and a carry from q gives the right exponent. */
static uint32_t encode_small(double value, int exponent_bits, int mantissa_bits)
{
    const int smallest = 2 - (1 << (exponent_bits - 1));
    const uint32_t sign = signbit(value) ? 1u << (exponent_bits + mantissa_bits) : 0;
    int exponent = 0;
    (void)frexp(fabs(value), &exponent);
    exponent = exponent - 1 < smallest || value == 0 ? smallest : exponent - 1;
    const double quanta = nearbyint(ldexp(fabs(value), mantissa_bits - exponent));
    const uint32_t fields = ((uint32_t)(exponent - smallest) << mantissa_bits) + (uint32_t)quanta;
    assert(fields < 1u << (exponent_bits + mantissa_bits));
    return sign | fields;
}

static double decode_small(uint32_t bits, int exponent_bits, int mantissa_bits, bool has_infinity)
{
    const int smallest = 2 - (1 << (exponent_bits - 1));
    const uint32_t ones = (1u << exponent_bits) - 1, fraction_ones = (1u << mantissa_bits) - 1;
    const uint32_t exponent = bits >> mantissa_bits & ones, fraction = bits & fraction_ones;
    const double sign = bits >> (exponent_bits + mantissa_bits) & 1 ? -1 : 1;
    if (exponent == ones && has_infinity) {
        return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
    }
    if (exponent == ones && fraction == fraction_ones) {
        return (double)NAN;
    }
    if (exponent == 0) {
        return sign * ldexp(fraction, smallest - mantissa_bits);
    }
    return sign *
           ldexp(fraction + (fraction_ones + 1.0), smallest - mantissa_bits + (int)exponent - 1);
}

/* For little-endian hosts only, as the library. */
void perf_encode(enum kolo_type type, double value, unsigned char *out)
{
    const struct type_row *row = &types[type];
    if (type == KOLO_FLOAT64) {
        memcpy(out, &value, sizeof(value));
    } else if (type == KOLO_FLOAT32) {
        const float f = (float)value;
        memcpy(out, &f, sizeof(f));
    } else if (row->kind == FLOAT) {
        const uint32_t bits = encode_small(value, row->exponent_bits, row->digits - 1);
        memcpy(out, &bits, row->bytes);
    } else if (row->kind == INTEGER) {
        const int64_t i = (int64_t)value;
        memcpy(out, &i, row->bytes);
    } else {
        assert(row->kind == UNSIGNED);
        const uint64_t u = (uint64_t)value;
        memcpy(out, &u, row->bytes);
    }
}

double perf_decode(enum kolo_type type, const unsigned char *in)
{
    const struct type_row *row = &types[type];
    uint64_t bits = 0;
    memcpy(&bits, in, row->kind == PAIR ? perf_pair_index_at(type) : row->bytes);
    if (type == KOLO_FLOAT64 || type == KOLO_FLOAT64_INT32) {
        double d;
        memcpy(&d, &bits, sizeof(d));
        return d;
    }
    if (type == KOLO_FLOAT32 || type == KOLO_FLOAT32_INT32) {
        float f;
        memcpy(&f, &bits, sizeof(f));
        return (double)f;
    }
    if (row->kind == FLOAT) {
        return decode_small((uint32_t)bits, row->exponent_bits, row->digits - 1,
                            type != KOLO_FLOAT8_E4M3);
    }
    if (row->kind == UNSIGNED || row->kind == BOOL) {
        return (double)bits;
    }
    const size_t unused = 64 - 8 * (row->kind == PAIR ? perf_pair_index_at(type) : row->bytes);
    return (double)((int64_t)(bits << unused) >> unused);
}

size_t perf_pair_index_at(enum kolo_type type)
{
    return types[type].bytes / 2;
}

size_t perf_pair_used(enum kolo_type type)
{
    return type == KOLO_FLOAT64_INT32 ? 12 : types[type].bytes;
}

void perf_encode_pair(enum kolo_type type, double value, int32_t index, unsigned char *out)
{
    static const enum kolo_type value_types[] = {KOLO_INT32, KOLO_INT64, KOLO_FLOAT32,
                                                 KOLO_FLOAT64};
    assert(types[type].kind == PAIR);
    const int64_t wide = index;
    memset(out, 0, types[type].bytes);
    perf_encode(value_types[type - KOLO_INT32_INT32], value, out);
    memcpy(out + perf_pair_index_at(type), &wide,
           type == KOLO_INT64_INT64 ? sizeof(wide) : sizeof(index));
}
