// Every public op of the headers must have a row in the op table (op_table.h), and an error case.
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

// Ops whose rows have no wrong argument but an undefined tensor, which every row is tried with.
// clang-format off
const char* const kTakesAll[] = {
    "add_", "avg_pool_spread", "clamp", "clamp_", "clamp_backward", "clone", "contiguous", "div_",
    "elu_backward", "fill_", "full_like", "gelu_backward", "isfinite", "isinf", "isnan", "isneginf",
    "isposinf", "leaky_relu_backward", "lerp", "lerp_", "logical_not", "masked_scale", "max_pool_gather",
    "max_pool_scatter", "mul_", "ones_like", "rand_like", "randn_like", "relu_backward",
    "sigmoid_backward", "silu_backward", "sub_", "tanh_backward", "to", "zeros_like"};
// clang-format on

TEST(OpTableCoverage, EveryOpShowsItsErrors) {
  std::set<std::string> shown(std::begin(kTakesAll), std::end(kTakesAll));
  for (const OpCase& r : all_rows()) {
    if (r.takes_all || !r.errors.empty()) shown.insert(r.op);
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
