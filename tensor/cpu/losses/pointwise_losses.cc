// CPU kernels of element-wise losses loss(x, target) (mse, l1, smooth_l1, binary cross-entropy and others), of
// their sum and their gradient, and the check that probabilities are in [0, 1]. An undefined `target` means the
// number s.target for all elements. Callers (tensor/ops/losses/pointwise_losses.cc) check shapes and dtypes.
#include "gradus/tensor/ops/losses/pointwise_losses.h"
#include "gradus/tensor/kernel.h"

#include <algorithm>
#include <type_traits>

#include "gradus/tensor/cpu/elementwise/kernels.h"
#include "gradus/tensor/ops/losses/loss_functors.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/value_errors.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::raw {
namespace {

using functors::WithScalarTarget, functors::ScaledGradient, functors::ScaledWithScalarTarget;

void point_loss_cpu(const Tensor& y, const Tensor& x, const Tensor& target, const PointLossSpec& s) {
  with_loss(s, [&]<class F, class G>(F loss, G) {
    target.defined() ? cpu::binary(y, x, target, loss)
                     : cpu::unary(y, x, WithScalarTarget<F>{loss, s.target});
  });
}
// y = factor * sum of the losses. The unnamed tensor, the gradient, is undefined on CPUs.
void point_loss_sum_cpu(const Tensor& y, const Tensor&, const Tensor& x, const Tensor& target,
                        const PointLossSpec& s, double factor) {
  const Tensor losses =
      target.defined() ? empty_result("point_loss", y.dtype(), {&x, &target}) : empty_like(x, y.dtype());
  point_loss_cpu(losses, x, target, s);
  sum_kernel.cpu(y, losses, factor);
}
// dx = factor * dy * d loss / dx.
void point_loss_backward_cpu(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& target,
                             const PointLossSpec& s, double factor) {
  with_loss(s, [&]<class F, class G>(F, G derivative) {
    const ScaledGradient<G> scaled{derivative, factor};
    target.defined() ? cpu::ternary(dx, dy, x, target, scaled)
                     : cpu::binary(dx, dy, x, ScaledWithScalarTarget<G>{scaled, s.target});
  });
}

// x is row-major, of any dtype; NaN is invalid. `is_target` names x in the error. The first loop is
// vectorized; the second finds the invalid element.
void check_probabilities_cpu(const Tensor& x, bool is_target) {
  dispatch_all(x.dtype(), [&]<class T>() {
    using Wide = std::conditional_t<sizeof(T) <= 2 || std::is_same_v<T, float>, float, double>;
    constexpr int64_t kBlock = 4096;
    const T* const values = x.ptr<T>();
    parallel_for(0, x.numel(), kBlock, [&](int64_t begin, int64_t end) {
      for (int64_t from = begin; from < end; from += kBlock) {
        const int64_t to = std::min(from + kBlock, end);
        bool all_valid = true;
        for (int64_t i = from; i < to; ++i) {
          const auto v = static_cast<Wide>(values[i]);
          all_valid &= (v >= 0) & (v <= 1);
        }
        if (all_valid) continue;
        for (int64_t i = from; i < to; ++i)
          if (const auto v = static_cast<Wide>(values[i]); !(v >= 0 && v <= 1))
            throw_invalid_cross_entropy(is_target, v, i);
      }
    });
  });
}

}  // namespace

constinit decltype(check_probabilities_kernel) check_probabilities_kernel{"binary_cross_entropy",
                                                                          &check_probabilities_cpu};
constinit decltype(point_loss_kernel) point_loss_kernel{"point_loss", &point_loss_cpu};
constinit decltype(point_loss_sum_kernel) point_loss_sum_kernel{"point_loss_sum", &point_loss_sum_cpu};
constinit decltype(point_loss_backward_kernel) point_loss_backward_kernel{"point_loss_backward",
                                                                          &point_loss_backward_cpu};

}  // namespace gradus::raw
