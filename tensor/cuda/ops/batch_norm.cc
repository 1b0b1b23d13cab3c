// The CUDA side of the batch-norm slots: converts tensors to pointers, allocates the workspace of the sums,
// and launches kernels/norm/batch_norm.h on the tensors' current stream, asynchronously. Contracts are in
// ops/norm/batch_norm.h: x is a non-empty channels-last [N, C, ...], so the kernels see [rows, C] with rows =
// numel / C; statistics are [C] in the compute type (f32, or f64 for f64). Loading the file fills the slots'
// `cuda` pointers (is_set).
#include "gradus/tensor/ops/norm/batch_norm.h"

#include "gradus/tensor/cuda/kernels/norm/batch_norm.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/kernel.h"

namespace gradus::cuda {
namespace {

// Returns the kernels' description of x and its coefficients. An undefined weight is 1, an undefined bias 0.
template <class T>
BatchNorm<T> problem_of(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                        const Tensor& bias, double eps) {
  using A = compute_t<T>;
  return {x.numel() / x.size(1), x.size(1),          x.ptr<T>(),       mean.ptr<A>(),
          var.ptr<A>(),          or_null<A>(weight), or_null<A>(bias), eps};
}

Tensor workspace_for_sums(const Tensor& x) {
  return workspace_for(x, batch_norm_workspace(x.numel() / x.size(1), x.size(1)));
}

// Returns the kernels' running statistics; `rows` is at least 2 if they are defined. Each has the dtype
// `wide` (the compute type) or the kernel's type T. The batch's biased variance times rows / (rows - 1) is
// unbiased.
RunningStatistics moving(const raw::RunningStatistics& r, DType wide, int64_t rows) {
  const auto pointer = [](const Tensor& t) { return t.defined() ? t.raw_ptr() : nullptr; };
  const auto is_wide = [&](const Tensor& t) { return t.defined() && t.dtype() == wide; };
  return {pointer(r.mean),
          pointer(r.var),
          or_null<int64_t>(r.batches),
          double(rows) / double(rows - 1),
          r.momentum,
          is_wide(r.mean),
          is_wide(r.var)};
}

// negative_slope 1: no activation. An undefined residual is 0.
void batch_norm_relu_or_not(const char* op, const Tensor& y, const Tensor& mean, const Tensor& var,
                            const Tensor& x, const Tensor& residual, const Tensor& weight, const Tensor& bias,
                            double eps, double negative_slope, const raw::RunningStatistics& running) {
  const cudaStream_t stream = stream_for(
      {&y, &mean, &var, &x, &residual, &weight, &bias, &running.mean, &running.var, &running.batches});
  dispatch_all_floating(x.dtype(), [&]<class T>() {
    batch_norm<T>(op, problem_of<T>(x, mean, var, weight, bias, eps), y.ptr<T>(), or_null<T>(residual),
                  negative_slope, moving(running, mean.dtype(), x.numel() / x.size(1)),
                  workspace_for_sums(x).raw_ptr(), stream);
  });
}
void batch_norm_cuda(const Tensor& y, const Tensor& mean, const Tensor& var, const Tensor& x,
                     const Tensor& weight, const Tensor& bias, double eps,
                     const raw::RunningStatistics& running) {
  batch_norm_relu_or_not("batch_norm", y, mean, var, x, {}, weight, bias, eps, 1, running);
}
void batch_norm_relu_cuda(const Tensor& y, const Tensor& mean, const Tensor& var, const Tensor& x,
                          const Tensor& residual, const Tensor& weight, const Tensor& bias, double eps,
                          double negative_slope, const raw::RunningStatistics& running) {
  batch_norm_relu_or_not("batch_norm_relu", y, mean, var, x, residual, weight, bias, eps, negative_slope,
                         running);
}
void batch_norm_apply_cuda(const Tensor& y, const Tensor& x, const Tensor& mean, const Tensor& var,
                           const Tensor& weight, const Tensor& bias, double eps) {
  const cudaStream_t stream = stream_for({&y, &x, &mean, &var, &weight, &bias});
  dispatch_all_floating(x.dtype(), [&]<class T>() {
    batch_norm_apply<T>("batch_norm", problem_of<T>(x, mean, var, weight, bias, eps), y.ptr<T>(), stream);
  });
}

void batch_norm_backward_cuda(const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                              const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                              const Tensor& bias, double eps, double negative_slope) {
  const cudaStream_t stream = stream_for({&dx, &dweight, &dbias, &dy, &x, &mean, &var, &weight, &bias});
  dispatch_all_floating(x.dtype(), [&]<class T>() {
    using A = compute_t<T>;
    batch_norm_backward<T>("batch_norm_backward", problem_of<T>(x, mean, var, weight, bias, eps), dx.ptr<T>(),
                           dweight.ptr<A>(), dbias.ptr<A>(), dy.ptr<T>(), negative_slope,
                           workspace_for_sums(x).raw_ptr(), stream);
  });
}
void batch_norm_add_relu_backward_cuda(const Tensor& dx, const Tensor& dresidual, const Tensor& dweight,
                                       const Tensor& dbias, const Tensor& dy, const Tensor& y,
                                       const Tensor& x, const Tensor& mean, const Tensor& var,
                                       const Tensor& weight, double eps) {
  const cudaStream_t stream =
      stream_for({&dx, &dresidual, &dweight, &dbias, &dy, &y, &x, &mean, &var, &weight});
  dispatch_all_floating(x.dtype(), [&]<class T>() {
    using A = compute_t<T>;
    batch_norm_add_relu_backward<T>("batch_norm_add_relu_backward",
                                    problem_of<T>(x, mean, var, weight, {}, eps), dx.ptr<T>(),
                                    dresidual.ptr<T>(), dweight.ptr<A>(), dbias.ptr<A>(), dy.ptr<T>(),
                                    y.ptr<T>(), workspace_for_sums(x).raw_ptr(), stream);
  });
}
void batch_norm_apply_backward_cuda(const Tensor& dx, const Tensor& sum, const Tensor& centered_sum,
                                    const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& var,
                                    const Tensor& weight, double eps) {
  const cudaStream_t stream = stream_for({&dx, &sum, &centered_sum, &dy, &x, &mean, &var, &weight});
  dispatch_all_floating(x.dtype(), [&]<class T>() {
    using A = compute_t<T>;
    batch_norm_apply_backward<T>("batch_norm_apply_backward", problem_of<T>(x, mean, var, weight, {}, eps),
                                 dx.ptr<A>(), sum.ptr<A>(), centered_sum.ptr<A>(), dy.ptr<T>(),
                                 workspace_for_sums(x).raw_ptr(), stream);
  });
}

void batch_statistics_cuda(const Tensor& mean, const Tensor& m2, const Tensor& x) {
  const cudaStream_t stream = stream_for({&mean, &m2, &x});
  dispatch_all_floating(x.dtype(), [&]<class T>() {
    batch_statistics<T>("batch_statistics", mean.ptr<double>(), m2.ptr<double>(), x.ptr<T>(),
                        x.numel() / x.size(1), x.size(1), workspace_for_sums(x).raw_ptr(), stream);
  });
}
void batch_statistics_backward_cuda(const Tensor& dx, const Tensor& add, const Tensor& x, const Tensor& mean,
                                    const Tensor& offset, const Tensor& slope) {
  const cudaStream_t stream = stream_for({&dx, &add, &x, &mean, &offset, &slope});
  dispatch_all_floating(x.dtype(), [&]<class T>() {
    using A = compute_t<T>;
    batch_statistics_backward<T>("batch_statistics_backward", dx.ptr<T>(), or_null<A>(add), x.ptr<T>(),
                                 mean.ptr<A>(), offset.ptr<A>(), slope.ptr<A>(), x.numel() / x.size(1),
                                 x.size(1), stream);
  });
}

void batch_norm_update_cuda(const Tensor& mean, const Tensor& var, const raw::RunningStatistics& running,
                            int64_t rows) {
  if (mean.numel() == 0) return;
  const cudaStream_t stream = stream_for({&mean, &var, &running.mean, &running.var, &running.batches});
  dispatch_all_floating(running.mean.dtype(), [&]<class T>() {
    using A = compute_t<T>;
    batch_norm_update<T>("batch_norm_update_", moving(running, mean.dtype(), rows), mean.ptr<A>(),
                         var.ptr<A>(), mean.numel(), stream);
  });
}

[[maybe_unused]] const bool is_set =
    (raw::batch_norm_kernel.cuda = &batch_norm_cuda, raw::batch_norm_relu_kernel.cuda = &batch_norm_relu_cuda,
     raw::batch_norm_apply_kernel.cuda = &batch_norm_apply_cuda,
     raw::batch_norm_backward_kernel.cuda = &batch_norm_backward_cuda,
     raw::batch_norm_add_relu_backward_kernel.cuda = &batch_norm_add_relu_backward_cuda,
     raw::batch_norm_apply_backward_kernel.cuda = &batch_norm_apply_backward_cuda,
     raw::batch_statistics_kernel.cuda = &batch_statistics_cuda,
     raw::batch_statistics_backward_kernel.cuda = &batch_statistics_backward_cuda,
     raw::batch_norm_update_kernel.cuda = &batch_norm_update_cuda, true);

}  // namespace
}  // namespace gradus::cuda
