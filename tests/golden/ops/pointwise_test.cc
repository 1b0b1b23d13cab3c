// Element-wise ops and activations against PyTorch's values (inputs: pointwise.py; tolerances:
// golden_ops.h).
#include <gtest/gtest.h>

#include <set>

#include "gradus/tests/golden/ops/golden_ops.h"
#include "gradus/tests/ops/table/op_table.h"

namespace gradus::golden {
namespace {

// Cases of an op with options, or whose first row in the op table is scaled.
// clang-format off
const GoldenOp kCases[] = {
    {"relu6", [](X x) { return relu6(x[0]); }},
    {"relu6/scalar", [](X x) { return relu6(x[0]); }},
    {"relu6/empty", [](X x) { return relu6(x[0]); }},
    {"softplus", [](X x) { return softplus(x[0]); }},
    {"softplus/scalar", [](X x) { return softplus(x[0]); }},
    {"softplus/empty", [](X x) { return softplus(x[0]); }},
    {"polygamma", [](X x) { return polygamma(2, x[0]); }},
    {"polygamma/scalar", [](X x) { return polygamma(2, x[0]); }},
    {"polygamma/empty", [](X x) { return polygamma(2, x[0]); }},
    {"logit/eps", [](X x) { return logit(x[0], 0.2); }},
    {"round/decimals", [](X x) { return round(x[0], 2); }},
    {"clamp", [](X x) { return clamp(x[0], -0.5, 1.0); }},
    {"clamp/tensors", [](X x) { return clamp(x[0], x[1], x[2]); }},
    {"pow/number", [](X x) { return pow(x[0], 2.5); }},
    {"pow/negative base", [](X x) { return pow(x[0], 3.0); }},
    {"pow/base", [](X x) { return pow(2.5, x[0]); }},
    {"add/number", [](X x) { return x[0] + 1.25; }},
    {"sub/number", [](X x) { return 1.25 - x[0]; }},
    {"mul/number", [](X x) { return x[0] * -0.75; }},
    {"div/number", [](X x) { return 3.0 / x[0]; }},
    {"add/alpha", [](X x) { return add(x[0], x[1], 0.3); }},
    {"sub/alpha", [](X x) { return sub(x[0], x[1], 0.3); }},
    {"addcmul", [](X x) { return addcmul(x[0], x[1], x[2], 0.7); }},
    {"addcdiv", [](X x) { return addcdiv(x[0], x[1], x[2], 0.7); }},
    {"lerp/number", [](X x) { return lerp(x[0], x[1], 0.3); }},
    {"leaky_relu", [](X x) { return leaky_relu(x[0], 0.2); }},
    {"leaky_relu/scalar", [](X x) { return leaky_relu(x[0], 0.2); }},
    {"leaky_relu/empty", [](X x) { return leaky_relu(x[0], 0.2); }},
    {"elu", [](X x) { return elu(x[0], 0.7); }},
    {"elu/scalar", [](X x) { return elu(x[0], 0.7); }},
    {"elu/empty", [](X x) { return elu(x[0], 0.7); }},
    {"celu", [](X x) { return celu(x[0], 0.5); }},
    {"celu/scalar", [](X x) { return celu(x[0], 0.5); }},
    {"celu/empty", [](X x) { return celu(x[0], 0.5); }},
    {"gelu/tanh", [](X x) { return gelu(x[0], Gelu::kTanh); }},
    {"gelu/tanh/scalar", [](X x) { return gelu(x[0], Gelu::kTanh); }},
    {"gelu/tanh/empty", [](X x) { return gelu(x[0], Gelu::kTanh); }},
    {"softplus/beta", [](X x) { return softplus(x[0], 2); }},
    {"softplus/beta/scalar", [](X x) { return softplus(x[0], 2); }},
    {"softplus/beta/empty", [](X x) { return softplus(x[0], 2); }},
    {"hardtanh", [](X x) { return hardtanh(x[0], -0.5, 0.7); }},
    {"hardtanh/scalar", [](X x) { return hardtanh(x[0], -0.5, 0.7); }},
    {"hardtanh/empty", [](X x) { return hardtanh(x[0], -0.5, 0.7); }},
    {"threshold", [](X x) { return threshold(x[0], {.threshold = 0.1, .value = 20}); }},
    {"threshold/scalar", [](X x) { return threshold(x[0], {.threshold = 0.1, .value = 20}); }},
    {"threshold/empty", [](X x) { return threshold(x[0], {.threshold = 0.1, .value = 20}); }},
    {"glu", [](X x) { return glu(x[0], 1); }},
};
// clang-format on

// Cases that kCases does not name, as "exp" or "exp/scalar", are run by the first row of the op table
// (op_table.h) that has this op and as many inputs.
TEST(GoldenPointwise, EveryCaseOfTheFile) {
  const io::SafetensorsFile file = load_golden("pointwise");
  std::set<std::string> left = case_names(file);
  for (const GoldenOp& op : kCases) {
    expect_golden(file, op);
    left.erase(op.name);
  }
  for (const optest::OpCase& row : optest::all_rows())
    for (const char* suffix : {"", "/scalar", "/one", "/empty", "/broadcast", "/integers"}) {
      const std::string name = row.op + suffix;
      if (row.samples.empty() || !left.count(name) || inputs_of(file, name) != row.samples[0].size())
        continue;
      expect_golden(file, {name, row.run});
      left.erase(name);
    }
  EXPECT_EQ(left, std::set<std::string>()) << "cases of the file that nothing tests";
}

}  // namespace
}  // namespace gradus::golden
