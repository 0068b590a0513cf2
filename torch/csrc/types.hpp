// SPDX-License-Identifier: Apache-2.0
/* kolo's types and operations for a tensor's elements and a c10d reduction. */
#pragma once

#include <kolo/kolo.h>

#include <ATen/ATen.h>
#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace kolo_torch
{

/* An element of a tensor is `per` elements of `type`. A complex number is two elements. */
struct Element {
    kolo_type type;
    size_t per;
};

/* The element type for moving data. Every dtype can be moved, as bytes if kolo lacks the type. */
Element movable(at::ScalarType dtype);
/* The element type for reducing; none: kolo cannot reduce the dtype. */
std::optional<Element> reducible(at::ScalarType dtype);
/* The operation, except PREMUL_SUM. On bool, sums and maxima are OR, products and minima AND.
 * Errors: ValueError that names both. */
kolo_op operation(const c10d::ReduceOp &op, at::ScalarType dtype);
/* PREMUL_SUM's factor as one element of `type`; out has room for 8 bytes. Errors: ValueError. */
void premultiplier(const c10d::ReduceOp &op, kolo_type type, void *out);

} // namespace kolo_torch
