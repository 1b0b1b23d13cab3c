// Element-wise ops at zeros of both signs, kinks, infinities, NaN and the ends of the range, in every
// floating dtype, against PyTorch's values and gradients (tests/golden/ops/special_values.py). Each input is
// tried alone, and in all elements of a tensor whose length is a few vectors and a remainder.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/io/safetensors.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

using Unary = std::function<Tensor(const Tensor&)>;
using Binary = std::function<Tensor(const Tensor&, const Tensor&)>;

#define GRADUS_UNARY(name)                         \
  {                                                \
    #name, [](const Tensor& x) { return name(x); } \
  }
const std::map<std::string, Unary> kUnary = {
    GRADUS_UNARY(abs),
    GRADUS_UNARY(acos),
    GRADUS_UNARY(acosh),
    GRADUS_UNARY(asin),
    GRADUS_UNARY(asinh),
    GRADUS_UNARY(atan),
    GRADUS_UNARY(atanh),
    GRADUS_UNARY(ceil),
    GRADUS_UNARY(cos),
    GRADUS_UNARY(cosh),
    GRADUS_UNARY(deg2rad),
    GRADUS_UNARY(digamma),
    GRADUS_UNARY(erf),
    GRADUS_UNARY(erfc),
    GRADUS_UNARY(erfinv),
    GRADUS_UNARY(exp),
    GRADUS_UNARY(exp2),
    GRADUS_UNARY(expm1),
    GRADUS_UNARY(floor),
    GRADUS_UNARY(frac),
    GRADUS_UNARY(gelu),
    GRADUS_UNARY(hardsigmoid),
    GRADUS_UNARY(hardswish),
    GRADUS_UNARY(lgamma),
    GRADUS_UNARY(log),
    GRADUS_UNARY(log10),
    GRADUS_UNARY(log1p),
    GRADUS_UNARY(log2),
    GRADUS_UNARY(logit),
    GRADUS_UNARY(logsigmoid),
    GRADUS_UNARY(mish),
    GRADUS_UNARY(neg),
    GRADUS_UNARY(rad2deg),
    GRADUS_UNARY(reciprocal),
    GRADUS_UNARY(relu),
    GRADUS_UNARY(relu6),
    GRADUS_UNARY(round),
    GRADUS_UNARY(rsqrt),
    GRADUS_UNARY(selu),
    GRADUS_UNARY(sigmoid),
    GRADUS_UNARY(sign),
    GRADUS_UNARY(silu),
    GRADUS_UNARY(sin),
    GRADUS_UNARY(sinc),
    GRADUS_UNARY(sinh),
    GRADUS_UNARY(softplus),
    GRADUS_UNARY(softsign),
    GRADUS_UNARY(sqrt),
    GRADUS_UNARY(square),
    GRADUS_UNARY(tan),
    GRADUS_UNARY(tanh),
    GRADUS_UNARY(tanhshrink),
    GRADUS_UNARY(trunc),
    {"celu", [](const Tensor& x) { return celu(x, 1); }},
    {"elu", [](const Tensor& x) { return elu(x, 1); }},
    {"hardshrink", [](const Tensor& x) { return hardshrink(x, 0.5); }},
    {"hardtanh", [](const Tensor& x) { return hardtanh(x, -1, 1); }},
    {"leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.01); }},
    {"softshrink", [](const Tensor& x) { return softshrink(x, 0.5); }},
    {"clamp", [](const Tensor& x) { return clamp(x, -1, 1); }},
    {"clamp_min", [](const Tensor& x) { return clamp(x, 0); }},
    {"clamp_max", [](const Tensor& x) { return clamp(x, {}, 0); }},
    {"gelu_tanh", [](const Tensor& x) { return gelu(x, Gelu::kTanh); }},
    {"logit_eps", [](const Tensor& x) { return logit(x, 0.25); }},
    {"nan_to_num", [](const Tensor& x) { return nan_to_num(x, {.posinf = 1.0, .neginf = -1.0}); }},
    {"threshold", [](const Tensor& x) { return threshold(x, {.threshold = 0.5, .value = 2}); }},
    {"add_1", [](const Tensor& x) { return x + 1; }},
    {"1_sub", [](const Tensor& x) { return 1 - x; }},
    {"mul_2", [](const Tensor& x) { return x * 2; }},
    {"div_2", [](const Tensor& x) { return x / 2; }},
    {"1_div", [](const Tensor& x) { return 1 / x; }},
    {"pow_0", [](const Tensor& x) { return pow(x, 0); }},
    {"pow_1.5", [](const Tensor& x) { return pow(x, 1.5); }},
    {"pow_1", [](const Tensor& x) { return pow(x, 1); }},
    {"pow_2", [](const Tensor& x) { return pow(x, 2); }},
    {"pow_3", [](const Tensor& x) { return pow(x, 3); }},
    {"pow_minus_1", [](const Tensor& x) { return pow(x, -1); }},
    {"0_pow", [](const Tensor& x) { return pow(0, x); }},
    {"2_pow", [](const Tensor& x) { return pow(2, x); }},
    {"remainder_2", [](const Tensor& x) { return remainder(x, 2); }},
    {"remainder_inf", [](const Tensor& x) { return remainder(x, kInf); }},
    {"fmod_2", [](const Tensor& x) { return fmod(x, 2); }},
    {"fmod_inf", [](const Tensor& x) { return fmod(x, kInf); }},
};
#undef GRADUS_UNARY

#define GRADUS_BINARY(name)                                            \
  {                                                                    \
    #name, [](const Tensor& a, const Tensor& b) { return name(a, b); } \
  }
const std::map<std::string, Binary> kBinary = {
    GRADUS_BINARY(add),
    GRADUS_BINARY(atan2),
    GRADUS_BINARY(copysign),
    GRADUS_BINARY(div),
    GRADUS_BINARY(floor_divide),
    GRADUS_BINARY(fmod),
    GRADUS_BINARY(hypot),
    GRADUS_BINARY(logaddexp),
    GRADUS_BINARY(maximum),
    GRADUS_BINARY(minimum),
    GRADUS_BINARY(mul),
    GRADUS_BINARY(pow),
    GRADUS_BINARY(remainder),
    GRADUS_BINARY(sub),
    GRADUS_BINARY(xlogy),
    {"div_trunc", [](const Tensor& a, const Tensor& b) { return div(a, b, RoundingMode::kTrunc); }},
};
#undef GRADUS_BINARY

struct Row {
  std::vector<double> inputs, grads;
  double y;
};

// Returns the rows of each op: the inputs, y, and as many gradients.
std::map<std::string, std::vector<Row>> read_rows() {
  std::map<std::string, std::vector<Row>> all;
  const auto file = io::load_safetensors("tests/golden/ops/special_values.safetensors");
  for (const auto& [op, matrix] : file.tensors) {
    const std::vector<double> v = matrix.to_vector<double>();
    const size_t columns = size_t(matrix.size(1)), inputs = columns / 2;
    for (auto row = v.begin(); row != v.end(); row += columns)
      all[op].push_back({{row, row + inputs}, {row + inputs + 1, row + columns}, row[inputs]});
  }
  return all;
}
const std::map<std::string, std::vector<Row>>& rows_of_ops() {
  static const auto all = read_rows();
  return all;
}

double rounded(double v, DType t) { return full({}, v, {.dtype = t}).item<double>(); }

// value, gradient: relative tolerances (gradients may be formed from rounded results); smallest,
// least_normal: the absolute ones of values and gradients.
struct Precision {
  DType dtype;
  double value, gradient, smallest, least_normal, largest;
};
const Precision kPrecisions[] = {
    {DType::kF64, 4e-15, 1e-12, 5e-324, 2.3e-308, 1.7e308},
    {DType::kF32, 4e-7, 2e-6, 3e-45, 1.2e-38, 3.4e38},
    {DType::kF16, 0x1p-10, 0x1p-9, 0x1p-24, 0x1p-24, 65504},
    {DType::kBF16, 0x1p-7, 0x1p-6, 1e-40, 1.2e-38, 3.3e38},
};

// Ops that subtract numbers near 1, or form gradients from a rounded result near 1, as PyTorch does: errors
// are relative to 1.
const std::set<std::string> kNearOne = {"expm1", "gelu",     "gelu_tanh", "sigmoid",
                                        "sinc",  "softsign", "tanh",      "tanhshrink"};
// Ops of which PyTorch's own f64 has fewer digits.
const std::set<std::string> kFewDigits = {"digamma", "hardsigmoid", "sinc"};
// Ops that may give either zero.
const std::set<std::string> kAnyZero = {"maximum", "minimum", "remainder", "remainder_2"};

bool near(double got, double want, double relative, double absolute, double largest) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want))
    return got == want || (std::abs(got) >= 0.98 * largest && std::signbit(got) == std::signbit(want));
  return std::abs(got - want) <= relative * std::abs(want) + absolute;
}

