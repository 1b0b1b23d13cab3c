// WGAN-GP's networks, built from options. WGANGPGenerator maps z [N, latent] to 4x4 pixels and doubles height
// and width by upsampling and two convolution blocks (conv, norm, ReLU) per size; WGANGPDiscriminator mirrors
// this with average pooling and returns scores [N, 1]. The Small pair uses strided 5x5 (transposed)
// convolutions as DCGAN.
#include "gradus/models/gan/wgan_gp.h"

#include <algorithm>

#include "gradus/models/gan/internal/conv_block.h"
#include "gradus/models/gan/internal/options.h"

namespace gradus::models {
namespace {

using internal::ConvBlock;
using internal::ConvBlockOptions;
using internal::kaiming;

// Returns the channels of a layer for images of `pixels` x `pixels` pixels.
template <class O> int64_t channels_at(const O& o, int64_t pixels) {
  return std::min(o.channel_base / pixels, o.channel_max);
}

// Errors: ValueError for options out of range.
template <class O> void check(const char* network, const O& o) {
  internal::check_image_size(network, o.size, 8);
  internal::check_count(network, "channels", o.channels);
  internal::check_count(network, "channel_base / size", o.channel_base / o.size);
  internal::check_count(network, "channel_max", o.channel_max);
}

// Maps z [N, latent] to [N, channels, 4, 4]: batch_norm(relu(linear(z) + bias)).
struct NoiseToFeatures final : nn::Layer {
  NoiseToFeatures(nn::Module* parent, std::string name, int64_t latent, int64_t channels)
      : Layer(parent, std::move(name)),
        linear{this, "linear", {.in = latent, .out = 16 * channels, .bias = false}},
        bias{this, "bias", zeros({1, channels, 1, 1}, {.device = Context::current().device})},
        norm{this, "norm", {.features = channels}} {
    nn::init::normal_(linear.weight);
  }
  Tensor forward(const Tensor& z) override {
    return norm(relu(reshape(linear(z), {z.size(0), bias.size(1), 4, 4}) + bias));
  }

