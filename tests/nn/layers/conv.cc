// Rows of the layer table (layer_table.h) for convolutions; conv.py has PyTorch's values.
#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/nn/layers/layer_table.h"

namespace gradus::layers {
namespace {

using nn::PaddingMode;

// spectral_norm of a weight whose output channels are dim 1.
Row spectral_transposed() {
  Row l = row<nn::ConvTranspose2d>("spectral_norm/ConvTranspose2d", {.in = 2, .out = 3, .kernel = 2});
  l.make = [make = l.make] {
    auto layer = make();
    nn::spectral_norm(static_cast<nn::ConvTranspose2d&>(*layer));
    return layer;
  };
  return l;
}

std::vector<Row> table() {
  return {
      row<nn::Conv1d>(
          "Conv1d", {.in = 2, .out = 3, .kernel = 2},
          {.inputs = {{kRows, 2, 8}},
           .errors = {LAYER_ERROR(ValueError, nn::Conv1d({.in = 2, .out = 2, .kernel = 0}), "[Conv1d]",
                                  "in 2, out 2, kernel 0"),
                      LAYER_ERROR(ShapeError, nn::Conv1d({.in = 2, .out = 2, .kernel = 1})(ones({1, 3, 4})),
                                  "f32[1,3,4]")}}),
      row<nn::Conv1d>("Conv1d/options", {.in = 4,
                                         .out = 2,
                                         .kernel = 3,
                                         .stride = 2,
                                         .padding = 1,
                                         .dilation = 2,
                                         .groups = 2,
                                         .bias = false}),
      row<nn::Conv1d>("Conv1d/unbatched", {.in = 2, .out = 3, .kernel = 2}),
      row<nn::Conv2d>(
          "Conv2d", {.in = 2, .out = 3, .kernel = 3},
          {.inputs = {{kRows, 2, 6, 6}},
           .errors = {LAYER_ERROR(ShapeError,
                                  nn::Conv2d({.in = 1,
                                              .out = 1,
                                              .kernel = 3,
                                              .padding = 3,
                                              .padding_mode = PaddingMode::kReflect})(ones({1, 1, 8, 3})),
                                  "[Conv2d]", "padding 3", "dim 3", "f32[1,1,8,3]"),
                      LAYER_ERROR(ShapeError,
                                  nn::Conv2d({.in = 1,
                                              .out = 1,
                                              .kernel = 3,
                                              .padding = 3,
                                              .padding_mode = PaddingMode::kCircular})(ones({1, 1, 8, 2})),
                                  "[Conv2d]", "padding 3", "f32[1,1,8,2]"),
                      LAYER_ERROR(ShapeError,
                                  nn::Conv2d({.in = 1,
                                              .out = 1,
                                              .kernel = 3,
                                              .padding = 3,
                                              .padding_mode = PaddingMode::kReplicate})(ones({1, 1, 8, 0})),
                                  "[Conv2d]", "padding 3", "f32[1,1,8,0]"),
                      LAYER_ERROR(ValueError,
                                  nn::Conv2d({.in = 1,
                                              .out = 1,
                                              .kernel = 3,
                                              .padding = {0, 2},
                                              .same_padding = true,
                                              .padding_mode = PaddingMode::kReflect})(ones({1, 1, 8, 8})),
                                  "[Conv2d]", "same_padding", "padding 0x2"),
                      LAYER_ERROR(ValueError,
                                  nn::Conv2d({.in = 1,
                                              .out = 1,
                                              .kernel = 3,
                                              .stride = 2,
                                              .same_padding = true,
                                              .padding_mode = PaddingMode::kCircular})(ones({1, 1, 8, 8})),
                                  "[Conv2d]", "same_padding", "stride 2x2")}}),
      row<nn::Conv2d>("Conv2d/options", {.in = 4,
                                         .out = 2,
                                         .kernel = {3, 2},
                                         .stride = {2, 1},
                                         .padding = {1, 0},
                                         .dilation = {1, 2},
                                         .groups = 2}),
      row<nn::Conv2d>("Conv2d/same", {.in = 2, .out = 1, .kernel = {2, 3}, .same_padding = true},
                      {.prints = "Conv2d(in=2, out=1, kernel=2x3, same_padding=true)"}),
      row<nn::Conv2d>(
          "Conv2d/reflect",
          {.in = 2, .out = 1, .kernel = 3, .padding = {2, 1}, .padding_mode = PaddingMode::kReflect},
          {.inputs = {{kRows, 2, 6, 6}}}),
      row<nn::Conv2d>(
          "Conv2d/replicate",
          {.in = 2, .out = 1, .kernel = 3, .padding = 2, .padding_mode = PaddingMode::kReplicate}),
      row<nn::Conv2d>(
          "Conv2d/circular",
          {.in = 2, .out = 1, .kernel = {2, 3}, .same_padding = true, .padding_mode = PaddingMode::kCircular},
          {.prints = "Conv2d(in=2, out=1, kernel=2x3, same_padding=true, padding_mode=kCircular)"}),
      row<nn::Conv3d>(
          "Conv3d", {.in = 2, .out = 3, .kernel = 2},
          {.inputs = {{kRows, 2, 4, 4, 4}},
           .errors = {LAYER_ERROR(ValueError, nn::Conv3d({.in = 2, .out = 3, .kernel = 1, .groups = 2}),
                                  "[Conv3d]", "out 3, groups 2")}}),
      row<nn::Conv3d>(
          "Conv3d/options",
          {.in = 2, .out = 2, .kernel = {1, 2, 3}, .stride = {1, 2, 1}, .padding = {0, 1, 1}, .groups = 2},
          {.prints = "Conv3d(in=2, out=2, kernel=1x2x3, stride=1x2x1, padding=0x1x1, groups=2)"}),
      row<nn::ConvTranspose1d>("ConvTranspose1d", {.in = 2, .out = 3, .kernel = 2},
                               {.inputs = {{kRows, 2, 8}}}),
      row<nn::ConvTranspose1d>("ConvTranspose1d/options", {.in = 4,
                                                           .out = 2,
                                                           .kernel = 3,
                                                           .stride = 2,
                                                           .padding = 1,
                                                           .output_padding = 1,
                                                           .groups = 2,
                                                           .bias = false}),
      row<nn::ConvTranspose2d>(
          "ConvTranspose2d", {.in = 2, .out = 3, .kernel = 3},
          {.inputs = {{kRows, 2, 6, 6}},
           .errors = {LAYER_ERROR(ValueError,
                                  nn::ConvTranspose2d({.in = 3, .out = 2, .kernel = 1, .groups = 2}),
                                  "[ConvTranspose2d]", "in 3, out 2, groups 2")}}),
      row<nn::ConvTranspose2d>("ConvTranspose2d/options", {.in = 4,
                                                           .out = 2,
                                                           .kernel = {3, 2},
                                                           .stride = {2, 1},
                                                           .padding = {1, 0},
                                                           .output_padding = {1, 0},
                                                           .dilation = {1, 2},
                                                           .groups = 2}),
      row<nn::ConvTranspose2d>("ConvTranspose2d/unbatched", {.in = 2, .out = 1, .kernel = 2, .stride = 2}),
      row<nn::ConvTranspose3d>(
          "ConvTranspose3d", {.in = 2, .out = 3, .kernel = 2, .stride = 2, .output_padding = 1},
          {.inputs = {{kRows, 2, 4, 4, 4}},
           .prints = "ConvTranspose3d(in=2, out=3, kernel=2x2x2, stride=2x2x2, output_padding=1x1x1)"}),
      spectral_transposed(),
  };
}

const bool added = add_rows("conv", table());

}  // namespace

}  // namespace gradus::layers
