// Raw batch normalization and its gradients, also fused with relu and a residual, and split into parts for
// synchronized batch norm over several ranks. The differentiable form is in gradus/autograd/ops/norm/batch_norm.h.
// Errors of all functions: as check_batch_norm; ShapeError unless dy, y and residual are like x.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

struct BatchNormFuncOptions {
  bool training = false;            // normalize by the batch's statistics and update the running statistics
  double momentum = 0.1;            // weight of the batch's statistics in the running statistics
  double eps = 1e-5;                // added to the variance
  Tensor num_batches_tracked = {};  // i64[], incremented in training
};

namespace raw {

// x is [N,C,...] with 2 to 5 dims. weight and bias [C] may be undefined (1 and 0). [C] arguments have x's
// dtype, or f32 if x has 16 bits. [C] results have the dtype channel_dtype(x.dtype()).
inline DType channel_dtype(DType x) { return x == DType::kF64 ? x : DType::kF32; }
struct BatchNormResult {
  Tensor y, mean, var;  // statistics [C] of the batch; the variance is biased
};
// Running statistics to update: mean and var are moved by `momentum` toward the batch's mean and unbiased
// variance (x has at least 2 elements per channel); batches (i64[]) is incremented. Tensors may be undefined,
// mean and var only together. 16-bit statistics are updated in f32 and rounded once.
struct RunningStatistics {
  Tensor mean, var, batches;
  double momentum = 0;
};
template <class F> void for_each_tensor(const RunningStatistics& running, F f) {
  f(running.mean), f(running.var), f(running.batches);
}
// Normalizes x by the statistics of the batch, and updates `running`.
BatchNormResult batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                           const RunningStatistics& running = {});
struct BatchNormReluOptions {
  double eps = 1e-5;
  double negative_slope = 0;  // as leaky_relu's
  bool in_place = false;      // the residual's buffer may become y
};
// The same with y = leaky_relu(normalized + residual). residual has x's shape and dtype, or is undefined (0).
BatchNormResult batch_norm_relu(const Tensor& x, const Tensor& residual, const Tensor& weight,
                                const Tensor& bias, const BatchNormReluOptions& options,
                                const RunningStatistics& running = {});
// Returns x normalized by these statistics.
Tensor batch_norm_apply(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                        const Tensor& bias, double eps);
struct BatchNormGrads {
  Tensor dx, dweight, dbias;
};
struct BatchNormBackwardOptions {
  double eps = 1e-5;
  double negative_slope = 1;  // dy is the gradient of leaky_relu(y); 1: of y
  bool in_place = false;      // dy's buffer may become dx
};
// Returns the gradients of batch_norm. dx includes the paths through the batch's mean and variance.
BatchNormGrads batch_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& var,
                                   const Tensor& weight, const Tensor& bias,
                                   const BatchNormBackwardOptions& options);
struct BatchNormAddReluGrads {
  Tensor dx, dresidual, dweight, dbias;
};
struct BatchNormAddReluBackwardOptions {
  double eps = 1e-5;
  bool dy_in_place = false;  // dy's buffer may become dresidual
  bool y_in_place = false;   // y's buffer may become dx
};
// Returns the gradients of batch_norm_relu with a residual and negative_slope 0. y is its result.
BatchNormAddReluGrads batch_norm_add_relu_backward(const Tensor& dy, const Tensor& y, const Tensor& x,
                                                   const Tensor& mean, const Tensor& var,
                                                   const Tensor& weight,
                                                   const BatchNormAddReluBackwardOptions& options);
// Updates the running mean and variance, which are defined, by those of a batch with `rows` >= 2 elements per
// channel, which correct the biased `var`. Errors: StateError if undefined; ShapeError, DTypeError.
void batch_norm_update_(const RunningStatistics& running, const Tensor& mean, const Tensor& var,
                        int64_t rows);

// The statistics that ranks exchange for synchronized batch norm. Zeros for an empty x.
struct BatchStatistics {
  Tensor mean, m2;  // f64[C]: mean, and sum (x - mean)^2, over batch and positions
};
BatchStatistics batch_statistics(const Tensor& x);
// Returns dx = add + offset + (x - mean) * slope per channel, rounded once. add may be undefined (0). in_place:
// the buffer of `add` may become dx.
Tensor batch_statistics_backward(const Tensor& add, const Tensor& x, const Tensor& mean, const Tensor& offset,
                                 const Tensor& slope, bool in_place);
struct BatchNormApplyGrads {
  Tensor dx;                 // dy * weight / sqrt(var + eps), in channel_dtype, because other terms are added
  Tensor sum, centered_sum;  // [C]: sum(dy) and sum(dy * (x - mean))
};
// Returns the parts of the gradients of batch_norm_apply.
BatchNormApplyGrads batch_norm_apply_backward(const Tensor& dy, const Tensor& x, const Tensor& mean,
                                              const Tensor& var, const Tensor& weight, double eps);

// Checks x [N,C,...] and `named` [C] tensors, which may be undefined.
// Errors: ShapeError, DTypeError, DeviceError naming `op`.
void check_batch_norm(const char* op, const Tensor& x,
                      std::initializer_list<std::pair<const char*, const Tensor*>> named);

// Kernels: x and y have one floating dtype and are channels-last; x is not empty. [C] tensors are row-major and
// have x's dtype, or f32 if x has 16 bits. Running statistics may be undefined, and may have 16 bits if x has. dx
// of batch_norm_apply_backward and `add` of batch_statistics_backward have the dtype of the [C] tensors.
extern KernelSlot<void(const Tensor& y, const Tensor& mean, const Tensor& var, const Tensor& x,
                       const Tensor& weight, const Tensor& bias, double eps,
                       const RunningStatistics& running)>
    batch_norm_kernel;
extern KernelSlot<void(const Tensor& y, const Tensor& mean, const Tensor& var, const Tensor& x,
                       const Tensor& residual, const Tensor& weight, const Tensor& bias, double eps,
                       double negative_slope, const RunningStatistics& running)>
    batch_norm_relu_kernel;  // y may be the residual
extern KernelSlot<void(const Tensor& y, const Tensor& x, const Tensor& mean, const Tensor& var,
                       const Tensor& weight, const Tensor& bias, double eps)>
    batch_norm_apply_kernel;
extern KernelSlot<void(const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                       const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                       const Tensor& bias, double eps,
                       double negative_slope)>
    batch_norm_backward_kernel;  // dx may be dy
extern KernelSlot<void(const Tensor& dx, const Tensor& dresidual, const Tensor& dweight, const Tensor& dbias,
                       const Tensor& dy, const Tensor& y, const Tensor& x, const Tensor& mean,
                       const Tensor& var, const Tensor& weight, double eps)>
    batch_norm_add_relu_backward_kernel;  // dresidual may be dy, dx may be y
extern KernelSlot<void(const Tensor& mean, const Tensor& m2, const Tensor& x)> batch_statistics_kernel;
extern KernelSlot<void(const Tensor& dx, const Tensor& add, const Tensor& x, const Tensor& mean,
                       const Tensor& offset, const Tensor& slope)>
    batch_statistics_backward_kernel;
extern KernelSlot<void(const Tensor& dx, const Tensor& sum, const Tensor& centered_sum, const Tensor& dy,
                       const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                       double eps)>
    batch_norm_apply_backward_kernel;
extern KernelSlot<void(const Tensor& mean, const Tensor& var, const RunningStatistics& running, int64_t rows)>
    batch_norm_update_kernel;

}  // namespace raw
}  // namespace gradus
