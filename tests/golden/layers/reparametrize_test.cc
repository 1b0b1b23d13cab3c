#include "gradus/autograd/ops/ops.h"
#include "gradus/tests/golden/layers/golden_layers.h"

namespace gradus::golden {
namespace {

// A case of an L that `change` has changed.
template <class L, class Change> GoldenLayer changed(std::string name, typename L::Options o, Change change) {
  return {std::move(name),
          [o, change] {
            auto layer = std::make_unique<L>(o);
            change(*layer);
            return layer;
          },
          [](nn::Module& m, X x) { return std::vector<Tensor>{static_cast<L&>(m)(x[0])}; }};
}
template <class L>
GoldenLayer spectral(std::string name, typename L::Options o, nn::SpectralNormOptions s = {}) {
  return changed<L>(std::move(name), o, [s](L& l) { nn::spectral_norm(l, s); });
}
template <class L> GoldenLayer weight(std::string name, typename L::Options o, nn::WeightNormOptions s = {}) {
  return changed<L>(std::move(name), o, [s](L& l) { nn::weight_norm(l, s); });
}
template <class L>
GoldenLayer equalized(std::string name, typename L::Options o, nn::EqualizedLROptions s = {}) {
  return changed<L>(std::move(name), o, [s](L& l) { nn::equalized_lr(l, s); });
}

GoldenLayer twice(GoldenLayer l) {
  l.run = [](nn::Module& m, X x) {
    auto& layer = static_cast<nn::Linear&>(m);
    return std::vector<Tensor>{layer(x[0]), layer(x[0] * 2)};
  };
  return l;
}

}  // namespace

static const bool added = add_golden_layers(
    "reparametrize",
    {
        spectral<nn::Linear>("spectral_norm/Linear", {.in = 3, .out = 4}),
        spectral<nn::Linear>("spectral_norm/three", {.in = 3, .out = 4, .bias = false},
                             {.n_power_iterations = 3, .eps = 1e-3}),
        spectral<nn::Linear>("spectral_norm/dim", {.in = 3, .out = 4}, {.dim = 1}),
        spectral<nn::Conv2d>("spectral_norm/Conv2d", {.in = 2, .out = 3, .kernel = {2, 3}}),
        twice(spectral<nn::Linear>("spectral_norm/twice", {.in = 3, .out = 4})),
        weight<nn::Linear>("weight_norm/Linear", {.in = 3, .out = 4}),
        weight<nn::Linear>("weight_norm/all", {.in = 3, .out = 4, .bias = false}, {.dim = {}}),
        weight<nn::Conv2d>("weight_norm/Conv2d", {.in = 2, .out = 3, .kernel = 2}, {.dim = 1}),
        equalized<nn::Linear>("equalized_lr/Linear", {.in = 3, .out = 4}),
        equalized<nn::Linear>(
            "equalized_lr/fan_out", {.in = 3, .out = 4},
            {.gain = 1, .mode = nn::init::FanMode::kFanOut, .lr_mul = 0.01, .scale_bias = false}),
        equalized<nn::Conv2d>("equalized_lr/Conv2d",
                              {.in = 2, .out = 3, .kernel = 3, .stride = 2, .padding = 1}),
        golden<nn::MinibatchStdDev>("MinibatchStdDev"),
        golden<nn::MinibatchStdDev>("MinibatchStdDev/groups", {.group_size = 2, .channel_groups = 2}),
    });

}  // namespace gradus::golden
