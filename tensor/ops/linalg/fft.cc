// The discrete Fourier transform: checks, and the view of x as [outer, n, inner, 2] that the kernel takes.
#include "gradus/tensor/ops/linalg/fft.h"

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::raw {

Tensor dft(const Tensor& x, int64_t dim, bool inverse, double scale) {
  if (x.dtype() != DType::kF32 && x.dtype() != DType::kF64)
    throw DTypeError("dft", "expected f32 or f64, got ", describe(x));
  if (x.dim() < 2 || x.shape().back() != 2)
    throw ShapeError("dft", "expected a complex tensor [...,2], got ", describe(x));
  const int d = wrap_dim(dim, x.dim(), "dft");
  if (d == x.dim() - 1) throw IndexError("dft", "the last dim has real and imaginary parts: ", describe(x));
  if (x.size(d) > kMaxDftLength)
    throw ValueError("dft", "expected at most ", kMaxDftLength, " points, got ", x.size(d));
  const Tensor y = empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  if (x.numel() == 0) return y;
  Shape slices = {1, x.size(d), 1, 2};
  for (int i = 0; i < x.dim() - 1; ++i)
    if (i != d) slices[i < d ? 0 : 2] *= x.size(i);
  dft_kernel(reshape(y, slices), reshape(contiguous(x), slices), inverse, scale);
  return y;
}

}  // namespace gradus::raw
