// CUDA kernels of sum, var, prod, amax, amin, any, all and norm. Each function selects the operation for x's dtype
// (kernels/reduce_ops.h), and run_reduction queues the reduction on the current stream of out's device.
// out is row-major, has as many dims as x, and has size 1 in the reduced dims. x may be strided; run_reduction
// copies an x whose layout the reduction cannot read.
#include "gradus/tensor/ops/reduce.h"

#include <cmath>

#include "gradus/tensor/cuda/kernels/reduce_ops.h"
#include "gradus/tensor/cuda/ops/reduce.h"
#include "gradus/tensor/kernel.h"

namespace gradus::cuda {
namespace {

// Calls f(T()) with x's element type T, for all dtypes except f16 and bf16; bool elements are uint8_t.
// Errors: DTypeError for f16 and bf16.
template <class F> void with_numbers(const char* op, DType dtype, F&& f) {
  if (is_floating(dtype) && size_of(dtype) == 2) throw DTypeError(op, "is not defined for ", name_of(dtype));
  with_elements(dtype, [&](auto type) {
    using T = decltype(type);
    if constexpr (!std::is_same_v<T, f16> && !std::is_same_v<T, bf16>) f(type);
  });
}

// out = scale * sum x, for floats of any width: a mean has scale 1 / n. Integers give i64, unscaled.
void sum_cuda(const Tensor& out, const Tensor& x, double scale) {
  with_elements(x.dtype(), [&](auto type) { run_reduction("sum", out, x, Sum<decltype(type)>{scale}); });
}

// out = scale * sum (x - mean)^2; with `root`, the square root of that.
void var_cuda(const Tensor& out, const Tensor& x, double scale, bool root) {
  dispatch_floating(x.dtype(), "var", [&]<class T>() {
    run_reduction("var", out, x, Variance<T>{scale, root});
  });
}

// Supports f64, f32 and i64.
void prod_cuda(const Tensor& out, const Tensor& x) {
  if (x.dtype() == DType::kI64) return run_reduction("prod", out, x, Prod<int64_t>{});
  dispatch_floating(x.dtype(), "prod", [&]<class T>() { run_reduction("prod", out, x, Prod<T>{}); });
}

// amax or amin. The result is NaN if an element is NaN.
template <bool largest> void extreme_cuda(const Tensor& out, const Tensor& x) {
  const char* const name = largest ? "amax" : "amin";
  with_numbers(name, x.dtype(),
               [&](auto type) { run_reduction(name, out, x, Extreme<decltype(type), largest>{}); });
}

// any or all, of bool x.
template <bool any> void logical_cuda(const Tensor& out, const Tensor& x) {
  run_reduction(any ? "any" : "all", out, x, Logical<any>{});
}

// out = scale * sum |x|^p; with `root`, the 1/p-th power of that. p = 0 counts the nonzeros, without root; p = inf
// and p = -inf give max |x| and min |x|, without scale and root.
void norm_cuda(const Tensor& out, const Tensor& x, double p, double scale, bool root) {
  dispatch_floating(x.dtype(), "norm", [&]<class T>() {
    const auto take = [&]<Power power>() { run_reduction("norm", out, x, Norm<T, power>{{scale}, p, root}); };
    if (std::isinf(p))
      p > 0 ? run_reduction("norm", out, x, ExtremeAbs<T, true>{})
            : run_reduction("norm", out, x, ExtremeAbs<T, false>{});
    else if (p == 0)
      take.template operator()<Power::kZero>();
    else if (p == 1)
      take.template operator()<Power::kOne>();
    else if (p == 2)
      take.template operator()<Power::kTwo>();
    else
      take.template operator()<Power::kAny>();
  });
}

[[maybe_unused]] const bool is_set =
    (raw::sum_kernel.cuda = &sum_cuda, raw::var_kernel.cuda = &var_cuda, raw::prod_kernel.cuda = &prod_cuda,
     raw::amax_kernel.cuda = &extreme_cuda<true>, raw::amin_kernel.cuda = &extreme_cuda<false>,
     raw::any_kernel.cuda = &logical_cuda<true>, raw::all_kernel.cuda = &logical_cuda<false>,
     raw::norm_kernel.cuda = &norm_cuda, true);

}  // namespace
}  // namespace gradus::cuda
