// Reductions and scans without autograd: checks, result shapes and dtypes, and calls of the kernels, which
// run on x's device. 16-bit floats are converted to f32 and the result is rounded once, unless the kernel
// takes 16 bits (sum, extremum, cumsum, running_extremes). Scans see x as [outer, n, inner] (as_slices).
#include "gradus/tensor/ops/reduce.h"

#include <cmath>

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/view.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::raw {
namespace {

DType sum_dtype(DType t) { return is_floating(t) ? t : DType::kI64; }

bool is_16_bit_float(const Tensor& x) { return is_floating(x.dtype()) && size_of(x.dtype()) == 2; }

std::pair<Tensor, Tensor> extremum(const Tensor& x, int64_t dim, bool keepdim, bool largest) {
  const std::string_view op = largest ? "max" : "min";
  const Tensor xd = x.dim() == 0 ? unsqueeze(x, 0) : x;
  const int d = wrap_dim(dim, xd.dim(), op);
  check_not_empty(xd, {d}, op);
  Shape s = xd.shape();
  int64_t inner = 1;
  for (int i = d + 1; i < s.size(); ++i) inner *= s[i];
  if (keepdim && x.dim() > 0) {
    s[d] = 1;
  } else {
    s.erase(d);
  }
  const Tensor values = empty(s, {.dtype = x.dtype(), .device = x.device()});
  const Tensor indices = empty(s, {.dtype = DType::kI64, .device = x.device()});
  extremum_kernel(values, indices, contiguous(xd), inner, largest);
  return {values, indices};
}

// amax and amin, which have no indices.
Tensor extreme_value(const char* op, const decltype(amax_kernel)& kernel, const Tensor& x, const Dims& dims,
                     bool keepdim) {
  if (is_16_bit_float(x)) return to(extreme_value(op, kernel, to(x, DType::kF32), dims, keepdim), x.dtype());
  check_not_empty(x, dims, op);
  const ReductionResult r = make_reduction(x, dims, keepdim, x.dtype(), op);
  kernel(r.with_keepdim, x);
  return r.result;
}

// cummax and cummin.
std::pair<Tensor, Tensor> running_extremes(const Tensor& x, int64_t dim, bool largest) {
  const std::string_view op = largest ? "cummax" : "cummin";
  const Tensor slices = as_slices(contiguous(x), dim, op);
  const Tensor values = empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  const Tensor indices = empty(x.shape(), {.dtype = DType::kI64, .device = x.device()});
  running_extremes_kernel(as_slices(values, dim, op), as_slices(indices, dim, op), slices, largest);
  return {values, indices};
}

}  // namespace

std::array<bool, kMaxDims> reduced_dims(const Tensor& x, const Dims& dims, std::string_view op) {
  std::array<bool, kMaxDims> flags{};
  if (dims.empty()) flags.fill(true);
  for (int64_t dim : dims) {
    const int d = wrap_dim(dim, std::max(x.dim(), 1), op);
    if (flags[d]) throw ShapeError(op, "dims ", dims, " name dim ", d, " twice: x ", describe(x));
    flags[d] = true;
  }
  return flags;
}

Shape reduced_shape(const Tensor& x, const Dims& dims, bool keepdim, std::string_view op) {
  const auto flags = reduced_dims(x, dims, op);
  Shape s;
  for (int i = 0; i < x.dim(); ++i) {
    if (!flags[i]) {
      s.push_back(x.shape()[i]);
    } else if (keepdim) {
      s.push_back(1);
    }
  }
  return s;
}

int64_t reduced_numel(const Tensor& x, const Dims& dims, std::string_view op) {
  const auto flags = reduced_dims(x, dims, op);
  int64_t n = 1;
  for (int i = 0; i < x.dim(); ++i)
    if (flags[i]) n *= x.shape()[i];
  return n;
}

void check_not_empty(const Tensor& x, const Dims& dims, std::string_view op) {
  if (reduced_numel(x, dims, op) == 0 && x.numel() == 0 && reduced_shape(x, dims, true, op).product() > 0)
    throw ShapeError(op, "has no value for a reduction over no elements: x ", describe(x));
}

void check_reducible_float(const Tensor& x, const Dims& dims, std::string_view op) {
  reduced_dims(x, dims, op);
  check_floating(op, "x", x);
}

ReductionResult make_reduction(const Tensor& x, const Dims& dims, bool keepdim, DType dtype,
                               std::string_view op) {
  const Tensor kept = empty(reduced_shape(x, dims, true, op), {.dtype = dtype, .device = x.device()});
  if (keepdim) return {kept, kept};
  const Shape s = reduced_shape(x, dims, false, op);
  return {kept, view_as_strided(kept, s, row_major_strides(s), 0)};
}

Tensor sum(const Tensor& x, const Dims& dims, bool keepdim) {
  const ReductionResult r = make_reduction(x, dims, keepdim, sum_dtype(x.dtype()), "sum");
  sum_kernel(r.with_keepdim, x, 1.0);
  return r.result;
}

Tensor mean(const Tensor& x, const Dims& dims, bool keepdim) {
  check_floating("mean", "x", x);
  const ReductionResult r = make_reduction(x, dims, keepdim, x.dtype(), "mean");
  sum_kernel(r.with_keepdim, x, 1.0 / static_cast<double>(reduced_numel(x, dims, "mean")));
  return r.result;
}

Tensor prod(const Tensor& x, const Dims& dims, bool keepdim) {
  if (is_16_bit_float(x)) return to(prod(to(x, DType::kF32), dims, keepdim), x.dtype());
  const ReductionResult r = make_reduction(x, dims, keepdim, sum_dtype(x.dtype()), "prod");
  prod_kernel(r.with_keepdim, to(x, sum_dtype(x.dtype())));
  return r.result;
}

Tensor amax(const Tensor& x, const Dims& dims, bool keepdim) {
  return extreme_value("amax", amax_kernel, x, dims, keepdim);
}
Tensor amin(const Tensor& x, const Dims& dims, bool keepdim) {
  return extreme_value("amin", amin_kernel, x, dims, keepdim);
}

Tensor any(const Tensor& x, const Dims& dims, bool keepdim) {
  const ReductionResult r = make_reduction(x, dims, keepdim, DType::kBool, "any");
  any_kernel(r.with_keepdim, to(x, DType::kBool));
  return r.result;
}

Tensor all(const Tensor& x, const Dims& dims, bool keepdim) {
  const ReductionResult r = make_reduction(x, dims, keepdim, DType::kBool, "all");
  all_kernel(r.with_keepdim, to(x, DType::kBool));
  return r.result;
}

Tensor norm(const Tensor& x, const Dims& dims, double p, bool keepdim) {
  check_floating("norm", "x", x);
  if (is_16_bit_float(x)) return to(norm(to(x, DType::kF32), dims, p, keepdim), x.dtype());
  if (std::isinf(p)) check_not_empty(x, dims, "norm");
  const ReductionResult r = make_reduction(x, dims, keepdim, x.dtype(), "norm");
  norm_kernel(r.with_keepdim, x, p, 1.0, true);
  return r.result;
}

// x is row-major. A 0-dim x has one slice of one element.
Tensor as_slices(const Tensor& x, int64_t dim, std::string_view op) {
  const int d = wrap_dim(dim, std::max(x.dim(), 1), op);
  Shape s = {1, 1, 1};
  for (int i = 0; i < x.dim(); ++i) s[i < d ? 0 : i == d ? 1 : 2] *= x.shape()[i];
  return view_as_strided(x, s, row_major_strides(s), x.impl().offset);
}

Tensor cumsum(const Tensor& x, int64_t dim, bool reverse) {
  const Tensor slices = as_slices(contiguous(x), dim, "cumsum");
  const Tensor out = empty(x.shape(), {.dtype = sum_dtype(x.dtype()), .device = x.device()});
  cumsum_kernel(as_slices(out, dim, "cumsum"), slices, reverse);
  return out;
}

Tensor cumprod(const Tensor& x, int64_t dim, bool reverse) {
  if (is_16_bit_float(x)) return to(cumprod(to(x, DType::kF32), dim, reverse), x.dtype());
  const Tensor slices = as_slices(contiguous(to(x, sum_dtype(x.dtype()))), dim, "cumprod");
  const Tensor out = empty(x.shape(), {.dtype = slices.dtype(), .device = x.device()});
  cumprod_kernel(as_slices(out, dim, "cumprod"), slices, reverse);
  return out;
}

Tensor logcumsumexp(const Tensor& x, int64_t dim) {
  check_floating("logcumsumexp", "x", x);
  if (is_16_bit_float(x)) return to(logcumsumexp(to(x, DType::kF32), dim), x.dtype());
  const Tensor slices = as_slices(contiguous(x), dim, "logcumsumexp");
  const Tensor out = empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
  logcumsumexp_kernel(as_slices(out, dim, "logcumsumexp"), slices);
  return out;
}

std::pair<Tensor, Tensor> cummax(const Tensor& x, int64_t dim) { return running_extremes(x, dim, true); }
std::pair<Tensor, Tensor> cummin(const Tensor& x, int64_t dim) { return running_extremes(x, dim, false); }

Tensor linear_recurrence(const Tensor& a, const Tensor& b, int64_t dim, bool reverse) {
  const std::string_view op = "linear_recurrence";
  check_floating(op, "b", b);
  if (!are_compatible_devices(a.device(), b.device()))
    throw DeviceError(op, "a is on ", a.device(), " but b on ", b.device());
  if (a.shape() != b.shape() || a.dtype() != b.dtype())
    throw ShapeError(op, "a ", describe(a), " does not match b ", describe(b));
  if (is_16_bit_float(b))
    return to(linear_recurrence(to(a, DType::kF32), to(b, DType::kF32), dim, reverse), b.dtype());
  const Tensor slices = as_slices(contiguous(b), dim, op);
  const Tensor out = empty(b.shape(), {.dtype = b.dtype(), .device = b.device()});
  linear_recurrence_kernel(as_slices(out, dim, op), as_slices(contiguous(a), dim, op), slices, reverse);
  return out;
}

std::pair<Tensor, Tensor> max(const Tensor& x, int64_t dim, bool keepdim) {
  return extremum(x, dim, keepdim, true);
}
std::pair<Tensor, Tensor> min(const Tensor& x, int64_t dim, bool keepdim) {
  return extremum(x, dim, keepdim, false);
}
Tensor argmax(const Tensor& x) { return extremum(reshape(x, {x.numel()}), 0, false, true).second; }
Tensor argmin(const Tensor& x) { return extremum(reshape(x, {x.numel()}), 0, false, false).second; }

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  const int extra = x.dim() - shape.size();
  Dims dims;
  for (int i = 0; i < x.dim(); ++i) {
    const int64_t want = i < extra ? 1 : shape[i - extra];
    if (want != x.shape()[i] && want != 1)
      throw ShapeError("sum_to", "x is no broadcast of ", shape, ": x ", describe(x));
    if (want != x.shape()[i] || i < extra) dims.push_back(i);
  }
  if (extra < 0) throw ShapeError("sum_to", "x is no broadcast of ", shape, ": x ", describe(x));
  const Tensor y = dims.empty() ? x : sum(x, dims, true);
  return view_as_strided(y, shape, row_major_strides(shape), y.impl().offset);
}

}  // namespace gradus::raw
