// Structural similarity: what it must be, pairs, sizes. Values: tests/golden/metrics.
#include "gradus/train/metrics/ms_ssim.h"

#include <gtest/gtest.h>

#include "gradus/gradus.h"
#include "gradus/tests/support/error.h"

namespace gradus::metrics {
namespace {

Tensor images(uint64_t seed, const Shape& shape) {
  manual_seed(seed);
  return randint(256, shape, {.dtype = DType::kU8});
}

TEST(MsSsim, IsOneForEqualImagesAndSymmetric) {
  const Tensor x = images(1, {3, 2, 32, 16}), y = images(2, {3, 2, 32, 16});
  for (const double s : ms_ssim(x, x).to_vector<double>()) EXPECT_NEAR(s, 1, 1e-14);
  const Tensor black = zeros({1, 1, 16, 16}, {.dtype = DType::kU8});
  EXPECT_DOUBLE_EQ(ms_ssim(black, black).item<double>(), 1);
  EXPECT_LT(ms_ssim(black, full({1, 1, 16, 16}, 255, {.dtype = DType::kU8})).item<double>(), 0.5);
  const auto there = ms_ssim(x, y).to_vector<double>(), back = ms_ssim(y, x).to_vector<double>();
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(there[i], back[i], 1e-14);
  EXPECT_EQ(ms_ssim(x, y).dtype(), DType::kF64);
  EXPECT_EQ(ms_ssim(narrow(x, 0, 0, 0), narrow(y, 0, 0, 0)).numel(), 0);
}

TEST(MsSsim, DiversityIsOfNeighborsInPairs) {
  const Tensor a = images(1, {1, 1, 16, 16});
  const Tensor b = to(to(a, DType::kF32) / 2 + to(images(2, {1, 1, 16, 16}), DType::kF32) / 2, DType::kU8);
  const double s = ms_ssim(a, b).item<double>();
  EXPECT_GT(s, 0.1);
  EXPECT_LT(s, 0.9);
  EXPECT_NEAR(ms_ssim_diversity(cat({a, a, b, b}, 0)), 1, 1e-14);
  EXPECT_NEAR(ms_ssim_diversity(cat({a, b, b, b}, 0)), (s + 1) / 2, 1e-14);
  EXPECT_DOUBLE_EQ(ms_ssim_diversity(cat({a, b, b}, 0)), s) << "the last has no neighbor";
}

TEST(MsSsim, WhatDoesNotFitIsNamed) {
  const auto of = [](const Shape& a, const Shape& b, DType dtype = DType::kU8) {
    return [=] { ms_ssim(zeros(a, {.dtype = dtype}), zeros(b, {.dtype = dtype})); };
  };
  EXPECT_ERROR(ShapeError, of({1, 1, 28, 28}, {1, 1, 28, 28})(), "multiples of 16");
  EXPECT_ERROR(ShapeError, of({1, 1, 16, 24}, {1, 1, 16, 24})(), "multiples of 16");
  EXPECT_ERROR(ShapeError, of({1, 1, 16, 16}, {2, 1, 16, 16})(), "same size");
  EXPECT_ERROR(ShapeError, of({1, 0, 16, 16}, {1, 0, 16, 16})(), "[N,C,H,W]");
  EXPECT_ERROR(DTypeError, of({1, 1, 16, 16}, {1, 1, 16, 16}, DType::kF32)(), "u8");
  EXPECT_ERROR(ValueError, ms_ssim(Tensor(), Tensor()), "undefined");
  EXPECT_ERROR(ValueError, ms_ssim_diversity(images(1, {1, 1, 16, 16})), "at least 2 images");
}

}  // namespace
}  // namespace gradus::metrics
