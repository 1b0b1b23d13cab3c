// PGGAN's networks (Karras et al., ICLR 2018): blocks for all resolutions, of which a call computes those up
// to its Scale. Resolution r has 2^r x 2^r pixels, r = 2, 3, ... In the ModuleLists, entry r - 2 of
// torgb_layers and fromrgb_layers is that of resolution r; conv_blocks has one block for r = 2 (entry 0) and
// two for each larger r (entries 2 r - 5 and 2 r - 4). While a resolution fades in, results blend linearly
// with those of half the size.
#include "gradus/models/gan/pggan.h"

#include <cmath>

#include "gradus/models/gan/internal/growing.h"
#include "gradus/models/gan/internal/options.h"

namespace gradus::models {
namespace {

using internal::kNegativeSlope;
using internal::log2_of;
using internal::same_size;
using ConvBlock = internal::EqualizedConv;
using UpBlock = internal::EqualizedUpConv;
using DownBlock = internal::EqualizedDownConv;

// Returns the channels of the blocks of resolution r + 1: callers pass the resolution minus 1.
template <class O> int64_t channels_at(const O& o, int r) {
  return internal::channels_at(r, o.channel_base, o.channel_max, o.channel_decay);
}

template <class O> void check(const char* network, const O& o) {
  internal::check_image_size(network, o.size, 4);
  internal::check_count(network, "channels", o.channels);
  internal::check_count(network, "classes", o.classes, 0);
  internal::check_count(network, "channel_base", o.channel_base);
  internal::check_count(network, "channel_max", o.channel_max);
  if (!(o.channel_decay >= 0))
    throw ValueError(network, "expected channel_decay >= 0, got ", o.channel_decay);
  internal::check_count(network, "channels of the last block", channels_at(o, log2_of(o.size) - 1));
}

// Maps latent vectors [N, latent] to features [N, channels, 4, 4]:
// pixel_norm(leaky_relu(linear(pixel_norm(z)) + bias)).
struct NoiseToFeatures final : nn::Layer {
  NoiseToFeatures(nn::Module* parent, std::string name, int64_t latent, int64_t channels,
                  nn::PixelNormOptions pixel_norm)
      : Layer(parent, std::move(name)),
        linear{this, "linear", {.in = latent, .out = 16 * channels, .bias = false}},
        bias{this, "bias", zeros({1, channels, 1, 1}, {.device = Context::current().device})},
        norm{pixel_norm} {
    nn::equalized_lr(linear, {.gain = std::sqrt(2.0) / 4});
  }
  Tensor forward(const Tensor& z) override {
    const Tensor h = reshape(linear(norm(z)), {z.size(0), bias.size(1), 4, 4});
    return norm(leaky_relu(h + bias, kNegativeSlope));
  }

  nn::Linear linear;
  nn::Parameter bias;
  nn::PixelNorm norm;
};

// Maps features [N, C, 4, 4] with 16 C = in to scores [N, out] by two linear layers.
struct Decision final : nn::Layer {
  Decision(nn::Module* parent, std::string name, int64_t in, int64_t hidden, int64_t out)
      : Layer(parent, std::move(name)),
        linear0{this, "linear0", {.in = in, .out = hidden}},
        linear1{this, "linear1", {.in = hidden, .out = out}} {
    nn::equalized_lr(linear0);
    nn::equalized_lr(linear1, {.gain = 1});
  }
  Tensor forward(const Tensor& x) override {
    return linear1(leaky_relu(linear0(flatten(x, 1)), kNegativeSlope));
  }

