// Raw group norm, with first and second gradients: converts operands to the kernels' dtype and layout,
// allocates the results, and calls the device's kernel. autograd/ops/norm has checked the arguments.
// x is [N, C, ...]; 16-bit floats are computed in f32, and results of x's shape converted back. Gradients of
// weight and bias [C] stay in the compute dtype. If x is empty, statistics and gradients are 0.
#include "gradus/tensor/ops/norm/group_norm.h"

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::raw {
namespace {

DType compute_dtype(DType t) { return t == DType::kF64 ? t : DType::kF32; }
Tensor row_major(const Tensor& t, DType type) { return t.defined() ? contiguous(to(t, type)) : t; }
// Return x, or an uninitialized result of x's shape, in dtype `type` and channels-last ([N, C]: row-major).
Tensor channels_innermost(const Tensor& x, DType type) {
  const Tensor v = to(x, type);
  return v.dim() == 2 ? contiguous(v) : channels_last(v);
}
Tensor channels_innermost_like(const Tensor& x, DType type) {
  const TensorOptions options{type, x.device()};
  return x.dim() == 2 ? empty(x.shape(), options) : empty_channels_last(x.shape(), options);
}

}  // namespace

GroupNormResult group_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                           const GroupNormSpec& spec) {
  const DType type = compute_dtype(x.dtype());
  const TensorOptions of_groups{DType::kF64, x.device()};
  GroupNormResult r{channels_innermost_like(x, type), empty({x.size(0), spec.groups}, of_groups),
                    empty({x.size(0), spec.groups}, of_groups)};
  if (x.numel() > 0)
    group_norm_kernel(r.y, r.mean, r.var, channels_innermost(x, type), row_major(weight, type),
                      row_major(bias, type), spec);
  else
    fill_(r.mean, 0), fill_(r.var, 0);
  r.y = to(r.y, x.dtype());
  return r;
}

GroupNormGrads group_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& var,
                                   const Tensor& weight, const GroupNormSpec& spec) {
  const DType type = compute_dtype(x.dtype());
  const TensorOptions of_channels{type, x.device()};
  GroupNormGrads g{channels_innermost_like(x, type), empty({x.size(1)}, of_channels),
                   empty({x.size(1)}, of_channels)};
  if (x.numel() > 0)
    group_norm_backward_kernel(g.dx, g.dweight, g.dbias, channels_innermost(dy, type),
                               channels_innermost(x, type), mean, var, row_major(weight, type), spec);
  else
    fill_(g.dweight, 0), fill_(g.dbias, 0);
  g.dx = to(g.dx, x.dtype());
  return g;
}

GroupNormDoubleGrads group_norm_double_backward(const Tensor& ddx, const Tensor& ddweight,
                                                const Tensor& ddbias, const Tensor& dy, const Tensor& x,
                                                const Tensor& mean, const Tensor& var, const Tensor& weight,
                                                const GroupNormSpec& spec) {
  const DType type = compute_dtype(x.dtype());
  GroupNormDoubleGrads g{channels_innermost_like(x, type), channels_innermost_like(x, type),
                         empty({x.size(1)}, {type, x.device()})};
  if (x.numel() > 0)
    group_norm_double_backward_kernel(g.ddy, g.dx, g.dweight, channels_innermost(ddx, type),
                                      row_major(ddweight, type), row_major(ddbias, type),
                                      channels_innermost(dy, type), channels_innermost(x, type), mean, var,
                                      row_major(weight, type), spec);
  else
    fill_(g.dweight, 0);
  g.ddy = to(g.ddy, x.dtype()), g.dx = to(g.dx, x.dtype());
  return g;
}

Tensor channel_window_sum(const Tensor& x, const ChannelWindow& window) {
  const DType type = compute_dtype(x.dtype());
  const Tensor y = channels_innermost_like(x, type);
  if (x.numel() > 0) channel_window_sum_kernel(y, channels_innermost(x, type), window);
  return to(y, x.dtype());
}

}  // namespace gradus::raw
