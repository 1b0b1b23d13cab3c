#include "gradus/tests/golden/layers/golden_layers.h"

namespace gradus::golden {
namespace {

template <class L>
GoldenLayer equalized(std::string name, typename L::Options o, nn::EqualizedLROptions options) {
  return {std::move(name),
          [o, options] {
            auto layer = std::make_unique<L>(o);
            nn::equalized_lr(*layer, options);
            return layer;
          },
          [](nn::Module& m, X x) { return std::vector<Tensor>{static_cast<L&>(m)(x[0])}; }};
}

Tensor with_fixed_noise(nn::NoiseInjection& layer, X x) {
  layer.mode = nn::NoiseMode::kFixed;
  return layer(x[0]);
}

}  // namespace

static const bool added = add_golden_layers(
    "gan_blocks",
    {
        golden<nn::PixelNorm>("PixelNorm/images"),
        golden<nn::PixelNorm>("PixelNorm/latents"),
        golden<nn::UpConv2d>("UpConv2d", {.in = 2, .out = 3}),
        golden<nn::UpConv2d>("UpConv2d/bias", {.in = 3, .out = 2, .bias = false}),
        golden<nn::DownConv2d>("DownConv2d", {.in = 2, .out = 3}),
        golden<nn::DownConv2d>("DownConv2d/bias", {.in = 3, .out = 2, .bias = false}),
        equalized<nn::Linear>("equalized_lr/lr_mul", {.in = 3, .out = 4}, {.lr_mul = 0.01}),
        equalized<nn::ConvTranspose2d>("equalized_lr/ConvTranspose2d", {.in = 3, .out = 2, .kernel = 2},
                                       {.gain = 1, .lr_mul = 0.5}),
        golden<nn::FirFilter2d>("FirFilter2d/blur", {.taps = {1, 2, 1}, .padding = {1, 1}}),
        golden<nn::FirFilter2d>("FirFilter2d/up", {.up = 2, .padding = {2, 1}, .gain = 4}),
        golden<nn::FirFilter2d>("FirFilter2d/down", {.down = 2, .padding = {1, 1}}),
        golden<nn::FirFilter2d>("FirFilter2d/uneven",
                                {.taps = {1, 2, 4}, .up = 3, .down = 2, .padding = {0, 3}, .gain = 2}),
        golden<nn::NoiseInjection>("NoiseInjection", {.size = {2, 3}}, with_fixed_noise),
        golden<nn::NoiseInjection>("NoiseInjection/channels", {.size = 2, .channels = 3}, with_fixed_noise),
        golden<nn::BiasLeakyReLU>("BiasLeakyReLU", {.channels = 3}),
        golden<nn::BiasLeakyReLU>(
            "BiasLeakyReLU/clamp",
            {.channels = 4, .negative_slope = 0.1, .gain = 2, .lr_mul = 0.5, .clamp = 1}),
        golden<nn::AdaptiveInstanceNorm>(
            "AdaptiveInstanceNorm", {.channels = 3, .style = 4},
            [](nn::AdaptiveInstanceNorm& layer, X x) { return layer(x[0], x[1]); }),
    });

}  // namespace gradus::golden
