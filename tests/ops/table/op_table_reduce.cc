// Rows of the op test table for reductions, scans (cumsum, cumprod, linear_recurrence, ...), softmax,
// normalize and cdist. References are f64 loops over each reduced group. Each row is tested against its f64
// reference, its gradients against difference quotients; op_table.h explains the fields.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "gradus/tests/ops/table/op_table.h"

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

double sum_of(const Values& v) { return double(std::accumulate(v.begin(), v.end(), 0.0L)); }
double mean_of(const Values& v) { return sum_of(v) / double(v.size()); }
double prod_of(const Values& v) {
  // The order of the factors is unspecified: a partial product may overflow where the whole does not.
  double largest = 0;
  for (double e : v) largest += std::max(0.0, std::log2(std::abs(e)));
  if (largest > 1000) throw std::overflow_error("prod_of: a part of the product may overflow");
  return std::accumulate(v.begin(), v.end(), 1.0, std::multiplies<>());
}
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

// Every reduction has a row for each: reduced dims ({}: all), keepdim, shape of the input.
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

// `base`: the other fields of the rows.
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
    const std::string name = std::string("[") + op + "]";
    row.errors.push_back({"dim out of range", [run] { run(empty({2, 3}), {2}, false); }, {name, "2"}});
    row.errors.push_back({"repeated dim",
                          [run] {
                            run(empty({2, 3}), {1, -1}, false);
                          },
                          {name, "1", "f32[2,3]"}});
    add_row(row);
  }
}

