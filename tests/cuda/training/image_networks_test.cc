// Training steps of VGG, MobileNetV3, EfficientNet, a vision transformer and U-Net on the emulated cuda:0, whose losses
// follow the CPU's.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "gradus/autograd/ops/ops.h"
#include "gradus/models/models.h"
#include "gradus/tests/cuda/training/follow_cpu.h"

namespace gradus {
namespace {

// Classifies images by the mean of a U-Net's logits.
struct MeanOfUNet final : nn::Layer {
  models::UNet net{this, "net", {.classes = 5, .width = 2}};
  Tensor forward(const Tensor& x) override { return mean(net(x), {2, 3}); }
};

struct Case {
  std::string name;
  std::function<std::unique_ptr<nn::Layer>()> make;
  int64_t size = 32;  // of the images; a batch norm over few pixels amplifies rounding errors
};

const Case kCases[] = {
    {"Vgg",
     [] {
       return std::make_unique<models::VGG>(models::VGGOptions{
           .stages = {1, 2}, .batch_norm = true, .width = 4, .hidden = 8, .classes = 5, .dropout = 0});
     }},
    {"MobileNet",
     [] {
       return std::make_unique<models::MobileNetV3>(
           models::mobilenet_v3_small({.width_mult = 0.1, .classes = 5, .dropout = 0}));
     }},
    {"EfficientNet",
     [] {
       return std::make_unique<models::EfficientNet>(models::EfficientNetOptions{
           .width_mult = 0.1, .depth_mult = 0.3, .dropout = 0, .stochastic_depth_prob = 0, .classes = 5});
     },
     64},
    {"VisionTransformer",
     [] {
       return std::make_unique<models::VisionTransformer>(models::VisionTransformerOptions{.image_size = 32,
                                                                                           .patch_size = 16,
                                                                                           .num_layers = 2,
                                                                                           .num_heads = 2,
                                                                                           .hidden_dim = 16,
                                                                                           .mlp_dim = 16,
                                                                                           .classes = 5});
     }},
    {"UNet", [] { return std::make_unique<MeanOfUNet>(); }},
};

class ImageNetworkOnCuda : public testing::TestWithParam<Case> {};

TEST_P(ImageNetworkOnCuda, FollowsTheCpu) {
  for (const Precision& precision : {kF32, kF64}) {
    const auto train = [&](Device device) {
      manual_seed(3);
      const auto net = GetParam().make();
      return classify(*net, {4, 3, GetParam().size, GetParam().size}, 5, 3, precision, device);
    };
    expect_follow(train, precision.tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(, ImageNetworkOnCuda, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gradus
