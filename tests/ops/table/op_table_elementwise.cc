// Rows of the op test table for the element-wise ops: arithmetic, activations and their gradients,
// comparisons, where, copies. References are scalar functions of <cmath> in f64. Each row is tested against
// its f64 reference, its gradients against difference quotients; op_table.h explains the fields.
// Tolerance: eps (4 + terms) max(1, |expected|max), where `terms` is the number of roundings.
#include <algorithm>
#include <cmath>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tests/ops/table/op_table.h"

namespace gradus::optest {
namespace {

const std::vector<DType> kFloats = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};

// A scalar, a vector with a SIMD tail, size-1 dims, an image, an empty tensor, a larger matrix.
std::vector<Sample> unary_samples(const Input& like) {
  std::vector<Sample> out;
  for (const Shape& s : {Shape{}, Shape{19}, Shape{1, 5, 1}, Shape{2, 3, 2, 3}, Shape{0, 3}, Shape{7, 701}}) {
    Input i = like;
    i.shape = s;
    out.push_back({i});
  }
  return out;
}

// Equal shapes, broadcasting to either side and to both, 0-dim, size-1 dims, an image with a
// per-channel operand, empty.
std::vector<Sample> binary_samples(const Input& a, const Input& b) {
  const std::pair<Shape, Shape> shapes[] = {{{3, 7}, {3, 7}},
                                            {{3, 4}, {4}},
                                            {{4}, {2, 1, 4}},
                                            {{3, 1}, {1, 4}},
                                            {{}, {5}},
                                            {{2, 3}, {}},
                                            {{}, {}},
                                            {{2, 3, 2, 3}, {2, 3, 2, 3}},
                                            {{2, 3, 2, 2}, {3, 1, 1}},
                                            {{0, 3}, {1, 3}},
                                            {{9, 5, 67}, {5, 1}},
                                            {{2, 40, 9, 9}, {40, 1, 1}}};
  std::vector<Sample> out;
  for (const auto& [sa, sb] : shapes) {
    Input x = a, y = b;
    x.shape = sa, y.shape = sb;
    out.push_back({x, y});
  }
  return out;
}

struct Unary {
  const char* op;
  Tensor (*run)(const Tensor&);
  double (*reference)(double);
  Input like = in({});  // the range of the inputs; the shapes are unary_samples'
  double terms = 4;
  bool second_order = true;
};

void add(const Unary& u) {
  add_row({.op = u.op,
           .samples = unary_samples(u.like),
           .run = [f = u.run](X x) { return f(x[0]); },
           .reference = unary(u.reference),
           .terms = u.terms,
           .second_order = u.second_order,
           .dtypes = kFloats,
           // No defined tensor is refused, so no error case is needed.
           .takes_all = true});
}

// [2,3] and [2,4] do not broadcast. `op` as in ErrorCase: operator+ reports "add".
ErrorCase two_shapes(const char* what, std::function<Tensor(const Tensor&, const Tensor&)> f,
                     std::string op = "") {
  return {what, [f] { f(empty({2, 3}), empty({2, 4})); }, {"[2,3]", "[2,4]"}, std::move(op)};
}

void add_arithmetic() {
  const std::vector<DType> numeric = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16,
                                      DType::kI64, DType::kI32, DType::kI16, DType::kI8};
  const std::vector<Sample> pairs = binary_samples(in({}), in({}));
  const auto row = [&](const char* op, const char* variant,
                       std::function<Tensor(const Tensor&, const Tensor&)> f, double (*r)(double, double),
                       std::vector<Sample> samples, std::vector<DType> dtypes, const char* named = "") {
    add_row({.op = op,
             .variant = variant,
             .samples = std::move(samples),
             .run = [f](X x) { return f(x[0], x[1]); },
             .reference = binary(r),
             .dtypes = std::move(dtypes),
             .errors = {two_shapes("shapes", f, named)}});
  };
  const auto plus = [](double a, double b) { return a + b; };
  const auto minus = [](double a, double b) { return a - b; };
  const auto times = [](double a, double b) { return a * b; };
  const auto over = [](double a, double b) { return a / b; };
  row(
      "add", "", [](const Tensor& a, const Tensor& b) { return gradus::add(a, b); }, plus, pairs, numeric);
  row(
      "sub", "", [](const Tensor& a, const Tensor& b) { return sub(a, b); }, minus, pairs, numeric);
  row(
      "mul", "", [](const Tensor& a, const Tensor& b) { return mul(a, b); }, times, pairs, numeric);
  const std::vector<Sample> quotients = binary_samples(in({}), off_zero({}));
  row(
      "div", "", [](const Tensor& a, const Tensor& b) { return div(a, b); }, over, quotients, kFloats);
  row(
      "operator+", "", [](const Tensor& a, const Tensor& b) { return a + b; }, plus, pairs, numeric, "add");
  row(
      "operator-", "", [](const Tensor& a, const Tensor& b) { return a - b; }, minus, pairs, numeric, "sub");
  row(
      "operator*", "", [](const Tensor& a, const Tensor& b) { return a * b; }, times, pairs, numeric, "mul");
  row(
      "operator/", "", [](const Tensor& a, const Tensor& b) { return a / b; }, over, quotients, kFloats,
      "div");
  row(
      "maximum", "", [](const Tensor& a, const Tensor& b) { return maximum(a, b); },
      [](double a, double b) { return std::max(a, b); }, pairs, numeric);
  row(
      "minimum", "", [](const Tensor& a, const Tensor& b) { return minimum(a, b); },
      [](double a, double b) { return std::min(a, b); }, pairs, numeric);
  row(
      "pow", "tensor", [](const Tensor& a, const Tensor& b) { return pow(a, b); },
      [](double a, double b) { return std::pow(a, b); }, binary_samples(in({}, 0.3, 2), in({}, -2, 2)),
      kFloats);

