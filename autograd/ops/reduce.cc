// Reductions and cumulative ops with backward rules. The raw:: functions compute and check shapes, dims and
// dtypes; this file casts operands under autocast and records rules made of differentiable ops, so gradients
// of any order exist. In all functions: `dims` lists the reduced dims, {} for all; negative dims count from
// the end; `keepdim` keeps reduced dims with size 1. Rules reshape dy to `kept`, the shape with keepdim, so
// that dy broadcasts to x.
#include "gradus/autograd/ops/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/graph/record.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/comparison.h"
#include "gradus/autograd/ops/concat.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/index.h"
#include "gradus/autograd/ops/math.h"
#include "gradus/autograd/ops/precision.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/arithmetic.h"
#include "gradus/tensor/ops/comparison.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/statistics.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus {
namespace {

using autograd::at_least_f32;

// Returns the shape of the result with keepdim, which broadcasts to x's shape.
Shape kept_shape(const Tensor& x, const Dims& dims) { return raw::reduced_shape(x, dims, true, "reduce"); }

// Returns y with 1 in place of 0, as a divisor.
Tensor nonzero_divisor(const Tensor& y) { return masked_fill(y, eq(y, 0), 1); }

// Returns the product over dims, without keepdim, as a tree of recorded multiplications, whose gradients of
// any order are exact for zeros too.
Tensor tree_product(const Tensor& x, const Dims& dims) {
  const auto reduced = raw::reduced_dims(x, dims, "prod");
  Dims order, kept;
  for (int i = 0; i < x.dim(); ++i)
    if (!reduced[i]) order.push_back(i), kept.push_back(x.shape()[i]);
  for (int i = 0; i < x.dim(); ++i)
    if (reduced[i]) order.push_back(i);
  int64_t n = raw::reduced_numel(x, dims, "prod");
  Shape flat = kept;
  flat.push_back(n);
  Tensor factors = reshape(permute(x, order), flat), odd;  // odd: product of the last factors of odd levels
  // A product of no elements is 1; the empty sum makes the result depend on x in the graph.
  if (n == 0) return sum(factors, -1) + 1;
  for (; n > 1; n /= 2) {
    if (n % 2 == 1) {
      const Tensor last = narrow(factors, -1, n - 1, 1);
      odd = odd.defined() ? odd * last : last;
    }
    factors = narrow(factors, -1, 0, n / 2) * narrow(factors, -1, n / 2, n / 2);
  }
  return reshape(odd.defined() ? factors * odd : factors, kept);
}

// Records y as the maxima, or minima, of x over dims. Elements equal to y share dy evenly.
Tensor record_extremum(const char* op, const Tensor& x, Tensor y, const Dims& dims) {
  if (Recorder r{op, x})
    r.record(
        y, wrt(x, [x = r.save(x), y = r.save_output(y), kept = kept_shape(x, dims), dims](const Tensor& dy) {
          const Tensor is_extremum = to(eq(x.get(), reshape(y.get(), kept)), dy.dtype());
          return is_extremum * (reshape(dy, kept) / sum(is_extremum, dims, true));
        }));
  return y;
}

// Returns zeros of `shape` with each element of dy at its index along `dim`, where dy and indices have size
// 1.
Tensor put_along(const Tensor& dy, const Shape& shape, int64_t dim, const Tensor& indices) {
  // On CUDA, compares all positions with the index. Other devices write the elements of dy into zeros.
  if (dy.device().type != DeviceType::kCUDA) return gather_backward(dy, shape, dim, indices);
  Shape line = Shape::filled(shape.size(), 1);
  line[dim] = shape[dim];
  const Tensor positions = arange(shape[dim], {.dtype = DType::kI64, .device = dy.device()});
  return where(eq(reshape(positions, line), indices), dy, 0);
}

// Records values and indices of the maxima, or minima, of x along one dim.
ValuesAndIndices record_extremum_along(const char* op, const Tensor& x, std::pair<Tensor, Tensor> result,
                                       int64_t dim, bool keepdim) {
  auto& [values, indices] = result;
  if (Recorder r{op, x})
    r.record(values, wrt(x, [indices = r.save(indices), shape = x.shape(), dim, keepdim](const Tensor& dy) {
               if (shape.empty()) return dy;
               const int d = wrap_dim(dim, shape.size(), "max");
               if (keepdim) return put_along(dy, shape, d, indices.get());
               return put_along(unsqueeze(dy, d), shape, d, unsqueeze(indices.get(), d));
             }));
  return {std::move(values), std::move(indices)};
}

// Records the results of cummax or cummin. One index can occur several times, so gradients are added.
ValuesAndIndices record_cumulative_extremum(const char* op, const Tensor& x, std::pair<Tensor, Tensor> result,
                                            int64_t dim) {
  auto& [values, indices] = result;
  if (Recorder r{op, x})
    r.record(values, wrt(x, [indices = r.save(indices), shape = x.shape(), dim](const Tensor& dy) {
               return shape.empty() ? dy : gather_backward(dy, shape, dim, indices.get());
             }));
  return {std::move(values), std::move(indices)};
}

// Returns x shifted along `dim` by one element (by = 1 forward, -1 backward), with `fill` at the vacated end.
Tensor shifted(const Tensor& x, int64_t dim, int by, double fill) {
  const int64_t n = x.size(dim);
  if (n == 0) return x;
  const Tensor kept = narrow(x, dim, by > 0 ? 0 : 1, n - 1);
  const Tensor edge = full_like(narrow(detach(x), dim, 0, 1), fill);
  return by > 0 ? cat({edge, kept}, dim) : cat({kept, edge}, dim);
}

// Returns the predecessor of each element along `dim`, and `first` for the first: the input of exclusive
// cumulative ops.
Tensor predecessors(const char* op, const Tensor& x, int64_t dim, bool reverse, double first) {
  wrap_dim(dim, std::max(x.dim(), 1), op);
  if (x.dim() == 0) return reshape(shifted(reshape(x, {1}), 0, 1, first), {});
  return shifted(x, dim, reverse ? -1 : 1, first);
}

}  // namespace