void add_further_reductions() {
  const std::vector<DType> floats = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};
  // NaN among numbers, and a row of NaN alone.
  Input holes = in({3, 4});
  holes.values = {1, NAN, 2, -3, NAN, NAN, NAN, NAN, 0.5, 0.25, NAN, 4};
  const auto numbers = [](const Values& v) {
    Values y;
    for (double e : v)
      if (!std::isnan(e)) y.push_back(e);
    return y;
  };
  OpCase row;
  row.samples = {{holes}}, row.dtypes = floats, row.differentiable = false, row.variant = "NaN";
  row.op = "nansum";
  row.run = RUN(nansum(x[0], 1));
  row.reference = [=](A x) {
    return reduce_of(x[0], {1}, false, [=](const Values& v) { return sum_of(numbers(v)); });
  };
  add_row(row);
  row.op = "nanmean";
  row.run = RUN(nanmean(x[0], 1));
  row.reference = [=](A x) {
    return reduce_of(x[0], {1}, false, [=](const Values& v) { return mean_of(numbers(v)); });
  };
  add_row(row);
  OpCase counts;
  counts.fixed_result = true, counts.result = DType::kI64, counts.differentiable = false;
  reduction(
      "count_nonzero",
      [](const Tensor& x, const Dims& d, bool k) {
        const Tensor y = count_nonzero(x, d);
        return k ? reshape(y, sum(x, d, true).shape()) : y;
      },
      [](const Values& v) { return double(v.size() - size_t(std::count(v.begin(), v.end(), 0.0))); },
      {.shape = {}, .fill = Fill::kInteger, .lo = 0, .hi = 3}, counts);

  const auto add = [&](const char* op, const char* variant, std::function<Tensor(const Tensor&)> run,
                       std::function<double(const Values&)> f, std::vector<ErrorCase> errors) {
    add_row({.op = op,
             .variant = variant,
             .samples = {{distinct({3, 5})}, {distinct({2, 3, 2, 2})}, {distinct({4, 1})}},
             .run = [run](X x) { return run(x[0]); },
             .reference = [f](A x) { return reduce_of(x[0], {0}, false, f); },
             .terms = 16,
             .dtypes = floats,
             .errors = std::move(errors)});
  };
  const auto plain_var = [](const Values& v) { return var_of(v, 0); };
  const auto root = [](const Values& v) { return std::sqrt(var_of(v, 0)); };
  const VarOptions biased{.correction = 0};
  const std::vector<ErrorCase> of_var = {ERROR_CASE(var_mean(tensor({1, 2})), "[var_mean]", "i64")};
  const std::vector<ErrorCase> of_std = {ERROR_CASE(std_mean(tensor({1, 2})), "[std_mean]", "i64")};
  const std::vector<ErrorCase> of_range = {ERROR_CASE(aminmax(empty({0, 2}), 0), "[aminmax]", "[0,2]"),
                                           ERROR_CASE(aminmax(empty({2}), 1), "1")};
  add(
      "var_mean", "var", [=](const Tensor& x) { return var_mean(x, {0}, biased).first; }, plain_var, of_var);
  add(
      "var_mean", "mean", [=](const Tensor& x) { return var_mean(x, {0}, biased).second; }, mean_of, of_var);
  add(
      "std_mean", "std", [=](const Tensor& x) { return std_mean(x + 0, {0}, {.correction = 0}).first; }, root,
      of_std);
  add(
      "std_mean", "mean", [=](const Tensor& x) { return std_mean(x, {0}, biased).second; }, mean_of, of_std);
  add(
      "aminmax", "min", [](const Tensor& x) { return aminmax(x, 0).min; }, min_of, of_range);
  add(
      "aminmax", "max", [](const Tensor& x) { return aminmax(x, 0).max; }, max_of, of_range);
  add(
      "vector_norm", "", [](const Tensor& x) { return vector_norm(x, 3, {0}); },
      [](const Values& v) { return norm_of(v, 3); }, {ERROR_CASE(vector_norm(tensor({1, 2})), "i64")});
  add_row({.op = "aminmax",
           .variant = "of all",
           .samples = {{distinct({3, 5})}, {distinct({})}},
           .run = RUN(aminmax(x[0]).max - aminmax(x[0]).min),
           .reference = [](A x) {
             return reduce_of(x[0], {}, false, [](const Values& v) { return max_of(v) - min_of(v); });
           }});

  for (int64_t n : {0, 1, 2, 9}) {
    add_row({.op = "diff",
             .variant = std::to_string(n) + " times",
             .samples = {{in({3, 5})}, {in({2, 3, 2, 2})}, {in({1})}, {in({0})}},
             .run = [n](X x) { return diff(x[0], {.n = n, .dim = 0}); },
             .reference =
                 [n](A x) {
                   return along(x[0], 0, true, [n](Values v) {
                     for (int64_t k = 0; k < n && !v.empty(); ++k) {
                       for (size_t i = 0; i + 1 < v.size(); ++i) v[i] = v[i + 1] - v[i];
                       v.pop_back();
                     }
                     return v;
                   });
                 },
             .dtypes = floats,
             .errors = {ERROR_CASE(diff(empty({3}), {.n = -1}), "[diff]", "-1"),
                        ERROR_CASE(diff(empty({})), "f32[]"),
                        ERROR_CASE(diff(empty({3, 2}), {.dim = 0, .prepend = empty({1, 3})}), "[1,3]",
                                   "[3,2]")}});
  }
  add_row({.op = "diff",
           .variant = "with ends",
           .samples = {{in({3, 4}), in({3, 2}), in({3, 1})}},
           .run = RUN(diff(x[0], {.prepend = x[1], .append = x[2]})),
           .reference = [](A x) {
             Array y(Shape{3, 6});
             for (int64_t r = 0; r < 3; ++r) {
               Values v = {x[1].at({r, 0}), x[1].at({r, 1})};
               for (int64_t i = 0; i < 4; ++i) v.push_back(x[0].at({r, i}));
               v.push_back(x[2].at({r, 0}));
               for (int64_t i = 0; i < 6; ++i) y.at({r, i}) = v[size_t(i) + 1] - v[size_t(i)];
             }
             return y;
           }});
}

