// The CUDA kernels of cross entropy with class indices and of its gradient, for the KernelSlots in
// tensor/ops/losses/cross_entropy.h, where the formulas are. The functions pass pointers and sizes of the
// tensors, with a workspace, to the launchers in kernels/losses/cross_entropy.h. x is seen as [outer,
// classes, inner]; stats, weight, total and losses have x's dtype, or f32 beside 16-bit x. The work is queued
// on the current stream of x's device.
#include "gradus/tensor/ops/losses/cross_entropy.h"

#include "gradus/tensor/cuda/kernels/losses/cross_entropy.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/cuda/runtime/value_errors.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/value_errors.h"

namespace gradus::cuda {
namespace {

// Returns the arguments that both launchers share.
template <class E>
CrossEntropy<E> problem_of(const Tensor& x, const Tensor& target, const Tensor& weight, const Tensor& stats,
                           const raw::CrossEntropySpec& s) {
  using T = compute_t<E>;
  return {x.ptr<E>(),        target.ptr<int64_t>(),    or_null<T>(weight),
          or_null<T>(stats), target.numel() / s.inner, s.classes,
          s.inner,           s.ignore_index,           s.smoothing};
}

// kBatchMean does not occur: gradus::cross_entropy and nll_loss refuse it.
LossReduction kind_of(Reduction reduction) {
  return reduction == Reduction::kMean   ? LossReduction::kMean
         : reduction == Reduction::kNone ? LossReduction::kNone
                                         : LossReduction::kSum;
}

// Throws the IndexError for a target outside [0, classes). The kernel reports the value in host-visible memory,
// and the host calls this function when it next waits for the stream.
template <bool log_probs> void throw_invalid_class(const ReportedValue& v) {
  raw::throw_invalid_class(log_probs ? "nll_loss" : "cross_entropy", v.as_integer(), v.position, v.limit);
}

void cross_entropy_cuda(const Tensor& loss, const Tensor& stats, const Tensor& total, const Tensor& x,
                        const Tensor& target, const Tensor& weight, const raw::CrossEntropySpec& spec) {
  const cudaStream_t stream = stream_for({&loss, &stats, &total, &x, &target, &weight});
  const ValueErrorHandler thrower = spec.log_probs ? &throw_invalid_class<true> : &throw_invalid_class<false>;
  dispatch_all_floating(x.dtype(), [&]<class E>() {
    using T = compute_t<E>;
    CrossEntropy<E> s = problem_of<E>(x, target, weight, stats, spec);
    const Tensor workspace = workspace_for(x, cross_entropy_workspace(s));
    s.reports = reports_of(x, stream, thrower, s.classes);
    cross_entropy("cross_entropy", s, kind_of(spec.reduction), loss.ptr<T>(), total.ptr<T>(),
                  workspace.raw_ptr(), stream);
  });
}

void cross_entropy_grad_cuda(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& target,
                             const Tensor& weight, const Tensor& stats, const Tensor& total,
                             const raw::CrossEntropySpec& spec) {
  const cudaStream_t stream = stream_for({&dx, &dy, &x, &target, &weight, &stats, &total});
  dispatch_all_floating(x.dtype(), [&]<class E>() {
    using T = compute_t<E>;
    const CrossEntropy<E> s = problem_of<E>(x, target, weight, stats, spec);
    const Tensor workspace = workspace_for(x, cross_entropy_workspace(s));
    cross_entropy_grad("cross_entropy_grad", s, kind_of(spec.reduction), dx.ptr<E>(), dy.ptr<T>(),
                       or_null<T>(total), workspace.raw_ptr(), stream);
  });
}

[[maybe_unused]] const bool is_set = (raw::cross_entropy_kernel.cuda = &cross_entropy_cuda,
                                      raw::cross_entropy_grad_kernel.cuda = &cross_entropy_grad_cuda, true);

}  // namespace
}  // namespace gradus::cuda