Tensor sum(const Tensor& x, const Dims& dims, bool keepdim) {
  const OpCall call("sum", {{"x", x}});
  if (autograd::Casting cast{"sum"}) return sum(cast(x), dims, keepdim);
  Tensor y = raw::sum(x, dims, keepdim);
  if (Recorder r{"sum", x})
    r.record(y, wrt(x, [kept = kept_shape(x, dims), shape = x.shape()](const Tensor& dy) {
               return expand(reshape(dy, kept), shape);
             }));
  return y;
}

Tensor mean(const Tensor& x, const Dims& dims, bool keepdim) {
  const OpCall call("mean", {{"x", x}});
  Tensor y = raw::mean(x, dims, keepdim);
  if (Recorder r{"mean", x}) {
    const double inverse_count = 1.0 / static_cast<double>(raw::reduced_numel(x, dims, "mean"));
    r.record(y, wrt(x, [kept = kept_shape(x, dims), shape = x.shape(), inverse_count](const Tensor& dy) {
               return expand(reshape(dy * inverse_count, kept), shape);
             }));
  }
  return y;
}

Tensor prod(const Tensor& x, const Dims& dims, bool keepdim) {
  const OpCall call("prod", {{"x", x}});
  if (autograd::Casting cast{"prod"}) return prod(cast(x), dims, keepdim);
  if (!autograd::is_tracked(x)) return raw::prod(x, dims, keepdim);
  const Tensor y = tree_product(x, dims);
  return keepdim ? reshape(y, kept_shape(x, dims)) : y;
}

Tensor amax(const Tensor& x, const Dims& dims, bool keepdim) {
  const OpCall call("amax", {{"x", x}});
  return record_extremum("amax", x, raw::amax(x, dims, keepdim), dims);
}
Tensor amin(const Tensor& x, const Dims& dims, bool keepdim) {
  const OpCall call("amin", {{"x", x}});
  return record_extremum("amin", x, raw::amin(x, dims, keepdim), dims);
}
Tensor max(const Tensor& x) {
  const OpCall call("max", {{"x", x}});
  return amax(x);
}
Tensor min(const Tensor& x) {
  const OpCall call("min", {{"x", x}});
  return amin(x);
}

ValuesAndIndices max(const Tensor& x, int64_t dim, bool keepdim) {
  const OpCall call("max", {{"x", x}});
  return record_extremum_along("max", x, raw::max(x, dim, keepdim), dim, keepdim);
}
ValuesAndIndices min(const Tensor& x, int64_t dim, bool keepdim) {
  const OpCall call("min", {{"x", x}});
  return record_extremum_along("min", x, raw::min(x, dim, keepdim), dim, keepdim);
}

