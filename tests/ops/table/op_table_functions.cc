// Rows of the op test table for element-wise functions beyond op_table_elementwise.cc: trigonometric and
// special functions, rounding, bit operations, activations. References are scalar functions in f64. Each row
// is tested against its f64 reference, its gradients against difference quotients; op_table.h explains the
// fields.
#include <algorithm>
#include <cmath>
#include <limits>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tests/ops/table/op_table.h"

namespace gradus::optest {
namespace {

const std::vector<DType> kFloats = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};
constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<Sample> samples_like(const Input& like) {
  std::vector<Sample> out;
  for (const Shape& s : {Shape{}, Shape{19}, Shape{1, 5, 1}, Shape{2, 3, 2, 3}, Shape{0, 3}, Shape{3, 111}}) {
    Input i = like;
    i.shape = s;
    out.push_back({i});
  }
  return out;
}

std::vector<Sample> pairs_like(Input a, Input b) {
  std::vector<Sample> out;
  for (const auto& [sa, sb] : {std::pair<Shape, Shape>{{3, 7}, {3, 7}},
                               {{3, 1}, {1, 4}},
                               {{}, {5}},
                               {{2, 3, 2, 2}, {3, 1, 1}},
                               {{1}, {1}},
                               {{0, 3}, {1, 3}},
                               {{9, 67}, {67}}}) {
    a.shape = sa, b.shape = sb;
    out.push_back({a, b});
  }
  return out;
}

struct One {  // an op of one argument
  const char* op;
  Tensor (*run)(const Tensor&);
  double (*reference)(double);
  Input like = in({});
  double terms = 8;
  std::vector<ErrorCase> errors = {};
  const char* variant = "";
};
// Ops composed of others round after each: in 16-bit types they would exceed a tolerance for one rounding.
bool is_composite(const std::string& op) {
  for (const char* name : {"sinc", "logit", "frac", "softsign", "tanhshrink", "relu6", "deg2rad", "rad2deg"})
    if (op == name) return true;
  return false;
}
void add(const One& u) {
  add_row({.op = u.op,
           .variant = u.variant,
           .samples = samples_like(u.like),
           .run = [f = u.run](X x) { return f(x[0]); },
           .reference = unary(u.reference),
           .terms = u.terms,
           .dtypes = is_composite(u.op) ? std::vector<DType>{DType::kF32, DType::kF64} : kFloats,
           .errors = u.errors,
           .takes_all = u.errors.empty()});
}

ErrorCase two_shapes(std::function<Tensor(const Tensor&, const Tensor&)> f) {
  return ERROR_CASE(f(empty({2, 3}), empty({2, 4})), "[2,3]", "[2,4]");
}
// An argument out of range, which the error must quote as `says`.
ErrorCase bad_value(const char* says, std::function<void()> f) { return {"value", std::move(f), {says}}; }

void add_angles() {
  const Input wide = in({}, -4, 4), unit = in({}, -0.9, 0.9), above_one = in({}, 1.1, 4);
  add({"tan", [](const Tensor& x) { return tan(x); }, [](double v) { return std::tan(v); }, in({}, -1.2, 1.2),
       12});
  add({"asin", [](const Tensor& x) { return asin(x); }, [](double v) { return std::asin(v); }, unit, 16});
  add({"acos", [](const Tensor& x) { return acos(x); }, [](double v) { return std::acos(v); }, unit, 16});
  add({"atan", [](const Tensor& x) { return atan(x); }, [](double v) { return std::atan(v); }, wide});
  add({"sinh", [](const Tensor& x) { return sinh(x); }, [](double v) { return std::sinh(v); }, wide, 16});
  add({"cosh", [](const Tensor& x) { return cosh(x); }, [](double v) { return std::cosh(v); }, wide, 16});
  add({"asinh", [](const Tensor& x) { return asinh(x); }, [](double v) { return std::asinh(v); }, wide});
  add({"acosh", [](const Tensor& x) { return acosh(x); }, [](double v) { return std::acosh(v); }, above_one,
       16});
  add({"atanh", [](const Tensor& x) { return atanh(x); }, [](double v) { return std::atanh(v); }, unit, 32});
  add({"deg2rad", [](const Tensor& x) { return deg2rad(x); }, [](double v) { return v * M_PI / 180; },
       in({}, -180, 180)});
  add({"rad2deg", [](const Tensor& x) { return rad2deg(x); }, [](double v) { return v * 180 / M_PI; }, wide});
  add({"sinc", [](const Tensor& x) { return sinc(x * 1.0); },
       [](double v) { return v == 0 ? 1 : std::sin(M_PI * v) / (M_PI * v); }, in({}, 0.3, 1.6), 32});
}

void add_functions() {
  const Input positive = in({}, 0.2, 3), unit = in({}, -0.9, 0.9), wide = in({}, -4, 4);
  add({"exp2", [](const Tensor& x) { return exp2(x); }, [](double v) { return std::exp2(v); }, wide});
  add({"log2", [](const Tensor& x) { return log2(x); }, [](double v) { return std::log2(v); }, positive});
  add({"log10", [](const Tensor& x) { return log10(x); }, [](double v) { return std::log10(v); }, positive});
  add({"erfc", [](const Tensor& x) { return erfc(x); }, [](double v) { return std::erfc(v); }, wide});
  // The reference bisects erf.
  add({"erfinv", [](const Tensor& x) { return erfinv(x); },
       [](double v) {
         double low = -6, high = 6;
         for (int i = 0; i < 200; ++i) (std::erf((low + high) / 2) < v ? low : high) = (low + high) / 2;
         return low;
       },
       unit, 64});
  add({"lgamma", [](const Tensor& x) { return lgamma(x); }, [](double v) { return std::lgamma(v); },
       in({}, 0.3, 5), 16});
  // psi(x) = psi(x + 1) - 1 / x up to x = 1e4, then the asymptotic series; psi' likewise.
  const auto digamma_of = [](double v) {
    double s = 0;
    for (; v < 1e4; ++v) s -= 1 / v;
    return s + std::log(v) - 0.5 / v - 1 / (12 * v * v);
  };
  add({"digamma", [](const Tensor& x) { return digamma(x); }, digamma_of, in({}, 0.3, 5), 4096});
  add({"polygamma",
       [](const Tensor& x) { return polygamma(1, x); },
       [](double v) {
         double s = 0;
         for (; v < 1e4; ++v) s += 1 / (v * v);
         return s + 1 / v + 0.5 / (v * v) + 1 / (6 * v * v * v);
       },
       in({}, 0.4, 5),
       4096,
       {bad_value("-1", [] { polygamma(-1, ones({2})); })}});
  add({"logit",
       [](const Tensor& x) { return logit(x); },
       [](double v) { return std::log(v / (1 - v)); },
       in({}, 0.1, 0.9),
       16,
       {bad_value("0.5", [] { logit(ones({2}), 0.5); })}});
  add({"logit",
       [](const Tensor& x) { return logit(x, 0.2013); },
       [](double v) {
         v = std::clamp(v, 0.2013, 1 - 0.2013);
         return std::log(v / (1 - v));
       },
       distinct({}, 0.011, 0.99),
       16,
       {},
       "limited"});
  add({"trunc", [](const Tensor& x) { return trunc(x); }, [](double v) { return std::trunc(v); },
       distinct({})});
  add({"frac", [](const Tensor& x) { return frac(x); }, [](double v) { return v - std::trunc(v); },
       distinct({}), 16});
  add_row({.op = "round",
           .variant = "decimals",
           .samples = {{distinct({19})}, {distinct({})}},
           .run = RUN(round(x[0], 1)),
           .reference = unary([](double v) { return std::nearbyint(v * 10) / 10; })});
  add({"nan_to_num", [](const Tensor& x) { return nan_to_num(x); }, [](double v) { return v; }});
  add_row({.op = "nan_to_num",
           .variant = "special",
           .samples = {{{.shape = {4}, .values = {kInf, -kInf, std::nan(""), 2}}}},
           .run = RUN(nan_to_num(x[0], {.nan = 3, .posinf = 4, .neginf = -5})),
           .reference = unary([](double v) {
             return std::isnan(v) ? 3 : v == kInf ? 4 : v == -kInf ? -5 : v;
           }),
           .differentiable = false});
}

void add_pairs() {
  const auto row = [](const char* op, Tensor (*f)(const Tensor&, const Tensor&), double (*r)(double, double),
                      Input a, Input b, double terms = 8, bool differentiable = true) {
    add_row({.op = op,
             .samples = pairs_like(a, b),
             .run = [f](X x) { return f(x[0], x[1]); },
             .reference = binary(r),
             .terms = terms,
             .differentiable = differentiable,
             .errors = {two_shapes(f)}});
  };
  const Input far = off_zero({}, 3), positive = in({}, 0.3, 3);
  row(
      "atan2", &atan2, [](double a, double b) { return std::atan2(a, b); }, far, far);
  row(
      "logaddexp", &logaddexp, [](double a, double b) { return std::log(std::exp(a) + std::exp(b)); }, in({}),
      in({}), 16);
  row(
      "xlogy", &xlogy, [](double a, double b) { return a * std::log(b); }, far, positive, 16);
  row(
      "hypot", &hypot, [](double a, double b) { return std::sqrt(a * a + b * b); }, far, far);
  row(
      "copysign", &copysign, [](double a, double b) { return std::copysign(a, b); }, far, far);
  row(
      "heaviside", &heaviside, [](double a, double b) { return a > 0   ? 1
                                                               : a < 0 ? 0
                                                                       : b; }, far, in({}));
  row(
      "fmod", [](const Tensor& a, const Tensor& b) { return fmod(a, b); },
      [](double a, double b) { return std::fmod(a, b); }, in({}, 1.1, 1.9), in({}, -0.9, -0.6), 16);
  row(
      "floor_divide", [](const Tensor& a, const Tensor& b) { return floor_divide(a, b); },
      [](double a, double b) { return std::floor(a / b); }, in({}, 1.3, 1.7), in({}, -1.2, -0.9));
  row(
      "add", [](const Tensor& a, const Tensor& b) { return gradus::add(a, b, 0.3); },
      [](double a, double b) { return a + 0.3 * b; }, in({}), in({}));
  row(
      "sub", [](const Tensor& a, const Tensor& b) { return sub(a, b, 0.3); },
      [](double a, double b) { return a - 0.3 * b; }, in({}), in({}));
  for (const auto& [op, f] : {std::pair<const char*, Tensor (*)(const Tensor&, Number)>{"fmod", &fmod},
                              {"floor_divide", &floor_divide}})
    add_row({.op = op,
             .variant = "number",
             .samples = {{in({9}, -1.9, -1.6)}},
             .run = [f = f](X x) { return f(x[0], 0.75); },
             .reference = std::string(op) == "fmod" ? unary([](double a) { return std::fmod(a, 0.75); })
                                                    : unary([](double a) { return std::floor(a / 0.75); })});
  for (const auto& [name, mode] : {std::pair<const char*, RoundingMode>{"truncated", RoundingMode::kTrunc},
                                   {"rounded down", RoundingMode::kFloor},
                                   {"not rounded", RoundingMode::kNone}}) {
    const auto quotient = [m = mode](double a, double b) {
      return m == RoundingMode::kTrunc   ? std::trunc(a / b)
             : m == RoundingMode::kFloor ? std::floor(a / b)
                                         : a / b;
    };
    add_row(
        {.op = "div",
         .variant = name,
         .samples = {{in({2, 3}, 1.3, 1.7), in({3}, -1.2, -0.9)}, {in({19}, -2.9, -2.6), in({}, 1.1, 1.2)}},
         .run = [m = mode](X x) { return div(x[0], x[1], m); },
         .reference = binary(quotient),
         .dtypes = kFloats});
    add_row({.op = "div",
             .variant = concat(name, ", by a number"),
             .samples = {{in({9}, -1.9, -1.6)}},
             .run = [m = mode](X x) { return div(x[0], 0.75, m); },
             .reference = unary([quotient](double a) { return quotient(a, 0.75); })});
    if (mode == RoundingMode::kNone) continue;
    add_row({.op = "div",
             .variant = concat(name, ", of integers"),
             .samples = {{in({40}, -20, 20), in({40}, 1, 5)}, {in({40}, -20, 20), in({40}, -5, -1)}},
             .run = [m = mode](X x) { return div(x[0], x[1], m); },
             .reference = binary(quotient),
             .differentiable = false,
             .dtypes = {DType::kI64, DType::kI32, DType::kI16, DType::kI8}});
  }
  for (const char* op : {"add", "sub"})
    add_row({.op = op,
             .variant = "a multiple of a number",
             .samples = {{in({2, 3})}},
             .run = [plus = op[0] == 'a'](
                        X x) { return plus ? gradus::add(x[0], 2.0, 0.25) : gradus::sub(x[0], 2.0, 0.25); },
             .reference = unary([plus = op[0] == 'a'](double a) { return plus ? a + 0.5 : a - 0.5; }),
             .errors = {{"fractions of integers",
                         [plus = op[0] == 'a'] {
                           const Tensor i = ones({2}, {.dtype = DType::kI64});
                           plus ? gradus::add(i, i, 0.5) : gradus::sub(i, i, 0.5);
                         },
                         {"i64", "0.5"}},
                        {"fractions of integers in place",
                         [] {
                           const Tensor i = ones({2}, {.dtype = DType::kI64});
                           add_(i, i, 0.5);
                         },
                         {"i64", "0.5"},
                         "add_"}}});
  for (const char* op : {"fmod", "floor_divide"})
    add_row({.op = op,
             .variant = "of integers",
             .samples = {{in({9}, -20, 20), in({9}, 1, 5)}, {in({9}, -20, 20), in({9}, -5, -1)}},
             .run = [f = std::string(op)](
                        X x) { return f == "fmod" ? fmod(x[0], x[1]) : floor_divide(x[0], x[1]); },
             .reference = std::string(op) == "fmod"
                              ? binary([](double a, double b) { return std::fmod(a, b); })
                              : binary([](double a, double b) { return std::floor(a / b); }),
             .differentiable = false,
             .dtypes = {DType::kI64, DType::kI32, DType::kI16, DType::kI8}});
  const auto combined = [](const char* op, Tensor (*f)(const Tensor&, const Tensor&, const Tensor&, double),
                           auto r) {
    add_row({.op = op,
             .samples = {{in({2, 3}), off_zero({2, 3}), off_zero({3})},
                         {in({}), off_zero({1}), off_zero({4, 1})}},
             .run = [f](X x) { return f(x[0], x[1], x[2], 0.7); },
             .reference = ternary(r),
             .terms = 16,
             .errors = {ERROR_CASE(f(empty({2}), empty({3}), empty({3}), 1), "[2]", "[3]"),
                        {"integers",
                         [f] {
                           const Tensor i = empty({2}, {DType::kI64});
                           f(i, i, i, 1);
                         },
                         {"i64"}}}});
  };
  combined("addcmul", &addcmul, [](double x, double a, double b) { return x + 0.7 * a * b; });
  combined("addcdiv", &addcdiv, [](double x, double a, double b) { return x + 0.7 * a / b; });
  add_row({.op = "clamp",
           .variant = "tensors",
           .samples = {{distinct({3, 7}), in({7}, -1, -0.5), in({3, 1}, 0.5, 1)},
                       {distinct({9}), in({}, -0.51, -0.5), in({9}, 0.2, 0.3)}},
           .run = RUN(clamp(x[0], x[1], x[2])),
           .reference = ternary([](double v, double l, double h) { return std::min(std::max(v, l), h); }),
           .errors = {ERROR_CASE(clamp(ones({2}), Tensor(), Tensor()), "bounds")}});
}

void add_tests_and_bits() {
  add_row({.op = "isinf",
           .samples = {{{.shape = {5}, .values = {1, kInf, -kInf, std::nan(""), 0}}}},
           .run = RUN(isinf(x[0])),
           .reference = unary([](double v) { return double(std::isinf(v)); }),
           .fixed_result = true,
           .differentiable = false,
           .dtypes = kFloats});
  for (double sign : {1.0, -1.0})
    add_row({.op = sign > 0 ? "isposinf" : "isneginf",
             .samples = {{{.shape = {5}, .values = {1, kInf, -kInf, std::nan(""), 0}}}},
             .run = [sign](X x) { return sign > 0 ? isposinf(x[0]) : isneginf(x[0]); },
             .reference = unary([sign](double v) { return double(v == sign * kInf); }),
             .fixed_result = true,
             .differentiable = false});
  add_row({.op = "logical_xor",
           .samples = {{mask({7}), mask({7})}, {mask({2, 1}), mask({3})}},
           .run = RUN(logical_xor(x[0], x[1])),
           .reference = binary([](double a, double b) { return double((a != 0) != (b != 0)); }),
           .fixed_result = true,
           .differentiable = false,
           .errors = {two_shapes(&logical_xor)}});
  add_row({.op = "isclose",
           .samples = {{{.shape = {5}, .values = {1, kInf, 2, std::nan(""), 0}},
                        {.shape = {5}, .values = {1.01, kInf, 2, std::nan(""), 1}}}},
           .run = RUN(isclose(x[0], x[1], {.rtol = 0.1, .equal_nan = true})),
           .reference = binary([](double a, double b) {
             return double(a == b || (std::isnan(a) && std::isnan(b)) ||
                           std::abs(a - b) <= 1e-8 + 0.1 * std::abs(b));
           }),
           .fixed_result = true,
           .differentiable = false,
           .errors = {bad_value("-1", [] { isclose(ones({2}), ones({2}), {.rtol = -1}); })}});
  const auto integers = [](const char* op, Tensor (*f)(const Tensor&, const Tensor&),
                           int64_t (*r)(int64_t, int64_t), double low, double high) {
    add_row({.op = op,
             .samples = {{in({19}, -30, 30), in({19}, low, high)}, {in({3, 1}, -30, 30), in({4}, low, high)}},
             .run = [f](X x) { return f(x[0], x[1]); },
             .reference = binary([r](double a, double b) { return double(r(int64_t(a), int64_t(b))); }),
             .differentiable = false,
             .dtypes = {DType::kI64, DType::kI32},
             .errors = {ERROR_CASE(f(empty({2}), empty({2})), "f32")}});
  };
  integers(
      "bitwise_and", &bitwise_and, [](int64_t a, int64_t b) { return a & b; }, -30, 30);
  integers(
      "bitwise_or", &bitwise_or, [](int64_t a, int64_t b) { return a | b; }, -30, 30);
  integers(
      "bitwise_xor", &bitwise_xor, [](int64_t a, int64_t b) { return a ^ b; }, -30, 30);
  integers(
      "bitwise_left_shift", &bitwise_left_shift, [](int64_t a, int64_t b) { return a * (int64_t(1) << b); },
      0, 9);
  integers(
      "bitwise_right_shift", &bitwise_right_shift, [](int64_t a, int64_t b) { return a >> b; }, 0, 40);
  add_row({.op = "bitwise_not",
           .samples = {{in({19}, -30, 30)}},
           .run = RUN(bitwise_not(x[0])),
           .reference = unary([](double a) { return double(~int64_t(a)); }),
           .differentiable = false,
           .dtypes = {DType::kI64, DType::kI32},
           .errors = {ERROR_CASE(bitwise_not(empty({2})), "f32")}});
  covered_elsewhere("allclose", "Functions.AllcloseAndEqualLookAtAllElements");
  covered_elsewhere("equal", "Functions.AllcloseAndEqualLookAtAllElements");
}

void add_activations() {
  const Input wide = in({}, -4, 4), far = off_zero({}, 3);
  add({"relu6", [](const Tensor& x) { return relu6(x * 4); },
       [](double v) { return std::clamp(4 * v, 0.0, 6.0); }, far});
  add({"hardtanh",
       [](const Tensor& x) { return hardtanh(x, -0.5113, 0.7137); },
       [](double v) { return std::clamp(v, -0.5113, 0.7137); },
       distinct({}),
       8,
       {bad_value("2", [] { hardtanh(ones({2}), 2, 1); })}});
  add({"hardsigmoid", [](const Tensor& x) { return hardsigmoid(x); },
       [](double v) { return std::clamp(v / 6 + 0.5, 0.0, 1.0); }, distinct({}, -4, 4.1)});
  add({"hardswish", [](const Tensor& x) { return hardswish(x); },
       [](double v) { return v * std::clamp(v / 6 + 0.5, 0.0, 1.0); }, distinct({}, -4, 4.1)});
  add({"hardshrink", [](const Tensor& x) { return hardshrink(x); },
       [](double v) { return std::abs(v) <= 0.5 ? 0 : v; }, distinct({})});
  add({"softshrink",
       [](const Tensor& x) { return softshrink(x); },
       [](double v) { return v > 0.5    ? v - 0.5
                             : v < -0.5 ? v + 0.5
                                        : 0; },
       distinct({}),
       8,
       {bad_value("-1", [] { softshrink(ones({2}), -1); })}});
  add({"celu",
       [](const Tensor& x) { return celu(x, 0.8); },
       [](double v) { return v > 0 ? v : 0.8 * std::expm1(v / 0.8); },
       far,
       8,
       {bad_value("0", [] { celu(ones({2}), 0); })}});
  add({"selu", [](const Tensor& x) { return selu(x); },
       [](double v) { return 1.0507009873554805 * (v > 0 ? v : 1.6732632423543772 * std::expm1(v)); }, far});
  add({"mish", [](const Tensor& x) { return mish(x); },
       [](double v) { return v * std::tanh(std::log1p(std::exp(v))); }, wide, 16});
  add({"softsign", [](const Tensor& x) { return softsign(x); },
       [](double v) { return v / (1 + std::abs(v)); }, far});
  add({"tanhshrink", [](const Tensor& x) { return tanhshrink(x); }, [](double v) { return v - std::tanh(v); },
       wide});
  add({"threshold", [](const Tensor& x) { return threshold(x, {.threshold = 0.125, .value = 20}); },
       [](double v) { return v > 0.125 ? v : 20; }, distinct({})});
  add_row({.op = "prelu",
           .samples = {{off_zero({2, 3, 2, 2}), in({3}, 0.1, 0.5)},
                       {off_zero({4, 5}), in({1}, 0.1, 0.5)},
                       {off_zero({5}), in({5}, 0.1, 0.5)},
                       {off_zero({}), in({1}, 0.1, 0.5)},
                       {off_zero({0, 3}), in({3}, 0.1, 0.5)}},
           .run = RUN(prelu(x[0], x[1])),
           .reference =
               [](A x) {
                 Array y = x[0];
                 const int64_t channels = int64_t(x[1].v.size());
                 int64_t inner = 1;
                 for (int d = 2; d < y.dim(); ++d) inner *= y.shape[d];
                 for (size_t i = 0; i < y.v.size(); ++i)
                   if (y.v[i] <= 0) y.v[i] *= x[1].v[size_t(int64_t(i) / inner % channels)];
                 return y;
               },
           .errors = {ERROR_CASE(prelu(empty({2, 3}), empty({2})), "[2]", "[2,3]"),
                      ERROR_CASE(prelu(empty({2, 3}), empty({3}, {DType::kF64})), "f64")}});
  add_row({.op = "glu",
           .samples = {{in({2, 6})}, {in({4, 3})}, {in({0, 2})}},
           .run = RUN(glu(x[0], x[0].size(1) % 2 ? 0 : 1)),
           .reference =
               [](A x) {
                 const int dim = x[0].shape[1] % 2 ? 0 : 1;
                 if (x[0].v.empty()) return Array(Shape{0, 1});
                 return along(x[0], dim, true, [](std::vector<double> v) {
                   std::vector<double> out;
                   for (size_t i = 0; i < v.size() / 2; ++i)
                     out.push_back(v[i] / (1 + std::exp(-v[i + v.size() / 2])));
                   return out;
                 });
               },
           .terms = 8,
           .errors = {ERROR_CASE(glu(empty({2, 3})), "[2,3]")}});
}

static const bool added = [] {
  add_angles();
  add_functions();
  add_pairs();
  add_tests_and_bits();
  add_activations();
  return true;
}();

}  // namespace
}  // namespace gradus::optest
