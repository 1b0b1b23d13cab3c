// VelocityUNet against the same network in PyTorch (velocity_unet.py wrote velocity_unet.safetensors): outputs and
// gradients, also those of the time, by name of the case. golden_layers.h has the tolerances.
#include <gtest/gtest.h>

#include "gradus/models/models.h"
#include "gradus/tests/nn/layers/golden_layers.h"
#include "gradus/tests/support/error.h"

namespace gradus::golden {
namespace {

using models::VelocityUNet;

GoldenLayer unet(std::string name, VelocityUNet::Options options, bool labels = false) {
  GoldenLayer layer = golden<VelocityUNet>(
      std::move(name), std::move(options),
      [labels](VelocityUNet& net, X x) { return labels ? net(x[0], x[1], x[2]) : net(x[0], x[1]); });
  layer.single = 4e-6;  // some 40 layers, forward and backward, round by 6e-8 each
  return layer;
}

const VelocityUNet::Options kLabeled = {
    .size = 8, .channels = 1, .width = 4, .attention = {2, 4}, .groups = 2, .classes = 3};

const bool added = add_golden_layers(
    "tests/golden/vision/velocity_unet.safetensors",
    {unet("VelocityUNet", {.size = 8, .channels = 1, .width = 4, .groups = 4}),
     unet("VelocityUNet/blocks", {.size = 8,
                                  .channels = 2,
                                  .width = 4,
                                  .multipliers = {1, 2, 1},
                                  .blocks = 2,
                                  .patch = 1,
                                  .groups = 2}),
     unet("VelocityUNet/attention", {.size = 8,
                                     .channels = 1,
                                     .width = 4,
                                     .multipliers = {1, 1},
                                     .patch = 1,
                                     .attention = {4},
                                     .heads = 2,
                                     .groups = 2}),
     unet("VelocityUNet/labels", kLabeled, true), unet("VelocityUNet/no_labels", kLabeled)});

TEST(VelocityUNet, BeginsAtZero) {
  VelocityUNet net({.channels = 1, .width = 8});
  EXPECT_EQ(amax(abs(net(randn({2, 1, 32, 32}), rand({2})))).item<double>(), 0);
}

TEST(VelocityUNet, ThrowsOnOptionsOutOfRange) {
  EXPECT_ERROR(ValueError, VelocityUNet({.size = 30}), "[VelocityUNet]", "a patch of 2 and 1 halvings",
               "got 30");
  EXPECT_THROW(VelocityUNet({.size = 2, .multipliers = {1, 1, 1}}), ValueError);
  EXPECT_THROW(VelocityUNet({.width = 7, .groups = 7}), ValueError);
  EXPECT_THROW(VelocityUNet({.width = 12}), ValueError);
  EXPECT_THROW(VelocityUNet({.multipliers = {}}), ValueError);
  EXPECT_THROW(VelocityUNet({.blocks = 0}), ValueError);
  EXPECT_THROW(VelocityUNet({.heads = 3}), ValueError);
  EXPECT_ERROR(ValueError, VelocityUNet({.attention = {32}}), "heights of levels, from 16 to 8, got 32");
}

TEST(VelocityUNet, ThrowsOnInputsOfOtherShapes) {
  VelocityUNet net({.size = 8, .channels = 1, .width = 8, .classes = 3}),
      plain({.size = 8, .channels = 1, .width = 8});
  const Tensor x = zeros({2, 1, 8, 8}), t = zeros({2}), labels = zeros({2}, {.dtype = DType::kI64});
  EXPECT_ERROR(ShapeError, net(zeros({2, 1, 8, 4}), t), "expected images [N,1,8,8], got f32[2,1,8,4]");
  EXPECT_ERROR(ShapeError, net(x, zeros({3})), "expected one time for each of 2 samples, got f32[3]");
  EXPECT_THROW(net(x, t, zeros({3}, {.dtype = DType::kI64})), ShapeError);
  EXPECT_THROW(net(x, t, labels + 4), IndexError);
  EXPECT_ERROR(StateError, plain(x, t, labels), "the network has no classes");
}

}  // namespace
}  // namespace gradus::golden