void add_distances() {
  const auto rows_of = [](const Array& x, int64_t r) {
    const size_t d = size_t(x.shape.back());
    return Values(x.v.begin() + long(size_t(r) * d), x.v.begin() + long((size_t(r) + 1) * d));
  };
  for (double p : {2.0, 1.0, 3.0}) {
    add_row({.op = "normalize",
             .variant = std::to_string(int(p)),
             .samples = {{off_zero({3, 5})}, {off_zero({2, 3, 2, 2})}, {off_zero({1, 1})}},
             .run = [p](X x) { return normalize(x[0], {.p = p}); },
             .reference =
                 [p](A x) {
                   return along(x[0], 1, true, [p](Values v) {
                     const double n = norm_of(v, p);
                     for (double& e : v) e /= n;
                     return v;
                   });
                 },
             .terms = 16,
             .dtypes = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16},
             .errors = {ERROR_CASE(normalize(empty({3})), "[normalize]", "1"),
                        ERROR_CASE(normalize(tensor({1, 2}), {.dim = 0}), "i64")}});
    add_row({.op = "cdist",
             .variant = std::to_string(int(p)),
             .samples = {{in({3, 4}), in({2, 4})},
                         {in({2, 1, 3, 5}), in({2, 2, 5})},
                         {in({0, 2}), in({3, 2})},
                         {in({1, 2}), in({1, 2})}},
             .run = [p](X x) { return cdist(x[0], x[1], p); },
             .reference =
                 [p, rows_of](A x) {
                   const int64_t m = x[0].size(-2), n = x[1].size(-2), d = x[0].size(-1);
                   Array a, b;
                   a.shape = x[0].shape, b.shape = x[1].shape;
                   Shape s =
                       broadcast_shapes(Shape(std::span(a.shape.begin(), size_t(a.dim() - 2))),
                                        Shape(std::span(b.shape.begin(), size_t(b.dim() - 2))), "reference");
                   const int64_t batch = s.product();
                   s.push_back(m), s.push_back(n);
                   Array y(s);
                   // The batches of b repeat over the leading ones of a.
                   const int64_t batches_b = x[1].v.empty() ? 1 : int64_t(x[1].v.size()) / (n * d);
                   for (int64_t k = 0; k < batch; ++k)
                     for (int64_t i = 0; i < m; ++i)
                       for (int64_t j = 0; j < n; ++j) {
                         Values u = rows_of(x[0], k / batches_b * m + i);
                         const Values w = rows_of(x[1], k % batches_b * n + j);
                         for (size_t e = 0; e < u.size(); ++e) u[e] -= w[e];
                         y.v[size_t((k * m + i) * n + j)] = norm_of(u, p);
                       }
                   return y;
                 },
             .terms = 16,
             .errors = {ERROR_CASE(cdist(empty({2, 3}), empty({2, 4})), "[cdist]", "[2,3]", "[2,4]"),
                        ERROR_CASE(cdist(empty({3}), empty({2, 3})), "[3]"),
                        ERROR_CASE(cdist(empty({2, 3}), empty({2, 3}), -1), "-1"),
                        ERROR_CASE(cdist(tensor({1, 2}), empty({2, 3})), "i64")}});
  }
}

// The error of integers in an op of floats, and of a reduction of no elements that has no value.
ErrorCase no_integers(const char* op, Run run) {
  return {"integers",
          [run] {
            run(empty({2, 3}, {.dtype = DType::kI64}), {0}, false);
          },
          {std::string("[") + op + "]", "i64[2,3]"}};
}
ErrorCase nothing(const char* op, Run run) {
  return {"nothing", [run] { run(empty({0, 3}), {0}, false); }, {std::string("[") + op + "]", "[0,3]"}};
}

