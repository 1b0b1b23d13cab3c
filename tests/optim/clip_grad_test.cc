// clip_grad_norm_ and clip_grad_value_ against values computed by hand; non-finite gradients, threads,
// errors.
#include "gradus/optim/clip_grad.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gradus/tensor/runtime/parallel.h"

namespace gradus::optim {
namespace {

using testing::ElementsAre;

std::vector<Tensor> params_with_grads(const std::vector<std::vector<double>>& grads) {
  std::vector<Tensor> params;
  for (const auto& g : grads) {
    params.push_back(empty({int64_t(g.size())}, {.dtype = DType::kF64}));
    params.back().set_grad(tensor(g, {int64_t(g.size())}));
  }
  return params;
}
std::vector<double> grad(const Tensor& p) { return p.grad().to_vector<double>(); }

TEST(ClipGradNorm, ScalesAllGradientsByOneFactor) {
  std::vector<Tensor> p = params_with_grads({{3}, {0, 4}});
  p.push_back(empty({2}));  // without a gradient
  EXPECT_EQ(clip_grad_norm_(p, 10).item<double>(), 5);
  EXPECT_THAT(grad(p[1]), ElementsAre(0, 4));
  EXPECT_EQ(clip_grad_norm_(p, 1).item<double>(), 5);
  EXPECT_NEAR(grad(p[0])[0], 0.6, 1e-6);
  EXPECT_NEAR(grad(p[1])[1], 0.8, 1e-6);
}

TEST(ClipGradNorm, KnowsOtherNorms) {
  const std::vector<Tensor> p = params_with_grads({{3, -1}, {-4}});
  EXPECT_EQ(clip_grad_norm_(p, 100, {.norm_type = 1}).item<double>(), 8);
  EXPECT_EQ(clip_grad_norm_(p, 100, {.norm_type = std::numeric_limits<double>::infinity()}).item<double>(),
            4);
  EXPECT_NEAR(clip_grad_norm_(p, 100, {.norm_type = 3}).item<double>(), std::cbrt(92.0), 1e-12);
}

TEST(ClipGradNorm, ReportsInfiniteGradientsWhenAsked) {
  const std::vector<Tensor> p = params_with_grads({{1, std::numeric_limits<double>::infinity()}});
  EXPECT_THROW(clip_grad_norm_(p, 1, {.error_if_nonfinite = true}), ValueError);
  EXPECT_EQ(grad(p[0])[0], 1);
  EXPECT_TRUE(std::isinf(clip_grad_norm_(p, 1).item<double>()));
  const std::vector<Tensor> nan = params_with_grads({{1, std::nan("")}, {5}});
  EXPECT_TRUE(std::isnan(
      clip_grad_norm_(nan, 1, {.norm_type = std::numeric_limits<double>::infinity()}).item<double>()));
}

TEST(ClipGradNorm, IsTheSameOnAnyNumberOfThreads) {
  std::vector<double> g;
  for (int i = 0; i < 300000; ++i) g.push_back(std::sin(i));
  const auto norm = [&](int threads) {
    set_num_threads(threads);
    return clip_grad_norm_(params_with_grads({g, {1, 2}}), 1).item<double>();
  };
  EXPECT_EQ(norm(1), norm(2));
}

TEST(ClipGradNorm, WithoutGradientsIsZero) {
  EXPECT_EQ(clip_grad_norm_({empty({2})}, 1).item<double>(), 0);
  EXPECT_THROW(clip_grad_norm_({}, -1), ValueError);
  EXPECT_THROW(clip_grad_norm_({}, 1, {.norm_type = 0}), ValueError);
}

TEST(ClipGradValue, BoundsEveryElement) {
  const std::vector<Tensor> p = params_with_grads({{3, -0.5}, {-4}});
  clip_grad_value_(p, 1);
  EXPECT_THAT(grad(p[0]), ElementsAre(1, -0.5));
  EXPECT_THAT(grad(p[1]), ElementsAre(-1));
  EXPECT_THROW(clip_grad_value_(p, -1), ValueError);
}

}  // namespace
}  // namespace gradus::optim
