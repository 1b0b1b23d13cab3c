#include "gradus/tests/golden/layers/golden_layers.h"

namespace gradus::golden {
namespace {

using nn::PaddingMode;

GoldenLayer spectral_transposed() {
  GoldenLayer l =
      golden<nn::ConvTranspose2d>("spectral_norm/ConvTranspose2d", {.in = 2, .out = 3, .kernel = 2});
  l.make = [make = l.make] {
    auto layer = make();
    nn::spectral_norm(static_cast<nn::ConvTranspose2d&>(*layer));
    return layer;
  };
  return l;
}

}  // namespace

static const bool added = add_golden_layers(
    "conv",
    {
        golden<nn::Conv1d>("Conv1d", {.in = 2, .out = 3, .kernel = 2}),
        golden<nn::Conv1d>("Conv1d/options", {.in = 4,
                                              .out = 2,
                                              .kernel = 3,
                                              .stride = 2,
                                              .padding = 1,
                                              .dilation = 2,
                                              .groups = 2,
                                              .bias = false}),
        golden<nn::Conv1d>("Conv1d/unbatched", {.in = 2, .out = 3, .kernel = 2}),
        golden<nn::Conv2d>("Conv2d", {.in = 2, .out = 3, .kernel = 3}),
        golden<nn::Conv2d>("Conv2d/options", {.in = 4,
                                              .out = 2,
                                              .kernel = {3, 2},
                                              .stride = {2, 1},
                                              .padding = {1, 0},
                                              .dilation = {1, 2},
                                              .groups = 2}),
        golden<nn::Conv2d>("Conv2d/same", {.in = 2, .out = 1, .kernel = {2, 3}, .same_padding = true}),
        golden<nn::Conv2d>(
            "Conv2d/reflect",
            {.in = 2, .out = 1, .kernel = 3, .padding = {2, 1}, .padding_mode = PaddingMode::kReflect}),
        golden<nn::Conv2d>(
            "Conv2d/replicate",
            {.in = 2, .out = 1, .kernel = 3, .padding = 2, .padding_mode = PaddingMode::kReplicate}),
        golden<nn::Conv2d>("Conv2d/circular", {.in = 2,
                                               .out = 1,
                                               .kernel = {2, 3},
                                               .same_padding = true,
                                               .padding_mode = PaddingMode::kCircular}),
        golden<nn::Conv3d>("Conv3d", {.in = 2, .out = 3, .kernel = 2}),
        golden<nn::Conv3d>(
            "Conv3d/options",
            {.in = 2, .out = 2, .kernel = {1, 2, 3}, .stride = {1, 2, 1}, .padding = {0, 1, 1}, .groups = 2}),
        golden<nn::ConvTranspose1d>("ConvTranspose1d", {.in = 2, .out = 3, .kernel = 2}),
        golden<nn::ConvTranspose1d>("ConvTranspose1d/options", {.in = 4,
                                                                .out = 2,
                                                                .kernel = 3,
                                                                .stride = 2,
                                                                .padding = 1,
                                                                .output_padding = 1,
                                                                .groups = 2,
                                                                .bias = false}),
        golden<nn::ConvTranspose2d>("ConvTranspose2d", {.in = 2, .out = 3, .kernel = 3}),
        golden<nn::ConvTranspose2d>("ConvTranspose2d/options", {.in = 4,
                                                                .out = 2,
                                                                .kernel = {3, 2},
                                                                .stride = {2, 1},
                                                                .padding = {1, 0},
                                                                .output_padding = {1, 0},
                                                                .dilation = {1, 2},
                                                                .groups = 2}),
        golden<nn::ConvTranspose2d>("ConvTranspose2d/unbatched",
                                    {.in = 2, .out = 1, .kernel = 2, .stride = 2}),
        golden<nn::ConvTranspose3d>("ConvTranspose3d",
                                    {.in = 2, .out = 3, .kernel = 2, .stride = 2, .output_padding = 1}),
        spectral_transposed(),
    });

}  // namespace gradus::golden
