// Raw group normalization with its first and second gradients, and sums over windows of channels (for local
// response normalization). Differentiable forms, which check arguments:
// gradus/autograd/ops/norm/group_norm.h.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::raw {

struct GroupNormSpec {
  int64_t groups = 1;
  double eps = 1e-5;
};

// y = (x - mean) / sqrt(var + eps) * weight + bias, with mean and variance over the C / groups channels of a group
// and all positions of one sample. x [N,C,...] has 2 to 5 dims; groups divides C. Undefined weight and bias
// [C] are 1 and 0.
struct GroupNormResult {
  Tensor y;
  Tensor mean, var;  // f64[N,groups]; the variance is biased
};
GroupNormResult group_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                           const GroupNormSpec& spec);
struct GroupNormGrads {
  Tensor dx, dweight, dbias;  // dweight and dbias [C] are always computed
};
GroupNormGrads group_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& var,
                                   const Tensor& weight, const GroupNormSpec& spec);
// The gradients of group_norm_backward's results with respect to dy, x and weight. ddx, ddweight and ddbias
// are the gradients with respect to dx, dweight and dbias. ddweight and ddbias [C] may be undefined (0).
struct GroupNormDoubleGrads {
  Tensor ddy, dx, dweight;  // dweight [C] is always computed
};
GroupNormDoubleGrads group_norm_double_backward(const Tensor& ddx, const Tensor& ddweight,
                                                const Tensor& ddbias, const Tensor& dy, const Tensor& x,
                                                const Tensor& mean, const Tensor& var, const Tensor& weight,
                                                const GroupNormSpec& spec);

// y[n,c,...] = sum of x[n,k,...] for k from c - before to c + after, within [0, C). x is [N,C,...]
// with 2 to 5 dims; before and after are at least 0.
struct ChannelWindow {
  int64_t before = 0, after = 0;
};
Tensor channel_window_sum(const Tensor& x, const ChannelWindow& window);

// Kernels: f32 or f64; x and y channels-last, the others row-major; x is not empty.
extern KernelSlot<void(const Tensor& y, const Tensor& mean, const Tensor& var, const Tensor& x,
                       const Tensor& weight, const Tensor& bias, const GroupNormSpec&)>
    group_norm_kernel;
extern KernelSlot<void(const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                       const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                       const GroupNormSpec&)>
    group_norm_backward_kernel;
extern KernelSlot<void(const Tensor& ddy, const Tensor& dx, const Tensor& dweight, const Tensor& ddx,
                       const Tensor& ddweight, const Tensor& ddbias, const Tensor& dy, const Tensor& x,
                       const Tensor& mean, const Tensor& var, const Tensor& weight, const GroupNormSpec&)>
    group_norm_double_backward_kernel;
extern KernelSlot<void(const Tensor& y, const Tensor& x, const ChannelWindow&)> channel_window_sum_kernel;

}  // namespace gradus::raw
