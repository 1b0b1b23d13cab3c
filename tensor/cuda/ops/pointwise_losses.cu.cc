// CUDA kernel slots of element-wise losses (mse, huber, ...): the losses, their sum, and the check that
// probabilities are in [0, 1]. Formulas: loss_functors.h. Callers have checked shapes and devices. An
// undefined target means the number PointLossSpec::target.
#include "gradus/tensor/ops/losses/pointwise_losses.h"

#include <bit>

#include "gradus/tensor/cuda/kernels/losses/loss_sum.h"
#include "gradus/tensor/cuda/kernels/report.h"
#include "gradus/tensor/cuda/ops/elementwise.h"
#include "gradus/tensor/cuda/runtime/value_errors.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/losses/loss_functors.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/value_errors.h"

namespace gradus::cuda {
namespace {

using functors::WithScalarTarget, functors::ScaledGradient;

constexpr int kCheckThreads = 256;

// Reports the first x[i] outside [0, 1] or NaN, i < count (x is row-major); the host throws when it next
// synchronizes. A thread has one element.
template <class T>
__global__ void __launch_bounds__(kCheckThreads)
    find_outside_of_unit_interval(const T* x, int64_t count, ValueReports reports) {
  const int64_t i = int64_t{blockIdx.x} * kCheckThreads + threadIdx.x;
  if (i >= count) return;
  const auto v = static_cast<double>(widen(x[i]));
  if (!(v >= 0 && v <= 1)) report(reports, i, std::bit_cast<uint64_t>(v));
}

template <bool is_target> void throw_invalid_cross_entropy(const ReportedValue& v) {
  raw::throw_invalid_cross_entropy(is_target, v.as_double(), v.position);
}

void check_probabilities_cuda(const Tensor& x, bool is_target) {
  if (x.numel() == 0) return;
  const cudaStream_t stream = stream_for({&x});
  const ValueReports reports = reports_of(
      x, stream, is_target ? &throw_invalid_cross_entropy<true> : &throw_invalid_cross_entropy<false>, 0);
  dispatch_all(x.dtype(), [&]<class T>() {
    launch("check_probabilities", find_outside_of_unit_interval<T>,
           {blocks_for(x.numel(), kCheckThreads), kCheckThreads}, stream, static_cast<const T*>(x.ptr<T>()),
           x.numel(), reports);
  });
}

template <class F> struct Loss : F {
  static constexpr const char* name = "point_loss";
};

void point_loss_cuda(const Tensor& y, const Tensor& x, const Tensor& target, const raw::PointLossSpec& s) {
  raw::with_loss(s, [&]<class F, class G>(F loss, G) {
    if (target.defined())
      launch_elementwise(Loss<F>{loss}, y, x, target);
    else
      launch_elementwise(Loss<WithScalarTarget<F>>{{loss, s.target}}, y, x);
  });
}

// y = factor * sum of the losses. If `slope` is defined, slope = factor * d loss / dx; x and target are then
// dense, of one layout. Dense inputs are summed without storing the losses.
void point_loss_sum_cuda(const Tensor& y, const Tensor& slope, const Tensor& x, const Tensor& target,
                         const raw::PointLossSpec& s, double factor) {
  const bool is_dense =
      x.numel() > 0 && x.is_dense() && y.dtype() == x.dtype() &&
      (!target.defined() || (target.dtype() == x.dtype() && target.strides() == x.strides()));
  if (!is_dense) {
    const Tensor losses = empty_like(x, y.dtype());
    point_loss_cuda(losses, x, target, s);
    return raw::sum_kernel.cuda(y, losses, factor);
  }
  const cudaStream_t stream = stream_for({&y, &slope, &x, &target});
  const Tensor workspace = workspace_for(x, loss_sum_workspace(x.numel()));
  raw::with_loss(s, [&]<class F, class G>(F loss, G gradient) {
    dispatch_all(x.dtype(), [&]<class T>() {
      if constexpr (is_floating(dtype_v<T>))
        sum_losses("point_loss_sum", loss, ScaledGradient<G>{gradient, factor}, y.ptr<T>(),
                   slope.defined() ? slope.ptr<T>() : nullptr, static_cast<const T*>(x.ptr<T>()),
                   target.defined() ? static_cast<const T*>(target.ptr<T>()) : nullptr, s.target, x.numel(),
                   workspace.raw_ptr(), stream);
    });
  });
}

[[maybe_unused]] const bool is_set = (raw::check_probabilities_kernel.cuda = &check_probabilities_cuda,
                                      raw::point_loss_kernel.cuda = &point_loss_cuda,
                                      raw::point_loss_sum_kernel.cuda = &point_loss_sum_cuda, true);

}  // namespace
}  // namespace gradus::cuda