class SpecialValues : public testing::TestWithParam<std::string> {};

TEST_P(SpecialValues, AreAsInPyTorch) {
  const std::string& op = GetParam();
  const bool binary = kBinary.count(op) > 0;
  const autograd::NaryFunction f = [&](const std::vector<Tensor>& x) {
    return binary ? kBinary.at(op)(x[0], x[1]) : kUnary.at(op)(x[0]);
  };
  for (Precision p : kPrecisions) {
    const std::string dtype(name_of(p.dtype));
    if (kFewDigits.count(op)) p.value = std::max(p.value, 1e-8), p.gradient = std::max(p.gradient, 1e-7);
    if (kNearOne.count(op)) p.smallest = p.value, p.least_normal = p.gradient;
    for (const Row& row : rows_of_ops().at(op)) {
      bool exact = true, is_nan = false;
      for (const double x : row.inputs) {
        exact = exact && (std::isnan(x) || rounded(x, p.dtype) == x);
        is_nan = is_nan || std::isnan(x);
      }
      if (!exact) continue;
      const double want = rounded(row.y, p.dtype);
      for (const int64_t n : {1, 35}) {
        std::vector<Tensor> inputs;
        std::string text = op + " in " + dtype + " of " + std::to_string(n);
        for (const double x : row.inputs) {
          inputs.push_back(full({n}, x, {.dtype = p.dtype}));
          text += ", " + std::to_string(x);
        }
        const auto [y, grads] = autograd::value_and_grad(f, inputs, ones({n}, {.dtype = p.dtype}));
        for (const double got : y.to_vector<double>()) {
          const bool sign = row.y != 0 || kAnyZero.count(op) || std::signbit(got) == std::signbit(want);
          EXPECT_TRUE(sign && near(got, want, p.value, p.smallest, p.largest))
              << text << ": " << got << ", expected " << want << " (" << row.y << ")";
        }
        if (std::isnan(row.y) && !is_nan) continue;  // outside of the domain
        if (op == "gelu_tanh" && std::abs(row.inputs[0]) > 1e18)
          continue;  // x^2 is infinite in f32, in PyTorch too
        for (size_t k = 0; k < grads.size(); ++k) {
          if (!grads[k].defined() || std::isnan(row.grads[k])) continue;  // a number is better than NaN
          const double slope = rounded(row.grads[k], p.dtype);
          for (const double got : grads[k].to_vector<double>())
            EXPECT_TRUE(near(got, slope, p.gradient, p.least_normal, p.largest))
                << text << ", gradient " << k << ": " << got << ", expected " << slope << " (" << row.grads[k]
                << ")";
        }
      }
    }
  }
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& [op, f] : kUnary) all.push_back(op);
  for (const auto& [op, f] : kBinary) all.push_back(op);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Ops, SpecialValues, testing::ValuesIn(names()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

TEST(SpecialValues, AllRowsAreTested) {
  EXPECT_EQ(rows_of_ops().size(), names().size());
  for (const std::string& op : names()) EXPECT_TRUE(rows_of_ops().count(op)) << op;
}

}  // namespace
}  // namespace gradus
