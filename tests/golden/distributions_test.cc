// Distributions against torch.distributions (distributions.py wrote the file): values within 1e-14 and
// gradients within 1e-13 in f64; moments of samples; errors.
#include "gradus/nn/distributions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/gradcheck.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/runtime/random.h"
#include "gradus/tests/golden/golden.h"
#include "gradus/tests/support/error.h"

namespace gradus::distributions {
namespace {

// The dy of an output.
Tensor factors(const Shape& shape) { return tensor(golden::formula(shape.product(), 9, 1), shape); }

// Compares the log_prob, entropy and KL divergence (to the parameters q_...) of a case's distribution, and
// their gradients by the parameters. Where PyTorch's values are infinite, only values are compared.
template <class Make>
void compare(const std::string& name, const std::vector<std::string>& parameters, const Make& make) {
  const io::SafetensorsFile file = golden::load("distributions");
  const auto at = [&](const std::string& key) { return file.at(name + "/" + key); };
  std::vector<Tensor> leaves, others;
  for (const std::string& p : parameters) leaves.push_back(at(p)), others.push_back(at("q_" + p));
  const std::vector<std::pair<std::string, std::function<Tensor()>>> of = {
      {"log_prob", [&] { return make(leaves).log_prob(at("x")); }},
      {"entropy", [&] { return make(leaves).entropy(); }},
      {"kl", [&] { return kl_divergence(make(leaves), make(others)); }}};
  for (const auto& [key, f] : of) {
    const Tensor expected = at(key);
    const std::vector<double> e = expected.to_vector<double>();
    if (!std::all_of(e.begin(), e.end(), [](double v) { return std::isfinite(v); })) {
      const Tensor y = f();
      const std::vector<double> given = y.to_vector<double>();
      ASSERT_EQ(given.size(), e.size());
      for (size_t i = 0; i < e.size(); ++i)
        EXPECT_TRUE(std::isinf(e[i]) ? given[i] == e[i] : std::abs(given[i] - e[i]) < 1e-14)
            << name << ' ' << key << ' ' << i;
      continue;
    }
    GradManager gm;
    gm.attach(leaves);
    auto recording = gm.record();
    const Tensor y = f();
    golden::expect_near(y, expected, 1e-14, name + " " + key);  // some 20 operations in f64
    gm.backward(sum(y * factors(y.shape())));
    for (size_t i = 0; i < leaves.size(); ++i) {
      const std::string gradient = "d_" + key + "_" + parameters[i];
      const Tensor given = leaves[i].grad();
      golden::expect_near(given.defined() ? given : zeros_like(leaves[i]), at(gradient), 1e-13,
                          name + " " + gradient);
    }
    for (const Tensor& x : leaves) x.set_grad({});
  }
}

TEST(Distributions, NormalizPyTorchs) {
  for (const char* name : {"normal", "far"})
    compare(name, {"loc", "scale"}, [](const std::vector<Tensor>& p) { return Normal(p[0], p[1]); });
}

TEST(Distributions, CategoricalIsPyTorchs) {
  compare("categorical_logits", {"logits"},
          [](const std::vector<Tensor>& p) { return Categorical({.logits = p[0]}); });
  for (const char* name : {"categorical_probs", "categorical_zeros"})
    compare(name, {"probs"}, [](const std::vector<Tensor>& p) { return Categorical({.probs = p[0]}); });
}

TEST(Distributions, BernoulliIsPyTorchs) {
  compare("bernoulli_logits", {"logits"},
          [](const std::vector<Tensor>& p) { return Bernoulli({.logits = p[0]}); });
  for (const char* name : {"bernoulli_probs", "bernoulli_sure"})
    compare(name, {"probs"}, [](const std::vector<Tensor>& p) { return Bernoulli({.probs = p[0]}); });
}

// Means of n samples lie within 5 standard deviations; the seed is fixed.
TEST(Distributions, SamplesHaveTheirMoments) {
  manual_seed(1);
  const int64_t n = 20'000;
  const Normal normal(tensor({-3.0, 0.5}), tensor({0.1, 2.0}));
  const Tensor x = normal.sample({n});
  ASSERT_EQ(x.shape(), (Shape{n, 2}));
  const auto mean_of = mean(x, {0}).to_vector<double>(), std_of = std(x, {0}).to_vector<double>();
  const std::vector<double> loc = {-3, 0.5}, scale = {0.1, 2};
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(mean_of[i], loc[i], 5 * scale[i] / std::sqrt(double(n)));
    EXPECT_NEAR(std_of[i], scale[i], 5 * scale[i] / std::sqrt(2.0 * double(n)));
  }

  const Tensor probs = tensor({0.5, 0.0, 0.3, 0.2, 0.1, 0.1, 0.1, 0.7});
  const Categorical categorical({.probs = reshape(probs, {2, 4})});
  const Tensor drawn = categorical.sample({n});
  ASSERT_EQ(drawn.shape(), (Shape{n, 2}));
  EXPECT_EQ(drawn.dtype(), DType::kI64);
  for (int64_t row = 0; row < 2; ++row)
    for (int64_t c = 0; c < 4; ++c) {
      const double p = probs.to_vector<double>()[size_t(4 * row + c)];
      const double share = mean(to(eq(select(drawn, 1, row), double(c)), DType::kF64)).item<double>();
      EXPECT_NEAR(share, p, 5 * std::sqrt(p * (1 - p) / double(n))) << row << ' ' << c;
    }

