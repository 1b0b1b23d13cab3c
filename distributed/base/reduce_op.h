// The operations that reduce one value per rank to a single value.
#pragma once

#include <cstdint>
#include <string_view>

#include "gradus/tensor/base/dtype.h"

namespace gradus::dist {

enum class ReduceOp : uint8_t {
  kSum,
  kProduct,
  kMin,
  kMax,
  kAvg,  // sum / size of the group; floating point, or truncated toward zero on integers
  kMean = kAvg,
  kBand = 5,  // bit operations: integers and bool
  kBor,
  kBxor,
};

// Returns "sum", "product", "min", "max", "avg", "band", "bor" or "bxor".
std::string_view name_of(ReduceOp op);

// Errors: DTypeError for a bit operation on floating point, and for avg on bool.
void check_reduce_op(std::string_view op_name, ReduceOp op, DType dtype);

// Sets out[i] = inputs[0][i] (op) ... (op) inputs[count - 1][i], in that order and in one pass over memory.
// 16-bit floats are added in f32 and rounded once. kAvg divides by `count`. NaN wins in min and max. For bool, sum and
// max are "or", product and min are "and". out may be one of the inputs.
void reduce_all_into(void* out, const void* const* inputs, int count, int64_t n, DType dtype, ReduceOp op);
// Divides x[i] by size for kAvg; does nothing for other ops.
void finish_reduce(void* x, int64_t n, DType dtype, ReduceOp op, int size);

}  // namespace gradus::dist
