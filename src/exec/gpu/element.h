// SPDX-License-Identifier: Apache-2.0
/* Read, combine and round one element, in C++ for the GPU and the host alike.
 *
 * The results equal those of reduce.h to the bit, for every type and operation. Elements go into an
 * accumulator (float for the small floats), are combined from left to right without contraction,
 * and are rounded once. A NaN result is always the same NaN.
 *
 * A type is a struct with Elem, Acc, load(), store() and divide(). An operation is a struct with
 * apply(). */
#ifndef KOLO_EXEC_GPU_ELEMENT_H
#define KOLO_EXEC_GPU_ELEMENT_H

#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define KOLO_GPU      static __host__ __device__ __forceinline__
#define KOLO_GPU_CALL static __host__ __device__ __noinline__ /* once for many kernels */
#define KOLO_UNROLL   _Pragma("unroll")
#define KOLO_UNROLL_4 _Pragma("unroll 4")
#else
#define KOLO_GPU      static inline
#define KOLO_GPU_CALL static inline
#define KOLO_UNROLL
#define KOLO_UNROLL_4
#endif

namespace kolo_gpu
{

template <class To, class From> KOLO_GPU To bits_as(From from)
{
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

/* ---- integers ---- */

template <class T, class WideType = uint32_t> struct Integer {
    typedef T Elem;
    typedef T Acc;
    typedef WideType Wide; /* unsigned, of at least 32 bits: shorter ones would become int */
    KOLO_GPU Acc load(Elem x)
    {
        return x;
    }
    KOLO_GPU Elem store(Acc x)
    {
        return x;
    }
    KOLO_GPU Acc divide(Acc x, uint32_t divisor)
    {
        return (T)(x < 0 ? -(Wide)((Wide)(-(Wide)x) / divisor) : (Wide)x / divisor);
    }
    KOLO_GPU Acc add(Acc a, Acc b)
    {
        return (T)((Wide)a + (Wide)b);
    }
    KOLO_GPU Acc multiply(Acc a, Acc b)
    {
        return (T)((Wide)a * (Wide)b);
    }
    KOLO_GPU Acc extreme(bool min, Acc a, Acc b)
    {
        return (a < b) == min ? a : b;
    }
};

/* The logical operations are bitwise ones on truth values. */
template <class T> struct Truth : Integer<T, uint64_t> {
    KOLO_GPU T load(T x)
    {
        return (T)(x != 0);
    }
};

/* ---- floats ---- */

template <class T> struct Bits;
template <> struct Bits<float> {
    typedef uint32_t Word;
    static const Word nan = 0x7fc00000u;
};
template <> struct Bits<double> {
    typedef uint64_t Word;
    static const Word nan = 0x7ff8000000000000u;
};

template <class T> struct Float {
    typedef T Elem;
    typedef T Acc;
    typedef typename Bits<T>::Word Word;
    KOLO_GPU Acc load(Elem x)
    {
        return x;
    }
    KOLO_GPU Elem store(Acc x)
    {
        return x == x ? x : bits_as<T>((Word)Bits<T>::nan);
    }
    KOLO_GPU Acc divide(Acc x, uint32_t divisor)
    {
        return x / (T)divisor;
    }
    KOLO_GPU Acc add(Acc a, Acc b)
    {
        return a + b;
    }
    KOLO_GPU Acc multiply(Acc a, Acc b)
    {
        return a * b;
    }
    /* Equal numbers differ in bits only if they are zeros: then or gives -0 and and gives +0. */
    KOLO_GPU Acc extreme(bool min, Acc a, Acc b)
    {
        const Word x = bits_as<Word>(a), y = bits_as<Word>(b);
        if (a != a || b != b) {
            return bits_as<T>((Word)Bits<T>::nan);
        }
        if (a == b) {
            return bits_as<T>((Word)(min ? x | y : x & y));
        }
        return (a < b) == min ? a : b;
    }
};

/* ---- small floats, summed as float ---- */

/* Formats: IEEE 754 binary16; OCP 8-bit floating point specification 1.0 (E5M2 like IEEE; E4M3 has
 * no infinity, S.1111.111 is its only NaN). The arithmetic is that of reduce_convert.h: adding a
 * power of two whose last bit is worth what the last bit of the result is rounds, and normalises
 * subnormals. */
template <int32_t sign, int32_t largest, int32_t nan, int32_t infinity, int32_t shift, int32_t bias>
struct Format {
    static const int32_t rebias = (127 - bias) << 23;
    static const int32_t least_normal = rebias + (1 << 23);
    static const int32_t exponents = 0x7f800000;

    KOLO_GPU float widen(int32_t code)
    {
        const int32_t magnitude = code & (sign - 1), field = magnitude << shift;
        int32_t bits = field + rebias;
        if (field < 1 << 23) {
            bits = bits_as<int32_t>(bits_as<float>(field | least_normal) -
                                    bits_as<float>((int32_t)least_normal));
        }
        if (magnitude > largest) {
            bits = field | exponents | (magnitude > largest + infinity ? 0x400000 : 0);
        }
        return bits_as<float>((uint32_t)bits | ((code & sign) != 0 ? 0x80000000u : 0));
    }
    KOLO_GPU int32_t narrow(float x)
    {
        const int32_t bits = bits_as<int32_t>(x), magnitude = bits & 0x7fffffff;
        const int32_t beyond = ((largest + 1) << shift) + rebias;
        const int32_t cut = magnitude < beyond ? magnitude : beyond;
        const int32_t exponent = (cut > least_normal ? cut : least_normal) & exponents;
        const int32_t power = exponent + (shift << 23);
        const int32_t mantissa =
            bits_as<int32_t>(bits_as<float>(cut) + bits_as<float>(power)) - power;
        const int32_t code = mantissa + ((exponent - least_normal) >> shift);
        return magnitude > exponents ? nan : code | (bits < 0 ? sign : 0);
    }
};

struct CodeFloat16 : Format<0x8000, 0x7bff, 0x7e00, 1, 13, 15> {
    typedef uint16_t Code;
#if defined(__CUDA_ARCH__)
    KOLO_GPU float widen(int32_t code)
    {
        float x;
        asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"((uint16_t)code));
        return x;
    }
    KOLO_GPU int32_t narrow(float x)
    {
        uint16_t code;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(code) : "f"(x));
        return x == x ? code : 0x7e00;
    }
#endif
};
struct CodeE4m3 : Format<0x80, 0x7e, 0x7f, 0, 20, 7> {
    typedef uint8_t Code;
#if defined(__CUDA_ARCH__)
    /* Its bits, read as a float16, are 2^-8 of it, subnormals included; its NaN would be a number.
     */
    KOLO_GPU float widen(int32_t code)
    {
        const float x = CodeFloat16::widen((code & 0x80) << 8 | (code & 0x7f) << 7) * 256.0f;
        return (code & 0x7f) != 0x7f ? x : bits_as<float>(0x7fc00000u);
    }
#endif
};
struct CodeE5m2 : Format<0x80, 0x7b, 0x7e, 1, 21, 15> {
    typedef uint8_t Code;
#if defined(__CUDA_ARCH__)
    KOLO_GPU float widen(int32_t code)
    {
        return CodeFloat16::widen(code << 8); /* the upper byte of a float16 */
    }
#endif
};
struct CodeBfloat16 {
    typedef uint16_t Code;
    KOLO_GPU float widen(int32_t code)
    {
        return bits_as<float>((uint32_t)code << 16);
    }
    /* Any NaN but this one might round to infinity or to another NaN. */
    KOLO_GPU int32_t narrow(float x)
    {
        const uint32_t bits = x == x ? bits_as<uint32_t>(x) : 0x7fc00000u;
        return (int32_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
};

template <class C> struct Small : Float<float> {
    typedef typename C::Code Elem;
    KOLO_GPU float load(Elem x)
    {
        return C::widen(x);
    }
    KOLO_GPU Elem store(float x)
    {
        return (Elem)C::narrow(x);
    }
};

/* ---- pairs ---- */

/* NaN wins, then the value, then the smaller index; equal values that differ in bits are zeros. */
template <class Number, class Index, bool padded> struct PairElem {
    typename Number::Elem value;
    Index index;
};
template <class Number, class Index> struct PairElem<Number, Index, true> {
    typename Number::Elem value;
    Index index;
    uint32_t unused;
};

KOLO_GPU void clear_unused(...) {}
template <class Number, class Index> KOLO_GPU void clear_unused(PairElem<Number, Index, true> *x)
{
    x->unused = 0;
}

template <class Number, class Index, bool padded = false> struct Pair {
    typedef PairElem<Number, Index, padded> Elem;
    typedef Elem Acc;
    KOLO_GPU Acc load(Elem x)
    {
        return x;
    }
    KOLO_GPU Elem store(Acc x)
    {
        x.value = Number::store(x.value);
        clear_unused(&x);
        return x;
    }
    KOLO_GPU Acc divide(Acc x, uint32_t)
    {
        return x;
    }
    KOLO_GPU Acc extreme(bool min, Acc a, Acc b)
    {
        const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
        if (a_nan != b_nan) {
            return a_nan ? a : b;
        }
        if (!a_nan && a.value != b.value) {
            return (a.value < b.value) == min ? a : b;
        }
        a.value = Number::extreme(min, a.value, b.value);
        a.index = a.index < b.index ? a.index : b.index;
        return a;
    }
};

/* ---- operations ---- */

struct Sum {
    template <class T> KOLO_GPU typename T::Acc apply(typename T::Acc a, typename T::Acc b)
    {
        return T::add(a, b);
    }
};
struct Prod {
    template <class T> KOLO_GPU typename T::Acc apply(typename T::Acc a, typename T::Acc b)
    {
        return T::multiply(a, b);
    }
};
struct Min {
    template <class T> KOLO_GPU typename T::Acc apply(typename T::Acc a, typename T::Acc b)
    {
        return T::extreme(true, a, b);
    }
};
struct Max {
    template <class T> KOLO_GPU typename T::Acc apply(typename T::Acc a, typename T::Acc b)
    {
        return T::extreme(false, a, b);
    }
};
struct And {
    template <class T> KOLO_GPU typename T::Acc apply(typename T::Acc a, typename T::Acc b)
    {
        return (typename T::Acc)(a & b);
    }
};
struct Or {
    template <class T> KOLO_GPU typename T::Acc apply(typename T::Acc a, typename T::Acc b)
    {
        return (typename T::Acc)(a | b);
    }
};
struct Xor {
    template <class T> KOLO_GPU typename T::Acc apply(typename T::Acc a, typename T::Acc b)
    {
        return (typename T::Acc)(a ^ b);
    }
};

} // namespace kolo_gpu

#endif
