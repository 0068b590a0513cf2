// SPDX-License-Identifier: Apache-2.0
/* Checks of a call's arguments. Each failure is a ValueError that names the call and the tensors.
 */
#include "arguments.hpp"

namespace kolo_torch
{

const at::Tensor &only(const std::vector<at::Tensor> &tensors, const char *call)
{
    TORCH_CHECK_VALUE(tensors.size() == 1, "kolo: ", call, " takes a list of one tensor, not of ",
                      tensors.size());
    return tensors[0];
}

size_t elements(const at::Tensor &t, const Element &element)
{
    return static_cast<size_t>(t.numel()) * element.per;
}

void requireSameType(const at::Tensor &a, const at::Tensor &b, const char *call)
{
    TORCH_CHECK_VALUE(a.scalar_type() == b.scalar_type(), "kolo: ", call, ": tensors of ",
                      a.scalar_type(), " and of ", b.scalar_type(), "; all must have one type");
}

void requireBlocks(const at::Tensor &whole, const at::Tensor &part, int n, const char *call)
{
    requireSameType(whole, part, call);
    TORCH_CHECK_VALUE(whole.numel() == part.numel() * n, "kolo: ", call, ": a tensor of shape ",
                      whole.sizes(), " does not hold ", n, " ranks' blocks of shape ",
                      part.sizes());
}

void requireList(at::TensorList list, const at::Tensor &one, int n, const char *call)
{
    TORCH_CHECK_VALUE(list.size() == static_cast<size_t>(n), "kolo: ", call, ": a list of ",
                      list.size(), " tensors for ", n, " ranks");
    for (const at::Tensor &t : list) {
        requireSameType(t, one, call);
    }
}

void requireRoot(int64_t root, int n, const char *call)
{
    TORCH_CHECK_VALUE(root >= 0 && root < n, "kolo: ", call, ": root is ", root,
                      "; it must be 0 to ", n - 1);
}

Blocks blocksOf(at::TensorList list, const Element &element)
{
    Blocks blocks;
    for (const at::Tensor &t : list) {
        blocks.add(elements(t, element));
    }
    return blocks;
}

Blocks blocksOf(const at::Tensor &t, const std::vector<int64_t> &splits, int n,
                const Element &element, const char *name)
{
    Blocks blocks;
    const int64_t rows = t.dim() > 0 ? t.size(0) : t.numel();
    const size_t row = rows > 0 ? elements(t, element) / static_cast<size_t>(rows) : 0;
    if (splits.empty()) {
        TORCH_CHECK_VALUE(rows % n == 0, "kolo: all_to_all: ", name, " has ", rows, " rows, which ",
                          n, " ranks cannot share equally");
        for (int r = 0; r < n; r++) {
            blocks.add(static_cast<size_t>(rows / n) * row);
        }
        return blocks;
    }
    TORCH_CHECK_VALUE(splits.size() == static_cast<size_t>(n), "kolo: all_to_all: ", splits.size(),
                      " split sizes of ", name, " for ", n, " ranks");
    int64_t sum = 0;
    for (const int64_t split : splits) {
        TORCH_CHECK_VALUE(split >= 0, "kolo: all_to_all: a split size of ", name, " is ", split);
        sum += split;
        blocks.add(static_cast<size_t>(split) * row);
    }
    TORCH_CHECK_VALUE(sum == rows, "kolo: all_to_all: split sizes of ", name, " add up to ", sum,
                      ", it has ", rows, " rows");
    return blocks;
}

} // namespace kolo_torch
