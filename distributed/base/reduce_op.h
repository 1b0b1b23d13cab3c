// ReduceOp: the reductions of collectives such as all_reduce, and their kernels on the host.
#pragma once

#include <cstdint>
#include <string_view>

#include "gradus/tensor/base/dtype.h"

namespace gradus::dist {

enum class ReduceOp : uint8_t {
  kSum,
  kProduct,
  kMin,  // floats: NaN if any rank's element is NaN; by NCCL, if all ranks' are
  kMax,  // the same
  kAvg,  // sum / size of the group; truncated toward zero on integers
  kMean = kAvg,
  kBand = 5,  // bit operations: integers and bool
  kBor,
  kBxor,
  kPremulSum,  // of collectives.h: see premul_sum there
};

// Returns "sum", "product", "min", "max", "avg", "band", "bor", "bxor" or "premul_sum".
std::string_view name_of(ReduceOp op);

// Checks that `op` is defined for `dtype`. The functions below require it. op_name: the collective, such as
// "all_reduce", for the error.
// Errors: DTypeError for a bit operation on floating point, and for avg on bool; ValueError for kPremulSum.
void check_reduce_op(std::string_view op_name, ReduceOp op, DType dtype);

// Sets out[i] = inputs[0][i] (op) ... (op) inputs[count - 1][i] for i < n, in that order and in one pass over
// memory. kAvg divides by `count`. 16-bit floats are reduced in f32 and rounded once. min and max propagate
// NaN; integers wrap around. For bool, sum and max are "or", product and min are "and". All pointers are host
// arrays of n elements of `dtype`; count >= 1; out may be one of the inputs. On the calling thread.
void reduce_all_into(void* out, const void* const* inputs, int count, int64_t n, DType dtype, ReduceOp op);
// Divides x[i], i < n, in host memory by `size` if `op` is kAvg, after a kSum over several steps.
void finish_reduce(void* x, int64_t n, DType dtype, ReduceOp op, int size);
// Sets out[i] = factor * in[i], i < n, in host memory, for floating point. out may be in.
void scale_into(void* out, const void* in, int64_t n, DType dtype, double factor);

}  // namespace gradus::dist
