// slerp, the spherical interpolation of latents: angle and length change linearly. Expected values are
// analytic.
#include "gradus/train/gan/latents.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "gradus/gradus.h"

namespace gradus {
namespace {

using gan::slerp;

double norm_of(const Tensor& x) { return std::sqrt(sum(x * x).item<double>()); }

TEST(Slerp, TurnsEvenlyAndChangesTheLengthEvenly) {
  const Tensor a = tensor({2.0, 0.0}), b = tensor({0.0, 4.0});
  for (const double t : {0.0, 0.25, 0.5, 0.9, 1.0}) {
    const std::vector<double> x = slerp(a, b, t).to_vector<double>();
    const double angle = t * std::numbers::pi / 2, length = 2 + 2 * t;
    EXPECT_NEAR(x[0], length * std::cos(angle), 1e-12) << t;
    EXPECT_NEAR(x[1], length * std::sin(angle), 1e-12) << t;
  }
}

TEST(Slerp, KeepsTheLengthOfNormalVectorsWhichAStraightLineWouldNot) {
  manual_seed(1);
  const Tensor a = randn({3, 512}, {.dtype = DType::kF64}), b = randn({3, 512}, {.dtype = DType::kF64});
  for (int64_t i = 0; i < 3; ++i) {
    const double length = (norm_of(a[i]) + norm_of(b[i])) / 2;
    EXPECT_NEAR(norm_of(slerp(a, b, 0.5)[i]), length, 1e-9);
    EXPECT_LT(norm_of((a[i] + b[i]) / 2), 0.8 * length);
  }
}

TEST(Slerp, JoinsParallelOppositeAndZeroVectorsByALine) {
  const Tensor a = tensor({1.0, 1.0}), zero = tensor({0.0, 0.0});
  EXPECT_EQ(slerp(a, 3 * a, 0.5).to_vector<double>(), (std::vector<double>{2, 2}));
  EXPECT_EQ(slerp(a, -a, 0.5).to_vector<double>(), (std::vector<double>{0, 0}));
  EXPECT_EQ(slerp(zero, zero, 0.5).to_vector<double>(), (std::vector<double>{0, 0}));
  EXPECT_EQ(slerp(zero, zero, 0).to_vector<double>(), (std::vector<double>{0, 0}));
}

TEST(Slerp, RefusesWhatIsNoWalk) {
  const Tensor a = randn({4});
  EXPECT_THROW(slerp(a, randn({3}), 0.5), ShapeError);
  EXPECT_THROW(slerp(scalar(1.0), scalar(2.0), 0.5), ShapeError);
  EXPECT_THROW(slerp(tensor({1, 2}), tensor({1, 2}), 0.5), DTypeError);
  EXPECT_THROW(slerp(tensor({1.0, 2.0}), tensor({1, 2}), 0.5), DTypeError);
  for (const double t : {-0.1, 1.1, double(NAN)}) EXPECT_THROW(slerp(a, a, t), ValueError) << t;
}

}  // namespace
}  // namespace gradus