Tensor argmax(const Tensor& x) {
  const OpCall call("argmax", {{"x", x}});
  return raw::argmax(x);
}
Tensor argmin(const Tensor& x) {
  const OpCall call("argmin", {{"x", x}});
  return raw::argmin(x);
}
Tensor argmax(const Tensor& x, int64_t dim, bool keepdim) {
  const OpCall call("argmax", {{"x", x}});
  return raw::max(x, dim, keepdim).second;
}
Tensor argmin(const Tensor& x, int64_t dim, bool keepdim) {
  const OpCall call("argmin", {{"x", x}});
  return raw::min(x, dim, keepdim).second;
}

Tensor var(const Tensor& x, const Dims& dims, VarOptions options) {
  const OpCall call("var", {{"x", x}});
  Tensor y = raw::var(x, dims, options.correction, options.keepdim);
  if (Recorder r{"var", x}) {
    const double divisor = double(raw::reduced_numel(x, dims, "var")) - double(options.correction);
    r.record(y, wrt(x, [x = r.save(x), dims, kept = kept_shape(x, dims), divisor](const Tensor& dy) {
               const Tensor v = at_least_f32(x.get());
               return (v - mean(v, dims, true)) * (reshape(dy, kept) * (2 / divisor));
             }));
  }
  return y;
}

Tensor std(const Tensor& x, const Dims& dims, VarOptions options) {
  const OpCall call("std", {{"x", x}});
  Tensor y = raw::std(x, dims, options.correction, options.keepdim);
  if (Recorder r{"std", x}) {
    const double divisor = double(raw::reduced_numel(x, dims, "std")) - double(options.correction);
    r.record(y, wrt(x, [x = r.save(x), y = r.save_output(y), dims, kept = kept_shape(x, dims),
                        divisor](const Tensor& dy) {
               const Tensor v = at_least_f32(x.get()), deviation = at_least_f32(y.get());
               // See Note [Norms at zero].
               const Tensor factor =
                   masked_fill(dy / (nonzero_divisor(deviation) * divisor), eq(deviation, 0), 0);
               return (v - mean(v, dims, true)) * reshape(factor, kept);
             }));
  }
  return y;
}

// Note [Norms at zero]
// Where y is 0, the factor of x in the gradient is set to the constant 0 (masked_fill), so derivatives of
// higher order are 0 there too.
// dx = dy sign(x) (|x| / y)^(p - 1) for finite p other than 0 and 1.
Tensor norm(const Tensor& x, const Dims& dims, double p, bool keepdim) {
  const OpCall call("norm", {{"x", x}});
  if (autograd::Casting cast{"norm"}) return norm(cast(x), dims, p, keepdim);
  Tensor y = raw::norm(x, dims, p, keepdim);
  if (Recorder r{"norm", x})
    r.record(y, wrt(x, [x = r.save(x), y = r.save_output(y), kept = kept_shape(x, dims), dims,
                        p](const Tensor& dy) {
               if (p == 0) return Tensor();
               if (p == 1) return sign(x.get()) * reshape(dy, kept);
               if (std::isinf(p)) {
                 const Tensor is_extremum = to(eq(abs(x.get()), reshape(y.get(), kept)), dy.dtype());
                 return sign(x.get()) * is_extremum * (reshape(dy, kept) / sum(is_extremum, dims, true));
               }
               const Tensor v = at_least_f32(x.get()), d = nonzero_divisor(at_least_f32(y.get()));
               const Tensor factor = reshape(masked_fill(p == 2 ? dy / d : dy, eq(y.get(), 0), 0), kept);
               if (p == 2) return v * factor;
               // (|x| / y)^(p-1) instead of |x|^(p-1) / y^(p-1): the powers overflow f32 for large p.
               return sign(v) * pow(nonzero_divisor(abs(v)) / reshape(d, kept), p - 1) * factor;
             }));
  return y;
}

Tensor vector_norm(const Tensor& x, double p, const Dims& dims, bool keepdim) {
  const OpCall call("vector_norm", {{"x", x}});
  if (autograd::Casting cast{"vector_norm"}) return vector_norm(cast(x), p, dims, keepdim);
  return norm(x, dims, p, keepdim);
}

Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim) {
  const OpCall call("logsumexp", {{"x", x}});
  if (autograd::Casting cast{"logsumexp"}) return logsumexp(cast(x), dims, keepdim);
  // Computes in f32 for 16-bit x: the gradient e^(x - y) needs y with more precision than 16 bits have.
  if (const Tensor v = at_least_f32(x); !v.is_same(x)) return to(logsumexp(v, dims, keepdim), x.dtype());
  Tensor y = raw::logsumexp(x, dims, keepdim);
  if (Recorder r{"logsumexp", x})
    r.record(y, wrt(x, [x = r.save(x), y = r.save_output(y), kept = kept_shape(x, dims)](const Tensor& dy) {
               // A row of -inf only has y = -inf; with 0 in place of y its gradient is 0, not NaN.
               const Tensor shift =
                   masked_fill(y.get(), eq(y.get(), -std::numeric_limits<double>::infinity()), 0);
               return exp(x.get() - reshape(shift, kept)) * reshape(dy, kept);
             }));
  return y;
}