  add({"add", [](const Tensor& x) { return gradus::add(x, 1.25); }, [](double v) { return v + 1.25; }});
  add({"sub", [](const Tensor& x) { return sub(x, 1.25); }, [](double v) { return v - 1.25; }});
  add({"mul", [](const Tensor& x) { return mul(x, -0.75); }, [](double v) { return v * -0.75; }});
  add({"div", [](const Tensor& x) { return div(x, 4); }, [](double v) { return v / 4; }});
  add({"operator+", [](const Tensor& x) { return 2 + x; }, [](double v) { return 2 + v; }});
  add({"operator+", [](const Tensor& x) { return x + 0.5; }, [](double v) { return 0.5 + v; }});
  add({"operator-", [](const Tensor& x) { return 2 - x; }, [](double v) { return 2 - v; }});
  add({"operator-", [](const Tensor& x) { return x - 0.5; }, [](double v) { return v - 0.5; }});
  add({"operator-", [](const Tensor& x) { return -x; }, [](double v) { return -v; }});
  add({"operator*", [](const Tensor& x) { return 3 * x; }, [](double v) { return 3 * v; }});
  add({"operator*", [](const Tensor& x) { return x * 0.5; }, [](double v) { return v * 0.5; }});
  add({"operator/", [](const Tensor& x) { return 2 / x; }, [](double v) { return 2 / v; }, off_zero({})});
  add({"operator/", [](const Tensor& x) { return x / 3; }, [](double v) { return v / 3; }});
  add({"pow", [](const Tensor& x) { return pow(x, 2.5); }, [](double v) { return std::pow(v, 2.5); },
       in({}, 0.2, 2)});
  add({"pow", [](const Tensor& x) { return pow(x, 3); }, [](double v) { return v * v * v; }});
  add({"pow", [](const Tensor& x) { return pow(x, -1); }, [](double v) { return 1 / v; }, off_zero({})});
}

