// Rows of the op test table for sort, topk, kthvalue, median, mode, unique, bincount, histc, searchsorted and
// isin. References use std::stable_sort and f64 loops; NaN is the greatest value. Each row is tested against
// its f64 reference, its gradients against difference quotients; op_table.h explains the fields.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tests/ops/table/op_table.h"

namespace gradus::optest {
namespace {

using Values = std::vector<double>;
using F = std::function<Values(const Values&)>;

const std::vector<DType> kFloats = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};
const Device kMeta{DeviceType::kMeta, 0};

bool before(double a, double b) { return std::isnan(b) ? !std::isnan(a) : a < b; }

// The indices of v's elements in sorted order; equal elements keep their order.
std::vector<size_t> order_of(const Values& v, bool descending) {
  std::vector<size_t> at(v.size());
  std::iota(at.begin(), at.end(), 0);
  std::stable_sort(at.begin(), at.end(),
                   [&](size_t a, size_t b) { return descending ? before(v[b], v[a]) : before(v[a], v[b]); });
  return at;
}
constexpr size_t kAll = std::numeric_limits<size_t>::max();

// The first k values, or their indices, in sorted order.
F first_values(size_t k, bool descending) {
  return [=](const Values& v) {
    Values y;
    const auto at = order_of(v, descending);
    for (size_t i = 0; i < std::min(k, v.size()); ++i) y.push_back(v[at[i]]);
    return y;
  };
}
F first_places(size_t k, bool descending) {
  return [=](const Values& v) {
    Values y;
    const auto at = order_of(v, descending);
    for (size_t i = 0; i < std::min(k, v.size()); ++i) y.push_back(double(at[i]));
    return y;
  };
}

// Rows of the values and of the indices of an op along a dim.
struct Along {
  const char* op;
  std::string variant;
  std::vector<Sample> samples;
  std::function<ValuesAndIndices(const Tensor&)> run;
  int dim;
  bool keepdim;
  F values, places;
  std::vector<ErrorCase> errors = {};
};
void add_along(const Along& a) {
  OpCase row;
  row.op = a.op, row.variant = a.variant + " values", row.samples = a.samples, row.dtypes = kFloats;
  row.run = [run = a.run](X x) { return run(x[0]).values; };
  row.reference = [=](A x) { return x[0].dim() == 0 ? x[0] : along(x[0], a.dim, a.keepdim, a.values); };
  row.errors = a.errors;
  add_row(row);
  row.variant = a.variant + " indices", row.errors.clear(), row.dtypes = {DType::kF32, DType::kF64};
  row.fixed_result = true, row.result = DType::kI64, row.differentiable = false;
  row.run = [run = a.run](X x) { return run(x[0]).indices; };
  row.reference = [=](A x) {
    return x[0].dim() == 0 ? Array(Shape{}, 0) : along(x[0], a.dim, a.keepdim, a.places);
  };
  add_row(row);
}

Input with_values(const Shape& shape, Values values) { return {.shape = shape, .values = std::move(values)}; }

void add_orders() {
  const std::pair<int, std::vector<Sample>> lines[] = {
      {-1, {{distinct({3, 5})}, {distinct({2, 3, 2, 2})}, {distinct({4})}, {distinct({1})}, {distinct({})}}},
      {0, {{distinct({5, 3})}, {distinct({2, 3, 2, 2})}, {distinct({1, 4})}}},
      {1, {{distinct({2, 6, 3})}, {distinct({2, 3, 2, 2})}}},
  };
  for (const auto& [dim, samples] : lines) {
    for (bool descending : {false, true}) {
      const SortOptions o{.dim = dim, .descending = descending};
      const std::string name = "dim " + std::to_string(dim) + (descending ? " descending" : "");
      add_along({"sort",
                 name,
                 samples,
                 [o](const Tensor& x) { return sort(x, o); },
                 dim,
                 true,
                 first_values(kAll, descending),
                 first_places(kAll, descending),
                 {ERROR_CASE(sort(empty({2, 3}), {.dim = 2}), "[sort]", "2")}});
      add_row({.op = "argsort",
               .variant = name,
               .samples = samples,
               .run = [o](X x) { return argsort(x[0], o); },
               .reference =
                   [dim = dim, descending](A x) {
                     return x[0].dim() == 0 ? Array(Shape{}, 0)
                                            : along(x[0], dim, true, first_places(kAll, descending));
                   },
               .fixed_result = true,
               .result = DType::kI64,
               .differentiable = false,
               .errors = {ERROR_CASE(argsort(empty({2, 3}), {.dim = -3}), "-3")}});
    }
  }
  // Ties, NaN, both zeros, infinities; long rows, which radix sort takes.
  const Values special = {1, NAN, -0.0, 0.0, INFINITY, -1, -INFINITY, NAN, 1, 0.0};
  for (bool descending : {false, true}) {
    const SortOptions o{.descending = descending};
    OpCase row;
    row.op = "sort", row.samples = {{with_values({10}, special)}}, row.differentiable = false,
    row.dtypes = kFloats;
    row.variant = descending ? "special descending" : "special";
    row.run = [o](X x) { return sort(x[0], o).values; };
    row.reference = [descending](A x) { return along(x[0], 0, true, first_values(kAll, descending)); };
    add_row(row);
    row.fixed_result = true, row.result = DType::kI64, row.variant += " places";
    row.run = [o](X x) { return sort(x[0], o).indices; };
    row.reference = [descending](A x) { return along(x[0], 0, true, first_places(kAll, descending)); };
    add_row(row);
    row.samples = {{in({2, 700})}, {{.shape = {900}, .fill = Fill::kInteger, .lo = -9, .hi = 9}}};
    row.variant += " long";
    row.reference = [descending](A x) { return along(x[0], -1, true, first_places(kAll, descending)); };
    row.dtypes = {DType::kF32, DType::kF64, DType::kI64, DType::kI32, DType::kI16, DType::kI8};
    add_row(row);
  }
  add_row({.op = "sort",
           .variant = "nothing",
           .samples = {{in({0})}, {in({2, 0})}, {in({0, 3})}},
           .run = RUN(sort(x[0]).values),
           .reference = [](A x) { return x[0]; }});

  for (bool largest : {true, false}) {
    for (const auto& [k, dim, shape] : {std::tuple<int64_t, int, Shape>{2, -1, {3, 5}},
                                        {3, 0, {5, 3}},
                                        {1, 1, {2, 6, 3}},
                                        {5, -1, {5}},
                                        {2, 1, {2, 3, 2, 2}},
                                        {2, 0, {40}},
                                        {1, 0, {1}}}) {
      const TopkOptions o{.dim = dim, .largest = largest};
      add_along({"topk",
                 std::to_string(k) + (largest ? " of " : " least of ") + to_string(shape),
                 {{distinct(shape)}},
                 [o, k = k](const Tensor& x) { return topk(x, k, o); },
                 dim,
                 true,
                 first_values(size_t(k), largest),
                 first_places(size_t(k), largest),
                 {ERROR_CASE(topk(empty({2, 3}), 4), "[topk]", "3", "4"),
                  ERROR_CASE(topk(empty({2, 3}), -1), "-1")}});
    }
    OpCase row;
    row.op = "topk", row.variant = largest ? "special" : "special least", row.differentiable = false;
    row.samples = {{with_values({10}, special)}}, row.dtypes = kFloats;
    row.run = RUN(topk(x[0], 4, {.largest = largest}).values);
    row.reference = [=](A x) { return along(x[0], 0, true, first_values(4, largest)); };
    add_row(row);
    row.variant += " few of many";
    row.samples = {{in({2, 3000})}, {{.shape = {5000}, .fill = Fill::kInteger, .lo = -9, .hi = 9}}};
    row.fixed_result = true, row.result = DType::kI64;
    row.run = RUN(topk(x[0], 70, {.largest = largest}).indices);
    row.reference = [=](A x) { return along(x[0], -1, true, first_places(70, largest)); };
    add_row(row);
  }
  add_row({.op = "topk",
           .variant = "none",
           .samples = {{in({3, 4})}, {in({0})}},
           .run = RUN(topk(x[0], 0).values),
           .reference = [](A x) { return along(x[0], -1, true, [](const Values&) { return Values{}; }); },
           .differentiable = false});
}

void add_selections() {
  const std::vector<std::pair<int, Shape>> lines = {{-1, {3, 5}}, {0, {4, 3}}, {1, {2, 3, 2, 2}}, {0, {1}}};
  for (const auto& [dim, shape] : lines) {
    for (bool keepdim : {false, true}) {
      const DimOptions o{.dim = dim, .keepdim = keepdim};
      const std::string name = to_string(shape) + " dim " + std::to_string(dim) + (keepdim ? " kept" : "");
      const std::vector<Sample> samples = {{distinct(shape)}};
      const auto nth = [](std::function<size_t(size_t)> k, bool place) {
        return [k, place](const Values& v) {
          const size_t at = order_of(v, false)[k(v.size())];
          return Values{place ? double(at) : v[at]};
        };
      };
      const auto second = [](size_t n) { return std::min<size_t>(n, 2) - 1; };
      const auto middle = [](size_t n) { return (n - 1) / 2; };
      const auto run_second = [o](const Tensor& x) {
        return kthvalue(x, std::min<int64_t>(2, x.size(o.dim)), o);
      };
      add_along({"kthvalue",
                 name,
                 samples,
                 run_second,
                 dim,
                 keepdim,
                 nth(second, false),
                 nth(second, true),
                 {ERROR_CASE(kthvalue(empty({2, 3}), 0), "[kthvalue]", "1", "3", "0"),
                  ERROR_CASE(kthvalue(empty({2, 3}), 4), "4")}});
      const auto nothing = [](const char* op, std::function<void()> call) {
        return std::vector<ErrorCase>{{"nothing", call, {std::string("[") + op + "]", "[2,0]"}}};
      };
      add_along({"median", name, samples, [o](const Tensor& x) { return median(x, o); }, dim, keepdim,
                 nth(middle, false), nth(middle, true), nothing("median", [] {
                   median(empty({2, 0}), {.dim = 1});
                 })});
      add_along({"nanmedian", name, samples, [o](const Tensor& x) { return nanmedian(x, o); }, dim, keepdim,
                 nth(middle, false), nth(middle, true), nothing("nanmedian", [] {
                   nanmedian(empty({2, 0}), {.dim = 1});
                 })});
      // The smallest of the most frequent values, and its last index.
      const auto most_frequent = [](bool place) {
        return [place](const Values& v) -> Values {
          const auto at = order_of(v, false);
          size_t best = 0, best_run = 0, run = 0;
          for (size_t i = 0; i < at.size(); ++i) {
            run = i > 0 && v[at[i]] == v[at[i - 1]] ? run + 1 : 1;
            if (run > best_run) best_run = run, best = at[i];
          }
          return {place ? double(best) : v[best]};
        };
      };
      add_along({"mode", name, samples, [o](const Tensor& x) { return mode(x, o); }, dim, keepdim,
                 most_frequent(false), most_frequent(true), nothing("mode", [] {
                   mode(empty({2, 0}));
                 })});
    }
  }
  const Values special = {3, NAN, 1, 2, 5, 1, 2, NAN};
  OpCase row;
  row.samples = {{with_values({8}, special)}}, row.differentiable = false, row.dtypes = kFloats;
  const auto add = [&](const char* op, const char* variant, auto run, Values expected) {
    row.op = op, row.variant = variant;
    row.run = [run](X x) { return run(x[0]); };
    row.reference = [expected](A) {
      Array y{Shape{}};
      y.v = expected;
      return y;
    };
    add_row(row);
  };
  add("median", "NaN", [](const Tensor& x) { return median(x, {.dim = 0}).values; }, {NAN});
  add("median", "NaN of all", [](const Tensor& x) { return median(x); }, {NAN});
  add("nanmedian", "NaN", [](const Tensor& x) { return nanmedian(x, {.dim = 0}).values; }, {2});
  add("nanmedian", "NaN of all", [](const Tensor& x) { return nanmedian(x); }, {2});
  add("mode", "ties", [](const Tensor& x) { return mode(x).values; }, {1});
  row.fixed_result = true, row.result = DType::kI64;
  add("median", "NaN's place", [](const Tensor& x) { return median(x, {.dim = 0}).indices; }, {1});
  add("nanmedian", "place", [](const Tensor& x) { return nanmedian(x, {.dim = 0}).indices; }, {3});
  add("mode", "place", [](const Tensor& x) { return mode(x).indices; }, {5});
  for (const char* op : {"median", "nanmedian"}) {
    const bool nan = op[0] == 'n';
    add_row({.op = op,
             .variant = "of all",
             .samples = {{distinct({3, 4})}, {distinct({2, 3, 2, 2})}, {distinct({})}},
             .run = [nan](X x) { return nan ? nanmedian(x[0]) : median(x[0]); },
             .reference =
                 [](A x) {
                   Values v = x[0].v;
                   std::sort(v.begin(), v.end());
                   return Array(Shape{}, v[(v.size() - 1) / 2]);
                 },
             .dtypes = kFloats});
  }
  add_row({.op = "median",
           .variant = "of nothing",
           .samples = {{in({0})}},
           .run = RUN(median(x[0])),
           .reference = [](A) { return Array(Shape{}, NAN); },
           .differentiable = false});
}

Array line(Values v) {
  Array y(Shape{int64_t(v.size())});
  y.v = std::move(v);
  return y;
}

void add_distinct_values() {
  const Input repeated = {.shape = {3, 7}, .fill = Fill::kInteger, .lo = -2, .hi = 3};
  const Input none = in({0});
  OpCase row;
  row.differentiable = false, row.shape_from_data = true;
  row.samples = {{repeated}, {none}, {in({1})}, {in({})}};
  const auto add = [&](const char* op, const char* variant, auto run, std::function<Array(const Array&)> f,
                       bool index = false) {
    row.op = op, row.variant = variant, row.fixed_result = index, row.result = DType::kI64;
    row.run = [run](X x) { return run(x[0]); };
    row.reference = [f](A x) { return f(x[0]); };
    row.dtypes = {DType::kF32, DType::kF64, DType::kI64, DType::kI32, DType::kI16, DType::kI8, DType::kBF16};
    row.errors = {{"meta",
                   [op] {
                     const Tensor x = empty({3}, {.device = kMeta});
                     std::string(op) == "unique" ? unique(x) : unique_consecutive(x);
                   },
                   {std::string("[") + op + "]", "meta"}},
                  {"empty slices",
                   [op] {
                     const Tensor x = empty({3, 0});
                     std::string(op) == "unique" ? unique(x, {.dim = 0}) : unique_consecutive(x, {.dim = 0});
                   },
                   {"[3,0]"}}};
    add_row(row);
  };
  const auto groups = [](const Array& x) {
    std::map<double, int> m;
    for (double v : x.v) ++m[v];
    return m;
  };
  add(
      "unique", "values", [](const Tensor& x) { return unique(x).values; },
      [groups](const Array& x) {
        Values y;
        for (const auto& [v, n] : groups(x)) y.push_back(v);
        return line(y);
      });
  add(
      "unique", "counts", [](const Tensor& x) { return unique(x, {.return_counts = true}).counts; },
      [groups](const Array& x) {
        Values y;
        for (const auto& [v, n] : groups(x)) y.push_back(n);
        return line(y);
      },
      true);
  add(
      "unique", "inverse", [](const Tensor& x) { return unique(x, {.return_inverse = true}).inverse; },
      [groups](const Array& x) {
        std::map<double, int> places = groups(x);
        int place = 0;
        for (auto& [v, at] : places) at = place++;
        Array y = x;
        for (double& v : y.v) v = places[v];
        return y;
      },
      true);
  const auto runs = [](const Array& x) {
    std::vector<std::pair<double, int>> m;
    for (double v : x.v) {
      if (m.empty() || m.back().first != v) m.push_back({v, 0});
      ++m.back().second;
    }
    return m;
  };
  add(
      "unique_consecutive", "values", [](const Tensor& x) { return unique_consecutive(x).values; },
      [runs](const Array& x) {
        Values y;
        for (const auto& [v, n] : runs(x)) y.push_back(v);
        return line(y);
      });
  add(
      "unique_consecutive", "counts",
      [](const Tensor& x) { return unique_consecutive(x, {.return_counts = true}).counts; },
      [runs](const Array& x) {
        Values y;
        for (const auto& [v, n] : runs(x)) y.push_back(n);
        return line(y);
      },
      true);
  add(
      "unique_consecutive", "inverse",
      [](const Tensor& x) { return unique_consecutive(x, {.return_inverse = true}).inverse; },
      [](const Array& x) {
        Array y = x;
        double at = 0;
        for (size_t i = 0; i < x.v.size(); ++i) y.v[i] = i > 0 && x.v[i] != x.v[i - 1] ? ++at : at;
        return y;
      },
      true);
  add(
      "unique", "index", [](const Tensor& x) { return unique(x, {.return_index = true}).index; },
      [](const Array& x) {
        std::map<double, size_t> first;
        for (size_t i = 0; i < x.v.size(); ++i) first.emplace(x.v[i], i);
        Values y;
        for (const auto& [v, i] : first) y.push_back(double(i));
        return line(y);
      },
      true);
  add(
      "unique_consecutive", "index",
      [](const Tensor& x) { return unique_consecutive(x, {.return_index = true}).index; },
      [](const Array& x) {
        Values y;
        for (size_t i = 0; i < x.v.size(); ++i)
          if (i == 0 || x.v[i] != x.v[i - 1]) y.push_back(double(i));
        return line(y);
      },
      true);
  // -0 equals 0; NaNs differ from each other and come last.
  row.samples = {{with_values({7}, {NAN, 1, -0.0, 0, NAN, -1, INFINITY})}};
  row.dtypes = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}, row.fixed_result = false;
  row.op = "unique", row.variant = "NaN", row.errors = {};
  row.run = RUN(unique(x[0]).values);
  row.reference = [](A) { return line({-1, 0, 1, INFINITY, NAN, NAN}); };
  add_row(row);
  // Unique slices along a dim: columns 0, 2 and 3 are equal.
  row.samples = {{with_values({2, 4}, {1, 0, 1, 1, 2, 5, 2, 2})}};
  const auto as = [](const Shape& s, Values v) {
    return [=](const Array&) {
      Array y(s);
      y.v = v;
      return y;
    };
  };
  add(
      "unique", "columns", [](const Tensor& x) { return unique(x, {.dim = 1}).values; },
      as({2, 2}, {0, 1, 5, 2}));
  add(
      "unique", "columns inverse",
      [](const Tensor& x) { return unique(x, {.return_inverse = true, .dim = 1}).inverse; },
      as({4}, {1, 0, 1, 1}), true);
  add(
      "unique", "columns counts",
      [](const Tensor& x) { return unique(x, {.return_counts = true, .dim = -1}).counts; }, as({2}, {1, 3}),
      true);
  add(
      "unique", "columns index",
      [](const Tensor& x) { return unique(x, {.return_index = true, .dim = 1}).index; }, as({2}, {1, 0}),
      true);
  add(
      "unique_consecutive", "columns index",
      [](const Tensor& x) { return unique_consecutive(x, {.return_index = true, .dim = 1}).index; },
      as({3}, {0, 1, 2}), true);
  add(
      "unique_consecutive", "columns",
      [](const Tensor& x) { return unique_consecutive(x, {.dim = 1}).values; },
      as({2, 3}, {1, 0, 1, 2, 5, 2}));
  add(
      "unique_consecutive", "columns counts",
      [](const Tensor& x) { return unique_consecutive(x, {.return_counts = true, .dim = 1}).counts; },
      as({3}, {1, 1, 2}), true);
}

