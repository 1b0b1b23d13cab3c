// DCGAN: a generator of transposed convolutions and a discriminator of convolutions, with batch norm.
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
  int64_t size = 64;     // of the images: 8, 16, 32, ...
  int64_t channels = 3;  // of the images
  int64_t width = 64;    // channels of the last hidden layer; each layer before has twice as many
  int64_t latent = 100;
  int64_t classes = 0;  // 0: no labels
  bool bias = false;    // of the last convolution, which no norm follows
  nn::init::NormalOptions norm_weight = {.mean = 1, .stddev = 0.02};  // how the norms' weights start
};

// Returns images in [-1,1]. Weights of convolutions start as N(0, 0.02).
// Shapes: z [N,latent] or [N,latent,1,1], labels [N] -> [N,channels,size,size].
// Errors: ValueError for options outside of their domain; StateError for labels without classes, and classes
// without labels; IndexError for a label that is no class; ShapeError.
// Source: Radford et al., "Unsupervised representation learning with deep convolutional generative
// adversarial networks", ICLR 2016; pytorch/examples, dcgan/main.py.
class DCGANGenerator final : public nn::LayerWith<DCGANGeneratorOptions> {
 public:
  using LayerWith::LayerWith;
  nn::Sequential main{this, "main", layers(options())};

  Tensor forward(const Tensor& z) override;
  using Layer::operator();
  // The label's class is told by ones and zeros behind z.
  Tensor operator()(const Tensor& z, const Tensor& labels);

 private:
  static std::vector<nn::LayerFactory> layers(const DCGANGeneratorOptions& o);
};

struct DCGANDiscriminatorOptions {
  int64_t size = 64;     // of the images: 8, 16, 32, ...
  int64_t channels = 3;  // of the images
  int64_t width = 64;    // channels of the first hidden layer; each layer behind has twice as many
  int64_t outputs = 1;
  int64_t classes = 0;  // 0: no labels
  double negative_slope = 0.2;
  bool bias = false;  // of the first and the last convolution, which no norm follows
  nn::init::NormalOptions norm_weight = {.mean = 1, .stddev = 0.02};
};

// Returns logits: the larger, the more real the image seems.
// Shapes: x [N,channels,size,size], labels [N] -> [N,outputs].
// Errors, source: as DCGANGenerator.
class DCGANDiscriminator final : public nn::LayerWith<DCGANDiscriminatorOptions> {
 public:
  using LayerWith::LayerWith;
  nn::Sequential main{this, "main", layers(options())};

  Tensor forward(const Tensor& x) override;
  using Layer::operator();
  // The label's class is told by planes of ones and zeros behind x's channels.
  Tensor operator()(const Tensor& x, const Tensor& labels);

 private:
  static std::vector<nn::LayerFactory> layers(const DCGANDiscriminatorOptions& o);
};

// Return the options of mmgeneration's networks: biases, other initial norms, a slope of 0.01, 1024 channels
// in the generator's first layer, 128 in the discriminator's.
// Source: open-mmlab/mmgeneration, mmgen/models/architectures/dcgan.
DCGANGeneratorOptions mmgen(DCGANGeneratorOptions options);
DCGANDiscriminatorOptions mmgen(DCGANDiscriminatorOptions options);

}  // namespace gradus::models
