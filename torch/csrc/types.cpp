// SPDX-License-Identifier: Apache-2.0
/* The table of element types, and the reductions that each of them has. */
#include "types.hpp"

#include <cstring>

namespace kolo_torch
{

namespace
{

std::optional<kolo_type> exact(at::ScalarType dtype)
{
    switch (dtype) {
    case at::kByte:
        return KOLO_UINT8;
    case at::kChar:
        return KOLO_INT8;
    case at::kShort:
        return KOLO_INT16;
    case at::kUInt16:
        return KOLO_UINT16;
    case at::kInt:
        return KOLO_INT32;
    case at::kUInt32:
        return KOLO_UINT32;
    case at::kLong:
        return KOLO_INT64;
    case at::kUInt64:
        return KOLO_UINT64;
    case at::kHalf:
        return KOLO_FLOAT16;
    case at::kBFloat16:
        return KOLO_BFLOAT16;
    case at::kFloat:
        return KOLO_FLOAT32;
    case at::kDouble:
        return KOLO_FLOAT64;
    case at::kFloat8_e4m3fn:
        return KOLO_FLOAT8_E4M3;
    case at::kFloat8_e5m2:
        return KOLO_FLOAT8_E5M2;
    case at::kBool:
        return KOLO_BOOL;
    default:
        return std::nullopt;
    }
}

const char *name(c10d::ReduceOp::RedOpType op)
{
    static const char *const names[] = {"SUM",  "AVG", "PRODUCT", "MIN",       "MAX",
                                        "BAND", "BOR", "BXOR",    "PREMUL_SUM"};
    return op < c10d::ReduceOp::UNUSED ? names[op] : "UNUSED";
}

[[noreturn]] void refuse(const c10d::ReduceOp &op, at::ScalarType dtype)
{
    C10_THROW_ERROR(ValueError, c10::str("kolo: ReduceOp.", name(op), " makes no sense on ", dtype,
                                         ": sums, products, minima and maxima take integers and "
                                         "floats, sums and averages also complex numbers, bitwise "
                                         "operations integers and bool"));
}

kolo_op onBool(const c10d::ReduceOp &op)
{
    switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::MAX:
    case c10d::ReduceOp::BOR:
        return KOLO_LOR;
    case c10d::ReduceOp::PRODUCT:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::BAND:
        return KOLO_LAND;
    case c10d::ReduceOp::BXOR:
        return KOLO_LXOR;
    default:
        refuse(op, at::kBool);
    }
}

} // namespace

std::optional<Element> reducible(at::ScalarType dtype)
{
    if (c10::isComplexType(dtype)) {
        return Element{*exact(c10::toRealValueType(dtype)), 2};
    }
    const auto type = exact(dtype);
    return type ? std::optional<Element>(Element{*type, 1}) : std::nullopt;
}

Element movable(at::ScalarType dtype)
{
    return reducible(dtype).value_or(Element{KOLO_UINT8, c10::elementSize(dtype)});
}

kolo_op operation(const c10d::ReduceOp &op, at::ScalarType dtype)
{
    const bool integral = c10::isIntegralType(dtype, false);
    if (dtype == at::kBool) {
        return onBool(op);
    }
    switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM:
        return KOLO_SUM;
    case c10d::ReduceOp::AVG:
        return KOLO_AVG;
    case c10d::ReduceOp::PRODUCT:
        return c10::isComplexType(dtype) ? (refuse(op, dtype), KOLO_PROD) : KOLO_PROD;
    case c10d::ReduceOp::MIN:
        return c10::isComplexType(dtype) ? (refuse(op, dtype), KOLO_MIN) : KOLO_MIN;
    case c10d::ReduceOp::MAX:
        return c10::isComplexType(dtype) ? (refuse(op, dtype), KOLO_MAX) : KOLO_MAX;
    case c10d::ReduceOp::BAND:
        return integral ? KOLO_BAND : (refuse(op, dtype), KOLO_BAND);
    case c10d::ReduceOp::BOR:
        return integral ? KOLO_BOR : (refuse(op, dtype), KOLO_BOR);
    case c10d::ReduceOp::BXOR:
        return integral ? KOLO_BXOR : (refuse(op, dtype), KOLO_BXOR);
    default:
        refuse(op, dtype);
    }
}

void premultiplier(const c10d::ReduceOp &op, kolo_type type, void *out)
{
    /* The name of older releases of torch; newer ones keep it as another name. */
    const auto *given = dynamic_cast<c10d::NCCLPreMulSumSupplement *>(op.supplement_.get());
    if (given == nullptr) {
        C10_THROW_ERROR(ValueError, "kolo: ReduceOp.PREMUL_SUM without a factor");
    }
    at::ScalarType dtype = at::kFloat;
    for (const auto candidate : {at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf,
                                 at::kBFloat16, at::kFloat, at::kDouble}) {
        dtype = exact(candidate) == type ? candidate : dtype;
    }
    TORCH_CHECK_VALUE(exact(dtype) == type, "kolo: ReduceOp.PREMUL_SUM takes no tensor of ",
                      kolo_type_name(type));
    const at::Tensor factor = given->tensor_factor.defined()
                                  ? given->tensor_factor.reshape({1}).to(at::kCPU, dtype)
                                  : at::full({1}, given->double_factor, dtype);
    std::memcpy(out, factor.const_data_ptr(), kolo_type_bytes(type));
}

} // namespace kolo_torch
