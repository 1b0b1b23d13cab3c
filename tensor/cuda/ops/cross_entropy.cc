// CUDA kernels of cross entropy: tensors in, launches of kernels/cross_entropy.h out.
#include "gradus/tensor/ops/losses/cross_entropy.h"

#include "gradus/tensor/cuda/kernels/cross_entropy.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/cuda/runtime/value_errors.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/value_errors.h"

namespace gradus::cuda {
namespace {

template <class T>
CrossEntropy<T> problem_of(const Tensor& x, const Tensor& target, const Tensor& weight, const Tensor& stats,
                           const raw::CrossEntropySpec& s) {
  return {x.ptr<T>(),
          target.ptr<int64_t>(),
          weight.defined() ? weight.ptr<T>() : nullptr,
          stats.defined() ? stats.ptr<T>() : nullptr,
          target.numel() / s.inner,
          s.classes,
          s.inner,
          s.ignore_index,
          s.smoothing};
}

LossOf kind_of(Reduction reduction) {
  return reduction == Reduction::kMean   ? LossOf::kMean
         : reduction == Reduction::kNone ? LossOf::kEach
                                         : LossOf::kSum;
}

template <bool log_probs> void throw_invalid_class(const FoundValue& v) {
  raw::throw_invalid_class(log_probs ? "nll_loss" : "cross_entropy", v.as_integer(), v.position, v.limit);
}

void cross_entropy_cuda(const Tensor& loss, const Tensor& stats, const Tensor& total, const Tensor& x,
                        const Tensor& target, const Tensor& weight, const raw::CrossEntropySpec& spec) {
  const cudaStream_t stream = stream_for({&loss, &stats, &total, &x, &target, &weight});
  const ThrowFound thrower = spec.log_probs ? &throw_invalid_class<true> : &throw_invalid_class<false>;
  dispatch_floating(x.dtype(), "cross_entropy", [&]<class T>() {
    CrossEntropy<T> s = problem_of<T>(x, target, weight, stats, spec);
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
  dispatch_floating(x.dtype(), "cross_entropy_grad", [&]<class T>() {
    const CrossEntropy<T> s = problem_of<T>(x, target, weight, stats, spec);
    const Tensor workspace = workspace_for(x, cross_entropy_workspace(s));
    cross_entropy_grad("cross_entropy_grad", s, kind_of(spec.reduction), dx.ptr<T>(), dy.ptr<T>(),
                       total.defined() ? total.ptr<T>() : nullptr, workspace.raw_ptr(), stream);
  });
}

[[maybe_unused]] const bool is_set = (raw::cross_entropy_kernel.cuda = &cross_entropy_cuda,
                                      raw::cross_entropy_grad_kernel.cuda = &cross_entropy_grad_cuda, true);

}  // namespace
}  // namespace gradus::cuda
