// Conversion of whole bf16 and f16 tensors to f32 and back, by the copy kernel. A broadcast dim is converted once:
// as a dim of size 1, whose result is expanded by a stride of 0.
#include "gradus/tensor/cpu/widen.h"

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus::cpu {

Tensor to_f32(const Tensor& x) {
  if (!x.defined()) return x;
  const auto is_broadcast = [&](int d) { return x.strides()[d] == 0 && x.shape()[d] > 1; };
  Shape shape = x.shape();
  for (int d = 0; d < x.dim(); ++d)
    if (is_broadcast(d)) shape[d] = 1;
  const Tensor unexpanded = view_as_strided(x, shape, x.strides(), x.impl().offset);
  const Tensor y = empty_like(unexpanded, DType::kF32);
  if (y.numel() > 0) raw::copy_kernel.cpu(y, unexpanded);
  Strides strides = y.strides();
  for (int d = 0; d < x.dim(); ++d)
    if (is_broadcast(d)) strides[d] = 0;
  return view_as_strided(y, x.shape(), strides, 0);
}

Tensor empty_f32_like(const Tensor& y) {
  return y.defined() ? empty_strided(y.shape(), y.strides(), {DType::kF32, kCPU}) : y;
}

void round_into(const Tensor& y, const Tensor& wide) {
  if (y.defined() && y.numel() > 0) raw::copy_kernel.cpu(y, wide);
}

}  // namespace gradus::cpu