void add_more_arithmetic() {
  const std::vector<DType> numeric = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16,
                                      DType::kI64, DType::kI32, DType::kI16, DType::kI8};
  const Input x = distinct({}), y = off_zero({}, 3);
  add({"add", [](const Tensor& x) { return gradus::add(1.25, x); }, [](double v) { return v + 1.25; }});
  add({"sub", [](const Tensor& x) { return sub(1.25, x); }, [](double v) { return 1.25 - v; }});
  add({"mul", [](const Tensor& x) { return mul(-0.75, x); }, [](double v) { return v * -0.75; }});
  add({"div", [](const Tensor& x) { return div(3, x); }, [](double v) { return 3 / v; }, off_zero({})});
  add({"pow", [](const Tensor& x) { return pow(2.5, x); }, [](double v) { return std::pow(2.5, v); }});
  add({"pow", [](const Tensor& x) { return pow(x, 2); }, [](double v) { return v * v; }});
  add({"pow", [](const Tensor& x) { return pow(x, 0); }, [](double) { return 1.0; }});
  add({"pow", [](const Tensor& x) { return pow(x, 0.5); }, [](double v) { return std::sqrt(v); },
       in({}, 0.2, 3)});
  add({"remainder", [](const Tensor& x) { return remainder(x, 0.75); },
       [](double v) { return v - 0.75 * std::floor(v / 0.75); }, distinct({}, -2, 2.1)});
  add({"maximum", [](const Tensor& x) { return maximum(x, 0.011); },
       [](double v) { return std::max(v, 0.011); }, y});
  add({"minimum", [](const Tensor& x) { return minimum(x, 0.011); },
       [](double v) { return std::min(v, 0.011); }, y});
  add({"clamp", [](const Tensor& x) { return clamp(x, -0.01); }, [](double v) { return std::max(v, -0.01); },
       y});
  add_row(
      {.op = "remainder",
       .variant = "tensor",
       .samples = {{in({7}, 1.1, 1.9), in({7}, -0.9, -0.6)}, {in({2, 3}, -1.9, -1.1), in({3}, 0.6, 0.9)}},
       .run = RUN(remainder(x[0], x[1])),
       .reference = binary([](double a, double b) { return a - b * std::floor(a / b); }),
       .errors = {two_shapes("shapes", [](const Tensor& a, const Tensor& b) { return remainder(a, b); })}});
  add_row({.op = "remainder",
           .variant = "of integers",
           .samples = {{in({9}, -20, 20), in({9}, 1, 5)}, {in({9}, -20, 20), in({9}, -5, -1)}},
           .run = RUN(remainder(x[0], x[1])),
           .reference = binary([](double a, double b) { return a - b * std::floor(a / b); }),
           .differentiable = false,
           .dtypes = {DType::kI64, DType::kI32, DType::kI16, DType::kI8}});
  add_row({.op = "div",
           .variant = "of integers gives f32",
           .samples = {{in({9}, -20, 20), in({9}, 1, 5)}},
           .run = RUN(div(x[0], x[1])),
           .reference = binary([](double a, double b) { return double(float(a) / float(b)); }),
           .fixed_result = true,
           .result = DType::kF32,
           .differentiable = false,
           .dtypes = {DType::kI64, DType::kI32, DType::kI16, DType::kI8}});
  add_row({.op = "lerp",
           .samples = binary_samples(in({}), in({})),
           .run = RUN(lerp(x[0], x[1], 0.3)),
           .reference = binary([](double a, double b) { return a + 0.3 * (b - a); })});
  add_row({.op = "lerp",
           .variant = "tensor",
           .samples = {{in({2, 3}), in({2, 3}), in({2, 3})},
                       {in({2, 1}), in({3}), in({})},
                       {in({3, 4}), in({3, 4}), in({3, 1}, 0, 1)}},
           .run = RUN(lerp(x[0], x[1], x[2])),
           .reference = ternary([](double a, double b, double w) { return a + w * (b - a); })});
  add_row({.op = "where",
           .samples = {{mask({2, 3}), in({2, 3}), in({2, 3})},
                       {mask({3}), in({2, 1}), in({})},
                       {mask({2, 3, 2, 2}), in({2, 3, 2, 2}), in({3, 1, 1})}},
           .run = RUN(where(x[0], x[1], x[2])),
           .reference = ternary([](double c, double a, double b) { return c != 0 ? a : b; }),
           .dtypes = numeric,
           .errors = {
               ERROR_CASE(where(empty({2}, {.dtype = DType::kBool}), empty({3}), empty({3})), "[2]", "[3]"),
               ERROR_CASE(where(empty({2}), empty({2}), empty({2})), "bool", "f32")}});
  add_row({.op = "where",
           .variant = "number",
           .samples = {{mask({2, 3}), in({2, 3})}},
           .run = RUN(where(x[0], x[1], 0.5)),
           .reference = binary([](double c, double a) { return c != 0 ? a : 0.5; })});
  add_row({.op = "where",
           .variant = "number first",
           .samples = {{mask({2, 3}), in({2, 3})}},
           .run = RUN(where(x[0], 0.5, x[1])),
           .reference = binary([](double c, double a) { return c != 0 ? 0.5 : a; })});
  add_row({.op = "clamp_backward",
           .samples = {{in({3, 5}), off_zero({3, 5})}},
           .run = RUN(clamp_backward(x[0], x[1], -0.05, 0.05)),
           .reference = binary([](double dy, double v) { return std::abs(v) <= 0.05 ? dy : 0.0; })});
}