Tensor any(const Tensor& x, const Dims& dims, bool keepdim) {
  const OpCall call("any", {{"x", x}});
  return raw::any(x, dims, keepdim);
}
Tensor all(const Tensor& x, const Dims& dims, bool keepdim) {
  const OpCall call("all", {{"x", x}});
  return raw::all(x, dims, keepdim);
}

Tensor cumsum(const Tensor& x, int64_t dim, const CumulativeOptions& options) {
  const OpCall call("cumsum", {{"x", x}});
  if (autograd::Casting cast{"cumsum"}) return cumsum(cast(x), dim, options);
  const bool reverse = options.reverse;
  if (options.exclusive) return cumsum(predecessors("cumsum", x, dim, reverse, 0), dim, {.reverse = reverse});
  return autograd::record_unary("cumsum", x, raw::cumsum(x, dim, reverse), [dim, reverse](const Tensor& dy) {
    return cumsum(dy, dim, {.reverse = !reverse});
  });
}

Tensor cumprod(const Tensor& x, int64_t dim, const CumulativeOptions& options) {
  const OpCall call("cumprod", {{"x", x}});
  if (autograd::Casting cast{"cumprod"}) return cumprod(cast(x), dim, options);
  const bool reverse = options.reverse;
  if (options.exclusive)
    return cumprod(predecessors("cumprod", x, dim, reverse, 1), dim, {.reverse = reverse});
  Tensor y = raw::cumprod(x, dim, reverse);
  if (Recorder r{"cumprod", x})
    r.record(y, wrt(x, [x = r.save(x), y = r.save_output(y), dim, reverse](const Tensor& dy) {
               if (dy.dim() == 0) return dy;
               // dx_i = prod_(j < i) x_j * sum_(k >= i) dy_k prod_(i < j <= k) x_j. The sum is a linear
               // recurrence in i, without divisions by x.
               const int direction = reverse ? -1 : 1;
               return linear_recurrence(shifted(x.get(), dim, -direction, 0), dy, dim, !reverse) *
                      shifted(y.get(), dim, direction, 1);
             }));
  return y;
}

Tensor logcumsumexp(const Tensor& x, int64_t dim) {
  const OpCall call("logcumsumexp", {{"x", x}});
  if (autograd::Casting cast{"logcumsumexp"}) return logcumsumexp(cast(x), dim);
  if (const Tensor v = at_least_f32(x); !v.is_same(x)) return to(logcumsumexp(v, dim), x.dtype());
  Tensor y = raw::logcumsumexp(x, dim);
  if (Recorder r{"logcumsumexp", x})
    r.record(y, wrt(x, [x = r.save(x), y = r.save_output(y), dim](const Tensor& dy) {
               if (dy.dim() == 0) return dy;
               // dx_i = sum_(k >= i) dy_k exp(x_i - y_k), as a linear recurrence with factors
               // exp(y_i - y_(i+1)) <= 1.
               const Tensor finite =
                   masked_fill(y.get(), eq(y.get(), -std::numeric_limits<double>::infinity()), 0);
               const Tensor factor = exp(y.get() - shifted(finite, dim, -1, 0));
               return exp(x.get() - finite) * linear_recurrence(factor, dy, dim, true);
             }));
  return y;
}

ValuesAndIndices cummax(const Tensor& x, int64_t dim) {
  const OpCall call("cummax", {{"x", x}});
  return record_cumulative_extremum("cummax", x, raw::cummax(x, dim), dim);
}
ValuesAndIndices cummin(const Tensor& x, int64_t dim) {
  const OpCall call("cummin", {{"x", x}});
  return record_cumulative_extremum("cummin", x, raw::cummin(x, dim), dim);
}

