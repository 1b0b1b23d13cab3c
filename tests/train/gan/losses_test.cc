// Losses and penalties of GANs where tests/golden/gan does not reach: single values, dtypes, gradients where
// a norm is 0, warnings, errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "gradus/gradus.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

using testing::HasSubstr;

double value(const Tensor& t) { return t.item<double>(); }

// The values that mmgeneration's tests expect.
TEST(GanLosses, HaveMmgenerationsValues) {
  const Tensor ones = full({2, 1}, 1, {.dtype = DType::kF64}), twos = full({2, 1}, 2, {.dtype = DType::kF64});
  const Tensor far = full({2, 1}, -100, {.dtype = DType::kF64});  // adds nothing to vanilla's terms
  EXPECT_NEAR(2 * value(gan::vanilla_g(ones)), 0.6265233, 1e-7);
  EXPECT_NEAR(value(gan::vanilla_d(ones, far)), 0.3132616, 1e-7);
  EXPECT_NEAR(value(gan::vanilla_d(-far, ones)), 1.3132616, 1e-7);
  EXPECT_DOUBLE_EQ(2 * value(gan::lsgan_g(twos)), 2);
  EXPECT_DOUBLE_EQ(value(gan::lsgan_d(twos, 0 * twos)), 1);
  EXPECT_DOUBLE_EQ(value(gan::lsgan_d(ones, twos)), 4);
  EXPECT_DOUBLE_EQ(2 * value(gan::wgan_g(twos)), -4);
  EXPECT_DOUBLE_EQ(value(gan::wgan_d(twos, 0 * twos)), -2);
  EXPECT_DOUBLE_EQ(value(gan::wgan_d(0 * twos, twos)), 2);
  EXPECT_DOUBLE_EQ(2 * value(gan::hinge_g(twos)), -4);
  EXPECT_DOUBLE_EQ(value(gan::hinge_d(twos, -twos)), 0);
  EXPECT_DOUBLE_EQ(value(gan::hinge_d(twos, twos)), 3);
  EXPECT_NEAR(value(gan::logistic_d(ones, twos)), std::log1p(std::exp(-1)) + std::log1p(std::exp(2)), 1e-12);
}

TEST(GanLosses, RelativisticOnesComparePairs) {
  const Tensor real = tensor({1.0, 3.0}), fake = tensor({2.0, -1.0});
  EXPECT_NEAR(value(gan::relativistic_d(real, fake)),
              (std::log1p(std::exp(1)) + std::log1p(std::exp(-4))) / 2, 1e-6);
  EXPECT_NEAR(value(gan::relativistic_g(real, fake)),
              (std::log1p(std::exp(-1)) + std::log1p(std::exp(4))) / 2, 1e-6);
  EXPECT_ERROR(ShapeError, gan::relativistic_d(real, ones({2, 1})),
               "[relativistic_d] expected real and fake alike");
}

// Losses of scores neither overflow nor become constant where the sigmoid rounds to 0 or 1.
TEST(GanLosses, StayFiniteAtScoresOfAnySize) {
  for (const double s : {1e4, -1e4}) {
    const Tensor x = full({3}, s);
    for (const Tensor& loss : {gan::vanilla_d(x, x), gan::vanilla_g(x), gan::logistic_d(x, x),
                               gan::logistic_g(x), gan::relativistic_d(x, -x), gan::relativistic_g(x, -x)})
      EXPECT_TRUE(std::isfinite(value(loss))) << s;
  }
  EXPECT_NEAR(value(gan::vanilla_g(full({3}, -1e4))), 1e4, 1e-3);
}

TEST(GanLosses, OfSixteenBitsAreComputedInF32) {
  const Tensor x = to(randn({64, 1}), DType::kBF16), y = to(randn({64, 1}), DType::kBF16);
  const Tensor wide_x = to(x, DType::kF32), wide_y = to(y, DType::kF32);
  EXPECT_EQ(gan::hinge_d(x, y).dtype(), DType::kF32);
  EXPECT_EQ(value(gan::hinge_d(x, y)), value(gan::hinge_d(wide_x, wide_y)));
  EXPECT_EQ(value(gan::lsgan_d(x, y)), value(gan::lsgan_d(wide_x, wide_y)));
  EXPECT_EQ(value(gan::wgan_g(x)), value(gan::wgan_g(wide_x)));
  EXPECT_ERROR(Error, gan::wgan_g(tensor({1, 2})), "[wgan_g] expected scores of a floating type");
}

// A discriminator of vectors whose penalty is known: its gradient is w for every sample.
struct Plane final : nn::Layer {
  nn::Linear fc{this, "fc", {.in = 2, .out = 1}};
  Tensor forward(const Tensor& x) override { return fc(x); }
};

TEST(GradientPenalty, OfAPlaneIsItsSlopes) {
  Plane disc;
  disc.to(DType::kF64);
  nn::init::constant_(disc.fc.weight, 1.5);
  const Tensor x = randn({4, 2}, {.dtype = DType::kF64}), y = randn({4, 2}, {.dtype = DType::kF64});
  const double slope = std::sqrt(2 * 1.5 * 1.5);
  EXPECT_NEAR(value(gan::gradient_penalty(disc, x, y, rand({4}))), (slope - 1) * (slope - 1), 1e-12);
  EXPECT_NEAR(value(gan::gradient_penalty(disc, x, y, rand({4, 1}), {.target = 0})), slope * slope, 1e-12);
  EXPECT_NEAR(value(gan::r1(disc, x)), slope * slope, 1e-12);
  EXPECT_NEAR(value(gan::r2(disc, y)), slope * slope, 1e-12);
  // Its gradient: 2 (slope - 1) w / slope.
  GradManager gm;
  gm.attach(disc.parameters());
  {
    auto recording = gm.record();
    gm.backward(gan::gradient_penalty(disc, x, y, rand({4})));
  }
  for (const double g : disc.fc.weight.grad().to_vector<double>())
    EXPECT_NEAR(g, 2 * (slope - 1) * 1.5 / slope, 1e-12);
}

