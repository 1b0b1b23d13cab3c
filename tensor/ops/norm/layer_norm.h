// Raw layer_norm and rms_norm (normalization over the last dims) and their gradients. The differentiable
// forms, in gradus/autograd/ops/norm/layer_norm.h, check the arguments.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::raw {

struct LayerNormSpec {
  double eps = 1e-5;
  bool centered = true;  // layer_norm; false: rms_norm, with mean = 0 and var = mean(x^2)
};

// y = (x - mean) / sqrt(var + eps) * weight + bias for each row of x. A row is the last `dims` dims. weight and
// bias have the shape of a row and may be undefined (1 and 0).
struct LayerNormResult {
  Tensor y;
  Tensor stats;  // f64[rows,2]: mean and 1 / sqrt(var + eps); uninitialized if x is empty
};
LayerNormResult layer_norm(const Tensor& x, int dims, const Tensor& weight, const Tensor& bias,
                           const LayerNormSpec& spec);
struct LayerNormGrads {
  Tensor dx, dweight, dbias;  // dweight and dbias are always computed, shaped like the last dims
};
LayerNormGrads layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& stats,
                                   const Tensor& weight, int dims, const LayerNormSpec& spec);

// Kernels: f32 or f64, all row-major; x [rows,n], weight and bias [n]; x is not empty.
extern KernelSlot<void(const Tensor& y, const Tensor& stats, const Tensor& x, const Tensor& weight,
                       const Tensor& bias, const LayerNormSpec&)>
    layer_norm_kernel;
extern KernelSlot<void(const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                       const Tensor& x, const Tensor& stats, const Tensor& weight, const LayerNormSpec&)>
    layer_norm_backward_kernel;

}  // namespace gradus::raw