void add_reductions() {
  const std::vector<DType> numeric = {DType::kF32, DType::kF64, DType::kI64};
  const auto add = [](const char* op, const Run& run, const std::function<double(const Values&)>& f,
                      const Input& like, bool floats = false, bool not_empty = false) {
    OpCase row;
    if (floats) row.errors.push_back(no_integers(op, run));
    if (not_empty) row.errors.push_back(nothing(op, run));
    reduction(op, run, f, like, row);
  };
  add(
      "sum", [](const Tensor& x, const Dims& d, bool k) { return sum(x, d, k); }, sum_of, in({}));
  add(
      "mean", [](const Tensor& x, const Dims& d, bool k) { return mean(x, d, k); }, mean_of, in({}), true);
  add(
      "prod", [](const Tensor& x, const Dims& d, bool k) { return prod(x, d, k); }, prod_of, off_zero({}));
  add(
      "amax", [](const Tensor& x, const Dims& d, bool k) { return amax(x, d, k); }, max_of, distinct({}),
      false, true);
  add(
      "amin", [](const Tensor& x, const Dims& d, bool k) { return amin(x, d, k); }, min_of, distinct({}),
      false, true);
  for (double p : {2.0, 1.0, 3.0, 1.5, -1.0})
    add(
        "norm", [p](const Tensor& x, const Dims& d, bool k) { return norm(x, d, p, k); },
        [p](const Values& v) { return norm_of(v, p); }, off_zero({}), true);
  add(
      "norm", [](const Tensor& x, const Dims& d, bool k) { return norm(x, d, INFINITY, k); },
      [](const Values& v) { return std::max(max_of(v), -min_of(v)); }, distinct({}, -0.9, 2), true, true);
  add(
      "norm", [](const Tensor& x, const Dims& d, bool k) { return norm(x, d, -INFINITY, k); },
      [](Values v) {
        for (double& e : v) e = std::abs(e);
        return min_of(v);
      },
      distinct({}, 0.1, 2), true, true);
  add(
      "norm", [](const Tensor& x, const Dims& d, bool k) { return norm(x, d, 0, k); },
      [](const Values& v) { return double(v.size() - size_t(std::count(v.begin(), v.end(), 0.0))); },
      {.shape = {}, .fill = Fill::kInteger, .lo = 0, .hi = 3}, true);
  add(
      "var",
      [](const Tensor& x, const Dims& d, bool k) { return var(x, d, {.correction = 0, .keepdim = k}); },
      [](const Values& v) { return var_of(v, 0); }, in({}), true);
  add(
      "logsumexp", [](const Tensor& x, const Dims& d, bool k) { return logsumexp(x, d, k); }, logsumexp_of,
      in({}, -4, 4), true);
  add(
      "nansum", [](const Tensor& x, const Dims& d, bool k) { return nansum(x, d, k); }, sum_of, in({}));
  add(
      "nanmean", [](const Tensor& x, const Dims& d, bool k) { return nanmean(x, d, k); }, mean_of, in({}),
      true);

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
           .run = RUN(sum(x[0])),
           .reference = [](A x) { return reduce_of(x[0], {}, false, sum_of); },
           .terms = 150});
  add_row({.op = "sum",
           .variant = "of integers",
           .samples = {{in({3, 5}, -9, 9)}},
           .run = RUN(sum(x[0], {1}, false)),
           .reference = [](A x) { return reduce_of(x[0], {1}, false, sum_of); },
           .differentiable = false,
           .dtypes = {DType::kI64}});
  add_row({.op = "var",
           .variant = "unbiased",
           .samples = {{in({3, 5})}},
           .run = RUN(var(x[0], {1})),
           .reference =
               [](A x) { return reduce_of(x[0], {1}, false, [](const Values& v) { return var_of(v, 1); }); },
           .terms = 16});
  add_row({.op = "std",
           .samples = {{in({3, 5})}, {in({2, 3, 2, 2})}},
           .run = RUN(gradus::std(x[0], {1}, {.keepdim = true})),
           .reference =
               [](A x) {
                 return reduce_of(x[0], {1}, true, [](const Values& v) { return std::sqrt(var_of(v, 1)); });
               },
           .terms = 16,
           .errors = {ERROR_CASE(gradus::std(tensor({1, 2})), "i64")}});
  add_further_reductions();
  add_row({.op = "max",
           .variant = "of all",
           .samples = {{distinct({3, 5})}, {distinct({})}},
           .run = RUN(max(x[0])),
           .reference = [](A x) { return reduce_of(x[0], {}, false, max_of); },
           .errors = {ERROR_CASE(max(empty({0})), "[0]")}});
  add_row({.op = "min",
           .variant = "of all",
           .samples = {{distinct({3, 5})}, {distinct({})}},
           .run = RUN(min(x[0])),
           .reference = [](A x) { return reduce_of(x[0], {}, false, min_of); },
           .errors = {ERROR_CASE(min(empty({0})), "[0]")}});
  OpCase index;
  index.fixed_result = true, index.result = DType::kI64, index.differentiable = false;
  index.samples = {{distinct({3, 5})}, {distinct({2, 3, 2, 2})}};
  index.errors = {ERROR_CASE(argmax(empty({0, 2})), "[0]")};
  index.op = "argmax", index.variant = "of all";
  index.run = RUN(argmax(x[0]));
  index.reference = [](A x) {
    return reduce_of(x[0], {}, false, [](const Values& v) {
      return double(std::max_element(v.begin(), v.end()) - v.begin());
    });
  };
  add_row(index);
  index.op = "argmin";
  index.errors = {ERROR_CASE(argmin(empty({0, 2})), "[0]")};
  index.run = RUN(argmin(x[0]));
  index.reference = [](A x) {
    return reduce_of(x[0], {}, false, [](const Values& v) {
      return double(std::min_element(v.begin(), v.end()) - v.begin());
    });
  };
  add_row(index);
  // The gradient at a zero is the product of the other factors.
  Input with_zeros = in({3, 3});
  with_zeros.values = {2, 0, -1.5, 0, 3, 0, 0.5, 0.25, 2};
  add_row({.op = "prod",
           .variant = "with zeros",
           .samples = {{with_zeros}},
           .run = RUN(prod(x[0], {1})),
           .reference = [](A x) { return reduce_of(x[0], {1}, false, prod_of); }});
  add_row({.op = "sum",
           .variant = "one dim as a number",
           .samples = {{in({3, 4})}},
           .run = RUN(sum(x[0], -1)),
           .reference = [](A x) { return reduce_of(x[0], {1}, false, sum_of); }});
  add_row({.op = "cumsum",
           .variant = "reverse",
           .samples = {{in({2, 5})}},
           .run = RUN(cumsum(x[0], 1, {.reverse = true})),
           .reference = [](A x) {
             return along(x[0], 1, true, [](Values v) {
               for (size_t i = v.size() - 1; i-- > 0;) v[i] += v[i + 1];
               return v;
             });
           }});
  // All combinations of direction and exclusive scans, with zeros among the factors.
  for (bool reverse : {false, true})
    for (bool exclusive : {false, true})
      for (bool product : {false, true}) {
        const CumulativeOptions o{.reverse = reverse, .exclusive = exclusive};
        const auto run = RUN(product ? cumprod(x[0], 1, o) : cumsum(x[0], 1, o));
        const auto expected = [=](A x) {
          return along(x[0], 1, true, [=](Values v) {
            if (reverse) std::reverse(v.begin(), v.end());
            double so_far = product ? 1 : 0;
            for (double& e : v) {
              const double next = product ? so_far * e : so_far + e;
              e = exclusive ? so_far : next;
              so_far = next;
            }
            if (reverse) std::reverse(v.begin(), v.end());
            return v;
          });
        };
        Input zeros = in({2, 3, 2});
        zeros.values = {2, 0, -1.5, 1, 3, 0.5, 0.5, 0.25, 2, 0, 1.5, 0};
        Input empty_line = in({2, 0});
        add_row({.op = product ? "cumprod" : "cumsum",
                 .variant = concat(reverse ? "reverse" : "forwards", exclusive ? " exclusive" : ""),
                 .samples = {{in({2, 5})}, {zeros}, {in({3, 1})}, {empty_line}},
                 .run = run,
                 .reference = expected,
                 .dtypes = {DType::kF32, DType::kF64, DType::kBF16},
                 .errors = {ERROR_CASE(product ? cumprod(ones({2}), 1, o) : cumsum(ones({2}), 1, o),
                                       product ? "[cumprod]" : "[cumsum]", "1")}});
        // Sizes around those of the kernels' tiles.
        add_row({.op = product ? "cumprod" : "cumsum",
                 .variant = concat("many lines", reverse ? " reverse" : "", exclusive ? " exclusive" : ""),
                 .samples = {{in({7, 3})},
                             {in({8, 3})},
                             {in({9, 3})},
                             {in({17, 5})},
                             {in({2, 3, 15})},
                             {in({2, 3, 17})},
                             {in({1, 3, 1023})},
                             {in({1, 3, 1024})},
                             {in({2, 2, 1025})}},
                 .run = run,
                 .reference = expected,
                 .differentiable = false,
                 .dtypes = {DType::kF32, DType::kF64, DType::kF16}});
        add_row({.op = product ? "cumprod" : "cumsum",
                 .variant = concat("a number", reverse ? " reverse" : "", exclusive ? " exclusive" : ""),
                 .samples = {{in({})}},
                 .run = RUN(product ? cumprod(x[0], 0, o) : cumsum(x[0], 0, o)),
                 .reference = unary([=](double v) { return exclusive ? double(product) : v; })});
      }
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
             .errors = {ERROR_CASE(sum_to(empty({2, 3}), {2}), "[2,3]", "[2]")}});
  }
}

