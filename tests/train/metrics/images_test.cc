// sliced_wasserstein and ms_ssim of images: values that follow from their definitions, seeds, layouts,
// threads, errors. tests/golden/metrics compares other values.
#include "gradus/train/metrics/swd.h"

#include <gtest/gtest.h>

#include <cmath>

#include "gradus/gradus.h"
#include "gradus/tests/support/error.h"
#include "gradus/train/metrics/ms_ssim.h"

namespace gradus::metrics {
namespace {

Tensor images(uint64_t seed, const Shape& shape) {
  manual_seed(seed);
  return randint(256, shape, {.dtype = DType::kU8});
}

constexpr SlicedWassersteinOptions kFew{.patches = 8, .directions = 20};

TEST(SlicedWasserstein, HasALevelForEachSizeDownTo16) {
  const auto levels = [](int64_t height, int64_t width) {
    const Tensor x = images(1, {1, 1, height, width});
    return sliced_wasserstein(x, x, {.patches = 1, .directions = 1}).levels.size();
  };
  EXPECT_EQ(levels(16, 16), 1u);
  EXPECT_EQ(levels(31, 17), 1u);
  EXPECT_EQ(levels(64, 32), 2u);
  EXPECT_EQ(levels(256, 256), 5u);
}

// Channels are normalized, and constant ones become 0: all-black and all-white images have distance 0.
TEST(SlicedWasserstein, IsZeroForEqualAndFiniteForConstantImages) {
  const Tensor x = images(1, {3, 3, 32, 32});
  const Tensor black = zeros({3, 3, 32, 32}, {.dtype = DType::kU8}), white = black + 255;
  EXPECT_TRUE(std::isfinite(sliced_wasserstein(black, x, kFew).mean));
  EXPECT_EQ(sliced_wasserstein(black, to(white, DType::kU8), kFew).mean, 0);
  Tensor places = full({3, 5, 2}, 7, {.dtype = DType::kI64}), directions = full({1, 147}, 1.0);
  const std::vector<SlicedWassersteinChoices> same(2, {places, places, directions});
  EXPECT_EQ(sliced_wasserstein_of_choices(x, x, same).mean, 0);
}

TEST(SlicedWasserstein, IsSmallBetweenSamplesOfOneDistributionAlone) {
  const Tensor x = images(1, {40, 1, 32, 32}), y = images(2, {40, 1, 32, 32});
  const Tensor coarse = avg_pool2d(to(y, DType::kF32), 4);
  const Tensor smooth =
      to(interpolate(coarse, {.size = {32, 32}, .mode = Interpolation::kBilinear}), DType::kU8);
  const SlicedWasserstein alike = sliced_wasserstein(x, y, {.directions = 64}),
                          other = sliced_wasserstein(x, smooth, {.directions = 64});
  for (size_t k = 0; k < 2; ++k) EXPECT_LT(2 * alike.levels[k], other.levels[k]) << k;
  EXPECT_DOUBLE_EQ(other.mean, (other.levels[0] + other.levels[1]) / 2);
}

// Along a direction of length 1, the mean distance of normalized noise from 0 is (2 / pi)^(1/2); levels have
// the factor 1000.
TEST(SlicedWasserstein, DrawsDirectionsOfLengthOne) {
  const Tensor noise = images(1, {300, 1, 16, 16}), black = zeros_like(noise);
  EXPECT_NEAR(sliced_wasserstein(noise, black, {.patches = 8, .directions = 64}).mean, 798, 8);
}

// One pixel in a corner is seen by the outermost patch alone.
TEST(SlicedWasserstein, DrawsPatchesUpToEachCorner) {
  for (const int64_t corner : {0, 23, 15 * 24, 15 * 24 + 23}) {
    const Tensor black = zeros({1, 1, 16, 24}, {.dtype = DType::kU8});
    Tensor lit = clone(black);
    lit.mutable_data<uint8_t>()[corner] = 255;
    EXPECT_GT(sliced_wasserstein(lit, black, {.patches = 4000, .directions = 4}).mean, 0) << corner;
  }
}

TEST(SlicedWasserstein, FollowsFromItsSeedAndLeavesTheGeneratorAlone) {
  const Tensor x = images(1, {4, 3, 32, 32}), y = images(2, {4, 3, 32, 32});
  const auto of = [&](uint64_t seed) {
    return sliced_wasserstein(x, y, {.patches = 8, .directions = 20, .seed = seed}).levels;
  };
  const auto state = Context::current().generator->state();
  const std::vector<double> first = of(1);
  EXPECT_EQ(Context::current().generator->state(), state);
  manual_seed(77);
  EXPECT_EQ(of(1), first);
  EXPECT_NE(of(2), first);
  const auto cast = autocast(DType::kBF16);
  EXPECT_EQ(of(1), first);
}

TEST(SlicedWasserstein, DoesNotDependOnLayoutOrThreads) {
  const Tensor x = images(1, {4, 3, 32, 32}), y = images(2, {4, 3, 32, 32});
  const double expected = sliced_wasserstein(x, y, kFew).mean;
  const Tensor turned = transpose(contiguous(transpose(x, 1, 3)), 1, 3);
  EXPECT_EQ(sliced_wasserstein(turned, y, kFew).mean, expected);
  const int threads = num_threads();
  set_num_threads(3);
  EXPECT_NEAR(sliced_wasserstein(x, y, kFew).mean, expected, 1e-4);
  set_num_threads(threads);
}

TEST(SlicedWasserstein, WhatDoesNotFitIsNamed) {
  const auto of = [](const Shape& a, const Shape& b, DType dtype = DType::kU8) {
    return [=] { sliced_wasserstein(zeros(a, {.dtype = dtype}), zeros(b, {.dtype = dtype}), kFew); };
  };
  EXPECT_ERROR(ShapeError, of({3, 16, 16}, {3, 16, 16})(), "a [N,C,H,W]");
  EXPECT_ERROR(ShapeError, of({2, 3, 16, 16}, {3, 3, 16, 16})(), "as many images");
  EXPECT_ERROR(ShapeError, of({2, 3, 15, 64}, {2, 3, 15, 64})(), "at least 16 pixels");
  EXPECT_ERROR(ShapeError, of({2, 3, 66, 66}, {2, 3, 66, 66})(), "not 33 x 33");
  EXPECT_ERROR(DTypeError, of({2, 3, 16, 16}, {2, 3, 16, 16}, DType::kF32)(), "u8");
  EXPECT_ERROR(ValueError, of({0, 3, 16, 16}, {0, 3, 16, 16})(), "expected images");
  const Tensor x = images(1, {2, 1, 16, 16});
  for (const int64_t bad : {int64_t{0}, int64_t{-1}, int64_t{1} << 40}) {
    EXPECT_ERROR(ValueError, sliced_wasserstein(x, x, {.patches = bad}), "patches");
    EXPECT_ERROR(ValueError, sliced_wasserstein(x, x, {.directions = bad}), "directions");
  }
}

TEST(SlicedWasserstein, ChoicesThatDoNotFitAreNamed) {
  const Tensor x = images(1, {2, 1, 16, 24});
  const Tensor places = full({2, 4, 2}, 5, {.dtype = DType::kI64}), directions = ones({3, 49});
  const auto with = [&](Tensor a, Tensor b, Tensor d) {
    return [=] { sliced_wasserstein_of_choices(x, x, {{a, b, d}}); };
  };
  EXPECT_NO_THROW(with(places, places + 7, directions)());
  EXPECT_ERROR(ValueError, with(places, places + 8, directions)(), "3 to 12 at level 0, got 13");
  EXPECT_ERROR(ValueError, with(places - 3, places, directions)(), "got 2");
  EXPECT_ERROR(ShapeError, with(places, narrow(places, 1, 0, 3), directions)(), "as many patches");
  EXPECT_ERROR(ShapeError, with(Tensor(), places, directions)(), "undefined");
  EXPECT_ERROR(DTypeError, with(to(places, DType::kF32), places, directions)(), "i64");
  EXPECT_ERROR(ShapeError, with(places, places, ones({3, 50}))(), "[any,49]");
  EXPECT_ERROR(DTypeError, with(places, places, to(directions, DType::kI64))(), "directions");
  EXPECT_ERROR(ValueError, sliced_wasserstein_of_choices(x, x, {}), "choices for 1 levels, got 0");
}

// ---- structural similarity ----

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
