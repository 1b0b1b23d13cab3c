// Computes a layer's weight from other parameters before every call: spectral normalization, weight
// normalization, equalized learning rates. Each function takes any layer that has the parameter, and
// returns the layer:
//
//   nn::Conv2d conv{this, "conv", {.in = 64, .out = 128, .kernel = 3}};
//   ...
//   nn::spectral_norm(conv);                                                // in the constructor
//   nn::equalized_lr(body.add<nn::Linear>({.in = 512, .out = 512}));        // body a Sequential
//
// The parameter itself is then no longer in the layer's state; the parameters in its place are named below.
// Between calls the layer's member holds the last computed weight, without its gradient.
#pragma once

#include <optional>

#include "gradus/nn/init.h"
#include "gradus/nn/layer.h"

namespace gradus::nn {

struct SpectralNormOptions {
  std::string name = "weight";
  int64_t n_power_iterations = 1;   // before each call in training
  double eps = 1e-12;               // the least norm to divide by
  std::optional<int64_t> dim = {};  // the weight's output dim; none: 1 for transposed convolutions, else 0
};

// Divides the weight by its largest singular value sigma = u^T W v, where W is the weight as a matrix with
// one row per output. The parameter weight_orig replaces weight. The buffers weight_u and weight_v hold u and
// v; power iterations in training improve them. The gradient flows through sigma too, with u and v constant.
// Errors: ValueError for a layer without that parameter, or fewer than 1 iteration; IndexError for a dim that
// it does not have.
// Source: Miyato et al., "Spectral normalization for generative adversarial networks", ICLR 2018.
void apply_spectral_norm(Layer& layer, const SpectralNormOptions& options);

struct WeightNormOptions {
  std::string name = "weight";
  std::optional<int64_t> dim = 0;  // one norm for each of its slices; none: one norm for all
};

// Computes the weight as g v / |v|. The parameters weight_g (initially the norms of weight) and weight_v
// (initially weight) replace weight.
// Errors: ValueError for a layer without that parameter; IndexError for a dim that it does not have.
// Source: Salimans and Kingma, "Weight normalization", NeurIPS 2016.
void apply_weight_norm(Layer& layer, const WeightNormOptions& options);

struct EqualizedLROptions {
  std::string name = "weight";
  double gain = 1.4142135623730951;  // sqrt(2), for a rectifier after the layer; 1 for none
  // Numbers that go into one result: in times the kernel, of transposed convolutions too. kFanOut: out times
  // the kernel. What PyTorch calls the fan in of a transposed convolution is its fan out here.
  init::FanMode mode = init::FanMode::kFanIn;
  double lr_mul = 1;
  double bias = 0;         // what the bias starts as
  bool scale_bias = true;  // the bias is multiplied by lr_mul too
};

// Computes the weight as w gain lr_mul / sqrt(fan), and the bias as b lr_mul. The parameter weight_orig
// replaces weight; it starts normal with deviation 1 / lr_mul, so that all layers learn at the same speed. b
// is the parameter bias.
// Errors: ValueError for a layer without that parameter, or lr_mul not above 0.
// Source: Karras et al., "Progressive growing of GANs", ICLR 2018.
void apply_equalized_lr(Layer& layer, const EqualizedLROptions& options);

template <class L> L& spectral_norm(L& layer, SpectralNormOptions options = {}) {
  apply_spectral_norm(layer, options);
  return layer;
}
template <class L> L& weight_norm(L& layer, WeightNormOptions options = {}) {
  apply_weight_norm(layer, options);
  return layer;
}
template <class L> L& equalized_lr(L& layer, EqualizedLROptions options = {}) {
  apply_equalized_lr(layer, options);
  return layer;
}

}  // namespace gradus::nn
