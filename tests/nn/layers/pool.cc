// Rows of the layer table (layer_table.h) for pooling; pool.py has PyTorch's values.
#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/nn/layers/layer_table.h"

namespace gradus::layers {
namespace {

std::vector<Row> table() {
  return {
      row<nn::MaxPool1d>("MaxPool1d", {.kernel = 2},
                         {.inputs = {kLines},
                          .errors = {LAYER_ERROR(ShapeError, nn::MaxPool1d({.kernel = 2})(ones({2, 2, 3, 3})),
                                                 "f32[2,2,3,3]")}}),
      row<nn::MaxPool1d>("MaxPool1d/options",
                         {.kernel = 3, .stride = 2, .padding = 1, .dilation = 2, .ceil_mode = true},
                         {.prints = "MaxPool1d(kernel=3, stride=2, padding=1, dilation=2, ceil_mode=true)"}),
      row<nn::MaxPool2d>("MaxPool2d", {.kernel = 2}, {.inputs = {kImages}}),
      row<nn::MaxPool2d>("MaxPool2d/options",
                         {.kernel = {3, 2}, .stride = {2, 1}, .padding = 1, .ceil_mode = true}),
      row<nn::MaxPool2d>("MaxPool2d/unbatched", {.kernel = 2}),
      row<nn::MaxPool3d>("MaxPool3d", {.kernel = {2, 1, 2}, .stride = 1}, {.inputs = {kVolumes}}),
      row<nn::AvgPool1d>("AvgPool1d", {.kernel = 3, .stride = 2, .padding = 1, .count_include_pad = false},
                         {.inputs = {kLines}}),
      row<nn::AvgPool2d>("AvgPool2d", {.kernel = 2},
                         {.inputs = {kImages},
                          .errors = {LAYER_ERROR(ShapeError, nn::AvgPool2d({.kernel = 4})(ones({1, 2, 3, 3})),
                                                 "f32[1,2,3,3]")}}),
      row<nn::AvgPool2d>(
          "AvgPool2d/options",
          {.kernel = {3, 2}, .stride = 2, .padding = 1, .ceil_mode = true, .divisor_override = 5},
          {.prints = "AvgPool2d(kernel=3x2, stride=2x2, padding=1x1, ceil_mode=true, divisor_override=5)"}),
      row<nn::AvgPool3d>("AvgPool3d", {.kernel = 2, .stride = {2, 1, 1}, .padding = {1, 0, 1}},
                         {.inputs = {kVolumes}}),
      row<nn::LPPool1d>("LPPool1d", {.p = 2, .kernel = 3, .stride = 2}, {.inputs = {kLines}}),
      row<nn::LPPool2d>("LPPool2d", {.p = 1.5, .kernel = {2, 3}}, {.prints = "LPPool2d(p=1.5, kernel=2x3)"}),
      row<nn::AdaptiveAvgPool1d>("AdaptiveAvgPool1d", {.output = 3}, {.inputs = {kLines}}),
      row<nn::AdaptiveAvgPool2d>("AdaptiveAvgPool2d", {.output = {2, 4}}, {.inputs = {kImages}}),
      row<nn::AdaptiveAvgPool3d>(
          "AdaptiveAvgPool3d", {.output = {3, 2, 1}},
          {.inputs = {kVolumes},
           .errors = {LAYER_ERROR(ValueError, nn::AdaptiveAvgPool3d({.output = 0})(ones({1, 2, 3, 3, 3})),
                                  "0")}}),
      row<nn::AdaptiveMaxPool1d>("AdaptiveMaxPool1d", {.output = 3}, {.inputs = {kLines}}),
      row<nn::AdaptiveMaxPool2d>("AdaptiveMaxPool2d", {.output = {2, 4}},
                                 {.inputs = {kImages}, .prints = "AdaptiveMaxPool2d(output=2x4)"}),
      row<nn::AdaptiveMaxPool3d>("AdaptiveMaxPool3d", {.output = {3, 2, 1}}, {.inputs = {kVolumes}}),
      row<nn::AdaptiveMaxPool3d>("AdaptiveMaxPool3d/unbatched", {.output = 2}),
      row<nn::LPPool2d>("LPPool2d/even", {.p = 2, .kernel = 2}, {.inputs = {kImages}, .golden = false}),
  };
}

const bool added = add_rows("pool", table());

}  // namespace

}  // namespace gradus::layers