// y_i = a_i y_(i-1) + b_i; db_i = dy_i + a_(i+1) db_(i+1) is a recurrence in the other direction;
// da_i = db_i y_(i-1).
Tensor linear_recurrence(const Tensor& a, const Tensor& b, int64_t dim, bool reverse) {
  const OpCall call("linear_recurrence", {{"a", a}, {"b", b}});
  if (autograd::Casting cast{"linear_recurrence", a, b})
    return linear_recurrence(cast(a), cast(b), dim, reverse);
  Tensor y = raw::linear_recurrence(a, b, dim, reverse);
  if (Recorder r{"linear_recurrence", a, b})
    r.record_joint({&y, 1}, {a, b},
                   [a = r.save(a), y = r.save_output(y), dim, reverse](const std::vector<Tensor>& dys,
                                                                       const autograd::Needs& needs) {
                     const int by = reverse ? -1 : 1;
                     if (dys[0].dim() == 0) return std::vector<Tensor>{Tensor(), dys[0]};
                     const Tensor db =
                         linear_recurrence(shifted(a.get(), dim, -by, 0), dys[0], dim, !reverse);
                     return std::vector<Tensor>{needs[0] ? db * shifted(y.get(), dim, by, 0) : Tensor(), db};
                   });
  return y;
}

Tensor diff(const Tensor& x, const DiffOptions& options) {
  const OpCall call("diff", {{"x", x}});
  if (options.n < 0) throw ValueError("diff", "expected n of at least 0, got ", options.n);
  if (x.dim() == 0) throw ShapeError("diff", "expected at least 1 dim: x ", describe(x));
  const int d = wrap_dim(options.dim, x.dim(), "diff");
  std::vector<Tensor> parts;
  for (const Tensor& part : {options.prepend, x, options.append}) {
    if (!part.defined()) continue;
    Shape s = part.shape();
    if (s.size() == x.dim()) s[d] = x.shape()[d];
    if (s != x.shape())
      throw ShapeError("diff", "prepend and append must be like x outside of dim ", d, ": ", describe(part),
                       ", x ", describe(x));
    parts.push_back(part);
  }
  Tensor y = parts.size() == 1 ? x : cat(parts, d);
  for (int64_t i = 0; i < options.n && y.shape()[d] > 0; ++i) {
    const int64_t n = y.shape()[d] - 1;
    const Tensor after = narrow(y, d, 1, n), before = narrow(y, d, 0, n);
    y = x.dtype() == DType::kBool ? ne(after, before) : after - before;
  }
  return y;
}

Tensor nansum(const Tensor& x, const Dims& dims, bool keepdim) {
  const OpCall call("nansum", {{"x", x}});
  if (autograd::Casting cast{"nansum"}) return nansum(cast(x), dims, keepdim);
  raw::reduced_dims(x, dims, "nansum");
  return sum(is_floating(x.dtype()) ? masked_fill(x, isnan(x), 0) : x, dims, keepdim);
}

Tensor nanmean(const Tensor& x, const Dims& dims, bool keepdim) {
  const OpCall call("nanmean", {{"x", x}});
  raw::reduced_dims(x, dims, "nanmean");
  check_floating("nanmean", "x", x);
  // 16-bit floats cannot represent large counts and sums.
  if (size_of(x.dtype()) == 2) return to(nanmean(to(x, DType::kF32), dims, keepdim), x.dtype());
  const Tensor count =
      raw::sum(raw::unary<functors::LogicalNot>(raw::unary<functors::IsNaN>(x)), dims, keepdim);
  return nansum(x, dims, keepdim) / raw::to(count, x.dtype());
}

Tensor count_nonzero(const Tensor& x, const Dims& dims) {
  const OpCall call("count_nonzero", {{"x", x}});
  raw::reduced_dims(x, dims, "count_nonzero");
  return raw::sum(raw::ne(x, 0), dims, false);
}

std::pair<Tensor, Tensor> var_mean(const Tensor& x, const Dims& dims, VarOptions options) {
  const OpCall call("var_mean", {{"x", x}});
  raw::check_reducible_float(x, dims, "var_mean");
  return {var(x, dims, options), mean(x, dims, options.keepdim)};
}
std::pair<Tensor, Tensor> std_mean(const Tensor& x, const Dims& dims, VarOptions options) {
  const OpCall call("std_mean", {{"x", x}});
  raw::check_reducible_float(x, dims, "std_mean");
  return {gradus::std(x, dims, options), mean(x, dims, options.keepdim)};
}

MinAndMax aminmax(const Tensor& x) {
  const OpCall call("aminmax", {{"x", x}});
  raw::check_not_empty(x, {}, "aminmax");
  return {amin(x), amax(x)};
}
MinAndMax aminmax(const Tensor& x, int64_t dim, bool keepdim) {
  const OpCall call("aminmax", {{"x", x}});
  raw::check_not_empty(x, {dim}, "aminmax");
  return {amin(x, {dim}, keepdim), amax(x, {dim}, keepdim)};
}

}  // namespace gradus