TEST(GradientPenalty, OfAConstantDiscriminatorHasAGradientOfZero) {
  Plane disc;
  nn::init::zeros_(disc.fc.weight);
  const Tensor x = randn({4, 2}), y = randn({4, 2});
  GradManager gm;
  gm.attach(disc.parameters());
  {
    auto recording = gm.record();
    const Tensor penalty = gan::gradient_penalty(disc, x, y, rand({4}));
    EXPECT_EQ(penalty.item<float>(), 1);
    gm.backward(penalty);
  }
  for (const double g : disc.fc.weight.grad().to_vector<double>()) EXPECT_EQ(g, 0);
}

// A nonlinear discriminator: the penalty's gradient depends on its input.
struct Bowl final : nn::Layer {
  nn::Linear first{this, "first", {.in = 3, .out = 5}}, last{this, "last", {.in = 5, .out = 1}};
  Tensor forward(const Tensor& x) override { return last(tanh(first(x))); }
};

TEST(GradientPenalty, HasTheGradientOfFiniteDifferences) {
  manual_seed(5);
  Bowl disc;
  disc.to(DType::kF64);
  const Tensor x = randn({4, 3}, {.dtype = DType::kF64}), y = randn({4, 3}, {.dtype = DType::kF64});
  const Tensor alpha = rand({4}, {.dtype = DType::kF64});
  const std::vector<std::function<Tensor()>> penalties = {
      [&] { return gan::gradient_penalty(disc, x, y, alpha); }, [&] { return gan::r1(disc, x); },
      [&] { return gan::drift(disc(x)); }};
  for (const auto& penalty : penalties) {
    GradManager gm;
    gm.attach(disc.parameters());
    {
      auto recording = gm.record();
      gm.backward(penalty());
    }
    for (const auto& [name, p] : disc.named_parameters()) {
      std::vector<double> at = p.to_vector<double>();
      const std::vector<double> g =
          p.grad().defined() ? p.grad().to_vector<double>() : std::vector<double>(at.size());
      for (size_t i = 0; i < at.size(); ++i) {
        const double h = 1e-5, old = at[i];
        double ends[2];
        for (int side : {0, 1}) {
          at[i] = old + (side ? h : -h);
          copy_(p, tensor(at, p.shape()));
          ends[side] = value(penalty());
        }
        at[i] = old;
        copy_(p, tensor(at, p.shape()));
        EXPECT_NEAR((ends[1] - ends[0]) / (2 * h), g[i], 1e-8) << name << ' ' << i;
      }
    }
    for (const Tensor& p : disc.parameters()) p.set_grad({});
  }
}

// Penalties have no gradient with respect to the images, and so none for the generator.
TEST(GradientPenalty, ReachesTheDiscriminatorAlone) {
  Bowl disc;
  const Tensor x = randn({4, 3}), y = randn({4, 3});
  GradManager gm;
  gm.attach(disc.parameters());
  gm.attach({x, y});
  {
    auto recording = gm.record();
    gm.backward(gan::gradient_penalty(disc, x * 2, y * 2, rand({4})) + gan::r1(disc, x * 2));
  }
  EXPECT_TRUE(disc.first.weight.grad().defined());
  for (const Tensor& images : {x, y})
    EXPECT_TRUE(!images.grad().defined() || max(abs(images.grad())).item<double>() == 0);
}

TEST(GradientPenalty, IsComputedInF32UnderAutocast) {
  Bowl disc;
  const Tensor x = randn({4, 3}), y = to(randn({4, 3}), DType::kBF16), alpha = rand({4});
  const double plain = value(gan::gradient_penalty(disc, x, to(y, DType::kF32), alpha));
  auto amp = autocast(DType::kBF16);
  EXPECT_EQ(value(gan::gradient_penalty(disc, x, y, alpha)), plain);
}

TEST(GradientPenalty, WarnsOfBatchNorm) {
  models::DCGANDiscriminator disc({.size = 8, .channels = 1, .width = 2});
  models::DCGANDiscriminator deeper({.size = 16, .channels = 1, .width = 2});
  const Tensor x = randn({2, 1, 16, 16}), alpha = rand({2});
  testing::internal::CaptureStderr();
  gan::r1(disc, randn({2, 1, 8, 8}));  // one hidden layer: no norm
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) gan::gradient_penalty(deeper, x, x, alpha);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("warning: gradient_penalty: DCGANDiscriminator has batch norm (main.3)"));
  EXPECT_EQ(said.find("warning", said.find("warning") + 1), std::string::npos) << said;
}

TEST(GradientPenalty, ReportsWhatDoesNotFit) {
  Bowl disc;
  const Tensor x = randn({4, 3});
  EXPECT_ERROR(Error, gan::gradient_penalty(disc, x, randn({3, 3}), rand({4})),
               "expected real and fake [N,...] alike, got f32[4,3]");
  EXPECT_ERROR(Error, gan::gradient_penalty(disc, x, x, rand({3})), "expected alpha [4], got");
  EXPECT_ERROR(Error, gan::gradient_penalty(disc, x, x, rand({4}), {.per_pixel = true}),
               "expected images for per_pixel");
  EXPECT_THROW(gan::r1(disc, zeros({})), ShapeError);
  EXPECT_THROW(gan::drift(tensor({1})), DTypeError);
}

}  // namespace
}  // namespace gradus
