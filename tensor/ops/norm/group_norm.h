// Raw normalization over groups of channels of each sample, and sums over neighboring channels. The
// differentiable forms are in gradus/autograd/ops/norm/group_norm.h.
#pragma once

#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

struct GroupNormSpec {
  int64_t groups = 1;
  double eps = 1e-5;
};

// y = (x - mean) / sqrt(var + eps) * weight + bias; mean and variance are of a sample's C / groups channels
// at all positions. x [N,C,...] of 2 to 5 dims; weight and bias [C] may be undefined (1 and 0).
struct GroupNormResult {
  Tensor y;
  Tensor mean, var;  // f64[N,groups]; the variance is biased
};
GroupNormResult group_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                           const GroupNormSpec& spec);
struct GroupNormGrads {
  Tensor dx, dweight, dbias;  // the last two [C], always
};
GroupNormGrads group_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& var,
                                   const Tensor& weight, const GroupNormSpec& spec);

// y[n,c,...] = the sum of x[n,c - before ... c + after,...], as far as these channels exist. x [N,C,...].
struct ChannelWindow {
  int64_t before = 0, after = 0;
};
Tensor channel_window_sum(const Tensor& x, const ChannelWindow& window);

// Kernels: f32 or f64; x and y dense with channels innermost, the others row-major; no empty x.
extern KernelSlot<void(const Tensor& y, const Tensor& mean, const Tensor& var, const Tensor& x,
                       const Tensor& weight, const Tensor& bias, const GroupNormSpec&)>
    group_norm_kernel;
extern KernelSlot<void(const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                       const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                       const GroupNormSpec&)>
    group_norm_backward_kernel;
extern KernelSlot<void(const Tensor& y, const Tensor& x, const ChannelWindow&)> channel_window_sum_kernel;

}  // namespace gradus::raw
