// R3GAN: residual networks without normalization, for the relativistic loss with R1 and R2 penalties.
//
//   const std::vector<int64_t> widths = {96, 96, 64, 32};  // for 4x4, 8x8, 16x16 and 32x32 pixels
//   models::R3GANGenerator gen{this, "gen", {.widths = widths}};
//   models::R3GANDiscriminator disc{this, "disc", {.widths = widths}};
//   ...
//   const Tensor real_scores = disc(real), fake_scores = disc(fake);
//   gm_d.backward(gan::relativistic_d(real_scores, fake_scores) +
//                 gamma / 2 * (gan::r1(disc, real) + gan::r2(disc, fake)));
//
// Parameters have the names of the paper's code ("MainLayers.0.Layers.1.LinearLayer1.Layer.weight"); its constant
// buffers "Resampler.Kernel" do not exist here.
#pragma once

#include <memory>
#include <vector>

#include "gradus/nn/nn.h"

namespace gradus::models {

struct R3GANGeneratorOptions {
  std::vector<int64_t> widths = {768, 768, 768,
                                 768};  // channels at 4x4, 8x8, ... pixels, up to the images' size
  int64_t channels = 3;                 // channels of the images
  int64_t latent = 64;                  // length of the latent vector z
  int64_t classes = 0;                  // number of classes of labels; 0: no labels
  int64_t blocks = 2;                   // residual blocks per size
  int64_t expansion = 2;                // hidden channels of a block, as a multiple of its channels
  int64_t group_width =
      16;  // channels per group of the grouped convolution; a divisor of the hidden channels
};

// Returns images of unbounded values. Residual block: x + conv1x1(f(conv3x3(f(conv1x1(x))))) with a grouped 3x3
// convolution and f(x) = leaky_relu(x + bias, 0.2); the last convolution is initially 0. The features at 4x4 pixels
// are a learned basis [widths[0],4,4] times a linear function of z, to which an embedding [latent] of the label is
// appended. Upsampling by 2 is bilinear.
// Shapes: z [N,latent] or [N,latent,1,1], integer labels [N] -> [N,channels,S,S], S = 2 * 2^(number of widths).
// Errors: ValueError for options out of range; StateError for labels without classes, and for classes without
// labels; IndexError for a label outside of [0, classes); ShapeError for an input of another shape.
// Source: Huang et al., "The GAN is dead; long live the GAN! A modern baseline GAN", NeurIPS 2024.
class R3GANGenerator final : public nn::LayerWith<R3GANGeneratorOptions> {
 public:
  explicit R3GANGenerator(Options options = {});
  R3GANGenerator(nn::Module* parent, std::string name, Options options = {});

  Tensor forward(const Tensor& z) override;
  using Layer::operator();
  Tensor operator()(const Tensor& z, const Tensor& labels);

 private:
  void build();
  Tensor compute(const Tensor& vectors);
  std::unique_ptr<nn::ModuleList<>> main_layers_;
  std::unique_ptr<nn::Layer> aggregation_layer_;
  std::unique_ptr<nn::Linear> embedding_layer_;  // null without classes
};

struct R3GANDiscriminatorOptions {
  std::vector<int64_t> widths = {768, 768, 768, 768};  // as in R3GANGeneratorOptions: from 4x4 pixels upward
  int64_t channels = 3;
  int64_t classes = 0;
  int64_t blocks = 2;
  int64_t expansion = 2;
  int64_t group_width = 16;
};

// Returns scores without bounds; larger ones for images that are classified as real. The blocks are the generator's
// in reverse order. Without classes the last layer gives the score; with classes, features [N,widths[0]], whose
// product with an embedding of the label is the score.
// Shapes: x [N,channels,S,S], integer labels [N] -> [N,1].
// Errors, source: as R3GANGenerator.
class R3GANDiscriminator final : public nn::LayerWith<R3GANDiscriminatorOptions> {
 public:
  explicit R3GANDiscriminator(Options options = {});
  R3GANDiscriminator(nn::Module* parent, std::string name, Options options = {});

  Tensor forward(const Tensor& x) override;
  using Layer::operator();
  Tensor operator()(const Tensor& x, const Tensor& labels);

 private:
  void build();
  Tensor compute(const Tensor& x);
  std::unique_ptr<nn::Layer> extraction_layer_;
  std::unique_ptr<nn::ModuleList<>> main_layers_;
  std::unique_ptr<nn::Linear> embedding_layer_;  // null without classes
};

}  // namespace gradus::models

extern template class gradus::nn::ModuleWith<gradus::models::R3GANGeneratorOptions, gradus::nn::Layer>;
extern template class gradus::nn::ModuleWith<gradus::models::R3GANDiscriminatorOptions, gradus::nn::Layer>;
