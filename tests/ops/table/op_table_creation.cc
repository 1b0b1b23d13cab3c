// Rows of the op test table for creation and random ops. Random ops set the seed before each run; most have
// no reference, and results on other devices, layouts and thread counts are compared. op_table.h explains the
// fields.
#include <cmath>
#include <string>

#include "gradus/autograd/ops/dropout.h"
#include "gradus/autograd/ops/random.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tests/ops/table/op_table.h"

namespace gradus::optest {
namespace {

// An op without inputs, its reference r (null for a random one) and its result's dtype t.
void source(const char* op, const char* variant, std::function<Tensor()> run, std::function<Array()> r,
            DType t, std::vector<ErrorCase> errors = {}) {
  add_row({.op = op,
           .variant = variant,
           .samples = {{}},
           .run = [run](X) { return run(); },
           .reference = r ? Reference([r](A) { return r(); }) : nullptr,
           .fixed_result = true,
           .result = t,
           .differentiable = false,
           .dtypes = {t},
           .errors = std::move(errors)});
}

Array list(const std::vector<double>& v) {
  Array y(Shape{int64_t(v.size())});
  y.v = v;
  return y;
}

void add_creation() {
  constexpr TensorOptions kDouble = {.dtype = DType::kF64};
  source(
      "zeros", "",
      [] {
        return zeros({2, 3});
      },
      [] {
        return Array({2, 3});
      },
      DType::kF32, {ERROR_CASE(zeros({2, -3}), "-3")});
  source(
      "ones", "",
      [=] {
        return ones({2, 3}, kDouble);
      },
      [] {
        return Array({2, 3}, 1);
      },
      DType::kF64);
  source(
      "full", "", [] { return full({2}, 7, {.dtype = DType::kI64}); }, [] { return Array({2}, 7); },
      DType::kI64);
  source(
      "full", "0-dim", [] { return full({}, 0.5); }, [] { return Array(Shape{}, 0.5); }, DType::kF32);
  source(
      "arange", "", [] { return arange(4); },
      [] {
        return list({0, 1, 2, 3});
      },
      DType::kI64);
  source(
      "arange", "between", [] { return arange(2, 5); },
      [] {
        return list({2, 3, 4});
      },
      DType::kI64);
  source(
      "arange", "fractions", [] { return arange(0, 1, 0.25); },
      [] {
        return list({0, 0.25, 0.5, 0.75});
      },
      DType::kF32);
  source(
      "arange", "downwards", [] { return arange(5, 0, -2); },
      [] {
        return list({5, 3, 1});
      },
      DType::kI64);
  source(
      "arange_from", "", [=] { return arange_from(1, 2.1, 0.5, kDouble); },
      [] {
        return list({1, 1.5, 2});
      },
      DType::kF64,
      {{"step 0", [] { arange_from(0, 1, 0, {}); }, {"0"}, "arange"},
       {"wrong sign", [] { arange_from(0, 1, -1, {}); }, {"-1"}, "arange"}});
  source(
      "linspace", "", [=] { return linspace(-1, 1, 5, kDouble); },
      [] {
        return list({-1, -0.5, 0, 0.5, 1});
      },
      DType::kF64, {ERROR_CASE(linspace(0, 1, -1), "-1")});
  source(
      "linspace", "one step", [] { return linspace(3, 9, 1); }, [] { return list({3}); }, DType::kF32);
  source(
      "logspace", "", [=] { return logspace(-1, 2, 4, 10, kDouble); },
      [] {
        return list({0.1, 1, 10, 100});
      },
      DType::kF64, {ERROR_CASE(logspace(0, 1, -1), "[logspace]", "-1")});
  source(
      "logspace", "base 2", [] { return logspace(0, 3, 4, 2, {.dtype = DType::kI64}); },
      [] {
        return list({1, 2, 4, 8});
      },
      DType::kI64);
  const auto triangle = [](int64_t n, int64_t m, std::function<bool(int64_t, int64_t)> keeps) {
    std::vector<double> rows, cols;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < m; ++j)
        if (keeps(i, j)) rows.push_back(double(i)), cols.push_back(double(j));
    Array y({2, int64_t(rows.size())});
    y.v = rows;
    y.v.insert(y.v.end(), cols.begin(), cols.end());
    return y;
  };
  for (int64_t offset : {0, 2, -1, -9}) {
    const std::string name = std::to_string(offset);
    source(
        "tril_indices", name.c_str(), [=] { return tril_indices(3, 5, offset); },
        [=] { return triangle(3, 5, [=](int64_t i, int64_t j) { return j - i <= offset; }); }, DType::kI64,
        {ERROR_CASE(tril_indices(-1, 2), "[tril_indices]", "-1"),
         ERROR_CASE(tril_indices(1, 2, 0, {.dtype = DType::kF32}), "[tril_indices]", "f32")});
    source(
        "triu_indices", name.c_str(), [=] { return triu_indices(3, 5, offset); },
        [=] { return triangle(3, 5, [=](int64_t i, int64_t j) { return j - i >= offset; }); }, DType::kI64,
        {ERROR_CASE(triu_indices(1, -2), "[triu_indices]", "-2"),
         ERROR_CASE(triu_indices(1, 2, 0, {.dtype = DType::kBool}), "[triu_indices]", "bool")});
  }
  const auto identity = [](int64_t n, int64_t m) {
    Array y({n, m});
    for (int64_t i = 0; i < std::min(n, m); ++i) y.at({i, i}) = 1;
    return y;
  };
  source(
      "eye", "", [] { return eye(3); }, [=] { return identity(3, 3); }, DType::kF32);
  source(
      "eye", "wide", [] { return eye(2, 4); }, [=] { return identity(2, 4); }, DType::kF32);
  for (const auto& [n, m] : {std::pair<int64_t, int64_t>{3, 5}, {5, 3}, {4, 4}, {0, 2}, {1, 1}})
    for (int64_t offset :
         {int64_t{0}, int64_t{1}, int64_t{-1}, int64_t{2}, int64_t{-4}, int64_t{5}, INT64_MAX, INT64_MIN})
      source(
          "eye", concat(n, 'x', m, " at ", offset).c_str(),
          [n = n, m = m, offset] { return eye(n, m, offset, {.dtype = DType::kI32}); },
          [n = n, m = m, offset] {
            Array y({n, m});
            for (int64_t i = 0; i < n; ++i)
              for (int64_t j = 0; j < m; ++j) y.at({i, j}) = j - i == offset;
            return y;
          },
          DType::kI32);