// softmax: y (dy - sum(dy y)). log_softmax: dy - exp(y) sum(dy).
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
  const auto with_dim_error = [](const char* op, std::function<Tensor(const Tensor&)> call,
                                 bool floats = false) {
    OpCase base;
    const std::string name = std::string("[") + op + "]";
    base.errors = {{"dim", [call] { call(empty({2})); }, {name, "1"}}};
    if (floats)
      base.errors.push_back({"integers",
                             [call] {
                               call(empty({2, 2}, {.dtype = DType::kI64}));
                             },
                             {name, "i64"}});
    return base;
  };
  const auto running = [](std::function<double(double, double)> f) {
    return [f](Values v) {
      for (size_t i = 1; i < v.size(); ++i) v[i] = f(v[i - 1], v[i]);
      return v;
    };
  };
  const auto running_place = [](bool largest) {
    return [largest](Values v) {
      Values y;
      size_t best = 0;
      for (size_t i = 0; i < v.size(); ++i) {
        if (largest ? v[i] >= v[best] : v[i] <= v[best]) best = i;
        y.push_back(double(best));
      }
      return y;
    };
  };
  OpCase index;
  index.fixed_result = true, index.result = DType::kI64, index.differentiable = false;
  const std::pair<Shape, int> lines[] = {{{3, 5}, 1}, {{3, 5}, 0},    {{2, 4, 3}, -2}, {{2, 3, 2, 2}, 1},
                                         {{19}, 0},   {{60, 130}, 1}, {{130, 60}, 0}};
  for (const auto& [s, d] : lines) {
    row(
        "softmax", "", s, d, true, in({}, -4, 4), [d = d](const Tensor& x) { return softmax(x, d); },
        softmax_of,
        with_dim_error(
            "softmax", [](const Tensor& x) { return softmax(x, 1); }, true));
    row(
        "softmin", "", s, d, true, in({}, -4, 4), [d = d](const Tensor& x) { return softmin(x, d); },
        [softmax_of](Values v) {
          for (double& e : v) e = -e;
          return softmax_of(v);
        },
        with_dim_error(
            "softmin", [](const Tensor& x) { return softmin(x, 1); }, true));
    row(
        "log_softmax", "", s, d, true, in({}, -4, 4), [d = d](const Tensor& x) { return log_softmax(x, d); },
        log_softmax_of,
        with_dim_error(
            "log_softmax", [](const Tensor& x) { return log_softmax(x, 1); }, true));
    const Input line = in(s);
    add_row({.op = "softmax_backward",
             .variant = "dim " + std::to_string(d),
             .samples = {{line, line}},
             .run = [d = d](X x) { return softmax_backward(x[0], x[1], d); },
             .reference = [d = d](A x) { return softmax_gradient(x[0], x[1], d, false); },
             .terms = 24,
             .errors = {ERROR_CASE(softmax_backward(empty({2}), empty({3}), 0), "[softmax_backward]", "[2]",
                                   "[3]")}});
    add_row({.op = "log_softmax_backward",
             .variant = "dim " + std::to_string(d),
             .samples = {{line, line}},
             .run = [d = d](X x) { return log_softmax_backward(x[0], x[1], d); },
             .reference = [d = d](A x) { return softmax_gradient(x[0], x[1], d, true); },
             .terms = 24,
             .errors = {ERROR_CASE(log_softmax_backward(empty({2}), empty({3}), 0), "[log_softmax_backward]",
                                   "[2]", "[3]")}});
    row(
        "cumsum", "", s, d, true, in({}), [d = d](const Tensor& x) { return cumsum(x, d); }, cumsum_of,
        with_dim_error("cumsum", [](const Tensor& x) { return cumsum(x, 1); }));
    row(
        "cumprod", "", s, d, true, distinct({}, 0.8, 1.2), [d = d](const Tensor& x) { return cumprod(x, d); },
        running([](double a, double b) { return a * b; }),
        with_dim_error("cumprod", [](const Tensor& x) { return cumprod(x, 1); }));
    row(
        "logcumsumexp", "", s, d, true, in({}, -4, 4),
        [d = d](const Tensor& x) { return logcumsumexp(x, d); },
        running([](double a, double b) { return std::log(std::exp(a) + std::exp(b)); }),
        with_dim_error(
            "logcumsumexp", [](const Tensor& x) { return logcumsumexp(x, 1); }, true));
    row(
        "cummax", "values", s, d, true, distinct({}),
        [d = d](const Tensor& x) { return cummax(x, d).values; },
        running([](double a, double b) { return std::max(a, b); }),
        with_dim_error("cummax", [](const Tensor& x) { return cummax(x, 1).values; }));
    row(
        "cummin", "values", s, d, true, distinct({}),
        [d = d](const Tensor& x) { return cummin(x, d).values; },
        running([](double a, double b) { return std::min(a, b); }),
        with_dim_error("cummin", [](const Tensor& x) { return cummin(x, 1).values; }));
    // Of equal elements the last index counts.
    const Input ties = {.shape = {}, .fill = Fill::kInteger, .lo = -3, .hi = 4};
    row(
        "cummax", "indices", s, d, true, ties, [d = d](const Tensor& x) { return cummax(x, d).indices; },
        running_place(true), index);
    row(
        "cummin", "indices", s, d, true, ties, [d = d](const Tensor& x) { return cummin(x, d).indices; },
        running_place(false), index);
    for (bool reverse : {false, true}) {
      const Input a = in(s, -1, 1), b = in(s);
      add_row({.op = "linear_recurrence",
               .variant = std::string(reverse ? "reverse " : "") + "dim " + std::to_string(d) + to_string(s),
               .samples = {{a, b}},
               .run = [d = d, reverse](X x) { return linear_recurrence(x[0], x[1], d, reverse); },
               .reference =
                   [d = d, reverse](A x) {
                     // y[i] = factor[i] y[i - 1] + v[i]
                     Array both = x[1];
                     std::vector<Values> factors;
                     along(x[0], d, true, [&](Values v) { return factors.push_back(v), v; });
                     size_t line = 0;
                     return along(both, d, true, [&](Values v) {
                       Values f = factors[line++];
                       if (reverse) std::reverse(v.begin(), v.end()), std::reverse(f.begin(), f.end());
                       for (size_t i = 1; i < v.size(); ++i) v[i] += f[i] * v[i - 1];
                       if (reverse) std::reverse(v.begin(), v.end());
                       return v;
                     });
                   },
               .terms = 24,
               .errors = {ERROR_CASE(linear_recurrence(empty({2}), empty({3}), 0), "[linear_recurrence]",
                                     "[2]", "[3]"),
                          ERROR_CASE(linear_recurrence(tensor({1}), tensor({1}), 0), "i64"),
                          ERROR_CASE(linear_recurrence(empty({2}), empty({2}), 1), "1")}});
    }
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

void add_special_scans() {
  Input zeros = in({3, 4});
  zeros.values = {2, 0, -1.5, 3, 0, 3, 0, 0.5, 0.5, 0.25, 2, 0};
  add_row({.op = "cumprod",
           .variant = "with zeros",
           .samples = {{zeros}, {in({})}, {in({0, 2})}},
           .run = RUN(cumprod(x[0], -1)),
           .reference = [](A x) {
             if (x[0].dim() == 0 || x[0].v.empty()) return x[0];
             return along(x[0], 1, true, [](Values v) {
               for (size_t i = 1; i < v.size(); ++i) v[i] *= v[i - 1];
               return v;
             });
           }});
  Input none = in({5});
  none.values = {-INFINITY, -INFINITY, 0.5, -1, -INFINITY};
  OpCase row;
  row.op = "logcumsumexp", row.variant = "of infinities", row.samples = {{none}}, row.differentiable = false;
  row.run = RUN(logcumsumexp(x[0], 0));
  row.reference = [](A x) {
    Array y = x[0];
    for (size_t i = 1; i < y.v.size(); ++i) y.v[i] = std::log(std::exp(y.v[i - 1]) + std::exp(y.v[i]));
    return y;
  };
  add_row(row);
  row.differentiable = true, row.samples = {{in({})}, {in({0, 2})}, {in({1})}}, row.variant = "small";
  row.reference = [](A x) { return x[0]; };
  add_row(row);
  row.op = "cumsum", row.variant = "small";
  row.run = RUN(cumsum(x[0], 0));
  add_row(row);
  for (bool largest : {true, false}) {
    Input nan = in({6});
    nan.values = {0, 1, -1, NAN, 5, NAN};
    row.op = largest ? "cummax" : "cummin", row.variant = "NaN", row.samples = {{nan}},
    row.differentiable = false;
    row.run = [largest](X x) { return largest ? cummax(x[0], 0).values : cummin(x[0], 0).values; };
    row.reference = [largest](A x) {
      Array y = x[0];
      y.v = {0, largest ? 1.0 : 0, largest ? 1.0 : -1, NAN, NAN, NAN};
      return y;
    };
    add_row(row);
  }
  // Long rows, which threads share.
  for (bool reverse : {false, true}) {
    add_row({.op = "cumsum",
             .variant = reverse ? "long reverse" : "long",
             .samples = {{in({17000})}, {in({2, 4500})}},
             .run = [reverse](X x) { return cumsum(x[0], -1, {.reverse = reverse}); },
             .reference =
                 [reverse](A x) {
                   return along(x[0], -1, true, [reverse](Values v) {
                     if (reverse) std::reverse(v.begin(), v.end());
                     for (size_t i = 1; i < v.size(); ++i) v[i] += v[i - 1];
                     if (reverse) std::reverse(v.begin(), v.end());
                     return v;
                   });
                 },
             .terms = 1000,
             .differentiable = false,
             .dtypes = {DType::kF32, DType::kF64, DType::kI64}});
  }
}

}  // namespace

static const bool added = [] {
  add_reductions();
  covered_elsewhere("gumbel_softmax", "tests/ops/softmax_test.cc");
  add_along_a_dim();
  add_distances();
  add_special_scans();
  return true;
}();

}  // namespace gradus::optest
