#include "gradus/nn/layers/gan/pixel_norm.h"

#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/math.h"
#include "gradus/autograd/ops/reduce.h"

namespace gradus::nn {

Tensor PixelNorm::forward(const Tensor& x) {
  if (x.dim() < 2) throw ShapeError("PixelNorm", "expected x [N,C] or [N,C,...], given ", describe(x));
  // In f32, because eps would be 0 in f16.
  const Tensor wide = x.dtype() == DType::kF64 ? x : gradus::to(x, DType::kF32);
  return x * gradus::to(rsqrt(mean(square(wide), 1, true) + options().eps), x.dtype());
}

template class ModuleWith<PixelNormOptions, Layer>;
}  // namespace gradus::nn
