// FeatureStatistics (mean and covariance) and frechet_distance: values computed by hand, any batches and
// ranks (threads), singular and extreme covariances, errors.
#include "gradus/train/metrics/frechet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gradus/gradus.h"
#include "gradus/tests/support/error.h"

namespace gradus::metrics {
namespace {

using testing::HasSubstr;

constexpr TensorOptions kF64{.dtype = DType::kF64};

// n samples of d correlated normal features.
Tensor features(uint64_t seed, int64_t n, int64_t d) {
  manual_seed(seed);
  const Tensor mixed = matmul(randn({n, d}, kF64), randn({d, d}, kF64));
  return mixed + randn({d}, kF64);
}

FeatureStatistics statistics(const Tensor& x) {
  FeatureStatistics s;
  s.update(x);
  return s;
}

double distance(const Tensor& a, const Tensor& b) { return frechet_distance(statistics(a), statistics(b)); }

void expect_close(const Tensor& a, const Tensor& b, double tolerance) {
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_LE(amax(abs(a - b)).item<double>(), tolerance);
}

TEST(FeatureStatistics, AreMeanAndCovariance) {
  const Tensor x = tensor({{1.0, 2.0}, {3.0, 0.0}, {5.0, 7.0}});
  const FeatureMoments m = statistics(x).compute();
  EXPECT_EQ(m.count, 3);
  expect_close(m.mean, tensor({3.0, 3.0}), 1e-15);
  expect_close(m.covariance, tensor({{4.0, 5.0}, {5.0, 13.0}}), 1e-14);
  EXPECT_EQ(m.covariance.dtype(), DType::kF64);
}

// Computed as a mean of squares minus the squared mean, the covariance would lose all digits.
TEST(FeatureStatistics, LargeMeansCostNoDigits) {
  const Tensor x = features(1, 40, 3);
  FeatureStatistics far;
  for (int64_t at = 0; at < 40; at += 8) far.update(narrow(x, 0, at, 8) + 1e8);
  expect_close(far.covariance(), statistics(x).covariance(), 1e-6);
  EXPECT_NEAR(far.mean().to_vector<double>()[0] - 1e8, statistics(x).mean().to_vector<double>()[0], 1e-6);
}

TEST(FeatureStatistics, AreTheSameOnAnyNumberOfRanks) {
  const Tensor a = features(1, 30, 8), b = features(2, 30, 8);
  const FeatureMoments whole = statistics(a).compute();
  const double expected = distance(a, b);
  for (const int world : {1, 2, 4})
    dist::run_ranks(world, [&] {
      FeatureStatistics x, y;
      for (int64_t at = dist::get_rank() * 10; at < 30; at += world * 10) {  // of 4 ranks, one has none
        x.update(narrow(a, 0, at, 10));
        y.update(narrow(b, 0, at, 10));
      }
      for (int twice = 0; twice < 2; ++twice) {  // computing changes nothing
        EXPECT_EQ(x.count(), 30);
        expect_close(x.mean(), whole.mean, 1e-12);
        expect_close(x.covariance(), whole.covariance, 1e-11);
        EXPECT_NEAR(frechet_distance(x, y), expected, 1e-9) << world;
      }
    });
}

TEST(FeatureStatistics, CountPaddingOnce) {
  const Tensor x = features(1, 30, 4);
  const data::TensorDataset set(x);
  const FeatureMoments whole = statistics(x).compute();
  for (const int world : {1, 4, 7})
    dist::run_ranks(world, [&] {
      FeatureStatistics s;
      for (const data::Batch& b : data::DataLoader(set, {.batch_size = 4, .uneven = data::Uneven::kPad}))
        s.update(b.input, b);
      EXPECT_EQ(s.count(), 30) << world;
      expect_close(s.covariance(), whole.covariance, 1e-12);
    });
}

TEST(FeatureStatistics, AreOfAGroup) {
  dist::run_ranks(3, [] {
    const dist::Group pair = dist::new_group({0, 2});
    if (dist::get_rank() == 1) return;
    FeatureStatistics s({.group = pair});
    s.update(full({5, 2}, dist::get_rank(), kF64));
    EXPECT_EQ(s.count(), 10);
    expect_close(s.mean(), tensor({1.0, 1.0}), 1e-15);
    s.reset();
    EXPECT_EQ(s.count(), 0);
  });
}

TEST(FeatureStatistics, RecordNothingAndTakeAnyFloats) {
  const Tensor x = to(features(1, 12, 3), DType::kF32);
  GradManager gm;
  gm.attach(x);
  const auto recording = gm.record();
  const auto cast = autocast(DType::kBF16);
  const FeatureMoments m = statistics(x * 1).compute();
  EXPECT_THROW(gm.backward(sum(m.mean)), StateError);
  expect_close(m.mean, mean(to(detach(x), DType::kF64), {0}), 1e-12);
  EXPECT_EQ(statistics(transpose(zeros({3, 5}, {.dtype = DType::kF16}), 0, 1)).count(), 5);
}

TEST(FrechetDistance, OfNormalDistributionsThatAreKnown) {
  const auto diagonal = [](double a, double b) { return tensor({{a, 0.0}, {0.0, b}}); };
  const FeatureMoments x{tensor({0.0, 0.0}), diagonal(4, 1)}, y{tensor({3.0, 4.0}), diagonal(9, 16)};
  EXPECT_DOUBLE_EQ(frechet_distance(x, y), 25 + 1 + 9);
  const FeatureMoments point{tensor({1.0, 0.0}), diagonal(0, 0)};
  EXPECT_DOUBLE_EQ(frechet_distance(x, point), 1 + 5);
  EXPECT_EQ(frechet_distance(point, point), 0);
}

TEST(FrechetDistance, IsFiniteForFewSamplesAndConstantFeatures) {
  const Tensor a = features(1, 2, 20), b = features(2, 2, 20), constant = full({9, 20}, 0.1, kF64);
  testing::internal::CaptureStderr();
  const double d = distance(a, b);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("2 samples have 20 features each"));
  EXPECT_TRUE(std::isfinite(d));
  EXPECT_GT(d, 0);
  EXPECT_EQ(distance(a, b), d) << "each time the same";
  EXPECT_LT(distance(a, a), 1e-5 * d) << "to the rounding of singular matrices";
  EXPECT_LT(distance(constant, constant), 1e-20);
  EXPECT_NEAR(distance(constant, constant + 1), 20, 1e-9);
  EXPECT_TRUE(std::isfinite(distance(constant, a)));
  const Tensor large = features(3, 30, 5) * 1e38, small = features(4, 30, 5) * 1e-200;
  EXPECT_TRUE(std::isfinite(distance(large, small)));
  EXPECT_LT(distance(small, small), 1e-300);
}

TEST(FrechetDistance, EnoughSamplesGiveNoWarning) {
  testing::internal::CaptureStderr();
  distance(features(1, 7, 6), features(2, 7, 6));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(FeatureStatistics, WhatDoesNotFitIsNamed) {
  FeatureStatistics s;
  EXPECT_ERROR(ValueError, s.update(Tensor()), "features is undefined");
  EXPECT_ERROR(ShapeError, s.update(zeros({4})), "features [N,D]");
  EXPECT_ERROR(ShapeError, s.update(zeros({4, 0})), "features [N,D]");
  EXPECT_ERROR(DTypeError, s.update(zeros({4, 2}, {.dtype = DType::kI64})), "[FeatureStatistics]");
  EXPECT_ERROR(ShapeError, s.update(zeros({1, (1 << 14) + 1})), "at most 16384");
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity(), -1e41})
    EXPECT_ERROR(ValueError, s.update(tensor({{1.0, 2.0}, {3.0, bad}})), "in row 1 of features");
  EXPECT_EQ(s.count(), 0) << "what did not fit has not been counted";
  EXPECT_ERROR(ValueError, s.compute(), "at least 2 samples, there are 0");
  s.update(zeros({0, 2}));
  s.update(zeros({1, 2}));
  EXPECT_ERROR(ValueError, s.mean(), "there are 1");
  EXPECT_ERROR(ShapeError, s.update(zeros({2, 3})), "expected 2 features");
  data::Batch batch{.input = zeros({4, 1})};
  batch.indices = {0, 1, 2, 3};
  EXPECT_ERROR(ShapeError, s.update(zeros({3, 2}), batch), "4 samples");
  dist::run_ranks(2, [] {
    FeatureStatistics own;
    own.update(zeros({3, 2 + dist::get_rank()}));
    EXPECT_ERROR(ShapeError, own.compute(), "from 2 to 3 features");
  });
}

TEST(FrechetDistance, WhatDoesNotFitIsNamed) {
  const FeatureMoments good = statistics(features(1, 9, 3)).compute();
  const auto with = [&](Tensor mean, Tensor covariance) {
    return [=] { frechet_distance(good, {mean, covariance}); };
  };
  const Tensor c = good.covariance;
  EXPECT_ERROR(ValueError, with(Tensor(), c)(), "undefined");
  EXPECT_ERROR(DTypeError, with(zeros({3}), c)(), "f64");
  EXPECT_ERROR(ShapeError, with(zeros({2}, kF64), c)(), "covariance [D,D]");
  EXPECT_ERROR(ShapeError, with(zeros({2}, kF64), eye(2, -1, kF64))(), "both sides");
  EXPECT_ERROR(ValueError, with(good.mean * std::nan(""), c)(), "of mean");
  EXPECT_ERROR(ValueError, with(good.mean, c * 1e200)(), "of covariance");
  EXPECT_ERROR(ValueError, with(good.mean, triu(c))(), "symmetric");
}

}  // namespace
}  // namespace gradus::metrics
