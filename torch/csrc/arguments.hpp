// SPDX-License-Identifier: Apache-2.0
/* The arguments of a collective: checks of tensors, and the blocks of a tensor or a list in kolo's
 * counts and displacements. Errors: ValueError. */
#pragma once

#include "types.hpp"

#include <ATen/ATen.h>
#include <vector>

namespace kolo_torch
{

/* The tensor of a list with one tensor. */
const at::Tensor &only(const std::vector<at::Tensor> &tensors, const char *call);
/* Number of kolo elements in a tensor. */
size_t elements(const at::Tensor &t, const Element &element);

void requireSameType(const at::Tensor &a, const at::Tensor &b, const char *call);
/* Check that `whole` has n times the elements of `part`. */
void requireBlocks(const at::Tensor &whole, const at::Tensor &part, int n, const char *call);
/* Check that `list` has n tensors of the type of `one`. */
void requireList(at::TensorList list, const at::Tensor &one, int n, const char *call);
void requireRoot(int64_t root, int n, const char *call);

/* Counts and displacements of adjacent blocks. */
struct Blocks {
    std::vector<size_t> counts, displs;
    bool equal = true;

    void add(size_t count)
    {
        displs.push_back(counts.empty() ? 0 : displs.back() + counts.back());
        counts.push_back(count);
        equal = equal && count == counts[0];
    }
};

Blocks blocksOf(at::TensorList list, const Element &element);
/* Blocks by torch.distributed's split sizes, which count rows of the first dimension. No split
 * sizes: n equal blocks. */
Blocks blocksOf(const at::Tensor &t, const std::vector<int64_t> &splits, int n,
                const Element &element, const char *name);

} // namespace kolo_torch
