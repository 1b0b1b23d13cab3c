// Factory functions: full, arange, linspace, tril_indices, eye and others. Index pairs are computed on the
// host, then copied.
#include "gradus/tensor/ops/creation.h"

#include <algorithm>
#include <cmath>

#include "gradus/tensor/base/checked.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/copy.h"

namespace gradus {

Tensor full(const Shape& shape, Number value, TensorOptions options) {
  const OpCall call("full");
  check_fits("full", value, options.dtype);
  Tensor y = empty(shape, options);
  raw::fill_(y, value);
  return y;
}
Tensor zeros(const Shape& shape, TensorOptions options) {
  const OpCall call("zeros");
  return full(shape, 0, options);
}
Tensor ones(const Shape& shape, TensorOptions options) {
  const OpCall call("ones");
  return full(shape, 1, options);
}

Tensor full_like(const Tensor& x, Number value, std::optional<DType> dtype) {
  const OpCall call("full_like", {{"x", x}});
  const DType t = dtype.value_or(x.dtype());
  check_fits("full_like", value, t);
  Tensor y = empty_like(x, t);
  raw::fill_(y, value);
  return y;
}
Tensor zeros_like(const Tensor& x, std::optional<DType> dtype) {
  const OpCall call("zeros_like", {{"x", x}});
  return full_like(x, 0, dtype);
}
Tensor ones_like(const Tensor& x, std::optional<DType> dtype) {
  const OpCall call("ones_like", {{"x", x}});
  return full_like(x, 1, dtype);
}

Tensor arange_from(double start, double end, double step, TensorOptions options) {
  const OpCall call("arange");
  const double count = std::ceil((end - start) / step);
  if (!std::isfinite(start) || !std::isfinite(end) || !std::isfinite(count) || count < 0)
    throw ValueError("arange", "no finite sequence leads from ", start, " to ", end, " in steps of ", step);
  if (count > 0x1p53) throw ValueError("arange", "from ", start, " to ", end, " takes ", count, " elements");
  if (options.dtype == DType::kBool) throw DTypeError("arange", "is not defined for bool");
  if (count > 0) {
    check_fits("arange", start, options.dtype);
    check_fits("arange", start + (count - 1) * step, options.dtype);
  }
  Tensor y = empty({static_cast<int64_t>(count)}, options);
  if (y.numel() > 0) raw::arange_kernel(y, start, step);
  return y;
}

Tensor linspace(double start, double end, int64_t steps, TensorOptions options) {
  const OpCall call("linspace");
  if (steps < 0) throw ValueError("linspace", "expected a number of steps of at least 0, got ", steps);
  check_fits("linspace", start, options.dtype);
  check_fits("linspace", end, options.dtype);
  Tensor y = empty({steps}, options);
  if (steps > 0) raw::linspace_kernel(y, start, end);
  return y;
}

Tensor logspace(double start, double end, int64_t steps, double base, TensorOptions options) {
  const OpCall call("logspace");
  if (steps < 0) throw ValueError("logspace", "expected a number of steps of at least 0, got ", steps);
  const Tensor exponents = linspace(start, end, steps, {.dtype = DType::kF64, .device = options.device});
  return raw::to(raw::pow(base, exponents), options.dtype);
}

namespace {

void check_triangle(const char* op, int64_t rows, int64_t cols, TensorOptions options) {
  if (rows < 0 || cols < 0) throw ValueError(op, "expected sizes of at least 0, got ", rows, " and ", cols);
  checked_numel({rows, cols}, op);
  if (!is_integral(options.dtype) || options.dtype == DType::kBool)
    throw DTypeError(op, "expected an integer dtype, got ", options.dtype);
}

// Clamps a diagonal offset of tril or triu to [-rows, cols]. Offsets beyond this range keep the same elements, and
// sums with them could overflow. tril keeps columns 0 to i + offset of row i.
int64_t within(int64_t rows, int64_t cols, int64_t offset) { return std::clamp(offset, -rows, cols); }

// Returns the number of elements that tril keeps: row i in [begin, full) keeps i + offset + 1 columns, and rows
// from `full` on keep all columns. The sum is at most rows * cols, which does not overflow (check_triangle).
int64_t tril_count(int64_t rows, int64_t cols, int64_t offset) {
  const int64_t begin = std::max<int64_t>(0, -offset), full = std::clamp(cols - 1 - offset, begin, rows);
  const int64_t growing = full - begin, first = begin + offset + 1;
  return growing * first + growing * (growing - 1) / 2 + (rows - full) * cols;
}

// Returns the pairs (i, j) with i in [begin, end) and j in [first(i), last(i)) in row-major order, as a tensor
// [2,count]: all i, then all j. `count` is the number of pairs.
template <class First, class Last>
Tensor coordinates(int64_t count, int64_t begin, int64_t end, TensorOptions options, First first, Last last) {
  refuse_capture("coordinates", "the host writes the indices; make them before the step");
  const Tensor y = empty({2, count}, {.dtype = DType::kI64});
  int64_t* row = y.ptr<int64_t>();
  int64_t* col = row + count;
  for (int64_t i = begin; count > 0 && i < end; ++i)
    for (int64_t j = first(i); j < last(i); ++j) *row++ = i, *col++ = j;
  return raw::to(raw::to(y, options.dtype), options.device);
}

}  // namespace

Tensor tril_indices(int64_t rows, int64_t cols, int64_t offset, TensorOptions options) {
  const OpCall call("tril_indices");
  check_triangle("tril_indices", rows, cols, options);
  offset = within(rows, cols, offset);
  return coordinates(
      tril_count(rows, cols, offset), std::max<int64_t>(0, -offset), rows, options,
      [](int64_t) { return int64_t{0}; }, [=](int64_t i) { return std::min(i + offset + 1, cols); });
}

Tensor triu_indices(int64_t rows, int64_t cols, int64_t offset, TensorOptions options) {
  const OpCall call("triu_indices");
  check_triangle("triu_indices", rows, cols, options);
  offset = within(rows, cols, offset);  // triu(offset) keeps what tril(offset - 1) does not
  const int64_t count = offset == -rows ? rows * cols : rows * cols - tril_count(rows, cols, offset - 1);
  return coordinates(
      count, 0, std::min(rows, cols - offset), options,
      [=](int64_t i) { return std::max<int64_t>(i + offset, 0); }, [=](int64_t) { return cols; });
}

Tensor eye(int64_t n, int64_t m, TensorOptions options) {
  const OpCall call("eye");
  return eye(n, m, 0, options);
}

Tensor eye(int64_t n, int64_t m, int64_t offset, TensorOptions options) {
  const OpCall call("eye");
  if (m == -1) m = n;
  check_bounds("eye", "n", n, 0, kMaxNumel);
  check_bounds("eye", "m", m, 0, kMaxNumel);
  Tensor y = zeros({n, m}, options);
  const int64_t row = -std::clamp<int64_t>(offset, -n, 0), column = std::clamp<int64_t>(offset, 0, m);
  const int64_t count = std::min(n - row, m - column);
  if (count > 0) raw::fill_(view_as_strided(y, {count}, {m + 1}, row * m + column), 1);
  return y;
}

}  // namespace gradus
