#include "gradus/tensor/ops/creation.h"

#include <cmath>

#include "gradus/tensor/ops/copy.h"

namespace gradus {

Tensor full(const Shape& shape, double value, TensorOptions options) {
  Tensor y = empty(shape, options);
  raw::fill_(y, value);
  return y;
}
Tensor zeros(const Shape& shape, TensorOptions options) { return full(shape, 0, options); }
Tensor ones(const Shape& shape, TensorOptions options) { return full(shape, 1, options); }

Tensor full_like(const Tensor& x, double value) {
  Tensor y = empty_like(x);
  raw::fill_(y, value);
  return y;
}
Tensor zeros_like(const Tensor& x) { return full_like(x, 0); }
Tensor ones_like(const Tensor& x) { return full_like(x, 1); }

Tensor arange_from(double start, double end, double step, TensorOptions options) {
  const double count = std::ceil((end - start) / step);
  if (!std::isfinite(start) || !std::isfinite(end) || !std::isfinite(count) || count < 0)
    throw ValueError("arange", "no finite sequence leads from ", start, " to ", end, " in steps of ", step);
  if (count > 0x1p53) throw ValueError("arange", "from ", start, " to ", end, " takes ", count, " elements");
  if (options.dtype == DType::kBool) throw DTypeError("arange", "is not defined for bool");
  Tensor y = empty({static_cast<int64_t>(count)}, options);
  if (y.numel() > 0) raw::arange_kernel(y, start, step);
  return y;
}

Tensor linspace(double start, double end, int64_t steps, TensorOptions options) {
  if (steps < 0) throw ValueError("linspace", "expected a number of steps of at least 0, given ", steps);
  Tensor y = empty({steps}, options);
  if (steps > 0) raw::linspace_kernel(y, start, end);
  return y;
}

Tensor eye(int64_t n, int64_t m, TensorOptions options) {
  if (m == -1) m = n;
  Tensor y = zeros({n, m}, options);
  const int64_t diagonal = std::min(n, m);
  if (diagonal > 0) raw::fill_(view_as_strided(y, {diagonal}, {m + 1}, 0), 1);
  return y;
}

}  // namespace gradus
