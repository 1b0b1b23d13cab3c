// PerceptualPathLength: ranks (threads), the noise of a generator, percentiles, errors. tests/golden/metrics compares
// values.
#include "gradus/train/metrics/path_length.h"

#include <gtest/gtest.h>

#include <cmath>

#include "gradus/gradus.h"
#include "gradus/tests/support/error.h"

namespace gradus::metrics {
namespace {

Tensor generate(const Tensor& z) { return reshape(z, {z.size(0), 1, 2, 4}); }
Tensor squares(const Tensor& a, const Tensor& b) { return mean(square(a - b), {1, 2, 3}); }

TEST(PerceptualPathLength, IsTheSameOnAnyNumberOfRanks) {
  manual_seed(1);
  const TensorOptions f64{.dtype = DType::kF64};
  const Tensor a = randn({30, 8}, f64), b = randn({30, 8}, f64), t = rand({30}, f64);
  double expected = 0;
  for (const int world : {1, 2, 4})
    dist::run_ranks(world, [&] {
      PerceptualPathLength length;
      for (int64_t at = dist::get_rank() * 10; at < 30; at += world * 10) {  // of 4 ranks, one has none
        const auto part = [at](const Tensor& x) { return narrow(x, 0, at, 10); };
        length.update(generate, squares, part(a), part(b), part(t));
      }
      if (world == 1) expected = length.compute();
      EXPECT_GT(expected, 0);
      EXPECT_EQ(length.compute(), expected) << world;
    });
}

// Distances of 1 to 200 times epsilon^2: without the smallest and the largest.
TEST(PerceptualPathLength, IsTheMeanBetweenPercentiles) {
  PerceptualPathLength length;
  const auto counted = [](const Tensor&, const Tensor&) { return (arange(200) + 1) * 1e-8; };
  const Tensor z = randn({200, 8});
  length.update(generate, counted, z, z + 1, zeros({200}));
  // Percentiles at 0.01 * 199 = 1.99 (lower: 2) and 0.99 * 199 = 197.01 (higher: 199).
  EXPECT_NEAR(length.compute(), (2 + 199) / 2.0, 1e-3);
  length.reset();
  EXPECT_TRUE(std::isnan(length.compute()));
}

TEST(PerceptualPathLength, DrawsEqualNoiseForBothImagesOfAPair) {
  manual_seed(1);
  const auto noise = [](const Tensor& z) { return randn({z.size(0), 1, 8, 8}); };
  PerceptualPathLength length;
  length.update(noise, squares, randn({4, 8}), randn({4, 8}), zeros({4}));
  EXPECT_EQ(length.compute(), 0);
}

TEST(PerceptualPathLength, ChecksItsArguments) {
  EXPECT_THROW(PerceptualPathLength({.epsilon = 0}), ValueError);
  PerceptualPathLength length;
  const Tensor z = ones({2, 8});
  EXPECT_ERROR(ShapeError, length.update(generate, squares, z, z, zeros({3})), "t [N]", "f32[3]");
  EXPECT_THROW(length.update(generate, squares, z, ones({2, 4}), zeros({2})), ShapeError);
  EXPECT_THROW(length.update(generate, squares, ones({2, 3, 8}), ones({2, 3, 8}), zeros({2})), ShapeError);
  EXPECT_ERROR(ValueError, length.update(generate, squares, z, z, full({2}, 2.0)), "[0,1]", "2");
}

}  // namespace
}  // namespace gradus::metrics
