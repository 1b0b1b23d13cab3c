// Flow matching: the loss against its formula, the order of each method on equations with known solutions, guidance,
// and a small network that learns a distribution of points.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numbers>

#include "gradus/gradus.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

using flow::Method;

const TensorOptions kF64 = {.dtype = DType::kF64};

double value(const Tensor& t) { return t.item<double>(); }
Tensor f64(const std::vector<double>& values) { return tensor(values); }

// images 2 and 5, noise 1 and 3, times 0.25 and 0.5: x is 1.25 and 4. With v = 2 x + t, v - (images - noise) is
// 2.75 - 1 and 8.5 - 2.
TEST(MatchingLoss, IsTheMeanSquareOfTheVelocitysError) {
  const Tensor images = reshape(f64({2.0, 5.0}), {2, 1}), noise = reshape(f64({1.0, 3.0}), {2, 1}),
               times = f64({0.25, 0.5});
  const auto v = [](const Tensor& x, const Tensor& t) { return 2 * x + reshape(t, {-1, 1}); };
  EXPECT_NEAR(value(flow::matching_loss(v, images, noise, times)), (1.75 * 1.75 + 6.5 * 6.5) / 2, 1e-12);
  // The gradient of w in v = w x: the mean of 2 (w x - target) x.
  const Tensor w = f64({3.0});
  GradManager gm;
  gm.attach({w});
  auto recording = gm.record();
  gm.backward(
      flow::matching_loss([&](const Tensor& x, const Tensor&) { return w * x; }, images, noise, times));
  EXPECT_NEAR(value(w.grad()), (3.75 - 1) * 1.25 + (12 - 2) * 4.0, 1e-12);
}

TEST(MatchingLoss, OfSixteenBitsIsComputedInF32) {
  const auto v = [](const Tensor& x, const Tensor&) { return to(x, DType::kBF16); };
  EXPECT_EQ(flow::matching_loss(v, rand({2, 3}), rand({2, 3}), rand({2})).dtype(), DType::kF32);
}

TEST(MatchingLoss, ThrowsOnShapeMismatch) {
  const auto same = [](const Tensor& x, const Tensor&) { return x; };
  EXPECT_ERROR(ShapeError, flow::matching_loss(same, zeros({2, 3}), zeros({2, 4}), zeros({2})),
               "[matching_loss] expected images and noise of one shape", "f32[2,3]", "f32[2,4]");
  EXPECT_ERROR(ShapeError, flow::matching_loss(same, zeros({2, 3}), zeros({2, 3}), zeros({3})),
               "expected one time for each of 2 images, got f32[3]");
  EXPECT_ERROR(ShapeError,
               flow::matching_loss([](const Tensor& x, const Tensor&) { return sum(x); }, zeros({2, 3}),
                                   zeros({2, 3}), zeros({2})),
               "expected a velocity of the shape of x, f32[2,3]", "got f32[]");
  EXPECT_THROW(flow::matching_loss(same, zeros({2}, {.dtype = DType::kI64}), zeros({2}), zeros({2})),
               DTypeError);
}