// An in-place op applied to a copy of the first input.
void in_place(const char* op, const char* variant, std::vector<Sample> samples, std::function<void(X)> f,
              Reference r, bool mixes_devices = false) {
  add_row({.op = op,
           .variant = variant,
           .samples = std::move(samples),
           .run =
               [f](X x) {
                 std::vector<Tensor> all = x;
                 all[0] = raw::clone(x[0]);
                 f(all);
                 return all[0];
               },
           .reference = std::move(r),
           .differentiable = false,
           .mixes_devices = mixes_devices});
}

void add_in_place() {
  const std::vector<Sample> pairs = {
      {in({3, 7}), off_zero({3, 7})}, {in({2, 3, 2, 2}), off_zero({3, 1, 1})}, {in({4}), off_zero({})}};
  in_place(
      "add_", "", pairs, [](X x) { add_(x[0], x[1]); }, binary([](double a, double b) { return a + b; }));
  in_place(
      "add_", "alpha", pairs, [](X x) { add_(x[0], x[1], -0.5); },
      binary([](double a, double b) { return a - 0.5 * b; }));
  in_place(
      "sub_", "", pairs, [](X x) { sub_(x[0], x[1]); }, binary([](double a, double b) { return a - b; }));
  in_place(
      "mul_", "", pairs, [](X x) { mul_(x[0], x[1]); }, binary([](double a, double b) { return a * b; }));
  in_place(
      "div_", "", pairs, [](X x) { div_(x[0], x[1]); }, binary([](double a, double b) { return a / b; }));
  in_place(
      "lerp_", "", pairs, [](X x) { lerp_(x[0], x[1], 0.25); },
      binary([](double a, double b) { return a + 0.25 * (b - a); }));
  in_place(
      "copy_", "", pairs, [](X x) { copy_(x[0], x[1]); }, binary([](double, double b) { return b; }), true);
  const std::vector<Sample> one = {{in({3, 7})}, {in({2, 3, 2, 2})}};
  in_place(
      "add_", "number", one, [](X x) { add_(x[0], 0.5); }, unary([](double a) { return a + 0.5; }));
  in_place(
      "sub_", "number", one, [](X x) { sub_(x[0], 0.5); }, unary([](double a) { return a - 0.5; }));
  in_place(
      "mul_", "number", one, [](X x) { mul_(x[0], 3); }, unary([](double a) { return a * 3; }));
  in_place(
      "div_", "number", one, [](X x) { div_(x[0], 3); }, unary([](double a) { return a / 3; }));
  in_place(
      "clamp_", "", one, [](X x) { clamp_(x[0], -0.5, 0.25); },
      unary([](double a) { return std::clamp(a, -0.5, 0.25); }));
  in_place(
      "fill_", "", one, [](X x) { fill_(x[0], 1.5); }, unary([](double) { return 1.5; }));
}

void add_copies() {
  const std::vector<Sample> any = {{in({3, 5})}, {in({2, 3, 2, 2})}, {in({})}};
  const Reference same = [](A x) { return x[0]; };
  add_row({.op = "contiguous", .samples = any, .run = RUN(contiguous(x[0])), .reference = same});
  add_row({.op = "clone", .samples = any, .run = RUN(clone(x[0])), .reference = same});
  add_row({.op = "channels_last",
           .samples = {{in({2, 3, 2, 2})}},
           .run = RUN(channels_last(x[0])),
           .reference = same,
           .errors = {ERROR_CASE(channels_last(empty({2, 3})), "[2,3]")}});
  add_row({.op = "to",
           .variant = "the same dtype",
           .samples = any,
           .run = RUN(to(x[0], x[0].dtype())),
           .reference = same});
  add_row({.op = "to",
           .variant = "f64",
           .samples = any,
           .run = RUN(to(x[0], DType::kF64)),
           .reference = same,
           .fixed_result = true,
           .result = DType::kF64});
  add_row({.op = "to",
           .variant = "i32",
           .samples = {{in({9}, -9, 9)}},
           .run = RUN(to(x[0], DType::kI32)),
           .reference = unary([](double v) { return std::trunc(v); }),
           .fixed_result = true,
           .result = DType::kI32,
           .differentiable = false});
  add_row({.op = "to",
           .variant = "its device",
           .samples = any,
           .run = RUN(to(x[0], x[0].device())),
           .reference = same});
}

