#include "gradus/tensor/ops/reduce.h"

#include <cmath>

#include "gradus/tensor/cuda/kernels/reduce_ops.h"
#include "gradus/tensor/cuda/ops/reduce.h"
#include "gradus/tensor/kernel.h"

namespace gradus::cuda {
namespace {

template <class F> void with_numbers(const char* op, DType dtype, F&& f) {
  if (is_floating(dtype) && size_of(dtype) == 2) throw DTypeError(op, "is not defined for ", name_of(dtype));
  with_elements(dtype, [&](auto type) {
    using T = decltype(type);
    if constexpr (!std::is_same_v<T, f16> && !std::is_same_v<T, bf16>) f(type);
  });
}
template <class F> void with_floats(const char* op, DType dtype, F&& f) {
  dispatch_floating(dtype, op, [&]<class T>() { f(T()); });
}

void sum_cuda(const Tensor& out, const Tensor& x, double scale) {
  with_elements(x.dtype(), [&](auto type) { run_reduction("sum", out, x, Sum<decltype(type)>{scale}); });
}

void var_cuda(const Tensor& out, const Tensor& x, double scale, bool root) {
  with_floats("var", x.dtype(), [&](auto type) {
    run_reduction("var", out, x, Variance<decltype(type)>{scale, root});
  });
}

void prod_cuda(const Tensor& out, const Tensor& x) {
  if (x.dtype() == DType::kI64) return run_reduction("prod", out, x, Prod<int64_t>{});
  with_floats("prod", x.dtype(), [&](auto type) { run_reduction("prod", out, x, Prod<decltype(type)>{}); });
}

template <bool largest> void extreme_cuda(const Tensor& out, const Tensor& x) {
  const char* const name = largest ? "amax" : "amin";
  with_numbers(name, x.dtype(),
               [&](auto type) { run_reduction(name, out, x, Extreme<decltype(type), largest>{}); });
}

template <bool any> void logical_cuda(const Tensor& out, const Tensor& x) {
  run_reduction(any ? "any" : "all", out, x, Logical<any>{});
}

void norm_cuda(const Tensor& out, const Tensor& x, double p, double scale, bool root) {
  with_floats("norm", x.dtype(), [&](auto type) {
    using T = decltype(type);
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