  nn::Linear linear0, linear1;
};

}  // namespace

PGGANGenerator::PGGANGenerator(Options options) : LayerWith(std::move(options)) { build(); }
PGGANGenerator::PGGANGenerator(nn::Module* parent, std::string name, Options options)
    : LayerWith(parent, std::move(name), std::move(options)) {
  build();
}

void PGGANGenerator::build() {
  const Options& o = options();
  check("PGGANGenerator", o);
  internal::check_count("PGGANGenerator", "latent", o.latent);
  int64_t in = channels_at(o, 1);
  noise2feat_ = std::make_unique<NoiseToFeatures>(this, "noise2feat", o.latent + o.classes, in, o.pixel_norm);
  torgb_layers_ = std::make_unique<nn::ModuleList<>>(this, "torgb_layers");
  conv_blocks_ = std::make_unique<nn::ModuleList<>>(this, "conv_blocks");
  for (int r = 2; r <= log2_of(o.size); ++r) {
    const int64_t out = channels_at(o, r - 1);
    torgb_layers_->add<ConvBlock>(ConvBlock::Options{
        .conv = same_size(out, o.channels, 1), .equalized = {.gain = 1}, .rectifier = false});
    if (r > 2)
      conv_blocks_->add<UpBlock>(UpBlock::Options{
          .conv = {.in = in, .out = out}, .equalized = {.mode = o.up_fan}, .pixel_norm = o.pixel_norm});
    conv_blocks_->add<ConvBlock>(
        ConvBlock::Options{.conv = same_size(out, out, 3), .pixel_norm = o.pixel_norm});
    in = out;
  }
}

Tensor PGGANGenerator::forward(const Tensor& z) {
  internal::check_unlabeled("PGGANGenerator", options().classes);
  return compute(internal::latent_vectors("PGGANGenerator", z, options().latent), {.size = options().size});
}
Tensor PGGANGenerator::operator()(const Tensor& z, Scale scale) {
  return call([&] {
    internal::check_unlabeled("PGGANGenerator", options().classes);
    return compute(internal::latent_vectors("PGGANGenerator", z, options().latent), scale);
  });
}
Tensor PGGANGenerator::operator()(const Tensor& z, const Tensor& labels, Scale scale) {
  return call([&] {
    const Tensor vectors = internal::latent_vectors("PGGANGenerator", z, options().latent);
    return compute(cat({vectors, internal::one_hot_like("PGGANGenerator", z, labels, options().classes)}, 1),
                   scale);
  });
}

// vectors [N, latent + classes] -> images [N, channels, size, size].
Tensor PGGANGenerator::compute(const Tensor& vectors, Scale scale) {
  internal::check_scale("PGGANGenerator", scale, options().size);
  const int last = log2_of(scale.size);
  Tensor x = (*conv_blocks_)[0]((*noise2feat_)(vectors)), half;
  for (int r = 3; r <= last; ++r) {
    if (r == last && scale.fade < 1) half = (*torgb_layers_)[r - 3](x);
    x = (*conv_blocks_)[2 * r - 5](x);
    x = (*conv_blocks_)[2 * r - 4](x);
  }
  const Tensor image = (*torgb_layers_)[last - 2](x);
  return half.defined() ? lerp(interpolate(half, {.scale_factor = {2}}), image, scale.fade) : image;
}

PGGANDiscriminator::PGGANDiscriminator(Options options) : LayerWith(std::move(options)) { build(); }
PGGANDiscriminator::PGGANDiscriminator(nn::Module* parent, std::string name, Options options)
    : LayerWith(parent, std::move(name), std::move(options)) {
  build();
}

void PGGANDiscriminator::build() {
  const Options& o = options();
  check("PGGANDiscriminator", o);
  internal::check_count("PGGANDiscriminator", "group_size", o.group_size);
  conv_blocks_ = std::make_unique<nn::ModuleList<>>(this, "conv_blocks");
  fromrgb_layers_ = std::make_unique<nn::ModuleList<>>(this, "fromrgb_layers");
  const int64_t last = channels_at(o, 1), with_stddev = last + 1;
  for (int r = 2; r <= log2_of(o.size); ++r) {
    const int64_t in = channels_at(o, r - 1), out = channels_at(o, r - 2);
    fromrgb_layers_->add<ConvBlock>(ConvBlock::Options{.conv = same_size(o.channels, in, 1)});
    if (r == 2) {
      conv_blocks_->add<ConvBlock>(
          ConvBlock::Options{.conv = same_size(o.last_conv ? with_stddev : last, last, 3)});
    } else {
      conv_blocks_->add<ConvBlock>(ConvBlock::Options{.conv = same_size(in, in, 3)});
      conv_blocks_->add<DownBlock>(DownBlock::Options{.conv = {.in = in, .out = out}});
    }
  }
  minibatch_stddev_ = std::make_unique<nn::MinibatchStdDev>(
      this, "minibatch_stddev", nn::MinibatchStdDevOptions{.group_size = o.group_size});
  decision_ = std::make_unique<Decision>(this, "decision", 16 * (o.last_conv ? last : with_stddev),
                                         channels_at(o, 0), 1 + o.classes);
}

Tensor PGGANDiscriminator::forward(const Tensor& x) { return compute(x, {.size = options().size}); }
Tensor PGGANDiscriminator::operator()(const Tensor& x, Scale scale) {
  return call([&] { return compute(x, scale); });
}

// x [N, channels, size, size] -> scores [N, 1 + classes].
Tensor PGGANDiscriminator::compute(const Tensor& x, Scale scale) {
  internal::check_scale("PGGANDiscriminator", scale, options().size);
  internal::check_images("PGGANDiscriminator", x, options().channels, scale.size);
  const int first = log2_of(scale.size);
  Tensor h = (*fromrgb_layers_)[first - 2](x);
  for (int r = first; r > 2; --r) {
    h = (*conv_blocks_)[2 * r - 5](h);
    h = (*conv_blocks_)[2 * r - 4](h);
    if (r == first && scale.fade < 1) h = lerp((*fromrgb_layers_)[r - 3](avg_pool2d(x, 2)), h, scale.fade);
  }
  h = (*minibatch_stddev_)(h);
  if (options().last_conv) h = (*conv_blocks_)[0](h);
  return (*decision_)(h);
}

PGGANGeneratorOptions mmgen(PGGANGeneratorOptions o) {
  o.pixel_norm = {.eps = 1e-6, .eps_outside = true};
  o.up_fan = nn::init::FanMode::kFanOut;
  return o;
}
PGGANDiscriminatorOptions mmgen(PGGANDiscriminatorOptions o) {
  o.last_conv = false;
  return o;
}

}  // namespace gradus::models

template class gradus::nn::ModuleWith<gradus::models::PGGANGeneratorOptions, gradus::nn::Layer>;
template class gradus::nn::ModuleWith<gradus::models::PGGANDiscriminatorOptions, gradus::nn::Layer>;