void add_counts() {
  const auto counted = [](A x, int64_t minlength) {
    Array y(Shape{minlength});
    for (size_t i = 0; i < x[0].v.size(); ++i) {
      const size_t at = size_t(x[0].v[i]);
      if (at >= y.v.size()) y.v.resize(at + 1), y.shape[0] = int64_t(at) + 1;
      y.v[at] += x.size() > 1 ? x[1].v[i] : 1;
    }
    return y;
  };
  add_row({.op = "bincount",
           .samples = {{indices({9}, {0, 3, 3, 1, 0, 3, 5, 1, 3})}, {indices({1}, 2)}, {indices({0}, {})}},
           .run = RUN(bincount(x[0])),
           .reference = [counted](A x) { return counted(x, 0); },
           .fixed_result = true,
           .result = DType::kI64,
           .differentiable = false,
           .errors = {ERROR_CASE(bincount(empty({2})), "[bincount]", "f32"),
                      ERROR_CASE(bincount(empty({2, 3}, {.dtype = DType::kI64})), "[2,3]"),
                      ERROR_CASE(bincount(tensor({1, -4, 2})), "-4"),
                      ERROR_CASE(bincount(tensor({1}), {.minlength = -1}), "-1"),
                      ERROR_CASE(bincount(tensor({1, 2}), {.weights = empty({3})}), "[3]", "[2]"),
                      ERROR_CASE(bincount(empty({2}, {.dtype = DType::kI64, .device = kMeta})), "meta")},
           .shape_from_data = true});
  add_row({.op = "bincount",
           .variant = "weights",
           .samples = {{indices({5}, {0, 3, 3, 1, 0}), in({5})}},
           .run = RUN(bincount(x[0], {.weights = x[1], .minlength = 6})),
           .reference = [counted](A x) { return counted(x, 6); },
           .dtypes = kFloats,
           .shape_from_data = true});
  const auto histogram = [](A x, int64_t bins, double low, double high) {
    Array y(Shape{bins});
    if (low == high && !x[0].v.empty())
      low = *std::min_element(x[0].v.begin(), x[0].v.end()),
      high = *std::max_element(x[0].v.begin(), x[0].v.end());
    if (low == high) --low, ++high;
    for (double v : x[0].v) {
      if (!(v >= low && v <= high)) continue;
      const double at = (v - low) / (high - low) * double(bins), edge = std::round(at);
      const bool exact = float(v - low) == v - low && float(high - low) == high - low;
      if (std::abs(at - edge) < 1e-5 * double(bins) && edge > 0 && edge < double(bins) &&
          !(at == edge && exact))
        throw std::out_of_range("rounding chooses the bin");
      ++y.v[size_t(std::min(int64_t(at), bins - 1))];
    }
    return y;
  };
  // Multiples of 1/4, for which rounding never decides the bin.
  Input quarters = in({4, 6});
  for (int i = 0; i < 24; ++i) quarters.values.push_back((i * 7 % 17) / 4.0 - 2);
  for (const auto& [low, high] : {std::pair{-1.0, 1.0}, {0.0, 0.0}}) {
    add_row({.op = "histc",
             .variant = to_string(Dims{int64_t(low), int64_t(high)}),
             .samples = {{quarters}, {in({0})}, {in({1})}},
             .run = [l = low, h = high](X x) { return histc(x[0], {.bins = 8, .min = l, .max = h}); },
             .reference = [=, l = low, h = high](A x) { return histogram(x, 8, l, h); },
             .differentiable = false,
             .dtypes = kFloats,
             .errors = {ERROR_CASE(histc(empty({2}), {.bins = 0}), "[histc]", "0"),
                        ERROR_CASE(histc(empty({2}), {.min = 2, .max = 1}), "2", "1"),
                        ERROR_CASE(histc(empty({2}), {.max = INFINITY}), "inf"),
                        ERROR_CASE(histc(tensor({1.f, INFINITY})), "inf"),
                        ERROR_CASE(histc(tensor({1.f, NAN, 2.f})), "nan"),
                        ERROR_CASE(histc(tensor({1, 2})), "i64")}});
  }
}

