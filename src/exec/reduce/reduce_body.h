// SPDX-License-Identifier: Apache-2.0
/* All kernels, and the table of them named KERNELS, for the instruction set that the including file
 * is compiled for (its name: ISA). A type is a template (reduce_int.h, reduce_float.h,
 * reduce_format.h, reduce_pair.h) included with its parameters; all of them include the one loop,
 * reduce_fold.h. */

#include "exec/reduce/codec.h"
#include "exec/reduce/reduce_isa.h"
#include "exec/reduce/reduce_lanes.h"

#define JOIN2(verb, name) verb##_##name
#define JOIN(verb, name)  JOIN2(verb, name)
#define FN(verb)          JOIN(verb, NAME)
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif
/* Two functions, so that a handful of elements does not pay for the registers of the loops. */
#define KERNEL(verb, op)                                                                           \
    static __attribute__((noinline)) void FN(all_##verb)(                                          \
        void *dst, const void *const *src, unsigned k, size_t count, unsigned divisor)             \
    {                                                                                              \
        FN(fold)(op, dst, src, k, count, divisor);                                                 \
    }                                                                                              \
    static void FN(verb)(void *dst, const void *const *src, unsigned k, size_t count,              \
                         unsigned divisor)                                                         \
    {                                                                                              \
        if (!FN(fold_few)(op, dst, src, k, count, divisor)) {                                      \
            FN(all_##verb)(dst, src, k, count, divisor);                                           \
        }                                                                                          \
    }

/* ---- integers ---- */

#define NAME  int8
#define TYPE  int8_t
#define BASE  uint8_t
#define WIDE  uint32_t
#define RATIO double
#include "exec/reduce/reduce_int.h"

#define NAME  uint8
#define TYPE  uint8_t
#define BASE  uint8_t
#define WIDE  uint32_t
#define RATIO double
#define BITWISE
#include "exec/reduce/reduce_int.h"

#define NAME  int16
#define TYPE  int16_t
#define BASE  uint16_t
#define WIDE  uint32_t
#define RATIO double
#include "exec/reduce/reduce_int.h"

#define NAME  uint16
#define TYPE  uint16_t
#define BASE  uint16_t
#define WIDE  uint32_t
#define RATIO double
#define BITWISE
#include "exec/reduce/reduce_int.h"

#define NAME  int32
#define TYPE  int32_t
#define BASE  uint32_t
#define WIDE  uint32_t
#define RATIO double
#include "exec/reduce/reduce_int.h"

#define NAME  uint32
#define TYPE  uint32_t
#define BASE  uint32_t
#define WIDE  uint32_t
#define RATIO double
#define BITWISE
#include "exec/reduce/reduce_int.h"

#define NAME  int64
#define TYPE  int64_t
#define BASE  uint64_t
#define WIDE  uint64_t
#define RATIO int64_t
#include "exec/reduce/reduce_int.h"

#define NAME  uint64
#define TYPE  uint64_t
#define BASE  uint64_t
#define WIDE  uint64_t
#define RATIO uint64_t
#define BITWISE
#include "exec/reduce/reduce_int.h"

/* ---- floats ---- */

#define NAME     float32
#define TYPE     float
#define WORD     uint32_t
#define NAN_BITS 0x7fc00000u
#include "exec/reduce/reduce_float.h"

#define NAME     float64
#define TYPE     double
#define WORD     uint64_t
#define NAN_BITS 0x7ff8000000000000u
#include "exec/reduce/reduce_convert.h"
#include "exec/reduce/reduce_float.h"

/* ---- small floats ---- */

#define NAME bfloat16
#define TYPE uint16_t
#define HALF_OF_FLOAT
#include "exec/reduce/reduce_format.h"

#define NAME float16
#define TYPE uint16_t
#include "exec/reduce/reduce_format.h"

#define NAME float8_e4m3
#define TYPE uint8_t
#include "exec/reduce/reduce_format.h"

#define NAME float8_e5m2
#define TYPE uint8_t
#include "exec/reduce/reduce_format.h"

/* ---- codecs ---- */

#include "exec/reduce/reduce_codes.h"

/* ---- pairs ---- */

struct int32_int32 {
    int32_t value, index;
};
struct int64_int64 {
    int64_t value, index;
};
struct float32_int32 {
    float value;
    int32_t index;
};
struct float64_int32 {
    double value;
    int32_t index;
    uint32_t unused;
};
_Static_assert(sizeof(struct int32_int32) == 8 && sizeof(struct int64_int64) == 16 &&
                   sizeof(struct float32_int32) == 8 && sizeof(struct float64_int32) == 16,
               "pairs lie in memory as kolo.h says");

#define NAME        int32_int32
#define TYPE        struct int32_int32
#define VALUE       int32_t
#define LANE        int32_t
#define INDEX_SHIFT 0
#define NANS(x)     ((x) < (x))
#define NAN_BITS    0
#define TWICE_LANES TWICE_WORDS
#include "exec/reduce/reduce_pair.h"

#define NAME        int64_int64
#define TYPE        struct int64_int64
#define VALUE       int64_t
#define LANE        int64_t
#define INDEX_SHIFT 0
#define NANS(x)     ((x) < (x))
#define NAN_BITS    0
#define TWICE_LANES TWICE_LONGS
#include "exec/reduce/reduce_pair.h"

#define NAME        float32_int32
#define TYPE        struct float32_int32
#define VALUE       float
#define LANE        int32_t
#define INDEX_SHIFT 0
#define NANS(x)     ((x) != (x))
#define NAN_BITS    0x7fc00000
#define TWICE_LANES TWICE_WORDS
#include "exec/reduce/reduce_pair.h"

#define NAME        float64_int32
#define TYPE        struct float64_int32
#define VALUE       double
#define LANE        int64_t
#define INDEX_SHIFT 32
#define NANS(x)     ((x) != (x))
#define NAN_BITS    0x7ff8000000000000
#define TWICE_LANES TWICE_LONGS
#include "exec/reduce/reduce_pair.h"

/* ---- the table ---- */

#define NUMBERS(t)                                                                                 \
    [KOLO_SUM] = sum_##t, [KOLO_PROD] = prod_##t, [KOLO_MIN] = min_##t, [KOLO_MAX] = max_##t,      \
    [KOLO_AVG] = sum_##t
#define LOGIC(t) [KOLO_LAND] = land_##t, [KOLO_LOR] = lor_##t, [KOLO_LXOR] = lxor_##t
#define BITS(t)  [KOLO_BAND] = band_##t, [KOLO_BOR] = bor_##t, [KOLO_BXOR] = bxor_##t
#define PAIRS(t) [KOLO_MINLOC] = minloc_##t, [KOLO_MAXLOC] = maxloc_##t

const struct kolo_kernels KERNELS = {
    .isa = ISA,
    .reduce =
        {
            /* Signed types take the unsigned ones' logic: sign matters only to MIN, MAX and
               dividing. */
            [KOLO_INT8] = {NUMBERS(int8), LOGIC(uint8), BITS(uint8)},
            [KOLO_UINT8] = {NUMBERS(uint8), LOGIC(uint8), BITS(uint8)},
            [KOLO_INT16] = {NUMBERS(int16), LOGIC(uint16), BITS(uint16)},
            [KOLO_UINT16] = {NUMBERS(uint16), LOGIC(uint16), BITS(uint16)},
            [KOLO_INT32] = {NUMBERS(int32), LOGIC(uint32), BITS(uint32)},
            [KOLO_UINT32] = {NUMBERS(uint32), LOGIC(uint32), BITS(uint32)},
            [KOLO_INT64] = {NUMBERS(int64), LOGIC(uint64), BITS(uint64)},
            [KOLO_UINT64] = {NUMBERS(uint64), LOGIC(uint64), BITS(uint64)},
            [KOLO_FLOAT16] = {NUMBERS(float16)},
            [KOLO_BFLOAT16] = {NUMBERS(bfloat16)},
            [KOLO_FLOAT32] = {NUMBERS(float32)},
            [KOLO_FLOAT64] = {NUMBERS(float64)},
            [KOLO_FLOAT8_E4M3] = {NUMBERS(float8_e4m3)},
            [KOLO_FLOAT8_E5M2] = {NUMBERS(float8_e5m2)},
            /* A bool has one bit, so the bitwise operations are the logical ones. */
            [KOLO_BOOL] = {LOGIC(uint8), [KOLO_BAND] = land_uint8, [KOLO_BOR] = lor_uint8,
                           [KOLO_BXOR] = lxor_uint8},
            [KOLO_INT32_INT32] = {PAIRS(int32_int32)},
            [KOLO_INT64_INT64] = {PAIRS(int64_int64)},
            [KOLO_FLOAT32_INT32] = {PAIRS(float32_int32)},
            [KOLO_FLOAT64_INT32] = {PAIRS(float64_int32)},
        },
    .scale = {[KOLO_INT8] = scale_int8,
              [KOLO_UINT8] = scale_uint8,
              [KOLO_INT16] = scale_int16,
              [KOLO_UINT16] = scale_uint16,
              [KOLO_INT32] = scale_int32,
              [KOLO_UINT32] = scale_uint32,
              [KOLO_INT64] = scale_int64,
              [KOLO_UINT64] = scale_uint64,
              [KOLO_FLOAT16] = scale_float16,
              [KOLO_BFLOAT16] = scale_bfloat16,
              [KOLO_FLOAT32] = scale_float32,
              [KOLO_FLOAT64] = scale_float64,
              [KOLO_FLOAT8_E4M3] = scale_float8_e4m3,
              [KOLO_FLOAT8_E5M2] = scale_float8_e5m2},
    .widen = {[KOLO_FLOAT16] = widen_float16,
              [KOLO_BFLOAT16] = widen_bfloat16,
              [KOLO_FLOAT8_E4M3] = widen_float8_e4m3,
              [KOLO_FLOAT8_E5M2] = widen_float8_e5m2},
    .narrow = {[KOLO_FLOAT16] = narrow_float16,
               [KOLO_BFLOAT16] = narrow_bfloat16,
               [KOLO_FLOAT8_E4M3] = narrow_float8_e4m3,
               [KOLO_FLOAT8_E5M2] = narrow_float8_e5m2},
    .codec = {[KOLO_CODEC_INT8] = {encode_int8, decode_int8, sum_int8_units},
              [KOLO_CODEC_BF16] = {narrow_bfloat16, widen_bfloat16, sum_bfloat16},
              [KOLO_CODEC_INT4] = {encode_int4, decode_int4, sum_int4_units},
              [KOLO_CODEC_FP8] = {encode_fp8, decode_fp8, sum_fp8_units}},
};
