// Rows of the layer table (layer_table.h) for the building blocks of GANs; gan_blocks.py has PyTorch's
// values.
#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/nn/layers/layer_table.h"

namespace gradus::layers {
namespace {

auto equalized(nn::EqualizedLROptions o) {
  return [o](auto& layer) { nn::equalized_lr(layer, o); };
}

Tensor with_fixed_noise(nn::NoiseInjection& layer, X x) {
  layer.mode = nn::NoiseMode::kFixed;
  return layer(x[0]);
}

Tensor modulated(nn::ModulatedConv2d& layer, X x) { return layer(x[0], x[1]); }

// For errors: fixed noise without the `size` option.
void add_fixed_noise(const Tensor& x) {
  nn::NoiseInjection layer;
  with_fixed_noise(layer, {x});
}

std::vector<Row> table() {
  return {
      row<nn::PixelNorm>(
          "PixelNorm/images", {},
          {.inputs = {kImages},
           .second_order = true,
           .errors = {LAYER_ERROR(ShapeError, nn::PixelNorm()(ones({6})), "[PixelNorm]", "f32[6]")}}),
      row<nn::PixelNorm>("PixelNorm/latents"),
      row<nn::UpConv2d>(
          "UpConv2d", {.in = 2, .out = 3},
          {.inputs = {{kRows, 2, 6, 6}},
           .second_order = true,
           .errors = {LAYER_ERROR(ValueError, nn::UpConv2d({.in = 0, .out = 2}), "[UpConv2d]", "0 and 2")}}),
      row<nn::UpConv2d>("UpConv2d/bias", {.in = 3, .out = 2, .bias = false}),
      row<nn::DownConv2d>("DownConv2d", {.in = 2, .out = 3},
                          {.inputs = {{kRows, 2, 6, 6}},
                           .second_order = true,
                           .errors = {LAYER_ERROR(ValueError, nn::DownConv2d({.in = 2, .out = -1}),
                                                  "[DownConv2d]", "2 and -1")}}),
      row<nn::DownConv2d>("DownConv2d/bias", {.in = 3, .out = 2, .bias = false}),
      changed<nn::Linear>("equalized_lr/lr_mul", {.in = 3, .out = 4}, equalized({.lr_mul = 0.01})),
      changed<nn::ConvTranspose2d>("equalized_lr/ConvTranspose2d", {.in = 3, .out = 2, .kernel = 2},
                                   equalized({.gain = 1, .lr_mul = 0.5}), {.second_order = true}),
      row<nn::FirFilter2d>(
          "FirFilter2d/blur", {.taps = {1, 2, 1}, .padding = {1, 1}},
          {.inputs = {kImages},
           .errors = {LAYER_ERROR(ShapeError, nn::FirFilter2d()(ones({2, 3, 3})), "[FirFilter2d]",
                                  "f32[2,3,3]"),
                      LAYER_ERROR(ValueError, nn::FirFilter2d({.taps = {1, -1}})(ones({1, 1, 3, 3})),
                                  "[fir_filter]", "2 taps of sum 0"),
                      LAYER_ERROR(ValueError, nn::FirFilter2d({.up = 0})(ones({1, 1, 3, 3})), "[FirFilter2d]",
                                  "up 0"),
                      LAYER_ERROR(ValueError, nn::FirFilter2d({.padding = {1}})(ones({1, 1, 3, 3})),
                                  "[FirFilter2d]", "[1]")}}),
      row<nn::FirFilter2d>("FirFilter2d/up", {.up = 2, .padding = {2, 1}, .gain = 4},
                           {.inputs = {kImages}, .prints = "FirFilter2d(up=2, padding=[2,1], gain=4)"}),
      row<nn::FirFilter2d>("FirFilter2d/down", {.down = 2, .padding = {1, 1}}),
      row<nn::FirFilter2d>("FirFilter2d/uneven",
                           {.taps = {1, 2, 4}, .up = 3, .down = 2, .padding = {0, 3}, .gain = 2},
                           {.second_order = true}),
      row<nn::ModulatedConv2d>(
          "ModulatedConv2d", {.in = 2, .out = 3, .kernel = 3, .style = 4}, modulated,
          {.inputs = {{kRows, 2, 4, 4}, {kRows, 4}},
           .roundings = 64,
           .golden = false,
           .second_order = true,
           .prints = "ModulatedConv2d(in=2, out=3, kernel=3, style=4)",
           .errors = {LAYER_ERROR(ValueError,
                                  nn::ModulatedConv2d({.in = 2, .out = 3, .kernel = 2, .style = 4}),
                                  "[ModulatedConv2d]", "kernel 2"),
                      LAYER_ERROR(ValueError,
                                  nn::ModulatedConv2d(
                                      {.in = 2, .out = 3, .kernel = 3, .style = 4, .up = 2, .taps = {}}),
                                  "[fir_filter]", "0 taps"),
                      LAYER_ERROR(ShapeError,
                                  nn::ModulatedConv2d({.in = 2, .out = 3, .kernel = 3, .style = 4})(
                                      ones({1, 2, 4, 4}), ones({2, 4})),
                                  "[ModulatedConv2d]", "f32[2,4]")}}),
      row<nn::ModulatedConv2d>("ModulatedConv2d/up", {.in = 2, .out = 3, .kernel = 3, .style = 4, .up = 2},
                               modulated,
                               {.inputs = {{kRows, 2, 3, 3}, {kRows, 4}}, .roundings = 64, .golden = false}),
      row<nn::ModulatedConv2d>(
          "ModulatedConv2d/grouped",
          {.in = 2, .out = 3, .kernel = 3, .style = 4, .down = 2, .form = nn::ModulationForm::kGrouped},
          modulated,
          {.inputs = {{kRows, 2, 4, 4}, {kRows, 4}}, .roundings = 64, .golden = false, .second_order = true}),
      row<nn::NoiseInjection>(
          "NoiseInjection", {.size = {2, 3}}, with_fixed_noise,
          {.inputs = {{kRows, 4, 2, 3}},
           .second_order = true,
           .errors =
               {LAYER_ERROR(ValueError, nn::NoiseInjection({.channels = 0}), "[NoiseInjection]", "0"),
                LAYER_ERROR(ShapeError, nn::NoiseInjection()(ones({2, 4})), "[NoiseInjection]", "f32[2,4]"),
                LAYER_ERROR(ShapeError, nn::NoiseInjection().forward(ones({2, 1, 4, 4}), ones({2, 1, 4, 3})),
                            "[NoiseInjection]", "f32[2,1,4,3]"),
                LAYER_ERROR(StateError, add_fixed_noise(ones({2, 1, 4, 4})), "[NoiseInjection]", "size")}}),
      row<nn::NoiseInjection>("NoiseInjection/channels", {.size = 2, .channels = 3}, with_fixed_noise),
      row<nn::BiasLeakyReLU>(
          "BiasLeakyReLU", {.channels = 3},
          {.inputs = {{kRows, 3, 6, 6}},
           .second_order = true,
           .errors = {LAYER_ERROR(ValueError, nn::BiasLeakyReLU({.channels = 0}), "[BiasLeakyReLU]", "0"),
                      LAYER_ERROR(ValueError, nn::BiasLeakyReLU({.channels = 1, .clamp = 0}), "clamp", "0"),
                      LAYER_ERROR(ShapeError, nn::BiasLeakyReLU({.channels = 3})(ones({2, 4})),
                                  "[BiasLeakyReLU]", "[N,3]", "f32[2,4]")}}),
      row<nn::BiasLeakyReLU>(
          "BiasLeakyReLU/clamp", {.channels = 4, .negative_slope = 0.1, .gain = 2, .lr_mul = 0.5, .clamp = 1},
          {.prints = "BiasLeakyReLU(channels=4, negative_slope=0.1, gain=2, lr_mul=0.5, clamp=1)"}),
      row<nn::AdaptiveInstanceNorm>(
          "AdaptiveInstanceNorm", {.channels = 3, .style = 4},
          [](nn::AdaptiveInstanceNorm& layer, X x) { return layer(x[0], x[1]); },
          {.inputs = {{kRows, 3, 6, 6}, {kRows, 4}},
           .roundings = 64,
           .second_order = true,
           .errors = {LAYER_ERROR(ShapeError,
                                  nn::AdaptiveInstanceNorm({.channels = 3, .style = 4})(ones({2, 4, 2, 2}),
                                                                                        ones({2, 4})),
                                  "[AdaptiveInstanceNorm]", "f32[2,4,2,2]"),
                      LAYER_ERROR(ShapeError,
                                  nn::AdaptiveInstanceNorm({.channels = 3, .style = 4})(ones({2, 3, 2, 2}),
                                                                                        ones({1, 4})),
                                  "[AdaptiveInstanceNorm]", "f32[1,4]")}}),
      row<nn::AdaptiveInstanceNorm>(
          "AdaptiveInstanceNorm/mmgen",
          {.channels = 3, .style = 4, .eps = 1e-5, .gain = std::numbers::sqrt2, .add_one = false},
          [](nn::AdaptiveInstanceNorm& layer, X x) { return layer(x[0], x[1]); }, {.roundings = 64}),
      // tests/golden/gan/newer.py has PyTorch's values.
      row<nn::ConditionalBatchNorm2d>(
          "ConditionalBatchNorm2d", {.features = 4, .classes = 3},
          [](nn::ConditionalBatchNorm2d& layer, X x) {
            return layer(x[0], full({x[0].size(0)}, 1, {.dtype = DType::kI64, .device = x[0].device()}));
          },
          {.inputs = {kImages},
           .roundings = 64,
           .golden = false,
           .second_order = true,
           .errors = {LAYER_ERROR(ShapeError,
                                  nn::ConditionalBatchNorm2d({.features = 3, .classes = 2})(
                                      ones({2, 3, 2, 2}), tensor({0})),
                                  "[ConditionalBatchNorm2d]", "labels [N]"),
                      LAYER_ERROR(IndexError,
                                  nn::ConditionalBatchNorm2d({.features = 1, .classes = 2})(
                                      ones({1, 1, 2, 2}), tensor({2})),
                                  "2")}}),
  };
}

const bool added = add_rows("gan_blocks", table());

}  // namespace

}  // namespace gradus::layers