  const std::vector<Sample> any = {{in({3, 5})}, {in({2, 3, 2, 2})}, {in({})}};
  const auto like = [&](const char* op, Tensor (*f)(const Tensor&), double (*r)(double)) {
    add_row({.op = op,
             .samples = any,
             .run = [f](X x) { return f(x[0]); },
             .reference = unary(r),
             .dtypes = {DType::kF32, DType::kF64, DType::kI64}});
  };
  like(
      "zeros_like", [](const Tensor& x) { return zeros_like(x); }, [](double) { return 0.0; });
  like(
      "ones_like", [](const Tensor& x) { return ones_like(x); }, [](double) { return 1.0; });
  like(
      "full_like", [](const Tensor& x) { return full_like(x, 4); }, [](double) { return 4.0; });
  add_row({.op = "full_like",
           .variant = "another dtype",
           .samples = any,
           .run = RUN(full_like(x[0], 4, DType::kI32)),
           .reference = unary([](double) { return 4.0; }),
           .fixed_result = true,
           .result = DType::kI32,
           .differentiable = false});
}

void add_random() {
  const std::vector<Sample> any = {{in({300})}, {in({2, 3, 2, 2})}, {in({})}};
  // A random op that takes its shape and dtype from a tensor.
  const auto drawn = [&](const char* op, std::function<Tensor(const Tensor&)> f,
                         std::vector<ErrorCase> errors = {}) {
    add_row({.op = op,
             .samples = any,
             .run =
                 [f](X x) {
                   manual_seed(11);
                   return f(x[0]);
                 },
             .differentiable = false,
             .errors = std::move(errors)});
  };
  // The same for an op that fills its argument.
  const auto into = [](void (*f)(const Tensor&)) {
    return [f](const Tensor& x) {
      const Tensor y = raw::clone(x);
      f(y);
      return y;
    };
  };
  drawn("uniform_", into([](const Tensor& x) { uniform_(x, -1, 2); }),
        {ERROR_CASE(uniform_(empty({2}), 2, 1), "2", "1")});
  drawn("normal_", into([](const Tensor& x) { normal_(x, 1, 2); }),
        {ERROR_CASE(normal_(empty({2}), 0, -1), "-1")});
  drawn("bernoulli_", into([](const Tensor& x) { bernoulli_(x, 0.3); }),
        {ERROR_CASE(bernoulli_(empty({2}), 1.5), "1.5")});
  drawn("randint_like", [](const Tensor& x) { return randint_like(x, 2, 5); },
        {ERROR_CASE(randint_like(empty({2}), 3, 3), "3")});
  drawn("normal", [](const Tensor& x) { return normal(x, 2); },
        {ERROR_CASE(normal(empty({2}), -1), "[normal]", "-1"),
         ERROR_CASE(normal(empty({2}, {.dtype = DType::kI64}), 1), "[normal]", "i64")});
  add_row({.op = "normal",
           .variant = "tensors",
           .samples = {{in({3, 1}), in({4}, 0, 2)}},
           .run =
               [](X x) {
                 manual_seed(11);
                 return normal(x[0], x[1]);
               },
           .differentiable = false});
  // One nonzero weight per row determines the samples.
  Input sure = in({2, 4});
  sure.values = {0, 0, 3, 0, 0.5, 0, 0, 0};
  add_row(
      {.op = "multinomial",
       .samples = {{sure}},
       .run = RUN(multinomial(x[0], 3, {.replacement = true})),
       .reference =
           [](A) {
             Array y({2, 3});
             y.v = {2, 2, 2, 0, 0, 0};
             return y;
           },
       .fixed_result = true,
       .result = DType::kI64,
       .differentiable = false,
       .errors = {ERROR_CASE(multinomial(ones({2, 2, 2}), 1), "[multinomial]", "[2,2,2]"),
                  ERROR_CASE(multinomial(ones({2, 0}), 1), "[multinomial]", "[2,0]"),
                  ERROR_CASE(multinomial(ones({2}), 0), "[multinomial]", "0"),
                  ERROR_CASE(multinomial(ones({2}), 3), "[multinomial]", "3", "2"),
                  ERROR_CASE(multinomial(tensor({1.f, 0.f}), 2), "[multinomial]", "2", "1"),
                  ERROR_CASE(multinomial(tensor({1.f, -2.f}), 1), "[multinomial]", "-2"),
                  ERROR_CASE(multinomial(zeros({2}), 1), "[multinomial]", "0"),
                  ERROR_CASE(multinomial(ones({2}, {.dtype = DType::kI64}), 1), "[multinomial]", "i64")}});
  for (bool replacement : {false, true}) {
    add_row({.op = "multinomial",
             .variant = replacement ? "with replacement" : "without replacement",
             .samples = {{in({50}, 0, 1)}, {in({3, 40}, 0, 1)}},
             .run =
                 [=](X x) {
                   manual_seed(11);
                   return multinomial(x[0], 20, {.replacement = replacement});
                 },
             .fixed_result = true,
             .result = DType::kI64,
             .differentiable = false});
  }
  drawn("rand_like", [](const Tensor& x) { return rand_like(x); });
  drawn("randn_like", [](const Tensor& x) { return randn_like(x); });
  add_row({.op = "bernoulli",
           .samples = {{in({300}, 0, 1)}},
           .run =
               [](X x) {
                 manual_seed(11);
                 return bernoulli(x[0]);
               },
           .differentiable = false});
  const auto seeded = [](std::function<Tensor()> f) {
    return [f] {
      manual_seed(11);
      return f();
    };
  };
  source("rand", "", seeded([] { return rand({50}); }), nullptr, DType::kF32);
  source("randn", "", seeded([] { return randn({50}); }), nullptr, DType::kF32);
  source("randint", "", seeded([] { return randint(3, 9, {50}); }), nullptr, DType::kI64,
         {ERROR_CASE(randint(3, 3, {1}), "3")});
  source("randperm", "", seeded([] { return randperm(50); }), nullptr, DType::kI64,
         {ERROR_CASE(randperm(-1), "-1")});

  const auto dropped = [](double p, bool training) {
    return [=](X x) {
      manual_seed(5);
      return dropout(x[0], p, training);
    };
  };
  add_row({.op = "dropout",
           .samples = any,
           .run = dropped(0.3, true),
           .errors = {ERROR_CASE(dropout(empty({2}), 1.5), "1.5")}});
  add_row({.op = "dropout",
           .variant = "evaluation",
           .samples = any,
           .run = dropped(0.3, false),
           .reference = [](A x) { return x[0]; }});
  add_row({.op = "dropout", .variant = "p 0", .samples = any, .run = dropped(0, true), .reference = [](A x) {
             return x[0];
           }});
  add_row({.op = "dropout",
           .variant = "p 1",
           .samples = any,
           .run = dropped(1, true),
           .reference = unary([](double) { return 0.0; })});
  add_row({.op = "masked_scale",
           .samples = {{in({3, 5}), mask({3, 5})}, {in({2, 3, 2, 2}), mask({2, 3, 2, 2})}},
           .run = RUN(masked_scale(x[0], x[1], 2.5)),
           .reference = binary([](double v, double m) { return m != 0 ? 2.5 * v : 0; })});
}

}  // namespace

static const bool added = [] {
  add_creation();
  add_random();
  return true;
}();

}  // namespace gradus::optest
