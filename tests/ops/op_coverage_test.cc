// What the op table has rows for: every public op.
#include <gtest/gtest.h>

#include "gradus/tests/ops/op_table.h"
#include "gradus/tests/ops/public_ops.h"

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
const char* const kAlwaysFine[] = {
    "abs", "adaptive_max_pool2d", "add_", "all", "amax", "amin", "any", "arange", "argmax", "argmin", "avg_pool2d_spread",
    "bernoulli", "ceil", "chunk", "clamp", "clamp_", "clamp_backward", "clone", "contiguous",
    "copy_", "cos", "cumsum", "div_", "elu", "elu_backward", "erf", "exp", "expm1", "eye", "fill_",
    "floor", "full", "full_like", "gather_backward", "gelu", "gelu_backward", "index_copy", "index_put", "isfinite",
    "isnan", "leaky_relu", "leaky_relu_backward", "lerp", "lerp_", "log", "log1p", "log_softmax", "log_softmax_backward",
    "logical_not", "logsigmoid", "logsumexp", "masked_fill", "masked_scale", "masked_select", "max_pool2d_gather",
    "max_pool2d_scatter", "mean", "min", "movedim", "mul_", "neg", "nll_loss", "nonzero", "norm", "ones", "ones_like",
    "prod", "rand", "rand_like", "randn", "randn_like", "reciprocal", "relu", "relu_backward", "round", "rsqrt",
    "scatter_add", "sigmoid", "sigmoid_backward", "sign", "silu", "silu_backward", "sin", "slice", "slice_backward",
    "softmax", "softmax_backward", "softplus", "sqrt", "square", "squeeze", "std", "sub_", "take_along_dim", "tanh",
    "tanh_backward", "to", "unbind", "unsqueeze", "var", "zeros_like"};

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
