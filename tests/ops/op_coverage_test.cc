// What the op table has rows for: every public op.
#include <gtest/gtest.h>

#include "gradus/tests/ops/public_ops.h"
#include "gradus/tests/ops/table/op_table.h"

namespace gradus::optest {
namespace {

TEST(OpTableCoverage, EveryPublicOpHasARow) {
  std::set<std::string> covered;
  for (const OpCase& r : all_rows()) covered.insert(r.op);
  for (const auto& [op, test] : ops_covered_elsewhere()) covered.insert(op);
  const std::set<std::string> ops = public_ops();
  EXPECT_GT(ops.size(), 50u) << "the headers were not found";
  std::string missing;
  for (const std::string& op : ops) {
    if (!covered.count(op)) missing += " " + op;
  }
  EXPECT_EQ(missing, "") << "public ops without a row in the op table";
}

// Ops whose only wrong argument is an undefined tensor, which every row is tried with.
// clang-format off
const char* const kAlwaysFine[] = {
    "abs", "acos", "acosh", "add_", "asin", "asinh", "atan", "atanh", "avg_pool_spread", "ceil", "clamp",
    "clamp_", "clamp_backward", "clone", "contiguous", "cos", "cosh", "deg2rad", "digamma", "div_", "elu",
    "elu_backward", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "fill_", "floor", "frac", "full_like",
    "gelu", "gelu_backward", "hardshrink", "hardsigmoid", "hardswish", "isfinite", "isinf", "isnan",
    "isneginf", "isposinf", "leaky_relu", "leaky_relu_backward", "lerp", "lerp_", "lgamma", "log", "log10",
    "log1p", "log2", "logical_not", "logsigmoid", "masked_scale", "max_pool_gather", "max_pool_scatter",
    "mish", "mul_", "nan_to_num", "neg", "ones_like", "rad2deg", "rand_like", "randn_like",
    "reciprocal", "relu", "relu6", "relu_backward", "round", "rsqrt", "selu", "sigmoid",
    "sigmoid_backward", "sign", "silu", "silu_backward", "sin", "sinc", "sinh", "softplus", "softsign",
    "sqrt", "square", "sub_", "tan", "tanh", "tanh_backward", "tanhshrink", "threshold", "to", "trunc",
    "zeros_like"};
// clang-format on

TEST(OpTableCoverage, EveryOpShowsItsErrors) {
  std::set<std::string> shown(std::begin(kAlwaysFine), std::end(kAlwaysFine));
  for (const OpCase& r : all_rows()) {
    if (!r.errors.empty()) shown.insert(r.op);
  }
  for (const auto& [op, test] : ops_covered_elsewhere()) shown.insert(op);
  std::string missing;
  for (const std::string& op : public_ops()) {
    if (!shown.count(op)) missing += " " + op;
  }
  EXPECT_EQ(missing, "") << "public ops whose rows have no error case";
}

}  // namespace
}  // namespace gradus::optest
