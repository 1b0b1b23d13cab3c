// Growth, the schedule of progressive growing, against the formula of the paper (Karras et al., ICLR 2018)
// and mmgeneration; scaled_images, which scales real images during growth.
#include "gradus/train/gan/growth.h"

#include <gtest/gtest.h>

#include <cmath>

#include "gradus/gradus.h"
#include "gradus/tests/support/error.h"

namespace gradus {
namespace {

using gan::Growth;

using Phases = std::vector<gan::GrowthPhase>;

// The paper's schedule: 600,000 images stable, 600,000 fading, from 4 to 1024 pixels. After k = 1200 i + r
// thousand images the level of detail is lod = log2(1024) - 2 - i - max(r - 600, 0) / 600,
// the size 2^(10 - floor(lod)).
TEST(Growth, IsThePapers) {
  std::vector<gan::GrowthPhase> phases = {{.size = 4, .images = 600'000}};
  for (int64_t size = 8; size <= 512; size *= 2) phases.push_back({.size = size, .images = 1'200'000});
  phases.push_back({.size = 1024});
  const Growth growth(phases);
  for (int64_t k = 0; k < 12'000; k += 7) {
    const int64_t i = k / 1200, r = k % 1200;
    // When a fade begins, Growth has the new size with fade 0, the formula the smaller size: the same images.
    if (r == 600) continue;
    const double lod = std::max(8 - double(i) - double(std::max<int64_t>(r - 600, 0)) / 600, 0.0);
    const Growth::State at = growth.at(k * 1000);
    EXPECT_EQ(at.size, int64_t{1} << (10 - int(std::floor(lod)))) << k;
    const double fraction = lod - std::floor(lod);
    EXPECT_NEAR(at.fade, fraction == 0 ? 1 : 1 - fraction, 1e-12) << k;
  }
  EXPECT_EQ(growth.images(), 0);
}

// mmgeneration's test: 3 images per step; 4 images of 4 pixels, then 8 of 8 pixels, then 16 pixels.
TEST(Growth, IsMmgenerationsInItsTest) {
  const Growth growth({{.size = 4, .images = 4}, {.size = 8, .images = 8}, {.size = 16}}, {.fade_images = 0});
  const int64_t sizes[] = {4, 4, 8, 8, 16};  // 0, 3, 6, 9, 12 images shown before
  for (int64_t step = 0; step < 5; ++step) EXPECT_EQ(growth.at(3 * step).size, sizes[step]) << step;
}

TEST(Growth, GivesBatchesRatesAndChanges) {
  const Growth growth({{.size = 4, .images = 100, .batch = 32, .lr = 1e-3},
                       {.size = 8, .images = 100, .batch = 16, .lr = 2e-3},
                       {.size = 16, .images = 50, .batch = 8, .lr = 3e-3}},
                      {.fade_images = 40});
  EXPECT_EQ(growth.images(), 250);
  EXPECT_EQ(growth.at(99), (Growth::State{0, 4, 1, 32, 1e-3, 0}));
  EXPECT_EQ(growth.at(100), (Growth::State{1, 8, 0, 16, 2e-3, 1}));
  EXPECT_EQ(growth.at(110), (Growth::State{1, 8, 0.25, 16, 2e-3, 1}));
  EXPECT_EQ(growth.at(140), (Growth::State{1, 8, 1, 16, 2e-3, 2}));
  EXPECT_EQ(growth.at(200), (Growth::State{2, 16, 0, 8, 3e-3, 3}));
  EXPECT_EQ(growth.at(1'000'000), (Growth::State{2, 16, 1, 8, 3e-3, 4})) << "the last phase goes on";
  EXPECT_EQ(growth.batch_sizes(7), (std::map<int64_t, int64_t>{{0, 32}, {100, 16}, {200, 8}}));
}

TEST(Growth, GivesTheProgramsBatchToPhasesWithoutOne) {
  const Growth growth({{.size = 4, .images = 100}, {.size = 8, .images = 100, .batch = 16}, {.size = 16}},
                      {.fade_images = 40});
  EXPECT_EQ(growth.batch_sizes(7), (std::map<int64_t, int64_t>{{0, 7}, {100, 16}, {200, 7}}));
}

TEST(Growth, ReportsAPlanThatIsOutOfOrder) {
  EXPECT_ERROR(Error, Growth(Phases{}), "at least one phase");
  EXPECT_ERROR(Error, Growth(Phases{{.size = 6}}), "expected a size of 4, 8, 16, ..., got 6");
  EXPECT_ERROR(Error, Growth({{.size = 8, .images = 600'000}, {.size = 4}}),
               "expected twice the size 8 of phase 0 in phase 1, got 4");
  EXPECT_ERROR(Error, Growth({{.size = 4, .images = 5}, {.size = 8, .images = 5}, {.size = 16}}),
               "at least 600000 images in phase 1 of 8 pixels, got 5");
  EXPECT_ERROR(Error, Growth(Phases{{.size = 4}, {.size = 8}}), "at least 1 images in phase 0");
  EXPECT_ERROR(Error, Growth(Phases{{.size = 4, .images = -1}}), "got -1");
  EXPECT_ERROR(Error, Growth(Phases{{.size = 4, .lr = NAN}}), "batch, lr >= 0");
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_ERROR(Error, Growth({{.size = 4, .images = most}, {.size = 8, .images = most}}),
               "fewer images in all");
  EXPECT_THROW(Growth(Phases{{.size = 4}}).at(-1), ValueError);
}

// Images blend as the networks' outputs do: fade 0 gives images of half the size, enlarged by nearest
// neighbor.
TEST(ScaledImages, FadeAsTheNetworksDo) {
  const Tensor x = randn({2, 3, 16, 16});
  const auto largest = [](const Tensor& a, const Tensor& b) { return max(abs(a - b)).item<double>(); };
  EXPECT_EQ(largest(gan::scaled_images(x, 16), x), 0);
  EXPECT_LT(largest(gan::scaled_images(x, 4), avg_pool2d(x, 4)), 1e-6);
  const Tensor half = interpolate(avg_pool2d(x, 4), {.scale_factor = {2}}), full = avg_pool2d(x, 2);
  EXPECT_LT(largest(gan::scaled_images(x, 8, 0), half), 1e-6);
  EXPECT_LT(largest(gan::scaled_images(x, 8, 0.25), 0.75 * half + 0.25 * full), 1e-6);
  EXPECT_ERROR(Error, gan::scaled_images(x, 32), "the size of the current scale, got f32[2,3,16,16]");
  EXPECT_THROW(gan::scaled_images(x, 6), ShapeError);  // 16 is not a multiple of 6
  EXPECT_THROW(gan::scaled_images(x, 8, 1.5), ValueError);
}

}  // namespace
}  // namespace gradus
