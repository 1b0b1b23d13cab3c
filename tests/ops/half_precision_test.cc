// Ops whose eps, which guards a division or a logarithm, underflows in f16 must compute in f32.
#include <gtest/gtest.h>

#include <cmath>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/runtime/random.h"
#include "gradus/tests/ops/values.h"

namespace gradus {
namespace {

const DType kNarrow[] = {DType::kF16, DType::kBF16};

void expect_finite(const Tensor& x) {
  for (const double v : x.to_vector<double>()) ASSERT_TRUE(std::isfinite(v)) << describe(x);
}

TEST(SixteenBits, VectorsOfZerosHaveADirectionAndALength) {
  for (const DType t : kNarrow) {
    const Tensor x = zeros({2, 3}, {.dtype = t});
    expect_near(normalize(x), x, 0);
    expect_near(cosine_similarity(x, x), zeros({2}), 0);
    expect_near(pairwise_distance(x, x), full({2}, 1e-6 * std::sqrt(3)), 1e-7);
    EXPECT_EQ(normalize(x).dtype(), t);
    EXPECT_EQ(cosine_similarity(x, x).dtype(), t);
    EXPECT_EQ(pairwise_distance(x, x).dtype(), t);
    EXPECT_EQ(cosine_embedding_loss(x, x, ones({2}, {.dtype = t})).dtype(), t);
  }
}

TEST(SixteenBits, VectorsAreNormalizedWithOneRounding) {
  for (const DType t : kNarrow) {
    const Tensor x = random_tensor({7, 33}, t), exact = normalize(to(x, DType::kF64));
    expect_rounded_once(normalize(x), exact, 2);
  }
}

// In 16 bits one uniform number in some hundreds would be 1, whose logarithm is 0.
TEST(SixteenBits, GumbelNoiseIsDrawnInF32) {
  manual_seed(3);
  for (const DType t : kNarrow) {
    const Tensor y = gumbel_softmax(zeros({20'000, 4}, {.dtype = t}));
    EXPECT_EQ(y.dtype(), t);
    expect_finite(y);
    // The largest noise of 80,000 is about log(80,000); its softmax leaves something for the others.
    double largest = 0;
    for (const double v : log(to(y, DType::kF64) + 1e-300).to_vector<double>())
      largest = std::max(largest, -v);
    EXPECT_LT(largest, 2 * std::log(80'000.0) + 5);
  }
}

TEST(SixteenBits, SlopesOfLossesAreNumbersAtTheirEdges) {
  for (const DType t : kNarrow) {
    const Tensor x = zeros({3}, {.dtype = t});
    const auto slope = [&](const Tensor& v) {
      return autograd::grad(
          [&](const Tensor& w) { return sum(binary_cross_entropy(w, x, {.reduction = Reduction::kSum})); },
          v);
    };
    const Tensor second = autograd::grad([&](const Tensor& v) { return sum(slope(v)); }, x);
    for (const double v : second.to_vector<double>()) EXPECT_GT(v, 65504) << describe(second);  // 1e12
    const Tensor of_target = autograd::grad(
        [&](const Tensor& target) {
          return poisson_nll_loss(x, target, {.reduction = Reduction::kSum, .log_input = false});
        },
        x);
    expect_near(of_target, full({3}, -std::log(1e-8)), 0.01);
  }
}

}  // namespace
}  // namespace gradus