double sigmoid_of(double v) { return 1 / (1 + std::exp(-v)); }
double normal_cdf(double v) { return 0.5 * std::erfc(-v / std::sqrt(2.0)); }

double gelu_tanh_of(double v) {
  return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
}

void add_functions() {
  const Input positive = in({}, 0.2, 3), no_zero = off_zero({}, 3), wide = in({}, -4, 4);
  add({"neg", [](const Tensor& x) { return neg(x); }, [](double v) { return -v; }});
  add({"abs", [](const Tensor& x) { return abs(x); }, [](double v) { return std::abs(v); }, no_zero});
  add({"sign", [](const Tensor& x) { return sign(x); }, [](double v) { return double((v > 0) - (v < 0)); },
       no_zero});
  add({"exp", [](const Tensor& x) { return exp(x); }, [](double v) { return std::exp(v); }, wide});
  add({"expm1", [](const Tensor& x) { return expm1(x); }, [](double v) { return std::expm1(v); }});
  add({"log", [](const Tensor& x) { return log(x); }, [](double v) { return std::log(v); }, positive});
  add({"log1p", [](const Tensor& x) { return log1p(x); }, [](double v) { return std::log1p(v); },
       in({}, -0.6, 3)});
  add({"sqrt", [](const Tensor& x) { return sqrt(x); }, [](double v) { return std::sqrt(v); }, positive});
  add({"rsqrt", [](const Tensor& x) { return rsqrt(x); }, [](double v) { return 1 / std::sqrt(v); },
       positive});
  add({"square", [](const Tensor& x) { return square(x); }, [](double v) { return v * v; }});
  add({"reciprocal", [](const Tensor& x) { return reciprocal(x); }, [](double v) { return 1 / v; }, no_zero});
  add({"sin", [](const Tensor& x) { return sin(x); }, [](double v) { return std::sin(v); }, wide});
  add({"cos", [](const Tensor& x) { return cos(x); }, [](double v) { return std::cos(v); }, wide});
  add({"tanh", [](const Tensor& x) { return tanh(x); }, [](double v) { return std::tanh(v); }, wide});
  add({"erf", [](const Tensor& x) { return erf(x); }, [](double v) { return std::erf(v); }, wide});
  add({"floor", [](const Tensor& x) { return floor(x); }, [](double v) { return std::floor(v); },
       distinct({})});
  add({"ceil", [](const Tensor& x) { return ceil(x); }, [](double v) { return std::ceil(v); }, distinct({})});
  add({"round", [](const Tensor& x) { return round(x); }, [](double v) { return std::nearbyint(v); },
       distinct({})});
  add({"sigmoid", [](const Tensor& x) { return sigmoid(x); }, sigmoid_of, wide});
  add({"logsigmoid", [](const Tensor& x) { return logsigmoid(x); },
       [](double v) { return -std::log1p(std::exp(-v)); }, wide});
  add({"relu", [](const Tensor& x) { return relu(x); }, [](double v) { return std::max(v, 0.0); }, no_zero});
  add({"leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.2); },
       [](double v) { return v > 0 ? v : 0.2 * v; }, no_zero});
  add({"elu", [](const Tensor& x) { return elu(x); }, [](double v) { return v > 0 ? v : std::expm1(v); },
       no_zero});
  add({"gelu", [](const Tensor& x) { return gelu(x); }, [](double v) { return v * normal_cdf(v); }, wide});
  add({"gelu", [](const Tensor& x) { return gelu(x, Gelu::kTanh); }, gelu_tanh_of, wide});
  add({"relu", [](const Tensor& x) { return relu(x * 2); }, [](double v) { return std::max(2 * v, 0.0); },
       no_zero});
  add({"elu", [](const Tensor& x) { return elu(x, 0.7); },
       [](double v) { return v > 0 ? v : 0.7 * std::expm1(v); }, no_zero});
  add({"softplus", [](const Tensor& x) { return softplus(x, 2); },
       [](double v) { return std::log1p(std::exp(2 * v)) / 2; }, wide});
  // Inputs keep away from the threshold, at which the result jumps and a difference quotient is wrong.
  add({"softplus", [](const Tensor& x) { return softplus(x, 2, -5); }, [](double v) { return v; },
       in({}, -2, 4)});
  add({"softplus", [](const Tensor& x) { return softplus(x, 2, 1); },
       [](double v) { return std::log1p(std::exp(2 * v)) / 2; }, in({}, -4, 0.45)});
  add({"softplus", [](const Tensor& x) { return softplus(x, 1, 50); },
       [](double v) { return v + std::log1p(std::exp(-v)); }, in({}, 19, 49)});
  add({"silu", [](const Tensor& x) { return silu(x); }, [](double v) { return v * sigmoid_of(v); }, wide});
  add({"softplus", [](const Tensor& x) { return softplus(x); },
       [](double v) { return std::log1p(std::exp(v)); }, wide});
  add({"clamp", [](const Tensor& x) { return clamp(x, -0.51, 0.73); },
       [](double v) { return std::clamp(v, -0.51, 0.73); }, off_zero({}, 1.2)});
}

