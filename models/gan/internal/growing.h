// What networks that grow share (PGGAN, StyleGAN): checks of a Scale, numbers of channels, and blocks of one
// convolution with an equalized learning rate.
#pragma once

#include <bit>
#include <optional>
#include <string>
#include <utility>

#include "gradus/models/gan/pggan.h"

namespace gradus::models::internal {

inline constexpr double kNegativeSlope = 0.2;

inline int log2_of(int64_t size) { return std::countr_zero(static_cast<uint64_t>(size)); }

// Returns min(base / 2^(decay r), max), the channels of the blocks of resolution r + 1: callers pass the
// resolution minus 1.
int64_t channels_at(int r, int64_t base, int64_t max, double decay = 1);

// `largest`: side of the network's largest images, in pixels. Errors: ValueError for an invalid scale.
void check_scale(const char* network, Scale scale, int64_t largest);

// Returns the options of a convolution that preserves the image size.
inline nn::Conv2dOptions same_size(int64_t in, int64_t out, int64_t kernel) {
  return {.in = in, .out = out, .kernel = kernel, .padding = kernel / 2};
}

// A convolution ("conv") with an equalized learning rate, an optional leaky ReLU and an optional pixel norm.
template <class Conv> struct EqualizedBlock final : nn::Layer {
  struct Options {
    typename Conv::Options conv;
    nn::EqualizedLROptions equalized = {};
    bool rectifier = true;
    std::optional<nn::PixelNormOptions> pixel_norm = {};
  };
  EqualizedBlock(nn::Module* parent, std::string name, Options options)
      : Layer(parent, std::move(name)),
        o(std::move(options)),
        conv{this, "conv", o.conv},
        norm{o.pixel_norm.value_or(nn::PixelNormOptions{})} {
    nn::equalized_lr(conv, o.equalized);
  }
  Tensor forward(const Tensor& x) override {
    Tensor h = conv(x);
    if (o.rectifier) h = leaky_relu(h, kNegativeSlope);
    return o.pixel_norm ? norm(h) : h;
  }

  Options o;
  Conv conv;
  nn::PixelNorm norm;  // has no parameters, so it need not be registered as a child
};

using EqualizedConv = EqualizedBlock<nn::Conv2d>;
using EqualizedUpConv = EqualizedBlock<nn::UpConv2d>;
using EqualizedDownConv = EqualizedBlock<nn::DownConv2d>;

}  // namespace gradus::models::internal
