// Cases of element-wise ops that the op table does not have: results that are no tensors,
// mixed dtypes, poles.
#include <gtest/gtest.h>

#include <cmath>

#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

TEST(Functions, BytesAreFractionsBeforeTheyAreSubtractedOrAdded) {
  const Tensor x = to(tensor({0, 1, 2, 255}), DType::kU8);
  const auto y = logit(x).to_vector<float>();
  EXPECT_EQ(y[0], -INFINITY);
  EXPECT_EQ(y[1], INFINITY);
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_EQ(softsign(x).to_vector<float>()[3], 255.f / 256);
}

TEST(Functions, AllcloseAndEqualLookAtAllElements) {
  const Tensor a = tensor({1.f, 2.f, INFINITY}), b = tensor({1.f, 2.00001f, INFINITY});
  EXPECT_TRUE(allclose(a, b));
  EXPECT_FALSE(allclose(a, b, {.rtol = 0, .atol = 1e-7}));
  EXPECT_TRUE(equal(a, a));
  EXPECT_FALSE(equal(a, b));
  EXPECT_FALSE(equal(a, reshape(a, {3, 1})));
  const Tensor nan = tensor({NAN});
  EXPECT_FALSE(equal(nan, nan));
  EXPECT_FALSE(allclose(nan, nan));
  EXPECT_TRUE(allclose(nan, nan, {.equal_nan = true}));
  EXPECT_THROW(allclose(a, b, {.atol = -1}), ValueError);
}

TEST(Functions, PolesAndEnds) {
  const auto v = digamma(tensor({0.0, -0.0, -1.0, -2.0})).to_vector<double>();
  EXPECT_EQ(v[0], -INFINITY);
  EXPECT_EQ(v[1], INFINITY);
  EXPECT_TRUE(std::isnan(v[2]) && std::isnan(v[3]));
  const auto e = erfinv(tensor({1.0, -1.0, 1.5, 0.0})).to_vector<double>();
  EXPECT_EQ(e[0], INFINITY);
  EXPECT_EQ(e[1], -INFINITY);
  EXPECT_TRUE(std::isnan(e[2]));
  EXPECT_EQ(e[3], 0);
}

// PyTorch's trigamma is too coarse to compare with.
TEST(Functions, TrigammaOfWholeAndHalfNumbers) {
  const double pi2 = M_PI * M_PI;
  const auto v = polygamma(1, tensor({1.0, 2.0, 0.5, -0.5})).to_vector<double>();
  EXPECT_NEAR(v[0], pi2 / 6, 1e-14);
  EXPECT_NEAR(v[1], pi2 / 6 - 1, 1e-14);
  EXPECT_NEAR(v[2], pi2 / 2, 1e-13);
  EXPECT_NEAR(v[3], pi2 / 2 + 4, 1e-13);
}

TEST(Functions, HugeAnglesAreReducedExactly) {
  std::vector<float> angles;
  for (int i = 0; i < 100; ++i) angles.push_back(float(std::ldexp(1.0 + i * 0.017, i)));
  const Tensor x = tensor(angles, Shape{100});
  const auto s = sin(x).to_vector<float>();
  const auto c = cos(x).to_vector<float>();
  for (size_t i = 0; i < angles.size(); ++i) {
    EXPECT_NEAR(s[i], std::sin(double(angles[i])), 1e-6) << angles[i];
    EXPECT_NEAR(c[i], std::cos(double(angles[i])), 1e-6) << angles[i];
  }
}

TEST(Functions, PowersOfFloatsAreThoseOfDoublesRounded) {
  for (float a : {0.f, -0.f, 1.f, -1.f, 0.5f, -2.f, 3.7f, 1e-30f, 1e-42f, 1e30f, INFINITY, -INFINITY, NAN})
    for (float b : {0.f, 1.f, -1.f, 2.f, 3.f, -3.f, 0.5f, -0.5f, 1e-3f, 1e10f, INFINITY, -INFINITY, NAN}) {
      const float given = pow(tensor({a, 2.f}), tensor({b, 2.f})).to_vector<float>()[0];
      const float expected = float(std::pow(double(a), double(b)));
      if (std::isnan(expected))
        EXPECT_TRUE(std::isnan(given)) << a << " " << b << " " << given;
      else if (std::isinf(expected) || expected == 0)
        EXPECT_EQ(given, expected) << a << " " << b;
      else
        EXPECT_NEAR(given / expected, 1, 3e-7) << a << " " << b;
    }
}

TEST(Functions, BitsOfBoolsAndWrongDtypes) {
  const Tensor t = tensor({1.f, 0.f}), b = gt(t, 0);
  EXPECT_EQ(bitwise_and(b, bitwise_not(b)).dtype(), DType::kBool);
  EXPECT_THROW(bitwise_not(t), DTypeError);
}

}  // namespace
}  // namespace gradus
