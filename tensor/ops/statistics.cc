// var and std by one kernel, sum((x - mean)^2) / (n - correction) and its square root; logsumexp from
// element-wise ops, log(sum(exp(x - max))) + max. 16-bit floats are computed in f32 and rounded once.
#include "gradus/tensor/ops/statistics.h"

#include <limits>

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/math.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/view.h"

namespace gradus::raw {
namespace {

Tensor variance(const char* op, const Tensor& x, const Dims& dims, int64_t correction, bool keepdim,
                bool root) {
  check_reducible_float(x, dims, op);
  if (size_of(x.dtype()) == 2)
    return to(variance(op, to(x, DType::kF32), dims, correction, keepdim, root), x.dtype());
  const ReductionResult r = make_reduction(x, dims, keepdim, x.dtype(), op);
  // Too few elements give 0/0 = NaN, as in PyTorch.
  const double n = std::max(double(reduced_numel(x, dims, op)) - double(correction), 0.0);
  var_kernel(r.with_keepdim, x, 1.0 / n, root);
  return r.result;
}

}  // namespace

Tensor var(const Tensor& x, const Dims& dims, int64_t correction, bool keepdim) {
  return variance("var", x, dims, correction, keepdim, false);
}
Tensor std(const Tensor& x, const Dims& dims, int64_t correction, bool keepdim) {
  return variance("std", x, dims, correction, keepdim, true);
}

Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim) {
  check_reducible_float(x, dims, "logsumexp");
  if (reduced_numel(x, dims, "logsumexp") == 0) return unary<functors::Log>(sum(x, dims, keepdim));
  if (size_of(x.dtype()) == 2) return to(logsumexp(to(x, DType::kF32), dims, keepdim), x.dtype());
  // The maximum is subtracted before exp. An infinite maximum is replaced by a finite number, to avoid inf - inf.
  const double limit =
      x.dtype() == DType::kF64 ? std::numeric_limits<double>::max() : std::numeric_limits<float>::max();
  const Tensor shift = clamp(amax(x, dims, true), -limit, limit);
  const Tensor y = add(unary<functors::Log>(sum(unary<functors::Exp>(sub(x, shift)), dims, true)), shift);
  return keepdim ? y : reshape(y, reduced_shape(x, dims, false, "logsumexp"));
}

}  // namespace gradus::raw