  nn::Linear linear;
  nn::Parameter bias;
  nn::BatchNorm2d norm;
};

// Maps x [N, C, 4, 4] to scores [N, 1] by a convolution block with 4x4 filters and a linear layer.
struct Decision final : nn::Layer {
  Decision(nn::Module* parent, std::string name, int64_t channels, const ConvBlockOptions& block)
      : Layer(parent, std::move(name)),
        conv{this, "conv", block},
        linear{this, "linear", {.in = channels, .out = 1}} {
    nn::init::normal_(linear.weight);
    nn::init::zeros_(linear.bias);
  }
  Tensor forward(const Tensor& x) override { return linear(flatten(conv(x), 1)); }
  ConvBlock conv;
  nn::Linear linear;
};

}  // namespace

WGANGPGenerator::WGANGPGenerator(Options options) : LayerWith(std::move(options)) { build(); }
WGANGPGenerator::WGANGPGenerator(nn::Module* parent, std::string name, Options options)
    : LayerWith(parent, std::move(name), std::move(options)) {
  build();
}

void WGANGPGenerator::build() {
  const Options& o = options();
  check("WGANGPGenerator", o);
  internal::check_count("WGANGPGenerator", "latent", o.latent);
  int64_t in = channels_at(o, 4);
  const auto add = [&](int64_t out) {
    conv_blocks_->add<ConvBlock>(
        ConvBlockOptions{.conv = kaiming<nn::Conv2d>({.in = in, .out = out, .kernel = 3, .padding = 1}, 0),
                         .norm_name = "bn",
                         .norm = nn::layer<nn::BatchNorm2d>({.features = out})});
    in = out;
  };
  noise2feat_ = std::make_unique<NoiseToFeatures>(this, "noise2feat", o.latent, in);
  conv_blocks_ = std::make_unique<nn::ModuleList<>>(this, "conv_blocks");
  add(in);
  for (int64_t pixels = 8; pixels <= o.size; pixels *= 2) {
    conv_blocks_->add<nn::Upsample>({.scale_factor = {2}});
    add(channels_at(o, pixels));
    add(channels_at(o, pixels));
  }
  to_rgb_ = std::make_unique<ConvBlock>(
      this, "to_rgb",
      ConvBlockOptions{.conv = kaiming<nn::Conv2d>({.in = in, .out = o.channels, .kernel = 1}, 0),
                       .slope = {}});
}

Tensor WGANGPGenerator::forward(const Tensor& z) {
  Tensor x = (*noise2feat_)(internal::latent_vectors("WGANGPGenerator", z, options().latent));
  for (auto& block : *conv_blocks_) x = block(x);
  return tanh((*to_rgb_)(x));
}

WGANGPDiscriminator::WGANGPDiscriminator(Options options) : LayerWith(std::move(options)) { build(); }
WGANGPDiscriminator::WGANGPDiscriminator(nn::Module* parent, std::string name, Options options)
    : LayerWith(parent, std::move(name), std::move(options)) {
  build();
}

void WGANGPDiscriminator::build() {
  const Options& o = options();
  check("WGANGPDiscriminator", o);
  int64_t in = channels_at(o, o.size);
  // Returns the options of a convolution with a norm over results of `pixels` x `pixels` pixels.
  const auto block = [&](int64_t out, int64_t kernel, int64_t pixels) {
    ConvBlockOptions b = {.conv = kaiming<nn::Conv2d>(
                              {.in = in, .out = out, .kernel = kernel, .padding = kernel == 3 ? 1 : 0}, 0.2),
                          .slope = 0.2};
    if (o.norm == Options::Norm::kGroup) {
      b.norm_name = "GN";
      b.norm = nn::layer<nn::GroupNorm>({.groups = 1, .channels = out});
    } else {
      b.norm_name = "LN2d";
      b.norm = nn::layer<nn::LayerNorm>({.shape = Shape{out, pixels, pixels}});
    }
    in = out;
    return b;
  };
  from_rgb_ = std::make_unique<ConvBlock>(
      this, "from_rgb",
      ConvBlockOptions{.conv = kaiming<nn::Conv2d>({.in = o.channels, .out = in, .kernel = 1}, 0.2),
                       .slope = 0.2});
  conv_blocks_ = std::make_unique<nn::ModuleList<>>(this, "conv_blocks");
  for (int64_t pixels = o.size; pixels > 4; pixels /= 2) {
    conv_blocks_->add<ConvBlock>(block(in, 3, pixels));
    conv_blocks_->add<ConvBlock>(block(channels_at(o, pixels / 2), 3, pixels));
    conv_blocks_->add<nn::AvgPool2d>({.kernel = 2});
  }
  decision_ = std::make_unique<Decision>(this, "decision", in, block(in, 4, 1));
}

Tensor WGANGPDiscriminator::forward(const Tensor& x) {
  internal::check_images("WGANGPDiscriminator", x, options().channels, options().size);
  Tensor h = (*from_rgb_)(x);
  for (auto& block : *conv_blocks_) h = block(h);
  return (*decision_)(h);
}

void WGANGPSmallGenerator::build() {
  const Options& o = options();
  if (o.size != 28 && o.size != 32)
    throw ValueError("WGANGPSmallGenerator", "expected images of 28 or 32 pixels, got ", o.size);
  internal::check_count("WGANGPSmallGenerator", "channels", o.channels);
  internal::check_count("WGANGPSmallGenerator", "latent", o.latent);
  internal::check_count("WGANGPSmallGenerator", "width", o.width);
  const auto deconv = [](int64_t in, int64_t out) {
    return nn::layer<nn::ConvTranspose2d>(
        {.in = in, .out = out, .kernel = 5, .stride = 2, .padding = 2, .output_padding = 1});
  };
  input_.add<nn::Linear>({.in = o.latent, .out = 4 * 4 * 4 * o.width});
  if (o.batch_norm) input_.add<nn::BatchNorm1d>({.features = 4 * 4 * 4 * o.width});
  input_.add<nn::ReLU>();
  const auto fill = [&](nn::Sequential& block, int64_t in, int64_t out) {
    block.add(deconv(in, out));
    if (o.batch_norm) block.add<nn::BatchNorm2d>({.features = out});
    block.add<nn::ReLU>();
  };
  fill(deconv1_, 4 * o.width, 2 * o.width);
  fill(deconv2_, 2 * o.width, o.width);
  deconv3_.add(deconv(o.width, o.channels));
}

Tensor WGANGPSmallGenerator::forward(const Tensor& z) {
  const Options& o = options();
  const Tensor h = input_(internal::latent_vectors("WGANGPSmallGenerator", z, o.latent));
  Tensor x = deconv1_(reshape(h, {z.size(0), 4 * o.width, 4, 4}));
  if (o.size == 28) x = slice(slice(x, 2, 0, 7), 3, 0, 7);  // crops 8x8 to 7x7; doubled twice, 7 gives 28
  x = deconv3_(deconv2_(x));
  return o.sigmoid ? sigmoid(x) : tanh(x);
}

void WGANGPSmallDiscriminator::build() {
  const Options& o = options();
  if (o.size != 28 && o.size != 32)
    throw ValueError("WGANGPSmallDiscriminator", "expected images of 28 or 32 pixels, got ", o.size);
  internal::check_count("WGANGPSmallDiscriminator", "channels", o.channels);
  internal::check_count("WGANGPSmallDiscriminator", "width", o.width);
  for (int64_t in = o.channels, out = o.width; out <= 4 * o.width; in = out, out *= 2) {
    main_.add<nn::Conv2d>({.in = in, .out = out, .kernel = 5, .stride = 2, .padding = 2});
    main_.add<nn::LeakyReLU>({.negative_slope = 0.2});
  }
  main_.add<nn::Flatten>();
  main_.add<nn::Linear>({.in = 4 * 4 * 4 * o.width, .out = 1});
}

Tensor WGANGPSmallDiscriminator::forward(const Tensor& x) {
  internal::check_images("WGANGPSmallDiscriminator", x, options().channels, options().size);
  return main_(x);
}

WGANGPSmallGeneratorOptions wgan_gp_cifar() {
  return {.size = 32, .channels = 3, .width = 128, .batch_norm = true, .sigmoid = false};
}

}  // namespace gradus::models

template class gradus::nn::ModuleWith<gradus::models::WGANGPGeneratorOptions, gradus::nn::Layer>;
template class gradus::nn::ModuleWith<gradus::models::WGANGPDiscriminatorOptions, gradus::nn::Layer>;
template class gradus::nn::ModuleWith<gradus::models::WGANGPSmallGeneratorOptions, gradus::nn::Layer>;
template class gradus::nn::ModuleWith<gradus::models::WGANGPSmallDiscriminatorOptions, gradus::nn::Layer>;
