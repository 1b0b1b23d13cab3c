#include "gradus/autograd/ops/reduce.h"

#include <cmath>
#include <limits>

#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/elementwise.h"
#include "gradus/autograd/ops/index.h"
#include "gradus/autograd/record.h"
#include "gradus/tensor/ops/elementwise.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/statistics.h"

namespace gradus {
namespace {

// The shape of a result with its reduced dims kept: what broadcasts to x.
Shape kept_shape(const Tensor& x, const Dims& dims) { return raw::reduced_shape(x, dims, true, "reduce"); }

// y with 1 for 0, to divide by.
Tensor nonzero_divisor(const Tensor& y) { return masked_fill(y, eq(y, 0), 1); }

// The product as a tree of multiplications, whose gradients of any order are right at zeros too.
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
  Tensor factors = reshape(permute(x, order), flat), odd;
  for (; n > 1; n /= 2) {
    if (n % 2 == 1) {
      const Tensor last = narrow(factors, -1, n - 1, 1);
      odd = odd.defined() ? odd * last : last;
    }
    factors = narrow(factors, -1, 0, n / 2) * narrow(factors, -1, n / 2, n / 2);
  }
  return reshape(odd.defined() ? factors * odd : factors, kept);
}

Tensor extreme(const char* op, const Tensor& x, Tensor y, const Dims& dims) {
  if (Recorder r{op, x})
    r.record(
        y, wrt(x, [x = r.save(x), y = r.save_output(y), kept = kept_shape(x, dims), dims](const Tensor& dy) {
          const Tensor hits = to(eq(x.get(), reshape(y.get(), kept)), dy.dtype());
          return hits * (reshape(dy, kept) / sum(hits, dims, true));
        }));
  return y;
}

ValuesAndIndices extreme_at(const char* op, const Tensor& x, std::pair<Tensor, Tensor> result, int64_t dim,
                            bool keepdim) {
  auto& [values, indices] = result;
  if (Recorder r{op, x})
    r.record(values, wrt(x, [indices = r.save(indices), shape = x.shape(), dim, keepdim](const Tensor& dy) {
               if (shape.empty()) return dy;
               const bool add = !keepdim;
               return gather_backward(
                   add ? unsqueeze(dy, wrap_dim(dim, shape.size(), "max")) : dy, shape, dim,
                   add ? unsqueeze(indices.get(), wrap_dim(dim, shape.size(), "max")) : indices.get());
             }));
  return {std::move(values), std::move(indices)};
}

}  // namespace

Tensor sum(const Tensor& x, const Dims& dims, bool keepdim) {
  Tensor y = raw::sum(x, dims, keepdim);
  if (Recorder r{"sum", x})
    r.record(y, wrt(x, [kept = kept_shape(x, dims), shape = x.shape()](const Tensor& dy) {
               return expand(reshape(dy, kept), shape);
             }));
  return y;
}

Tensor mean(const Tensor& x, const Dims& dims, bool keepdim) {
  Tensor y = raw::mean(x, dims, keepdim);
  if (Recorder r{"mean", x}) {
    const double share = 1.0 / static_cast<double>(raw::reduced_numel(x, dims, "mean"));
    r.record(y, wrt(x, [kept = kept_shape(x, dims), shape = x.shape(), share](const Tensor& dy) {
               return expand(reshape(dy * share, kept), shape);
             }));
  }
  return y;
}

Tensor prod(const Tensor& x, const Dims& dims, bool keepdim) {
  if (!autograd::is_tracked(x) || x.numel() == 0) return raw::prod(x, dims, keepdim);
  const Tensor y = tree_product(x, dims);
  return keepdim ? reshape(y, kept_shape(x, dims)) : y;
}

Tensor amax(const Tensor& x, const Dims& dims, bool keepdim) {
  return extreme("amax", x, raw::amax(x, dims, keepdim), dims);
}
Tensor amin(const Tensor& x, const Dims& dims, bool keepdim) {
  return extreme("amin", x, raw::amin(x, dims, keepdim), dims);
}
Tensor max(const Tensor& x) { return amax(x); }
Tensor min(const Tensor& x) { return amin(x); }