// The fused gradients: (dy, x or y) -> dx.
void add_activation_gradients() {
  const auto row = [](const char* op, Tensor (*f)(const Tensor&, const Tensor&), double (*r)(double, double),
                      Input second) {
    std::vector<Sample> samples;
    for (const Shape& s : {Shape{}, Shape{19}, Shape{2, 3, 2, 3}}) {
      second.shape = s;
      samples.push_back({in(s), second});
    }
    add_row({.op = op,
             .samples = samples,
             .run = [f](X x) { return f(x[0], x[1]); },
             .reference = binary(r),
             .terms = 12});
  };
  const Input no_zero = off_zero({}, 3), wide = in({}, -4, 4), unit = in({}, 0.05, 0.95);
  row(
      "relu_backward", [](const Tensor& dy, const Tensor& y) { return relu_backward(dy, y); },
      [](double dy, double y) { return y > 0 ? dy : 0; }, no_zero);
  row(
      "leaky_relu_backward",
      [](const Tensor& dy, const Tensor& x) { return leaky_relu_backward(dy, x, 0.2); },
      [](double dy, double x) { return x > 0 ? dy : 0.2 * dy; }, no_zero);
  row(
      "elu_backward", [](const Tensor& dy, const Tensor& x) { return elu_backward(dy, x, 0.7); },
      [](double dy, double x) { return x > 0 ? dy : 0.7 * dy * std::exp(x); }, no_zero);
  row(
      "sigmoid_backward", [](const Tensor& dy, const Tensor& y) { return sigmoid_backward(dy, y); },
      [](double dy, double y) { return dy * y * (1 - y); }, unit);
  row(
      "tanh_backward", [](const Tensor& dy, const Tensor& y) { return tanh_backward(dy, y); },
      [](double dy, double y) { return dy * (1 - y * y); }, unit);
  row(
      "silu_backward", [](const Tensor& dy, const Tensor& x) { return silu_backward(dy, x); },
      [](double dy, double x) {
        const double s = sigmoid_of(x);
        return dy * s * (1 + x * (1 - s));
      },
      wide);
  row(
      "gelu_backward", [](const Tensor& dy, const Tensor& x) { return gelu_backward(dy, x, Gelu::kExact); },
      [](double dy, double x) {
        return dy * (normal_cdf(x) + x * std::exp(-x * x / 2) / std::sqrt(2 * M_PI));
      },
      wide);
  row(
      "gelu_backward", [](const Tensor& dy, const Tensor& x) { return gelu_backward(dy, x, Gelu::kTanh); },
      [](double dy, double x) {
        const double k = std::sqrt(2 / M_PI), t = std::tanh(k * (x + 0.044715 * x * x * x));
        return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x));
      },
      wide);
}

