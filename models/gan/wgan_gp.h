// WGAN-GP: networks for Wasserstein GANs with gradient penalty (train/gan/penalties.h). Images are
// channels-first, [N, C, H, W]; larger discriminator scores mean "real".
//
//   WGANGPGenerator, WGANGPDiscriminator              for 8x8 pixels or more, with norms in both
//   WGANGPSmallGenerator, WGANGPSmallDiscriminator    for 28x28 (MNIST) and 32x32 pixels
//
// Parameters and buffers of the first pair have mmgeneration's names ("conv_blocks.0.conv.weight").
#pragma once

#include <memory>

#include "gradus/nn/nn.h"

namespace gradus::models {

struct WGANGPGeneratorOptions {
  int64_t size = 128;    // height and width of the images: 8, 16, 32, ..., at most channel_base and 65536
  int64_t channels = 3;  // channels of the images
  int64_t latent = 128;
  int64_t channel_base = 4096;  // a layer for p x p pixels has min(channel_base / p, channel_max) channels
  int64_t channel_max = 512;
};

// Returns images in [-1,1].
// Shapes: z [N,latent] or [N,latent,1,1] -> [N,channels,size,size].
// Errors: ValueError for options out of range; ShapeError.
// Source: Gulrajani et al., "Improved training of Wasserstein GANs", NeurIPS 2017; Karras et al.,
// "Progressive growing of GANs", ICLR 2018, configuration (a); open-mmlab/mmgeneration,
// mmgen/models/architectures/wgan_gp.
class WGANGPGenerator final : public nn::LayerWith<WGANGPGeneratorOptions> {
 public:
  explicit WGANGPGenerator(Options options);
  WGANGPGenerator(nn::Module* parent, std::string name, Options options);

  Tensor forward(const Tensor& z) override;

 private:
  void build();
  std::unique_ptr<nn::Layer> noise2feat_;
  std::unique_ptr<nn::ModuleList<>> conv_blocks_;
  std::unique_ptr<nn::Layer> to_rgb_;
};

struct WGANGPDiscriminatorOptions {
  // Both norms are over a sample's channels and pixels: batch norm is incompatible with a penalty on the
  // gradient of each image.
  enum class Norm {
    kGroup,  // GroupNorm of one group: one weight per channel; module named "GN"
    kLayer,  // LayerNorm over [C, H, W]: one weight per channel and pixel; module named "LN2d"
  };
  int64_t size = 128;           // height and width of the images: as in WGANGPGeneratorOptions
  int64_t channels = 3;         // channels of the images
  int64_t channel_base = 4096;  // as in WGANGPGeneratorOptions
  int64_t channel_max = 512;
  Norm norm = Norm::kGroup;
};

// Returns scores without bounds; larger ones for images that are classified as real.
// Shapes: x [N,channels,size,size] -> [N,1].
// Errors, source: as WGANGPGenerator.
class WGANGPDiscriminator final : public nn::LayerWith<WGANGPDiscriminatorOptions> {
 public:
  explicit WGANGPDiscriminator(Options options);
  WGANGPDiscriminator(nn::Module* parent, std::string name, Options options);

  Tensor forward(const Tensor& x) override;

 private:
  void build();
  std::unique_ptr<nn::Layer> from_rgb_;
  std::unique_ptr<nn::ModuleList<>> conv_blocks_;
  std::unique_ptr<nn::Layer> decision_;
};

struct WGANGPSmallGeneratorOptions {
  int64_t size = 28;     // height and width of the images: 28 or 32
  int64_t channels = 1;  // channels of the images
  int64_t latent = 128;
  int64_t width = 64;       // channels of the last hidden layer; each preceding layer has twice as many
  bool batch_norm = false;  // batch norm before each ReLU
  bool sigmoid = true;      // true: images in [0,1] by sigmoid; false: in [-1,1] by tanh
};

// Shapes: z [N,latent] -> [N,channels,size,size].
// Errors: ValueError for options out of range; ShapeError.
// Source: igul222/improved_wgan_training, gan_mnist.py and gan_cifar.py. Transposed convolutions have a
// padding of 2 on all sides; TensorFlow's have 1 before and 2 after.
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
  int64_t size = 28;     // height and width of the images: 28 or 32
  int64_t channels = 1;  // channels of the images
  int64_t width = 64;    // channels of the first layer; each following layer has twice as many
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

// Returns the generator's options for CIFAR-10: 32x32 pixels, 3 channels, width 128, batch norm, tanh. The
// matching discriminator has the options {.size = 32, .channels = 3, .width = 128}.
WGANGPSmallGeneratorOptions wgan_gp_cifar();

}  // namespace gradus::models

extern template class gradus::nn::ModuleWith<gradus::models::WGANGPGeneratorOptions, gradus::nn::Layer>;
extern template class gradus::nn::ModuleWith<gradus::models::WGANGPDiscriminatorOptions, gradus::nn::Layer>;
extern template class gradus::nn::ModuleWith<gradus::models::WGANGPSmallGeneratorOptions, gradus::nn::Layer>;
extern template class gradus::nn::ModuleWith<gradus::models::WGANGPSmallDiscriminatorOptions,
                                             gradus::nn::Layer>;