ValuesAndIndices max(const Tensor& x, int64_t dim, bool keepdim) {
  return extreme_at("max", x, raw::max(x, dim, keepdim), dim, keepdim);
}
ValuesAndIndices min(const Tensor& x, int64_t dim, bool keepdim) {
  return extreme_at("min", x, raw::min(x, dim, keepdim), dim, keepdim);
}

Tensor argmax(const Tensor& x) { return raw::argmax(x); }
Tensor argmin(const Tensor& x) { return raw::argmin(x); }
Tensor argmax(const Tensor& x, int64_t dim, bool keepdim) { return raw::max(x, dim, keepdim).second; }
Tensor argmin(const Tensor& x, int64_t dim, bool keepdim) { return raw::min(x, dim, keepdim).second; }

Tensor var(const Tensor& x, const Dims& dims, VarOptions options) {
  Tensor y = raw::var(x, dims, options.correction, options.keepdim);
  if (Recorder r{"var", x}) {
    const double divisor = static_cast<double>(raw::reduced_numel(x, dims, "var") - options.correction);
    r.record(y, wrt(x, [x = r.save(x), dims, kept = kept_shape(x, dims), divisor](const Tensor& dy) {
               return (x.get() - mean(x.get(), dims, true)) * (reshape(dy, kept) * (2 / divisor));
             }));
  }
  return y;
}

Tensor std(const Tensor& x, const Dims& dims, VarOptions options) {
  Tensor y = raw::sqrt(raw::var(x, dims, options.correction, options.keepdim));
  if (Recorder r{"std", x}) {
    const double divisor = static_cast<double>(raw::reduced_numel(x, dims, "std") - options.correction);
    r.record(y, wrt(x, [x = r.save(x), y = r.save_output(y), dims, kept = kept_shape(x, dims),
                        divisor](const Tensor& dy) {
               return (x.get() - mean(x.get(), dims, true)) *
                      reshape(dy / (nonzero_divisor(y.get()) * divisor), kept);
             }));
  }
  return y;
}

Tensor norm(const Tensor& x, const Dims& dims, double p, bool keepdim) {
  if (std::isinf(p)) return p > 0 ? amax(abs(x), dims, keepdim) : amin(abs(x), dims, keepdim);
  Tensor y = raw::norm(x, dims, p, keepdim);
  if (Recorder r{"norm", x})
    r.record(y,
             wrt(x, [x = r.save(x), y = r.save_output(y), kept = kept_shape(x, dims), p](const Tensor& dy) {
               // Where y is 0 so are all x: the divisor there only has to be no 0 itself.
               if (p == 0) return Tensor();
               if (p == 1) return sign(x.get()) * reshape(dy, kept);
               const Tensor d = nonzero_divisor(y.get());
               if (p == 2) return x.get() * reshape(dy / d, kept);
               const Tensor magnitude = pow(nonzero_divisor(abs(x.get())), p - 1);
               return sign(x.get()) * magnitude * reshape(dy / pow(d, p - 1), kept);
             }));
  return y;
}

Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim) {
  Tensor y = raw::logsumexp(x, dims, keepdim);
  if (Recorder r{"logsumexp", x})
    r.record(y, wrt(x, [x = r.save(x), y = r.save_output(y), kept = kept_shape(x, dims)](const Tensor& dy) {
               const Tensor shift =
                   masked_fill(y.get(), eq(y.get(), -std::numeric_limits<double>::infinity()), 0);
               return exp(x.get() - reshape(shift, kept)) * reshape(dy, kept);
             }));
  return y;
}

Tensor any(const Tensor& x, const Dims& dims, bool keepdim) { return raw::any(x, dims, keepdim); }
Tensor all(const Tensor& x, const Dims& dims, bool keepdim) { return raw::all(x, dims, keepdim); }

Tensor cumsum(const Tensor& x, int64_t dim, bool reverse) {
  Tensor y = raw::cumsum(x, dim, reverse);
  if (Recorder r{"cumsum", x})
    r.record(y, wrt(x, [dim, reverse](const Tensor& dy) { return cumsum(dy, dim, !reverse); }));
  return y;
}

}  // namespace gradus
