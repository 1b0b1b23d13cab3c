// Rows of the layer table (layer_table.h) for padding, Upsample, PixelShuffle and Fold layers; image.py has
// PyTorch's values.
#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/nn/layers/layer_table.h"

namespace gradus::layers {
namespace {

std::vector<Row> table() {
  return {
      row<nn::ConstantPad1d>("ConstantPad1d", {.padding = {1, 2}, .value = 0.5},
                             {.inputs = {kLines}, .prints = "ConstantPad1d(padding=[1,2], value=0.5)"}),
      row<nn::ConstantPad2d>("ConstantPad2d", {.padding = {1, -1, 0, 2}, .value = 3}, {.inputs = {kImages}}),
      row<nn::ConstantPad3d>("ConstantPad3d", {.padding = 1, .value = -1}, {.inputs = {kVolumes}}),
      row<nn::ZeroPad2d>("ZeroPad2d", {.padding = {1, 2, 3, 0}},
                         {.inputs = {kImages},
                          .errors = {LAYER_ERROR(ShapeError, nn::ZeroPad2d({.padding = 1})(ones({2, 3})),
                                                 "[ZeroPad2d]", "4 dims", "f32[2,3]")}}),
      row<nn::ZeroPad2d>("ZeroPad2d/unbatched", {.padding = 1}),
      row<nn::ReflectionPad1d>(
          "ReflectionPad1d", {.padding = {3, 1}},
          {.inputs = {kLines},
           .errors = {LAYER_ERROR(ValueError, nn::ReflectionPad1d({.padding = 4})(ones({1, 2, 3})), "4")}}),
      row<nn::ReflectionPad2d>("ReflectionPad2d", {.padding = {1, 2, 2, 0}}, {.inputs = {kImages}}),
      row<nn::ReflectionPad3d>("ReflectionPad3d", {.padding = 1},
                               {.inputs = {kVolumes}, .prints = "ReflectionPad3d(padding=[1,1,1,1,1,1])"}),
      row<nn::ReplicationPad1d>("ReplicationPad1d", {.padding = {2, 5}}, {.inputs = {kLines}}),
      row<nn::ReplicationPad2d>("ReplicationPad2d", {.padding = 2}, {.inputs = {kImages}}),
      row<nn::ReplicationPad3d>("ReplicationPad3d", {.padding = {1, 0, 2, 1, 0, 1}}, {.inputs = {kVolumes}}),
      row<nn::Upsample>("Upsample", {.scale_factor = {2}},
                        {.prints = "Upsample(scale_factor=[2])",
                         .errors = {LAYER_ERROR(ValueError, nn::Upsample()(ones({1, 1, 2, 2})), "size")}}),
      row<nn::Upsample>("Upsample/size",
                        {.size = {5, 2}, .mode = Interpolation::kBilinear, .align_corners = true}),
      row<nn::Upsample>("Upsample/linear", {.scale_factor = {1.5}, .mode = Interpolation::kLinear}),
      row<nn::PixelShuffle>(
          "PixelShuffle", {.factor = 2},
          {.inputs = {kImages},
           .prints = "PixelShuffle(factor=2)",
           .errors = {LAYER_ERROR(ShapeError, nn::PixelShuffle({.factor = 2})(ones({1, 3, 2, 2})),
                                  "f32[1,3,2,2]")}}),
      row<nn::PixelUnshuffle>("PixelUnshuffle", {.factor = 2}, {.inputs = {kImages}}),
      row<nn::Unfold>("Unfold", {.kernel = {2, 3}, .stride = 2, .padding = 1}, {.inputs = {kImages}}),
      row<nn::Fold>("Fold", {.output = {4, 5}, .kernel = 2, .stride = {2, 1}},
                    {.inputs = {{kRows, 8, 8}}, .prints = "Fold(output=4x5, kernel=2x2, stride=2x1)"}),
      row<nn::ZeroPad1d>("ZeroPad1d", {.padding = 1}, {.inputs = {kLines}, .golden = false}),
      row<nn::ZeroPad3d>("ZeroPad3d", {.padding = 1}, {.inputs = {kVolumes}, .golden = false}),
      row<nn::Upsample>("Upsample/bilinear", {.scale_factor = {2}, .mode = Interpolation::kBilinear},
                        {.inputs = {kImages}, .golden = false}),
      // The weights are polynomials of positions that are rounded to f32, hence more roundings.
      row<nn::Upsample>("Upsample/bicubic", {.size = {5, 9}, .mode = Interpolation::kBicubic},
                        {.inputs = {kImages}, .roundings = 64, .golden = false}),
  };
}

const bool added = add_rows("image", table());

}  // namespace

}  // namespace gradus::layers
