// Initializers: moments, bounds, fans, and that the same seed gives the same numbers.
#include "gradus/nn/init.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "gradus/nn/nn.h"
#include "gradus/tensor/runtime/parallel.h"

namespace gradus::nn::init {
namespace {

struct Moments {
  double mean, deviation, low, high, kurtosis;
};

Moments moments(const Tensor& x) {
  const std::vector<double> v = x.to_vector<double>();
  double mean = 0, square = 0, fourth = 0;
  for (double e : v) mean += e / double(v.size());
  for (double e : v) square += (e - mean) * (e - mean) / double(v.size());
  for (double e : v) fourth += std::pow(e - mean, 4) / double(v.size());
  const auto [low, high] = std::minmax_element(v.begin(), v.end());
  return {mean, std::sqrt(square), *low, *high, fourth / square / square};
}

// 100,000 draws: the mean is off by 1 / 316 of the deviation, the deviation by less.
constexpr int64_t kDraws = 100000;
constexpr double kOff = 5.0 / 316;

TEST(Init, UniformFillsItsRange) {
  manual_seed(1);
  const Moments m = moments(uniform_(empty({kDraws}), {.low = -2, .high = 4}));
  EXPECT_NEAR(m.mean, 1, kOff * std::sqrt(3));
  EXPECT_NEAR(m.deviation, 6 / std::sqrt(12), kOff * 3);
  EXPECT_GE(m.low, -2);
  EXPECT_LT(m.low, -1.99);
  EXPECT_LE(m.high, 4);
  EXPECT_GT(m.high, 3.99);
}

TEST(Init, NormalHasItsMoments) {
  manual_seed(2);
  const Moments m = moments(normal_(empty({kDraws}), {.mean = 3, .stddev = 2}));
  EXPECT_NEAR(m.mean, 3, kOff * 2);
  EXPECT_NEAR(m.deviation, 2, kOff * 2);
  EXPECT_NEAR(m.kurtosis, 3, 0.1);
}

TEST(Init, TruncNormalStaysWithinItsBounds) {
  manual_seed(3);
  // Of a standard normal cut at +-2: deviation 0.8796.
  const Moments wide =
      moments(trunc_normal_(empty({kDraws}), {.mean = 1, .stddev = 0.5, .low = 0, .high = 2}));
  EXPECT_NEAR(wide.mean, 1, kOff / 2);
  EXPECT_NEAR(wide.deviation, 0.8796 / 2, kOff / 2);
  EXPECT_GE(wide.low, 0);
  EXPECT_LE(wide.high, 2);
  // Far in the tail, beyond 5 deviations: the mean is 5.1865.
  const Moments tail = moments(trunc_normal_(empty({20000}), {.low = 5, .high = 50}));
  EXPECT_NEAR(tail.mean, 5.1865, 0.01);
  EXPECT_GE(tail.low, 5);
  const Moments other = moments(trunc_normal_(empty({20000}), {.low = -50, .high = -5}));
  EXPECT_NEAR(other.mean, -5.1865, 0.01);
}

TEST(Init, FansCountTheKernel) {
  const Fans f = fans(empty({32, 16, 3, 5}));
  EXPECT_EQ(f.in, 16 * 15);
  EXPECT_EQ(f.out, 32 * 15);
  EXPECT_THROW(fans(empty({3})), ShapeError);
}

TEST(Init, KaimingAndXavierScaleWithTheFans) {
  manual_seed(4);
  const Tensor w = empty({200, 50, 3, 3});
  const double in = 450, out = 1800;
  EXPECT_NEAR(moments(kaiming_normal_(w, {.nonlinearity = Nonlinearity::kReLU})).deviation, std::sqrt(2 / in),
              0.001);
  EXPECT_NEAR(
      moments(kaiming_normal_(w, {.mode = FanMode::kFanOut, .nonlinearity = Nonlinearity::kReLU})).deviation,
      std::sqrt(2 / out), 0.001);
  const Moments k = moments(kaiming_uniform_(w, {.a = std::sqrt(5)}));
  EXPECT_NEAR(k.high, 1 / std::sqrt(in), 1e-4);
  EXPECT_NEAR(k.low, -1 / std::sqrt(in), 1e-4);
  EXPECT_NEAR(moments(xavier_normal_(w)).deviation, std::sqrt(2 / (in + out)), 0.001);
  EXPECT_NEAR(moments(xavier_uniform_(w, {.gain = 2})).high, 2 * std::sqrt(6 / (in + out)), 1e-3);
}

TEST(Init, OrthogonalRowsOrColumns) {
  manual_seed(5);
  for (const Shape& shape : {Shape{4, 7}, Shape{7, 4}, Shape{3, 2, 2, 2}}) {
    const Tensor w = orthogonal_(empty(shape, {.dtype = DType::kF64}), {.gain = 3});
    const std::vector<double> v = w.to_vector<double>();
    const int64_t rows = shape[0], cols = w.numel() / rows, n = std::min(rows, cols),
                  length = std::max(rows, cols);
    const auto at = [&](int64_t i, int64_t k) {
      return rows > cols ? v[size_t(k * cols + i)] : v[size_t(i * cols + k)];
    };
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double dot = 0;
        for (int64_t k = 0; k < length; ++k) dot += at(i, k) * at(j, k);
        EXPECT_NEAR(dot, i == j ? 9 : 0, 1e-12) << shape;
      }
  }
}

TEST(Init, DependsOnTheSeedAloneNotOnThreads) {
  const auto draw = [](uint64_t seed, int threads) {
    set_num_threads(threads);
    manual_seed(seed);
    return normal_(empty({20000})).to_vector<float>();
  };
  const std::vector<float> a = draw(7, 1), b = draw(7, 2), c = draw(8, 2);
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
}

TEST(Init, RefusesWhatMakesNoSense) {
  EXPECT_THROW(uniform_(empty({2}), {.low = 1, .high = 0}), ValueError);
  EXPECT_THROW(normal_(empty({2}), {.stddev = -1}), ValueError);
  EXPECT_THROW(trunc_normal_(empty({2}), {.low = 1, .high = 1}), ValueError);
  EXPECT_THROW(zeros_(empty({2}, {.dtype = DType::kI64})), DTypeError);
}

// What PyTorch documents for its layers.
TEST(Init, LayersStartAsPyTorchsDo) {
  manual_seed(6);
  const nn::Linear fc({.in = 100, .out = 300});
  const Moments w = moments(fc.weight), b = moments(fc.bias);
  EXPECT_NEAR(w.high, 0.1, 1e-3);
  EXPECT_LE(w.high, 0.1);
  EXPECT_NEAR(w.low, -0.1, 1e-3);
  EXPECT_NEAR(b.high, 0.1, 5e-3);
  EXPECT_LE(b.high, 0.1);
  const nn::Conv2d conv({.in = 8, .out = 64, .kernel = {3, 5}, .groups = 2});
  EXPECT_EQ(conv.weight.shape(), (Shape{64, 4, 3, 5}));
  EXPECT_NEAR(moments(conv.weight).high, 1 / std::sqrt(60.0), 1e-3);
  EXPECT_LE(moments(conv.bias).high, 1 / std::sqrt(60.0));
}

}  // namespace
}  // namespace gradus::nn::init
