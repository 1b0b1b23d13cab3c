// For each row of the op table (op_table.h): under autocast to bf16 an op gives the bits of the op on inputs
// cast as its policy says, takes inputs of mixed dtypes, and leaves f64 alone.
#include <gtest/gtest.h>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tensor/runtime/random.h"
#include "gradus/tests/ops/table/op_table.h"

namespace gradus::optest {
namespace {

std::optional<autograd::CastPolicy> policy_of(const std::string& op) {
  if (op == "linear_relu") return policy_of("linear");  // the relu of what linear gives
  if (op == "conv2d_relu") return policy_of("conv2d");
  if (op == "mse_loss_to") return policy_of("mse_loss");
  if (op == "binary_cross_entropy_with_logits_to") return policy_of("binary_cross_entropy_with_logits");
  for (const autograd::CastRule& rule : autograd::kCastRules)
    if (rule.op == op) return rule.policy;
  return std::nullopt;
}

class AutocastTable : public testing::TestWithParam<size_t> {
 protected:
  AutocastTable() { set_num_threads(1); }
  // Rows of integers alone have nothing to cast.
  void SetUp() override {
    if (std::none_of(row().dtypes.begin(), row().dtypes.end(), is_floating)) GTEST_SKIP();
  }
  const OpCase& row() const { return all_rows()[GetParam()]; }
  std::string at(size_t sample) const { return row().op + "/" + row().variant + concat(" sample ", sample); }

  // The sample's inputs; those without a fixed dtype are `even` and `odd` alternately.
  std::vector<Tensor> inputs(size_t sample, DType even, DType odd) const {
    std::vector<Tensor> x = make_inputs(row(), sample, DType::kF32);
    int n = 0;
    for (size_t k = 0; k < x.size(); ++k)
      if (!row().samples[sample][k].fixed && is_floating(x[k].dtype()))
        x[k] = raw::to(x[k], n++ % 2 ? odd : even);
    return x;
  }
  bool has_several_floats(size_t sample) const {
    int n = 0;
    for (const Input& i : row().samples[sample]) n += !i.fixed;
    return n > 1;
  }
  Tensor run(const std::vector<Tensor>& x) const {
    manual_seed(7);
    return row().run(x);
  }
  Tensor run_under_autocast(const std::vector<Tensor>& x) const {
    const auto amp = autocast(DType::kBF16);
    return run(x);
  }
  void expect_same(const Tensor& got, const Tensor& want, size_t sample, const char* inputs) const {
    ASSERT_EQ(name_of(got.dtype()), name_of(want.dtype())) << at(sample) << " of " << inputs << " inputs";
    EXPECT_EQ(bits(got), bits(want)) << at(sample) << " of " << inputs << " inputs";
  }
};

TEST_P(AutocastTable, CastsAsThePolicySays) {
  const auto policy = policy_of(row().op);
  for (size_t s = 0; s < row().samples.size(); ++s) {
    const auto wide = inputs(s, DType::kF32, DType::kF32), low = inputs(s, DType::kBF16, DType::kBF16);
    // The bf16 inputs converted to f32.
    auto rounded = low;
    for (size_t k = 0; k < low.size(); ++k)
      if (wide[k].dtype() == DType::kF32) rounded[k] = raw::to(low[k], DType::kF32);
    if (policy == autograd::CastPolicy::kLow) {
      expect_same(run_under_autocast(wide), run(low), s, "f32");
      expect_same(run_under_autocast(low), run(low), s, "bf16");
    } else if (policy == autograd::CastPolicy::kF32) {
      expect_same(run_under_autocast(wide), run(wide), s, "f32");
      expect_same(run_under_autocast(low), run(rounded), s, "bf16");
    } else {
      expect_same(run_under_autocast(wide), run(wide), s, "f32");
      expect_same(run_under_autocast(low), run(low), s, "bf16");
    }
  }
}

// Networks under autocast bring operands of both dtypes together everywhere.
TEST_P(AutocastTable, TakesOperandsOfBothDtypes) {
  const auto is = [&](std::string_view ending) { return row().op.ends_with(ending); };
  if (is("_") || is("_backward") || is("_grad")) GTEST_SKIP() << "is not called with what other ops return";
  // Norms take parameters that are wider than x, but not narrower ones.
  const bool is_norm = is("_norm") || row().op.starts_with("batch_norm_");
  for (size_t s = 0; s < row().samples.size(); ++s) {
    if (!has_several_floats(s)) continue;
    for (const bool f32_first : {true, false}) {
      if (f32_first && is_norm) continue;
      const DType even = f32_first ? DType::kF32 : DType::kBF16, odd = f32_first ? DType::kBF16 : DType::kF32;
      try {
        run_under_autocast(inputs(s, even, odd));
      } catch (const Error& e) {
        ADD_FAILURE() << at(s) << ": " << e.what();
      }
    }
  }
}

TEST_P(AutocastTable, LeavesF64Alone) {
  for (size_t s = 0; s < row().samples.size(); ++s) {
    const auto x = inputs(s, DType::kF64, DType::kF64);
    expect_same(run_under_autocast(x), run(x), s, "f64");
  }
}

std::vector<size_t> rows() {
  std::vector<size_t> n;
  for (size_t i = 0; i < all_rows().size(); ++i)
    if (!all_rows()[i].samples.empty()) n.push_back(i);
  return n;
}

INSTANTIATE_TEST_SUITE_P(All, AutocastTable, testing::ValuesIn(rows()), [](const auto& info) {
  const OpCase& r = all_rows()[info.param];
  std::string name = r.op + (r.variant.empty() ? "" : "_" + r.variant);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name + "_" + std::to_string(info.param);
});

TEST(CastRules, NameOpsThatHaveRows) {
  for (const autograd::CastRule& rule : autograd::kCastRules) {
    bool known =
        std::any_of(all_rows().begin(), all_rows().end(), [&](const OpCase& r) { return r.op == rule.op; });
    for (const auto& [op, test] : ops_covered_elsewhere()) known = known || op == rule.op;
    EXPECT_TRUE(known) << rule.op;
  }
}

}  // namespace
}  // namespace gradus::optest
