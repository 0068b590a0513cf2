// SPDX-License-Identifier: Apache-2.0
/* Arithmetic of the tests' own, against which collectives are compared.
 *
 * Elements are made from (rank, position) by formulas whose results are exact in every type
 * whatever the order of operations: small integers to be added, powers of two to be multiplied.
 * Small floats are encoded and decoded here from their definition (OCP 8-bit floating point
 * specification 1.0; IEEE 754 binary16; bfloat16), with none of the library's code. */
#ifndef KOLO_TESTS_COLLECTIVES_NUMBERS_H
#define KOLO_TESTS_COLLECTIVES_NUMBERS_H

#include <kolo/kolo.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace collectives
{

/* Stands for an operation of kolo_op_create_premulsum(). */
constexpr kolo_op kPremulsum = KOLO_OPS;
/* Stands for no operation: the data is only moved. */
constexpr kolo_op kMove = KOLO_OPS + 1;

bool IsFloat(kolo_type type);
bool IsSmallFloat(kolo_type type); /* accumulates in float32 */
bool IsPair(kolo_type type);
bool IsSigned(kolo_type type); /* of integers */
bool OpFits(kolo_type type, kolo_op op);

/* One element of a float type. Encode rounds to nearest, ties to even. */
double Decode(kolo_type type, const void *element);
void Encode(kolo_type type, double value, void *element);

/* A mix of the bits of its arguments, for patterns. */
uint64_t Mix(uint64_t a, uint64_t b, uint64_t c);

/* Rank r's element at `index` for this operation, among n ranks. */
void MakeElement(kolo_type type, kolo_op op, int n, int r, size_t index, void *out);
/* Rank r's factor for kPremulsum. */
void MakeFactor(kolo_type type, int r, void *out);
/* What n ranks' elements reduce to. */
void Fold(kolo_type type, kolo_op op, const std::vector<const void *> &in, void *out);
/* ((x0+x1)+x2)+... in the accumulator type, divided for AVG, multiplied for
 * PROD, rounded once. Float types. */
void FoldInRankOrder(kolo_type type, kolo_op op, const std::vector<const void *> &in, void *out);
/* The four unused bytes of KOLO_FLOAT64_INT32 become zero; other types stay as they are. */
void ClearUnused(kolo_type type, void *elements, size_t count);

} // namespace collectives

#endif
