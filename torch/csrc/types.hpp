// SPDX-License-Identifier: Apache-2.0
/* What a tensor's elements and a c10d reduction are to kolo. */
#pragma once

#include <kolo/kolo.h>

#include <ATen/ATen.h>
#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace kolo_torch
{

/* An element of a tensor is `per` elements of `type`: complex numbers are two. */
struct Element {
    kolo_type type;
    size_t per;
};

/* For moving: every dtype, as bytes where kolo has no such type. */
Element movable(at::ScalarType dtype);
/* For reducing: nothing where kolo cannot reduce it. */
std::optional<Element> reducible(at::ScalarType dtype);
/* The operation but for PREMUL_SUM. On bool, sums and maxima are OR, products and minima AND.
 * Errors: ValueError, naming both. */
kolo_op operation(const c10d::ReduceOp &op, at::ScalarType dtype);
/* PREMUL_SUM's factor as one element of `type`; out has room for 8 bytes. Errors: ValueError. */
void premultiplier(const c10d::ReduceOp &op, kolo_type type, void *out);

} // namespace kolo_torch