  const Bernoulli bernoulli({.probs = tensor({0.0, 0.25, 1.0})});
  const std::vector<double> shares = mean(bernoulli.sample({n}), {0}).to_vector<double>();
  EXPECT_EQ(shares[0], 0);
  EXPECT_NEAR(shares[1], 0.25, 5 * std::sqrt(0.25 * 0.75 / double(n)));
  EXPECT_EQ(shares[2], 1);
}

TEST(Distributions, SamplesHaveShapesAndSeeds) {
  const Normal normal(zeros({2, 1}), ones({3}));
  EXPECT_EQ(normal.batch_shape(), (Shape{2, 3}));
  EXPECT_EQ(normal.sample().shape(), (Shape{2, 3}));
  EXPECT_EQ(normal.sample({4, 0}).shape(), (Shape{4, 0, 2, 3}));
  EXPECT_EQ(Normal(0, 1).sample().shape(), Shape());
  EXPECT_EQ(Categorical({.logits = zeros({5})}).sample().shape(), Shape());
  EXPECT_EQ(Categorical({.logits = zeros({2, 0, 5})}).sample({3}).shape(), (Shape{3, 2, 0}));
  EXPECT_EQ(Bernoulli({.logits = zeros({2})}).sample({3}).shape(), (Shape{3, 2}));
  EXPECT_EQ(Normal(to(zeros({2}), DType::kBF16), 1).sample().dtype(), DType::kBF16);
  manual_seed(7);
  const auto once = normal.sample().to_vector<float>();
  manual_seed(7);
  EXPECT_EQ(normal.sample().to_vector<float>(), once);
  EXPECT_NE(normal.sample().to_vector<float>(), once);
}

TEST(Distributions, GradientsFlowThroughRsampleAlone) {
  const Tensor loc = tensor({1.0, 2.0}), scale = tensor({0.5, 3.0});
  GradManager gm;
  gm.attach({loc, scale});
  {
    auto recording = gm.record();
    const Normal normal(loc, scale);
    const Tensor x = normal.rsample({4});
    gm.backward(sum(x));
    const auto noise = (sum(detach(x), {0}) - 4 * loc) / scale;
    golden::expect_near(loc.grad(), full({2}, 4, {.dtype = DType::kF64}), 0, "loc");
    golden::expect_near(scale.grad(), noise, 1e-14, "scale");
  }
  loc.set_grad({}), scale.set_grad({});
  auto recording = gm.record();
  const Normal normal(loc, scale);
  gm.backward(sum(normal.sample({4}) * loc));
  EXPECT_FALSE(scale.grad().defined());
}

TEST(Distributions, SecondDerivativesAreRight) {
  const Tensor x = tensor({0.3, -1.2, 2.0, 0.7, 0.1, -0.4});
  const autograd::GradCheckResult check = autograd::gradgradcheck(
      [&](const std::vector<Tensor>& in) {
        const Normal p(in[0], exp(in[1]));
        const Categorical c({.logits = in[0]});
        const Bernoulli b({.logits = in[1]});
        return sum(p.log_prob(tensor({0.1, 0.2, 0.3, 0.4, 0.5, 0.6}))) + c.entropy() + sum(b.entropy()) +
               kl_divergence(c, Categorical({.logits = in[1]}));
      },
      {x, x * 0.5});
  EXPECT_TRUE(check) << check.message;
}

TEST(Distributions, WrongParametersAreNamed) {
  const Tensor nan = tensor({1.0, std::nan("")});
  EXPECT_ERROR(Error, Normal(0, 0), "[Normal] expected scale > 0");
  EXPECT_ERROR(Error, Normal(0, nan), "scale > 0");
  EXPECT_ERROR(Error, Normal(nan, 1), "NaN");
  EXPECT_ERROR(Error, Normal(arange(3), 1), "floating");
  EXPECT_ERROR(Error, Normal(0, 1).log_prob(nan), "[Normal.log_prob] x has a NaN");
  EXPECT_ERROR(Error, Categorical({}), "neither");
  EXPECT_ERROR(Error, Categorical({.probs = ones({2}), .logits = ones({2})}), "both");
  EXPECT_ERROR(Error, Categorical({.probs = tensor({-0.5, 1.5})}), "at least 0");
  EXPECT_ERROR(Error, Categorical({.probs = zeros({2})}), "a sum above 0");
  EXPECT_ERROR(Error, Categorical({.logits = nan}), "no NaN");
  EXPECT_ERROR(Error, Categorical({.logits = zeros({3})}).log_prob(full({2}, 3, {.dtype = DType::kI64})),
               "expected numbers of 0 to 2");
  EXPECT_ERROR(Error, Categorical({.logits = zeros({3})}).log_prob(zeros({2})), "integers");
  EXPECT_ERROR(Error, kl_divergence(Categorical({.logits = zeros({3})}), Categorical({.logits = zeros({4})})),
               "as many numbers");
  EXPECT_ERROR(Error, Bernoulli({.probs = tensor({0.5, 1.5})}), "[0, 1]");
  EXPECT_ERROR(Error, Bernoulli({.probs = zeros({2})}).log_prob(full({2}, 0.5)), "zeros and ones");
}

}  // namespace
}  // namespace gradus::distributions
