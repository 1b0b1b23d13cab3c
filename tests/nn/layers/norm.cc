// Rows of the layer table (layer_table.h) for normalizations and dropout of channels; norm.py has PyTorch's
// values.
#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/nn/layers/layer_table.h"

namespace gradus::layers {
namespace {

std::vector<Row> table() {
  return {
      row<nn::BatchNorm1d>("BatchNorm1d", {.features = 3}, {.inputs = {{kRows, 3}}, .one_row_trains = false}),
      row<nn::BatchNorm1d>(
          "BatchNorm1d/signal", {.features = 3, .eps = 1e-3, .momentum = {}},
          {.inputs = {{kRows, 3, 8}}, .prints = "BatchNorm1d(features=3, eps=0.001, momentum=none)"}),
      row<nn::BatchNorm1d>("BatchNorm1d/plain",
                           {.features = 3, .affine = false, .track_running_stats = false}),
      row<nn::BatchNorm2d>("BatchNorm2d", {.features = 3}, {.inputs = {{kRows, 3, 6, 6}}}),
      row<nn::BatchNorm2d>("BatchNorm2d/momentum", {.features = 3, .momentum = 0.3},
                           [](nn::BatchNorm2d& m, X x) {
                             return std::vector<Tensor>{m(x[0]), m(x[0] * 2)};
                           }),
      row<nn::BatchNorm3d>(
          "BatchNorm3d", {.features = 3},
          {.inputs = {{kRows, 3, 4, 4, 4}},
           .prints = "BatchNorm3d(features=3)",
           .errors = {LAYER_ERROR(ShapeError, nn::BatchNorm3d({.features = 4})(ones({2, 4, 4, 4})),
                                  "[BatchNorm3d]", "[N,4,D,H,W]")}}),
      row<nn::LayerNorm>(
          "LayerNorm", {.shape = 5},
          {.inputs = {{kRows, 5}},
           .prints = "LayerNorm(shape=[5])",
           .errors = {LAYER_ERROR(ValueError, nn::LayerNorm({.shape = 0}), "[LayerNorm]", "[0]"),
                      LAYER_ERROR(ShapeError, nn::LayerNorm({.shape = 3})(ones({2, 4})), "f32[2,4]")}}),
      row<nn::LayerNorm>("LayerNorm/two", {.shape = {3, 4}, .eps = 1e-3}),
      row<nn::LayerNorm>("LayerNorm/plain", {.shape = 5, .affine = false}, {.inputs = {{kRows, 5}}}),
      row<nn::GroupNorm>(
          "GroupNorm", {.groups = 2, .channels = 4},
          {.inputs = {kImages},
           .prints = "GroupNorm(groups=2, channels=4)",
           .errors = {LAYER_ERROR(ValueError, nn::GroupNorm({.groups = 3, .channels = 4}), "[GroupNorm]",
                                  "groups 3, channels 4"),
                      LAYER_ERROR(ShapeError, nn::GroupNorm({.groups = 2, .channels = 4})(ones({2, 6, 3})),
                                  "[GroupNorm]", "[N,4,...]", "f32[2,6,3]")}}),
      row<nn::GroupNorm>("GroupNorm/plain", {.groups = 1, .channels = 4, .affine = false},
                         {.inputs = {kImages}}),
      row<nn::InstanceNorm1d>(
          "InstanceNorm1d", {.features = 3},
          {.errors = {LAYER_ERROR(ValueError, nn::InstanceNorm1d({.features = 0}), "[InstanceNorm]", "0")}}),
      row<nn::InstanceNorm1d>(
          "InstanceNorm1d/unbatched", {.features = 3, .affine = true},
          {.inputs = {{kRows, 3, 8}}, .prints = "InstanceNorm1d(features=3, affine=true)"}),
      row<nn::InstanceNorm2d>(
          "InstanceNorm2d", {.features = 3, .affine = true, .track_running_stats = true},
          {.inputs = {{kRows, 3, 6, 6}},
           .errors = {LAYER_ERROR(ShapeError, nn::InstanceNorm2d({.features = 4})(ones({2, 3, 4, 4})),
                                  "[InstanceNorm2d]", "[N,4,H,W]", "f32[2,3,4,4]")}}),
      row<nn::InstanceNorm3d>("InstanceNorm3d", {.features = 2, .momentum = 0.4, .track_running_stats = true},
                              {.inputs = {{kRows, 2, 4, 4, 4}}}),
      row<nn::LocalResponseNorm>(
          "LocalResponseNorm", {.size = 3, .alpha = 0.1, .beta = 0.6, .k = 2},
          {.inputs = {kImages},
           .errors = {LAYER_ERROR(ValueError, nn::LocalResponseNorm({.size = 0})(ones({2, 3, 4})), "0")}}),
      row<nn::LocalResponseNorm>("LocalResponseNorm/even", {.size = 2},
                                 {.inputs = {kImages}, .prints = "LocalResponseNorm(size=2)"}),
      row<nn::AlphaDropout>("AlphaDropout", {.p = 0.3}, {.inputs = {kFlat}}),
      row<nn::FeatureAlphaDropout>("FeatureAlphaDropout", {.p = 0.3}, {.inputs = {kImages}}),
      row<nn::Dropout1d>("Dropout1d", {.p = 0.3}, {.inputs = {kLines}, .prints = "Dropout1d(p=0.3)"}),
      row<nn::Dropout2d>("Dropout2d", {.p = 0}),
      row<nn::Dropout3d>("Dropout3d", {.p = 0}),
      row<nn::RMSNorm>(
          "RMSNorm", {.shape = 5},
          {.inputs = {{kRows, 5}},
           .errors = {LAYER_ERROR(ValueError, nn::RMSNorm({.shape = Shape{}}), "[RMSNorm]", "[]")}}),
      row<nn::RMSNorm>("RMSNorm/plain", {.shape = 5, .eps = 1e-3, .affine = false},
                       {.prints = "RMSNorm(shape=[5], eps=0.001, affine=false)"}),
      row<nn::BatchNorm2d>("BatchNorm2d/cumulative", {.features = 4, .momentum = std::nullopt},
                           {.inputs = {kImages}, .golden = false}),
      row<nn::BatchNorm2d>("BatchNorm2d/plain",
                           {.features = 4, .affine = false, .track_running_stats = false},
                           {.inputs = {kImages}, .golden = false}),
      row<nn::BatchNorm2d>("BatchNorm2d/relu", {.features = 4},
                           [](nn::BatchNorm2d& m, X x) { return m.relu(x[0]); },
                           {.inputs = {kImages}, .golden = false}),
      // Sums far enough from 0 that no rounding changes the ReLU's side.
      row<nn::BatchNorm2d>("BatchNorm2d/add_relu", {.features = 4},
                           [](nn::BatchNorm2d& m, X x) {
                             return m.add_relu(x[0], x[0] * 0.5 + signs(x[0], x[0].shape()) * 8.0);
                           },
                           {.inputs = {kImages}, .golden = false}),
      row<nn::InstanceNorm1d>("InstanceNorm1d/tracking",
                              {.features = 4, .affine = true, .track_running_stats = true},
                              {.inputs = {kLines}, .golden = false}),
      row<nn::InstanceNorm2d>("InstanceNorm2d/plain", {.features = 4},
                              {.inputs = {kImages}, .golden = false}),
      row<nn::Dropout2d>("Dropout2d/drawn", {.p = 0.2},
                         {.inputs = {kImages}, .golden = false, .prints = "Dropout2d(p=0.2)"}),
      row<nn::Dropout3d>("Dropout3d/drawn", {}, {.inputs = {kVolumes}, .golden = false}),
  };
}

const bool added = add_rows("norm", table());

}  // namespace

}  // namespace gradus::layers
