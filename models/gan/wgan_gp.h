// WGAN-GP: the networks that are trained with a gradient penalty (train/gan/penalties.h).
//
//   WGANGPGenerator, WGANGPDiscriminator              for 8 to 1024 pixels, with norms in both
//   WGANGPSmallGenerator, WGANGPSmallDiscriminator    for MNIST's 28 pixels and for 32
//
// Parameters and buffers of the first pair have mmgeneration's names ("conv_blocks.0.conv.weight").
#pragma once

#include <memory>

#include "gradus/nn/nn.h"

namespace gradus::models {

struct WGANGPGeneratorOptions {
  int64_t size = 128;    // of the images: 8, 16, 32, ...
  int64_t channels = 3;  // of the images
  int64_t latent = 128;
  int64_t channel_base = 4096;  // a layer for p by p pixels has min(channel_base / p, channel_max) channels
  int64_t channel_max = 512;
};

// Returns images in [-1,1].
// Shapes: z [N,latent] -> [N,channels,size,size].
// Errors: ValueError for options outside of their domain; ShapeError.
// Source: Gulrajani et al., "Improved training of Wasserstein GANs", NeurIPS 2017; Karras et al.,
// "Progressive growing of GANs", ICLR 2018, configuration (a); open-mmlab/mmgeneration,
// mmgen/models/architectures/wgan_gp.
class WGANGPGenerator final : public nn::LayerWith<WGANGPGeneratorOptions> {
 public:
  explicit WGANGPGenerator(Options options) : LayerWith(std::move(options)) { build(); }
  WGANGPGenerator(nn::Module* parent, std::string name, Options options)
      : LayerWith(parent, std::move(name), std::move(options)) {
    build();
  }

  Tensor forward(const Tensor& z) override;

 private:
  void build();

  std::unique_ptr<nn::Layer> noise2feat_;
  std::unique_ptr<nn::ModuleList<>> conv_blocks_;
  std::unique_ptr<nn::Layer> to_rgb_;
};

struct WGANGPDiscriminatorOptions {
  // A penalty on the gradient of each image is at odds with a norm over the batch: there is none.
  enum class Norm {
    kGroup,  // one group: over a sample's channels and pixels, one weight for a channel; "GN"
    kLayer,  // the same, one weight for each channel and pixel; "LN2d"
  };
  int64_t size = 128;           // of the images: 8, 16, 32, ...
  int64_t channels = 3;         // of the images
  int64_t channel_base = 4096;  // as in WGANGPGeneratorOptions
  int64_t channel_max = 512;
  Norm norm = Norm::kGroup;
};

// Returns scores without bounds: the larger, the more real the image seems.
// Shapes: x [N,channels,size,size] -> [N,1].
// Errors, source: as WGANGPGenerator.
class WGANGPDiscriminator final : public nn::LayerWith<WGANGPDiscriminatorOptions> {
 public:
  explicit WGANGPDiscriminator(Options options) : LayerWith(std::move(options)) { build(); }
  WGANGPDiscriminator(nn::Module* parent, std::string name, Options options)
      : LayerWith(parent, std::move(name), std::move(options)) {
    build();
  }

  Tensor forward(const Tensor& x) override;

 private:
  void build();

  std::unique_ptr<nn::Layer> from_rgb_;
  std::unique_ptr<nn::ModuleList<>> conv_blocks_;
  std::unique_ptr<nn::Layer> decision_;
};

struct WGANGPSmallGeneratorOptions {
  int64_t size = 28;     // of the images: 28 or 32
  int64_t channels = 1;  // of the images
  int64_t latent = 128;
  int64_t width = 64;       // channels of the last hidden layer; each layer before has twice as many
  bool batch_norm = false;  // before each rectifier
  bool sigmoid = true;      // images in [0,1]; else by tanh in [-1,1]
};

// Shapes: z [N,latent] -> [N,channels,size,size].
// Errors: ValueError for options outside of their domain; ShapeError.
// Source: igul222/improved_wgan_training, gan_mnist.py and gan_cifar.py. Transposed convolutions are padded
// by 2 on all sides; TensorFlow pads by 1 before and 2 behind.
class WGANGPSmallGenerator final : public nn::LayerWith<WGANGPSmallGeneratorOptions> {
 public:
  explicit WGANGPSmallGenerator(Options options = {}) : LayerWith(std::move(options)) { build(); }
  WGANGPSmallGenerator(nn::Module* parent, std::string name, Options options = {})
      : LayerWith(parent, std::move(name), std::move(options)) {
    build();
  }

  Tensor forward(const Tensor& z) override;

 private:
  void build();

  nn::Sequential input_{this, "input"}, deconv1_{this, "deconv1"}, deconv2_{this, "deconv2"},
      deconv3_{this, "deconv3"};
};

struct WGANGPSmallDiscriminatorOptions {
  int64_t size = 28;     // of the images: 28 or 32
  int64_t channels = 1;  // of the images
  int64_t width = 64;    // channels of the first layer; each layer behind has twice as many
};

// Shapes: x [N,channels,size,size] -> [N,1].
// Errors, source: as WGANGPSmallGenerator.
class WGANGPSmallDiscriminator final : public nn::LayerWith<WGANGPSmallDiscriminatorOptions> {
 public:
  explicit WGANGPSmallDiscriminator(Options options = {}) : LayerWith(std::move(options)) { build(); }
  WGANGPSmallDiscriminator(nn::Module* parent, std::string name, Options options = {})
      : LayerWith(parent, std::move(name), std::move(options)) {
    build();
  }

  Tensor forward(const Tensor& x) override;

 private:
  void build();

  nn::Sequential main_{this, "main"};
};

// The generator's options for CIFAR-10: 32 pixels, three channels, twice the width, batch norm, tanh. The
// discriminator's: {.size = 32, .channels = 3, .width = 128}.
WGANGPSmallGeneratorOptions wgan_gp_cifar();

}  // namespace gradus::models
