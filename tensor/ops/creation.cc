#include "gradus/tensor/ops/creation.h"

#include <cmath>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/elementwise.h"

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

Tensor full_like(const Tensor& x, double value, DType dtype) {
  Tensor y = empty_like(x, dtype);
  raw::fill_(y, value);
  return y;
}
Tensor zeros_like(const Tensor& x, DType dtype) { return full_like(x, 0, dtype); }
Tensor ones_like(const Tensor& x, DType dtype) { return full_like(x, 1, dtype); }

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

Tensor logspace(double start, double end, int64_t steps, double base, TensorOptions options) {
  if (steps < 0) throw ValueError("logspace", "expected a number of steps of at least 0, given ", steps);
  const Tensor exponents = linspace(start, end, steps, {.dtype = DType::kF64, .device = options.device});
  return raw::to(raw::pow(base, exponents), options.dtype);
}

namespace {

// The columns [first(i), last(i)) of each row i.
template <class First, class Last>
Tensor coordinates(const char* op, int64_t rows, int64_t cols, TensorOptions options, First first, Last last) {
  if (rows < 0 || cols < 0) throw ValueError(op, "expected sizes of at least 0, given ", rows, " and ", cols);
  if (!is_integral(options.dtype) || options.dtype == DType::kBool)
    throw DTypeError(op, "expected an integer dtype, given ", options.dtype);
  int64_t n = 0;
  for (int64_t i = 0; i < rows; ++i) n += std::max<int64_t>(0, last(i) - first(i));
  const Tensor y = empty({2, n}, {.dtype = DType::kI64});
  int64_t* row = y.ptr<int64_t>();
  int64_t* col = row + n;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = first(i); j < last(i); ++j) *row++ = i, *col++ = j;
  return raw::to(raw::to(y, options.dtype), options.device);
}

}  // namespace

Tensor tril_indices(int64_t rows, int64_t cols, int64_t offset, TensorOptions options) {
  const auto end = [=](int64_t i) { return std::clamp<int64_t>(i + offset + 1, 0, cols); };
  return coordinates("tril_indices", rows, cols, options, [](int64_t) { return int64_t{0}; }, end);
}

Tensor triu_indices(int64_t rows, int64_t cols, int64_t offset, TensorOptions options) {
  const auto begin = [=](int64_t i) { return std::clamp<int64_t>(i + offset, 0, cols); };
  return coordinates("triu_indices", rows, cols, options, begin, [=](int64_t) { return cols; });
}

Tensor eye(int64_t n, int64_t m, TensorOptions options) { return eye(n, m, 0, options); }

Tensor eye(int64_t n, int64_t m, int64_t offset, TensorOptions options) {
  if (m == -1) m = n;
  Tensor y = zeros({n, m}, options);
  const int64_t row = -std::clamp<int64_t>(offset, -n, 0), column = std::clamp<int64_t>(offset, 0, m);
  const int64_t count = std::min(n - row, m - column);
  if (count > 0) raw::fill_(view_as_strided(y, {count}, {m + 1}, row * m + column), 1);
  return y;
}

}  // namespace gradus
