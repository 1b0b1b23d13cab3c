// Rows of the reductions and of softmax.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "gradus/tests/ops/op_table.h"

namespace gradus::optest {
namespace {

using Values = std::vector<double>;

// Reduces the named dims (all when empty) of x with f.
Array reduce_of(const Array& x, const Dims& dims, bool keepdim,
                const std::function<double(const Values&)>& f) {
  std::vector<bool> gone(size_t(x.dim()), dims.empty());
  for (int64_t d : dims) gone[size_t(d < 0 ? d + x.dim() : d)] = true;
  Shape kept;
  for (int d = 0; d < x.dim(); ++d) kept.push_back(gone[size_t(d)] ? 1 : x.shape[d]);
  std::vector<Values> groups(size_t(kept.product()));
  for (int64_t i = 0; i < int64_t(x.v.size()); ++i) {
    int64_t left = i, at = 0, stride = 1;
    for (int d = x.dim() - 1; d >= 0; --d) {
      const int64_t here = left % x.shape[d];
      left /= x.shape[d];
      if (gone[size_t(d)]) continue;
      at += here * stride;
      stride *= x.shape[d];
    }
    groups[size_t(at)].push_back(x.v[size_t(i)]);
  }
  Array y;
  for (int d = 0; d < x.dim(); ++d) {
    if (!gone[size_t(d)] || keepdim) y.shape.push_back(gone[size_t(d)] ? 1 : x.shape[d]);
  }
  for (const Values& g : groups) y.v.push_back(f(g));
  return y;
}

double sum_of(const Values& v) { return std::accumulate(v.begin(), v.end(), 0.0); }
double mean_of(const Values& v) { return sum_of(v) / double(v.size()); }
double prod_of(const Values& v) { return std::accumulate(v.begin(), v.end(), 1.0, std::multiplies<>()); }
double max_of(const Values& v) { return *std::max_element(v.begin(), v.end()); }
double min_of(const Values& v) { return *std::min_element(v.begin(), v.end()); }
double var_of(const Values& v, double correction) {
  const double m = mean_of(v);
  double s = 0;
  for (double e : v) s += (e - m) * (e - m);
  return s / (double(v.size()) - correction);
}
double norm_of(const Values& v, double p) {
  double s = 0;
  for (double e : v) s += std::pow(std::abs(e), p);
  return std::pow(s, 1 / p);
}
double logsumexp_of(const Values& v) {
  const double m = max_of(v);
  double s = 0;
  for (double e : v) s += std::exp(e - m);
  return m + std::log(s);
}

// The ways to name dims, each on a tensor of a kind: all, one, from the back, several, inner, outer, 0-dim.
struct Over {
  Dims dims;
  bool keepdim;
  Shape shape;
};
const Over kOver[] = {{{}, false, {3, 4}},
                      {{}, true, {2, 3}},
                      {{}, false, {}},
                      {{0}, false, {3, 4}},
                      {{-1}, true, {3, 17}},
                      {{1}, false, {2, 5, 3}},
                      {{0, 2}, false, {2, 3, 4}},
                      {{1, 2, 3}, false, {2, 3, 2, 2}},
                      {{0, 2, 3}, true, {2, 3, 2, 2}},
                      {{1}, true, {2, 3, 2, 2}},
                      {{0}, false, {1, 4}},
                      {{1}, false, {40, 300}},
                      {{0}, false, {300, 40}},
                      {{0, 2, 3}, false, {9, 5, 17, 13}}};

using Run = std::function<Tensor(const Tensor&, const Dims&, bool)>;

void reduction(const char* op, Run run, std::function<double(const Values&)> f, Input like, OpCase base) {
  int n = 0;
  for (const Over& o : kOver) {
    OpCase row = base;
    like.shape = o.shape;
    row.op = op;
    row.variant = "over " + (o.dims.empty() ? "all" : to_string(o.dims)) + (o.keepdim ? " kept " : " ") +
                  std::to_string(n++);
    row.samples = {{like}};
    row.run = [run, o](X x) { return run(x[0], o.dims, o.keepdim); };
    row.reference = [f, o](A x) { return reduce_of(x[0], o.dims, o.keepdim, f); };
    row.terms = 24 + double(o.shape.product());
    row.dtypes = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};
    add_row(row);
  }
}

void add_reductions() {
  const std::vector<DType> numeric = {DType::kF32, DType::kF64, DType::kI64};
  OpCase plain;
  plain.errors = {
      {"dim out of range",
       [] {
         sum(empty({2, 3}), {2}, false);
       },
       {"2"}},
      {"repeated dim",
       [] {
         sum(empty({2, 3}), {1, 1}, false);
       },
       {"1"}},
  };
  reduction(
      "sum", [](const Tensor& x, const Dims& d, bool k) { return sum(x, d, k); }, sum_of, in({}), plain);
  plain.errors.clear();
  reduction(
      "mean", [](const Tensor& x, const Dims& d, bool k) { return mean(x, d, k); }, mean_of, in({}), plain);
  reduction(
      "prod", [](const Tensor& x, const Dims& d, bool k) { return prod(x, d, k); }, prod_of, off_zero({}),
      plain);
  reduction(
      "amax", [](const Tensor& x, const Dims& d, bool k) { return amax(x, d, k); }, max_of, distinct({}),
      plain);
  reduction(
      "amin", [](const Tensor& x, const Dims& d, bool k) { return amin(x, d, k); }, min_of, distinct({}),
      plain);
  reduction(
      "norm", [](const Tensor& x, const Dims& d, bool k) { return norm(x, d, 2, k); },
      [](const Values& v) { return norm_of(v, 2); }, off_zero({}), plain);
  reduction(
      "norm", [](const Tensor& x, const Dims& d, bool k) { return norm(x, d, 1, k); },
      [](const Values& v) { return norm_of(v, 1); }, off_zero({}), plain);
  reduction(
      "norm", [](const Tensor& x, const Dims& d, bool k) { return norm(x, d, 3, k); },
      [](const Values& v) { return norm_of(v, 3); }, off_zero({}), plain);
  reduction(
      "norm", [](const Tensor& x, const Dims& d, bool k) { return norm(x, d, INFINITY, k); },
      [](const Values& v) { return std::max(max_of(v), -min_of(v)); }, distinct({}, -0.9, 2), plain);
  reduction(
      "var",
      [](const Tensor& x, const Dims& d, bool k) { return var(x, d, {.correction = 0, .keepdim = k}); },
      [](const Values& v) { return var_of(v, 0); }, in({}), plain);
  reduction(
      "logsumexp", [](const Tensor& x, const Dims& d, bool k) { return logsumexp(x, d, k); }, logsumexp_of,
      in({}, -4, 4), plain);

  OpCase truth;
  truth.fixed_result = true, truth.differentiable = false;
  const Input bits = {.shape = {}, .fill = Fill::kInteger, .lo = 0, .hi = 2};
  reduction(
      "any", [](const Tensor& x, const Dims& d, bool k) { return any(x, d, k); },
      [](const Values& v) { return max_of(v); }, bits, truth);
  reduction(
      "all", [](const Tensor& x, const Dims& d, bool k) { return all(x, d, k); },
      [](const Values& v) { return min_of(v); }, bits, truth);

  add_row({.op = "sum",
           .variant = "everything",
           .samples = {{in({3, 50})}, {in({})}, {in({0})}},
           .run = [](X x) { return sum(x[0]); },
           .reference = [](A x) { return reduce_of(x[0], {}, false, sum_of); },
           .terms = 150});
  add_row({.op = "sum",
           .variant = "of integers",
           .samples = {{in({3, 5}, -9, 9)}},
           .run = [](X x) { return sum(x[0], {1}, false); },
           .reference = [](A x) { return reduce_of(x[0], {1}, false, sum_of); },
           .differentiable = false,
           .dtypes = {DType::kI64}});
  add_row({.op = "var",
           .variant = "unbiased",
           .samples = {{in({3, 5})}},
           .run = [](X x) { return var(x[0], {1}); },
           .reference =
               [](A x) { return reduce_of(x[0], {1}, false, [](const Values& v) { return var_of(v, 1); }); },
           .terms = 16});
  add_row({.op = "std",
           .samples = {{in({3, 5})}},
           .run = [](X x) { return gradus::std(x[0], {1}, {.keepdim = true}); },
           .reference =
               [](A x) {
                 return reduce_of(x[0], {1}, true, [](const Values& v) { return std::sqrt(var_of(v, 1)); });
               },
           .terms = 16});
  add_row({.op = "max",
           .variant = "of all",
           .samples = {{distinct({3, 5})}, {distinct({})}},
           .run = [](X x) { return max(x[0]); },
           .reference = [](A x) { return reduce_of(x[0], {}, false, max_of); },
           .errors = {{"nothing", [] { max(empty({0})); }, {"[0]"}}}});
  add_row({.op = "min",
           .variant = "of all",
           .samples = {{distinct({3, 5})}, {distinct({})}},
           .run = [](X x) { return min(x[0]); },
           .reference = [](A x) { return reduce_of(x[0], {}, false, min_of); }});
  OpCase index;
  index.fixed_result = true, index.result = DType::kI64, index.differentiable = false;
  index.samples = {{distinct({3, 5})}, {distinct({2, 3, 2, 2})}};
  index.op = "argmax", index.variant = "of all";
  index.run = [](X x) { return argmax(x[0]); };
  index.reference = [](A x) {
    return reduce_of(x[0], {}, false, [](const Values& v) {
      return double(std::max_element(v.begin(), v.end()) - v.begin());
    });
  };
  add_row(index);
  index.op = "argmin";
  index.run = [](X x) { return argmin(x[0]); };
  index.reference = [](A x) {
    return reduce_of(x[0], {}, false, [](const Values& v) {
      return double(std::min_element(v.begin(), v.end()) - v.begin());
    });
  };
  add_row(index);
  // The gradient at zeros: products of the others.
  Input with_zeros = in({3, 3});
  with_zeros.values = {2, 0, -1.5, 0, 3, 0, 0.5, 0.25, 2};
  add_row({.op = "prod",
           .variant = "with zeros",
           .samples = {{with_zeros}},
           .run = [](X x) { return prod(x[0], {1}); },
           .reference = [](A x) { return reduce_of(x[0], {1}, false, prod_of); }});
  add_row({.op = "sum",
           .variant = "one dim as a number",
           .samples = {{in({3, 4})}},
           .run = [](X x) { return sum(x[0], -1); },
           .reference = [](A x) { return reduce_of(x[0], {1}, false, sum_of); }});
  add_row({.op = "cumsum",
           .variant = "reverse",
           .samples = {{in({2, 5})}},
           .run = [](X x) { return cumsum(x[0], 1, true); },
           .reference =
               [](A x) {
                 return along(x[0], 1, true, [](Values v) {
                   for (size_t i = v.size() - 1; i-- > 0;) v[i] += v[i + 1];
                   return v;
                 });
               }});
  for (const auto& [from, to_shape] : {std::pair<Shape, Shape>{{3, 4}, {4}},
                                       {{2, 3, 4}, {3, 1}},
                                       {{2, 3}, {}},
                                       {{2, 3}, {2, 3}},
                                       {{2, 3, 2, 2}, {3, 1, 1}}}) {
    add_row({.op = "sum_to",
             .variant = to_string(to_shape),
             .samples = {{in(from)}},
             .run = [s = to_shape](X x) { return sum_to(x[0], s); },
             .reference =
                 [s = to_shape](A x) {
                   Array y(s);
                   Array at(s);
                   for (size_t i = 0; i < at.v.size(); ++i) at.v[i] = double(i);
                   for (size_t i = 0; i < x[0].v.size(); ++i)
                     y.v[size_t(broadcast_at(at, x[0].shape, int64_t(i)))] += x[0].v[i];
                   return y;
                 },
             .terms = 24,
             .errors = {{"no broadcast of it",
                         [] {
                           sum_to(empty({2, 3}), {2});
                         },
                         {"[2,3]", "[2]"}}}});
  }
}

// y (dy - sum(dy y)), or dy - exp(y) sum(dy).
Array softmax_gradient(const Array& dy, const Array& y, int dim, bool log) {
  Array out = dy;
  if (!log) {
    for (size_t i = 0; i < out.v.size(); ++i) out.v[i] *= y.v[i];
  }
  const Array total = along(out, dim, true, [](Values v) { return Values{sum_of(v)}; });
  for (size_t i = 0; i < out.v.size(); ++i) {
    const double s = broadcast_at(total, out.shape, int64_t(i));
    out.v[i] = log ? dy.v[i] - std::exp(y.v[i]) * s : y.v[i] * (dy.v[i] - s);
  }
  return out;
}

void add_along_a_dim() {
  const auto row = [](const char* op, const char* variant, const Shape& shape, int dim, bool keepdim,
                      const Input& like, std::function<Tensor(const Tensor&)> run,
                      std::function<Values(Values)> f, OpCase base = {}) {
    Input i = like;
    i.shape = shape;
    base.op = op, base.variant = std::string(variant) + " dim " + std::to_string(dim);
    base.samples = {{i}};
    base.run = [run](X x) { return run(x[0]); };
    base.reference = [f, dim, keepdim](A x) { return along(x[0], dim, keepdim, f); };
    base.terms = 24 + double(shape[dim < 0 ? dim + shape.size() : dim]);
    base.dtypes = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};
    add_row(base);
  };
  const auto softmax_of = [](Values v) {
    const double l = logsumexp_of(v);
    for (double& e : v) e = std::exp(e - l);
    return v;
  };
  const auto log_softmax_of = [](Values v) {
    const double l = logsumexp_of(v);
    for (double& e : v) e -= l;
    return v;
  };
  const auto cumsum_of = [](Values v) {
    for (size_t i = 1; i < v.size(); ++i) v[i] += v[i - 1];
    return v;
  };
  const auto at_max = [](Values v) {
    return Values{double(std::max_element(v.begin(), v.end()) - v.begin())};
  };
  const auto at_min = [](Values v) {
    return Values{double(std::min_element(v.begin(), v.end()) - v.begin())};
  };
  OpCase index;
  index.fixed_result = true, index.result = DType::kI64, index.differentiable = false;
  const std::pair<Shape, int> lines[] = {{{3, 5}, 1}, {{3, 5}, 0},    {{2, 4, 3}, -2}, {{2, 3, 2, 2}, 1},
                                         {{19}, 0},   {{60, 130}, 1}, {{130, 60}, 0}};
  for (const auto& [s, d] : lines) {
    row(
        "softmax", "", s, d, true, in({}, -4, 4), [d = d](const Tensor& x) { return softmax(x, d); },
        softmax_of);
    row(
        "log_softmax", "", s, d, true, in({}, -4, 4), [d = d](const Tensor& x) { return log_softmax(x, d); },
        log_softmax_of);
    const Input line = in(s);
    add_row({.op = "softmax_backward",
             .variant = "dim " + std::to_string(d),
             .samples = {{line, line}},
             .run = [d = d](X x) { return softmax_backward(x[0], x[1], d); },
             .reference = [d = d](A x) { return softmax_gradient(x[0], x[1], d, false); },
             .terms = 24});
    add_row({.op = "log_softmax_backward",
             .variant = "dim " + std::to_string(d),
             .samples = {{line, line}},
             .run = [d = d](X x) { return log_softmax_backward(x[0], x[1], d); },
             .reference = [d = d](A x) { return softmax_gradient(x[0], x[1], d, true); },
             .terms = 24});
    row(
        "cumsum", "", s, d, true, in({}), [d = d](const Tensor& x) { return cumsum(x, d); }, cumsum_of);
    row(
        "max", "values", s, d, false, distinct({}), [d = d](const Tensor& x) { return max(x, d).values; },
        [](Values v) { return Values{max_of(v)}; });
    row(
        "min", "values", s, d, true, distinct({}),
        [d = d](const Tensor& x) { return min(x, d, true).values; },
        [](Values v) { return Values{min_of(v)}; });
    row(
        "max", "indices", s, d, true, distinct({}),
        [d = d](const Tensor& x) { return max(x, d, true).indices; }, at_max, index);
    row(
        "min", "indices", s, d, false, distinct({}), [d = d](const Tensor& x) { return min(x, d).indices; },
        at_min, index);
    row(
        "argmax", "", s, d, false, distinct({}), [d = d](const Tensor& x) { return argmax(x, d); }, at_max,
        index);
    row(
        "argmin", "", s, d, false, distinct({}), [d = d](const Tensor& x) { return argmin(x, d); }, at_min,
        index);
  }
}

}  // namespace

static const bool added = [] {
  add_reductions();
  add_along_a_dim();
  return true;
}();

}  // namespace gradus::optest