void add_search() {
  Input sorted = in({6});
  sorted.values = {-1, 0, 0, 0.5, 1, 1};
  Input asked = in({2, 5});
  asked.values = {-2, -1, 0, 0.25, 0.5, 1, 2, INFINITY, -INFINITY, NAN};
  Input lines = in({2, 3});
  lines.values = {-1, 0, 1, 0, 0, 2};
  for (bool right : {false, true}) {
    const auto f = [right](A x) {
      Array y = x[1];
      const int64_t n = x[0].shape.back();
      for (size_t i = 0; i < y.v.size(); ++i) {
        const size_t l = x[0].dim() == 1 ? 0 : i / size_t(x[1].shape.back());
        const double* from = &x[0].v[l * size_t(n)];
        int64_t at = 0;
        while (at < n && (std::isnan(x[1].v[i]) || from[at] < x[1].v[i] || (right && from[at] == x[1].v[i])))
          ++at;
        y.v[i] = double(at);
      }
      return y;
    };
    OpCase row;
    row.op = "searchsorted", row.variant = right ? "right" : "", row.fixed_result = true,
    row.result = DType::kI64;
    row.samples = {{sorted, asked}, {lines, asked}, {sorted, in({})}, {sorted, in({0})}};
    row.run = [right](X x) { return searchsorted(x[0], x[1], {.right = right}); };
    row.reference = f;
    row.differentiable = false, row.dtypes = kFloats;
    row.errors = {ERROR_CASE(searchsorted(empty({2, 3}), empty({3, 4})), "[searchsorted]", "[2,3]", "[3,4]"),
                  ERROR_CASE(searchsorted(empty({}), empty({3})), "sorted f32[]")};
    add_row(row);
    row.op = "bucketize", row.samples = {{sorted, asked}, {sorted, in({})}};
    row.run = [right](X x) { return bucketize(x[1], x[0], {.right = right}); };
    row.errors = {ERROR_CASE(bucketize(empty({3}), empty({2, 2})), "[bucketize]", "[2,2]")};
    add_row(row);
    row.run = [right](X x) { return bucketize(x[1], x[0], {.right = right, .out_int32 = true}); };
    row.variant += " i32", row.result = DType::kI32, row.errors.clear();
    add_row(row);
  }
  for (bool invert : {false, true}) {
    add_row(
        {.op = "isin",
         .variant = invert ? "inverted" : "",
         .samples = {{asked, sorted}, {in({}), in({})}, {asked, in({0})}, {in({0}), sorted}, {sorted, asked}},
         .run = [invert](X x) { return isin(x[0], x[1], {.invert = invert}); },
         .reference =
             [invert](A x) {
               Array y = x[0];
               for (double& v : y.v) v = (std::count(x[1].v.begin(), x[1].v.end(), v) > 0) != invert;
               return y;
             },
         .fixed_result = true,
         .result = DType::kBool,
         .differentiable = false,
         .dtypes = kFloats,
         .errors = {ERROR_CASE(isin(empty({2}), empty({2}, {.device = kMeta})), "[isin]", "cpu", "meta")}});
  }
}

}  // namespace

static const bool added = [] {
  add_orders();
  add_selections();
  add_distinct_values();
  add_counts();
  add_search();
  return true;
}();

}  // namespace gradus::optest