void add_comparisons() {
  const auto row = [](const char* op, std::function<Tensor(const Tensor&, const Tensor&)> f,
                      bool (*r)(double, double)) {
    // Few whole numbers: equal pairs occur.
    Input whole = {.shape = {}, .fill = Fill::kInteger, .lo = -2, .hi = 3};
    add_row({.op = op,
             .samples = binary_samples(whole, whole),
             .run = [f](X x) { return f(x[0], x[1]); },
             .reference = binary([r](double a, double b) { return double(r(a, b)); }),
             .fixed_result = true,
             .differentiable = false,
             .dtypes = {DType::kF32, DType::kF64, DType::kI64, DType::kI32},
             .errors = {two_shapes("shapes", f)}});
  };
  row(
      "eq", [](const Tensor& a, const Tensor& b) { return eq(a, b); },
      [](double a, double b) { return a == b; });
  row(
      "ne", [](const Tensor& a, const Tensor& b) { return ne(a, b); },
      [](double a, double b) { return a != b; });
  row(
      "lt", [](const Tensor& a, const Tensor& b) { return lt(a, b); },
      [](double a, double b) { return a < b; });
  row(
      "le", [](const Tensor& a, const Tensor& b) { return le(a, b); },
      [](double a, double b) { return a <= b; });
  row(
      "gt", [](const Tensor& a, const Tensor& b) { return gt(a, b); },
      [](double a, double b) { return a > b; });
  const auto number = [](const char* op, Tensor (*f)(const Tensor&), double (*r)(double)) {
    add_row({.op = op,
             .variant = "number",
             .samples = unary_samples({.shape = {}, .fill = Fill::kInteger, .lo = -2, .hi = 3}),
             .run = [f](X x) { return f(x[0]); },
             .reference = unary(r),
             .fixed_result = true,
             .differentiable = false,
             .dtypes = {DType::kF32, DType::kF64, DType::kI64}});
  };
  number(
      "eq", [](const Tensor& x) { return eq(x, 1); }, [](double v) { return double(v == 1); });
  number(
      "ne", [](const Tensor& x) { return ne(x, 1); }, [](double v) { return double(v != 1); });
  number(
      "lt", [](const Tensor& x) { return lt(x, 1); }, [](double v) { return double(v < 1); });
  number(
      "le", [](const Tensor& x) { return le(x, 1); }, [](double v) { return double(v <= 1); });
  number(
      "gt", [](const Tensor& x) { return gt(x, 1); }, [](double v) { return double(v > 1); });
  number(
      "ge", [](const Tensor& x) { return ge(x, 1); }, [](double v) { return double(v >= 1); });
  number(
      "logical_not", [](const Tensor& x) { return logical_not(x); }, [](double v) { return double(v == 0); });
  number(
      "isnan", [](const Tensor& x) { return isnan(x); }, [](double) { return 0.0; });
  number(
      "isfinite", [](const Tensor& x) { return isfinite(x); }, [](double) { return 1.0; });
  row(
      "logical_and", [](const Tensor& a, const Tensor& b) { return logical_and(a, b); },
      [](double a, double b) { return a && b; });
  row(
      "logical_or", [](const Tensor& a, const Tensor& b) { return logical_or(a, b); },
      [](double a, double b) { return a || b; });
  Input special = in({5});
  special.values = {NAN, INFINITY, -INFINITY, 0, 1};
  add_row({.op = "isnan",
           .variant = "special",
           .samples = {{special}},
           .run = RUN(isnan(x[0])),
           .reference = unary([](double v) { return double(std::isnan(v)); }),
           .fixed_result = true,
           .differentiable = false});
  add_row({.op = "isfinite",
           .variant = "special",
           .samples = {{special}},
           .run = RUN(isfinite(x[0])),
           .reference = unary([](double v) { return double(std::isfinite(v)); }),
           .fixed_result = true,
           .differentiable = false});
  row(
      "ge", [](const Tensor& a, const Tensor& b) { return ge(a, b); },
      [](double a, double b) { return a >= b; });
}

}  // namespace

static const bool added = [] {
  add_arithmetic();
  add_more_arithmetic();
  add_in_place();
  add_copies();
  add_functions();
  add_activation_gradients();
  add_comparisons();
  return true;
}();

}  // namespace gradus::optest
