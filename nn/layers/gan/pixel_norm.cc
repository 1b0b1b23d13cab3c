// PixelNorm layer of progressive GANs.
#include "gradus/nn/layers/gan/pixel_norm.h"

#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/math.h"
#include "gradus/autograd/ops/reduce.h"

namespace gradus::nn {

Tensor PixelNorm::forward(const Tensor& x) {
  if (x.dim() < 2) throw ShapeError("PixelNorm", "expected x [N,C] or [N,C,...], got ", describe(x));
  // Computes in f32, because eps would be 0 in f16.
  const Tensor wide = x.dtype() == DType::kF64 ? x : gradus::to(x, DType::kF32);
  const Tensor squares = mean(square(wide), 1, true);
  const double eps = options().eps;
  if (options().eps_outside) return x * gradus::to(1 / (sqrt(squares) + eps), x.dtype());
  return x * gradus::to(rsqrt(squares + eps), x.dtype());
}

template class ModuleWith<PixelNormOptions, Layer>;
}  // namespace gradus::nn
