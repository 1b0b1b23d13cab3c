// grid_sample of images with infinite pixels: as in PyTorch, pixels outside of the image are 0. Other values:
// tests/golden/ops/image_test.cc and variants_test.cc.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "gradus/autograd/functional.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Sampled {
  double y;
  std::vector<double> dx, dgrid;
};
// Returns the sample of a [1,1,2,2] image at one position, and the gradients of image and position.
Sampled sample(const std::vector<double>& image, std::vector<double> at, const GridSampleOptions& options) {
  const Tensor x = tensor(image, {1, 1, 2, 2}), grid = tensor(at, {1, 1, 1, 2});
  const auto [y, gradients] = autograd::value_and_grad(
      [&](const std::vector<Tensor>& in) { return sum(grid_sample(in[0], in[1], options)); },
      std::vector<Tensor>{x, grid});
  return {y.item<double>(), gradients[0].to_vector<double>(), gradients[1].to_vector<double>()};
}

TEST(GridSample, IsZeroOutsideOfAnInfiniteImage) {
  for (const SampleMode mode : {SampleMode::kBilinear, SampleMode::kNearest, SampleMode::kBicubic}) {
    const Sampled got = sample({kInf, kInf, kInf, kInf}, {9, -9}, {.mode = mode});
    EXPECT_EQ(got.y, 0) << int(mode);
    EXPECT_EQ(got.dx, (std::vector<double>{0, 0, 0, 0}));
    EXPECT_EQ(got.dgrid, (std::vector<double>{0, 0}));
  }
  const double y = sample({1, 1, 1, 1}, {kInf, 0}, {.mode = SampleMode::kNearest}).y;
  EXPECT_EQ(y, 0);
}

// Bilinear interpolation at the center of the last pixel also asks for the pixels behind it.
TEST(GridSample, OfTheLastPixelDoesNotReadTheFirst) {
  for (const SamplePadding padding :
       {SamplePadding::kZeros, SamplePadding::kBorder, SamplePadding::kReflection})
    EXPECT_EQ(sample({kInf, 1, 2, 3}, {0.5, 0.5}, {.padding = padding}).y, 3) << int(padding);
}

}  // namespace
}  // namespace gradus