TEST(LogitNormalTimes, AreTheSigmoidOfNormalNumbers) {
  const Tensor normal = f64({-1.0, 0.0, 2.0});
  const std::vector<double> t =
      flow::logit_normal_times(normal, {.mean = 0.5, .stddev = 2}).to_vector<double>();
  for (size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(t[i], 1 / (1 + std::exp(-(0.5 + 2 * std::array{-1.0, 0.0, 2.0}[i]))), 1e-15);
  EXPECT_THROW(flow::logit_normal_times(normal, {.stddev = -1}), ValueError);
}

TEST(DropLabels, ReplacesThoseOfTheMask) {
  const Tensor labels = tensor(std::vector<int64_t>{4, 0, 9});
  EXPECT_EQ(flow::drop_labels(labels, lt(f64({0.5, 0.05, 0.9}), 0.1), 10).to_vector<int64_t>(),
            (std::vector<int64_t>{4, 10, 9}));
}

// For dx/dt = a x each step multiplies x by the method's polynomial of z = a / steps.
TEST(Sample, MultipliesByTheStabilityPolynomialOfTheMethod) {
  const double a = -1.7;
  const auto v = [&](const Tensor& x, const Tensor&) { return a * x; };
  const auto polynomial = [](Method method, double z) {
    const double second = 1 + z + z * z / 2;
    return method == Method::kEuler         ? 1 + z
           : method == Method::kRungeKutta4 ? second + z * z * z / 6 + z * z * z * z / 24
                                            : second;
  };
  for (const Method method : {Method::kEuler, Method::kMidpoint, Method::kHeun, Method::kRungeKutta4})
    for (const int64_t steps : {1, 3, 10})
      EXPECT_NEAR(value(flow::sample(v, full({1}, 2, kF64), {.steps = steps, .method = method})),
                  2 * std::pow(polynomial(method, a / double(steps)), double(steps)), 1e-12);
}

// For dx/dt = t^4, x(1) is a quadrature of t^4: left rectangles, midpoints, trapezoids and Simpson's rule.
TEST(Sample, EvaluatesTheVelocityAtTheMethodsTimes) {
  const int steps = 3;
  const auto v = [](const Tensor& x, const Tensor& t) { return 0 * x + pow(t, 4); };
  const auto f = [](double t) { return t * t * t * t / steps; };
  double left = 0, middle = 0, right = 0;
  for (int i = 0; i < steps; ++i) left += f(i / 3.0), middle += f((i + 0.5) / 3), right += f((i + 1) / 3.0);
  const std::map<Method, double> expected = {{Method::kEuler, left},
                                             {Method::kMidpoint, middle},
                                             {Method::kHeun, (left + right) / 2},
                                             {Method::kRungeKutta4, (left + 4 * middle + right) / 6}};
  for (const auto& [method, x] : expected)
    EXPECT_NEAR(value(flow::sample(v, zeros({1}, kF64), {.steps = steps, .method = method})), x, 1e-12);
}

// dx/dt = 2 t x has the solution x(0) exp(t^2). Half the step divides the error by 2^order.
TEST(Sample, ConvergesWithTheOrderOfTheMethod) {
  const auto v = [](const Tensor& x, const Tensor& t) { return 2 * t * x; };
  const auto error = [&](Method method, int64_t steps) {
    return std::abs(value(flow::sample(v, ones({1}, kF64), {.steps = steps, .method = method})) -
                    std::numbers::e);
  };
  for (const auto& [method, order] : std::map<Method, double>{
           {Method::kEuler, 1}, {Method::kMidpoint, 2}, {Method::kHeun, 2}, {Method::kRungeKutta4, 4}})
    EXPECT_NEAR(std::log2(error(method, 64) / error(method, 128)), order, 0.05);
}

TEST(Sample, ExtrapolatesFromTheUnconditionalVelocity) {
  const auto conditional = [](const Tensor& x, const Tensor&) { return ones_like(x); };
  const auto unconditional = [](const Tensor& x, const Tensor&) { return full_like(x, 0.25); };
  EXPECT_NEAR(
      value(flow::sample(conditional, zeros({1}, kF64), {.guidance = 3, .unconditional = unconditional})),
      0.25 + 3 * 0.75, 1e-12);
  EXPECT_ERROR(ValueError, flow::sample(conditional, zeros({1}), {.guidance = 3}),
               "[sample] expected an unconditional velocity for a guidance of 3");
  EXPECT_THROW(flow::sample(conditional, zeros({1}), {.steps = 0}), ValueError);
  EXPECT_THROW(flow::sample([](const Tensor& x, const Tensor&) { return sum(x); }, zeros({2})), ShapeError);
}

// A velocity of two-dimensional points by two hidden layers.
struct Points final : nn::Module {
  nn::Linear fc1{this, "fc1", {.in = 3, .out = 64}}, fc2{this, "fc2", {.in = 64, .out = 64}},
      fc3{this, "fc3", {.in = 64, .out = 2}};
  Tensor operator()(const Tensor& x, const Tensor& t) {
    return call([&] { return fc3(silu(fc2(silu(fc1(cat({x, reshape(t, {-1, 1})}, 1)))))); });
  }
};

// Points around (2, 1) and (-2, 1), as often, with a standard deviation of 0.3. The coordinates have means 0 and 1,
// and standard deviations sqrt(4.09) and 0.3. Of 4096 samples the standard errors of the first coordinate's mean and
// standard deviation are 2.02 / 64 = 0.03 and 0.01. The error of the network is larger: Adam's steps average over some
// 10 batches of 256 points, whose velocities have a standard deviation of about 2, which gives 2 / sqrt(2560) = 0.04.
// The tolerance of 0.15 is three times 0.05, the root of the sum of both squares.
TEST(FlowMatching, LearnsTheMomentsOfTwoClouds) {
  manual_seed(1);
  Points net;
  GradManager gm;
  gm.attach(net.parameters());
  optim::Adam opt(net.parameters(), {.lr = 3e-3});
  const int64_t n = 256, steps = 1500;
  const Tensor sides = reshape(stack({full({n / 2}, 2), full({n / 2}, -2)}, 0), {n, 1});
  const Tensor centers = cat({sides, ones({n, 1})}, 1);
  for (int64_t i = 0; i < steps; ++i) {
    const Tensor points = centers + 0.3 * randn({n, 2});
    auto recording = gm.record();
    gm.backward(flow::matching_loss([&](const Tensor& x, const Tensor& t) { return net(x, t); }, points,
                                    randn({n, 2}), flow::logit_normal_times(randn({n}))));
    opt.step().clear_grad();
  }
  const Tensor x =
      to(flow::sample([&](const Tensor& y, const Tensor& t) { return net(y, t); }, randn({4096, 2})),
         DType::kF64);
  const std::vector<double> means = mean(x, {0}).to_vector<double>(),
                            variances = var(x, {0}).to_vector<double>();
  EXPECT_NEAR(means[0], 0, 0.15);
  EXPECT_NEAR(means[1], 1, 0.15);
  EXPECT_NEAR(std::sqrt(variances[0]), std::sqrt(4.09), 0.15);
  EXPECT_NEAR(std::sqrt(variances[1]), 0.3, 0.15);
  // Both clouds: few points are between them.
  EXPECT_LT(value(mean(to(lt(abs(select(x, 1, 0)), 1), DType::kF64))), 0.03);
}

}  // namespace
}  // namespace gradus
