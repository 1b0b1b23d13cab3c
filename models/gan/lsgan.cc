// LSGAN's networks, built from options, with mmgeneration's layers and names of parameters.
// Generator: z [N, latent] -> linear -> [N, width, 8, 8] -> transposed 3x3 convolutions, each stride-2 one
// doubling the size -> [N, channels, size, size] -> tanh. Discriminator: 5x5 convolutions with stride 2 down
// to 8x8, each doubling the channels, with leaky ReLU -> linear -> [N, 1], without sigmoid.
#include "gradus/models/gan/lsgan.h"

#include "gradus/models/gan/internal/conv_block.h"
#include "gradus/models/gan/internal/options.h"

namespace gradus::models {

using internal::ConvBlock;

void LSGANGenerator::build() {
  const Options& o = options();
  internal::check_image_size("LSGANGenerator", o.size, 32);
  internal::check_count("LSGANGenerator", "channels", o.channels);
  internal::check_count("LSGANGenerator", "latent", o.latent);
  internal::check_count("LSGANGenerator", "width", o.width, 4);
  if (o.width % 4 != 0) throw ValueError("LSGANGenerator", "expected a width divisible by 4, got ", o.width);
  noise2feat_head_.add<nn::Linear>({.in = o.latent, .out = 8 * 8 * o.width});
  noise2feat_tail_.add<nn::BatchNorm2d>({.features = o.width});
  noise2feat_tail_.add<nn::ReLU>();
  int64_t in = o.width;
  // Adds a transposed convolution with batch norm and ReLU. `doubles`: stride 2 doubles height and width.
  const auto add = [&](int64_t out, bool doubles) {
    const nn::ConvTranspose2dOptions conv = {.in = in,
                                             .out = out,
                                             .kernel = 3,
                                             .stride = doubles ? 2 : 1,
                                             .padding = 1,
                                             .output_padding = doubles ? 1 : 0,
                                             .bias = false};
    conv_blocks_.add<ConvBlock>(
        internal::ConvBlockOptions{.conv = internal::kaiming<nn::ConvTranspose2d>(conv, 0),
                                   .norm_name = "bn",
                                   .norm = nn::layer<nn::BatchNorm2d>({.features = out})});
    in = out;
  };
  // From 8x8, the loop doubles log2(o.size / 32) times, and the two calls after the loop twice.
  for (int64_t size = 32; size < o.size; size *= 2) {
    add(o.width, true);
    add(o.width, false);
  }
  add(o.width / 2, true);
  add(o.width / 4, true);
  conv_blocks_.add<ConvBlock>(internal::ConvBlockOptions{
      .conv =
          internal::kaiming<nn::ConvTranspose2d>({.in = in, .out = o.channels, .kernel = 3, .padding = 1}, 0),
      .slope = {}});  // no activation: forward applies tanh
}

Tensor LSGANGenerator::forward(const Tensor& z) {
  const Tensor h = noise2feat_head_(internal::latent_vectors("LSGANGenerator", z, options().latent));
  Tensor x = noise2feat_tail_(reshape(h, {z.size(0), options().width, 8, 8}));
  for (auto& block : conv_blocks_) x = block(x);
  return tanh(x);
}

void LSGANDiscriminator::build() {
  const Options& o = options();
  internal::check_image_size("LSGANDiscriminator", o.size, 32);
  internal::check_count("LSGANDiscriminator", "channels", o.channels);
  internal::check_count("LSGANDiscriminator", "width", o.width);
  int64_t in = o.channels, out = o.width;
  for (int64_t size = o.size; size > 8; size /= 2, in = out, out *= 2) {
    const bool first = size == o.size;
    internal::ConvBlockOptions block = {
        .conv = internal::kaiming<nn::Conv2d>(
            {.in = in, .out = out, .kernel = 5, .stride = 2, .padding = 2, .bias = first}, 0.2),
        .slope = 0.2};
    if (!first) {
      block.norm_name = "bn";
      block.norm = nn::layer<nn::BatchNorm2d>({.features = out});
    }
    conv_blocks_.add<ConvBlock>(block);
  }
  decision_.add<nn::Linear>({.in = 8 * 8 * in, .out = 1});
}

Tensor LSGANDiscriminator::forward(const Tensor& x) {
  internal::check_images("LSGANDiscriminator", x, options().channels, options().size);
  Tensor h = x;
  for (auto& block : conv_blocks_) h = block(h);
  return decision_(flatten(h, 1));
}

}  // namespace gradus::models

template class gradus::nn::ModuleWith<gradus::models::LSGANGeneratorOptions, gradus::nn::Layer>;
template class gradus::nn::ModuleWith<gradus::models::LSGANDiscriminatorOptions, gradus::nn::Layer>;
