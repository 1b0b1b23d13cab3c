// DCGAN: a generator of transposed convolutions and a discriminator of strided convolutions, both with batch norm.
// All kernels are 4x4. The generator maps a latent vector to 4x4 pixels, and then doubles height and width per
// layer. The discriminator halves height and width per layer down to 4x4, and then has one 4x4 convolution
// without padding.
//
//   struct Gan : nn::Module {
//     models::DCGANGenerator gen{this, "gen", {.size = 32, .channels = 1}};
//     models::DCGANDiscriminator disc{this, "disc", {.size = 32, .channels = 1}};
//   };
//
// Parameters and buffers have the names of PyTorch's example ("main.0.weight").
#pragma once

#include "gradus/nn/nn.h"

namespace gradus::models {

struct DCGANGeneratorOptions {
  int64_t size = 64;     // height and width of the images in pixels: 8, 16, 32, ..., 65536
  int64_t channels = 3;  // channels of the images
  int64_t width = 64;    // channels of the last hidden layer; each preceding layer has twice as many
  int64_t latent = 100;  // length of the latent vector z
  int64_t classes = 0;   // number of classes of labels; 0: no labels
  bool bias = false;     // whether the last convolution has a bias; the others are followed by a norm
  nn::init::NormalOptions norm_weight = {.mean = 1, .stddev = 0.02};  // initial weights of the batch norms
};

// Returns images in [-1,1]. Initial weights of convolutions are from N(0, 0.02^2).
// Shapes: z [N,latent] or [N,latent,1,1], integer labels [N] -> [N,channels,size,size].
// Errors: ValueError for options out of range; StateError for labels without classes, and for classes without
// labels; IndexError for a label outside of [0, classes); ShapeError. Source: Radford et al., "Unsupervised
// representation learning with deep convolutional generative adversarial networks", ICLR 2016; pytorch/examples,
// dcgan/main.py.
class DCGANGenerator final : public nn::LayerWith<DCGANGeneratorOptions> {
 public:
  using LayerWith::LayerWith;
  nn::Sequential main{this, "main", layers(options())};

  Tensor forward(const Tensor& z) override;
  using Layer::operator();
  // Conditional generation: concatenates the labels' one-hot encoding to z.
  Tensor operator()(const Tensor& z, const Tensor& labels);

 private:
  static std::vector<nn::LayerFactory> layers(const DCGANGeneratorOptions& o);
};

struct DCGANDiscriminatorOptions {
  int64_t size = 64;            // height and width of the images in pixels: 8, 16, 32, ..., 65536
  int64_t channels = 3;         // channels of the images
  int64_t width = 64;           // channels of the first hidden layer; each following layer has twice as many
  int64_t outputs = 1;          // logits per image
  int64_t classes = 0;          // number of classes of labels; 0: no labels
  double negative_slope = 0.2;  // slope of the leaky ReLUs for negative inputs
  bool bias = false;  // whether the first and last convolution have a bias; the others are followed by a norm
  nn::init::NormalOptions norm_weight = {.mean = 1, .stddev = 0.02};  // initial weights of the batch norms
};

// Returns logits, without a sigmoid: larger for images that are classified as real.
// Shapes: x [N,channels,size,size], integer labels [N] -> [N,outputs].
// Errors, source: as DCGANGenerator.
class DCGANDiscriminator final : public nn::LayerWith<DCGANDiscriminatorOptions> {
 public:
  using LayerWith::LayerWith;
  nn::Sequential main{this, "main", layers(options())};

  Tensor forward(const Tensor& x) override;
  using Layer::operator();
  // Conditional discrimination: concatenates the labels' one-hot encoding to x's channels, as constant planes.
  Tensor operator()(const Tensor& x, const Tensor& labels);

 private:
  static std::vector<nn::LayerFactory> layers(const DCGANDiscriminatorOptions& o);
};

// Return the options with the values of mmgeneration's networks: biases, norm weights from N(0, 1), a negative
// slope of 0.01, 1024 channels in the generator's first layer, 128 in the discriminator's. The other options are
// unchanged. The generator's width depends on options.size. Source:
// open-mmlab/mmgeneration, mmgen/models/architectures/dcgan.
DCGANGeneratorOptions mmgen(DCGANGeneratorOptions options);
DCGANDiscriminatorOptions mmgen(DCGANDiscriminatorOptions options);

}  // namespace gradus::models

extern template class gradus::nn::ModuleWith<gradus::models::DCGANGeneratorOptions, gradus::nn::Layer>;
extern template class gradus::nn::ModuleWith<gradus::models::DCGANDiscriminatorOptions, gradus::nn::Layer>;
