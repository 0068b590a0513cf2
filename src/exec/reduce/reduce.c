// SPDX-License-Identifier: Apache-2.0
/* The choice of the instruction set for the kernels, made once.
 *
 * AVX-512 means the subset of Skylake servers and Zen 4 (F, BW, DQ, VL); AVX2 means Haswell with
 * its half-precision conversions (F16C). Neither needs FMA, as nothing may be contracted. */
#include "exec/reduce/reduce.h"

#include "exec/reduce/reduce_isa.h"
#include "util/util.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#if defined(__x86_64__)
/* Not every compiler's __builtin_cpu_supports() knows F16C. */
static bool runs_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool runs_avx2(void)
{
    return __builtin_cpu_supports("avx2") && runs_f16c();
}

static bool runs_avx512(void)
{
    return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}
#endif

const struct kolo_kernels *kolo_kernels_choose(const char *limit)
{
    const char *top = limit ? limit : "";
#if defined(__x86_64__)
    const bool generic = strcmp(top, "generic") == 0;
    const bool avx2 = strcmp(top, "avx2") == 0;
    if (!generic && !avx2 && runs_avx512()) {
        return &kolo_kernels_avx512;
    }
    if (!generic && runs_avx2()) {
        return &kolo_kernels_avx2;
    }
#endif
    (void)top;
    return &kolo_kernels_generic;
}

/* Threads may race to store the same pointer to constant data: relaxed order is enough. */
const struct kolo_kernels *kolo_kernels_here(void)
{
    static _Atomic(const struct kolo_kernels *) chosen;
    const struct kolo_kernels *k = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (KOLO_UNLIKELY(!k)) {
        const char *limit = kolo_env("KOLO_ISA");
        k = kolo_kernels_choose(limit);
        if (limit != NULL && strcmp(limit, "generic") != 0 && strcmp(limit, "avx2") != 0 &&
            strcmp(limit, "avx512") != 0) {
            KOLO_LOG(WARN, EXEC,
                     "KOLO_ISA: \"%s\" is not known; it may be generic, avx2 or avx512. Taking %s",
                     limit, k->isa);
        }
        atomic_store_explicit(&chosen, k, memory_order_relaxed);
    }
    return k;
}

const char *kolo_reduce_isa(void)
{
    return kolo_kernels_here()->isa;
}

kolo_reduce_fn *kolo_reduce_kernel(enum kolo_type type, kolo_op op)
{
    if ((unsigned)type >= KOLO_TYPES) {
        return NULL;
    }
    return kolo_kernels_here()->reduce[type][op < KOLO_OPS ? op : KOLO_SUM];
}

bool kolo_op_valid(enum kolo_type type, kolo_op op)
{
    return kolo_reduce_kernel(type, op) != NULL;
}

void kolo_scale(enum kolo_type type, void *dst, const void *src, size_t count, const void *factor)
{
    assert((unsigned)type < KOLO_TYPES && kolo_kernels_here()->scale[type]);
    kolo_kernels_here()->scale[type](dst, src, count, factor);
}

void kolo_widen(enum kolo_type type, float *dst, const void *src, size_t count)
{
    assert((unsigned)type < KOLO_TYPES && kolo_kernels_here()->widen[type]);
    kolo_kernels_here()->widen[type](dst, src, count);
}

void kolo_narrow(enum kolo_type type, void *dst, const float *src, size_t count)
{
    assert((unsigned)type < KOLO_TYPES && kolo_kernels_here()->narrow[type]);
    kolo_kernels_here()->narrow[type](dst, src, count);
}
