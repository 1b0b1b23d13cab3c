// Reparametrizations, which compute a layer's weight from other parameters before every call: spectral
// normalization, weight normalization, equalized learning rates. Each function takes any layer that has the
// parameter, and returns the layer:
//
//   nn::Conv2d conv{this, "conv", {.in = 64, .out = 128, .kernel = 3}};
//   ...
//   nn::spectral_norm(conv);                                                // in the constructor
//   nn::equalized_lr(body.add<nn::Linear>({.in = 512, .out = 512}));        // body a Sequential
//
// The weight is then no longer a parameter in the layer's state_dict; the parameters that replace it are
// listed below. Between calls the layer's member is the last computed weight, detached.
#pragma once

#include <optional>

#include "gradus/nn/init.h"
#include "gradus/nn/layer.h"

namespace gradus::nn {

struct SpectralNormOptions {
  std::string name = "weight";
  int64_t n_power_iterations = 1;   // before each call in training
  double eps = 1e-12;               // lower bound of norms in divisors
  std::optional<int64_t> dim = {};  // the weight's output dim; nullopt: 1 for transposed convolutions, else 0
};

// Divides the weight by an estimate of its largest singular value, sigma = u^T W v, where W is the weight as
// a matrix with one row per output. The parameter weight_orig replaces weight. Power iterations update u and
// v, the buffers weight_u and weight_v, in training. sigma has a gradient, with u and v constant.
// Errors: ValueError for a layer without that parameter, or fewer than 1 iteration; IndexError for a dim that
// it does not have.
// Source: Miyato et al., "Spectral normalization for generative adversarial networks", ICLR 2018.
void apply_spectral_norm(Layer& layer, const SpectralNormOptions& options);

struct WeightNormOptions {
  std::string name = "weight";
  std::optional<int64_t> dim = 0;  // one norm per slice along this dim; nullopt: one norm of the weight
};

// Computes the weight as g v / |v|. The parameters weight_g (initially the norms of weight) and weight_v
// (initially weight) replace weight.
// Errors: ValueError for a layer without that parameter; IndexError for a dim that it does not have.
// Source: Salimans and Kingma, "Weight normalization", NeurIPS 2016.
void apply_weight_norm(Layer& layer, const WeightNormOptions& options);

struct EqualizedLROptions {
  std::string name = "weight";
  double gain = 1.4142135623730951;  // sqrt(2) for a layer followed by a ReLU; 1 for no activation
  // kFanIn: input channels times kernel size, also of transposed convolutions; kFanOut: output channels times
  // kernel size. PyTorch's fan_in of a transposed convolution is its fan_out here.
  init::FanMode mode = init::FanMode::kFanIn;
  double lr_mul = 1;
  double bias = 0;         // initial value of the layer's bias
  bool scale_bias = true;  // also multiplies the bias by lr_mul
};

// Computes weight = weight_orig gain lr_mul / sqrt(fan), and bias = (parameter bias) lr_mul. The parameter
// weight_orig replaces weight; its initial values are normal with standard deviation 1 / lr_mul. Optimizers
// with normalized steps (Adam) then have the same relative learning rate in all layers.
// Errors: ValueError for a layer without that parameter, or lr_mul not above 0; ShapeError for a weight of 1
// dim.
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
