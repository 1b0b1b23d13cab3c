// Rows of the layer table (layer_table.h) for spectral_norm, weight_norm, equalized_lr and MinibatchStdDev;
// reparametrize.py has PyTorch's values.
#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/nn/layers/layer_table.h"

namespace gradus::layers {
namespace {

auto spectral(nn::SpectralNormOptions o = {}) {
  return [o](auto& layer) { nn::spectral_norm(layer, o); };
}
auto weight(nn::WeightNormOptions o = {}) {
  return [o](auto& layer) { nn::weight_norm(layer, o); };
}
auto equalized(nn::EqualizedLROptions o = {}) {
  return [o](auto& layer) { nn::equalized_lr(layer, o); };
}

// For errors: changes a Linear without a bias.
template <class Change> void change_plain(Change change) {
  nn::Linear linear({.in = 3, .out = 4, .bias = false});
  change(linear);
}

// Two calls, since spectral_norm's vectors change at each.
Row twice(Row l) {
  l.run = [](nn::Module& m, X x) {
    auto& layer = static_cast<nn::Linear&>(m);
    return std::vector<Tensor>{layer(x[0]), layer(x[0] * 2)};
  };
  return l;
}

std::vector<Row> table() {
  return {
      changed<nn::Linear>(
          "spectral_norm/Linear", {.in = 3, .out = 4}, spectral(),
          {.inputs = {{kRows, 3}},
           .roundings = 64,
           .errors = {LAYER_ERROR(ValueError, change_plain(spectral({.name = "bias"})), "[spectral_norm]",
                                  "Linear", "'bias'"),
                      LAYER_ERROR(ValueError, change_plain(spectral({.n_power_iterations = 0})),
                                  "n_power_iterations", "0"),
                      LAYER_ERROR(ValueError,
                                  change_plain([](auto& l) { nn::spectral_norm(nn::spectral_norm(l)); }),
                                  "[spectral_norm]", "'weight'")}}),
      changed<nn::Linear>("spectral_norm/three", {.in = 3, .out = 4, .bias = false},
                          spectral({.n_power_iterations = 3, .eps = 1e-3})),
      changed<nn::Linear>("spectral_norm/dim", {.in = 3, .out = 4}, spectral({.dim = 1})),
      changed<nn::Conv2d>("spectral_norm/Conv2d", {.in = 2, .out = 3, .kernel = {2, 3}}, spectral(),
                          {.second_order = true}),
      twice(changed<nn::Linear>("spectral_norm/twice", {.in = 3, .out = 4}, spectral())),
      changed<nn::Linear>(
          "weight_norm/Linear", {.in = 3, .out = 4}, weight(),
          {.inputs = {{kRows, 3}},
           .roundings = 16,
           .second_order = true,
           .errors = {LAYER_ERROR(ValueError, change_plain(weight({.name = "w"})), "[weight_norm]", "'w'")}}),
      changed<nn::Linear>("weight_norm/all", {.in = 3, .out = 4, .bias = false}, weight({.dim = {}}),
                          {.inputs = {{kRows, 3}}, .roundings = 16}),
      changed<nn::Conv2d>("weight_norm/Conv2d", {.in = 2, .out = 3, .kernel = 2}, weight({.dim = 1})),
      changed<nn::Linear>("equalized_lr/Linear", {.in = 3, .out = 4}, equalized(),
                          {.inputs = {{kRows, 3}},
                           .roundings = 16,
                           .errors = {LAYER_ERROR(ValueError, change_plain(equalized({.lr_mul = 0})),
                                                  "[equalized_lr]", "lr_mul", "0")}}),
      changed<nn::Linear>(
          "equalized_lr/fan_out", {.in = 3, .out = 4},
          equalized({.gain = 1, .mode = nn::init::FanMode::kFanOut, .lr_mul = 0.01, .scale_bias = false})),
      changed<nn::Conv2d>("equalized_lr/Conv2d", {.in = 2, .out = 3, .kernel = 3, .stride = 2, .padding = 1},
                          equalized(), {.second_order = true}),
      row<nn::MinibatchStdDev>(
          "MinibatchStdDev", {},
          {.inputs = {kImages},
           .prints = "MinibatchStdDev()",
           .errors = {LAYER_ERROR(ShapeError, nn::MinibatchStdDev()(ones({6, 2, 2, 2})), "[MinibatchStdDev]",
                                  "f32[6,2,2,2]"),
                      LAYER_ERROR(ValueError, nn::MinibatchStdDev({.group_size = 0})(ones({6, 2, 2, 2})),
                                  "[MinibatchStdDev]", "0")}}),
      row<nn::MinibatchStdDev>("MinibatchStdDev/groups", {.group_size = 2, .channel_groups = 2}),
  };
}

const bool added = add_rows("reparametrize", table());

}  // namespace

}  // namespace gradus::layers
