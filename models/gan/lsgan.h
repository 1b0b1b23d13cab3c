// LSGAN: a generator of 3x3 transposed convolutions and a discriminator of 5x5 convolutions, with batch norm,
// for images of 32x32 pixels or more. Trained with least-squares losses (train/gan/losses.h).
//
// Parameters and buffers have mmgeneration's names ("conv_blocks.0.conv.weight").
#pragma once

#include <memory>

#include "gradus/nn/nn.h"

namespace gradus::models {

struct LSGANGeneratorOptions {
  int64_t size = 128;     // height and width of the images in pixels: 32, 64, 128, ..., 65536
  int64_t channels = 3;   // channels of the images
  int64_t width = 256;    // channels up to size / 4 pixels; then width / 2 and width / 4; a multiple of 4
  int64_t latent = 1024;  // length of the latent vector z
};

// Returns images in [-1,1]. Initial weights of convolutions are Kaiming-normal by fan_out (He et al., ICCV 2015).
// Shapes: z [N,latent] or [N,latent,1,1] -> [N,channels,size,size].
// Errors: ValueError for options out of range; ShapeError for an input of another shape.
// Source: Mao et al., "Least squares generative adversarial networks", ICCV 2017; in the form of
// open-mmlab/mmgeneration, mmgen/models/architectures/lsgan.
class LSGANGenerator final : public nn::LayerWith<LSGANGeneratorOptions> {
 public:
  explicit LSGANGenerator(Options options) : LayerWith(std::move(options)) { build(); }
  LSGANGenerator(nn::Module* parent, std::string name, Options options)
      : LayerWith(parent, std::move(name), std::move(options)) {
    build();
  }

  Tensor forward(const Tensor& z) override;

 private:
  void build();
  nn::Sequential noise2feat_head_{this, "noise2feat_head"}, noise2feat_tail_{this, "noise2feat_tail"};
  nn::ModuleList<> conv_blocks_{this, "conv_blocks"};
};

struct LSGANDiscriminatorOptions {
  int64_t size = 128;    // height and width of the images in pixels: 32, 64, 128, ..., 65536
  int64_t channels = 3;  // channels of the images
  int64_t width =
      64;  // channels of the first layer; each of the log2(size / 8) layers has twice as many as the one before
};

// Returns scores without bounds; larger ones for images that are classified as real.
// Shapes: x [N,channels,size,size] -> [N,1].
// Errors, source: as LSGANGenerator.
class LSGANDiscriminator final : public nn::LayerWith<LSGANDiscriminatorOptions> {
 public:
  explicit LSGANDiscriminator(Options options) : LayerWith(std::move(options)) { build(); }
  LSGANDiscriminator(nn::Module* parent, std::string name, Options options)
      : LayerWith(parent, std::move(name), std::move(options)) {
    build();
  }

  Tensor forward(const Tensor& x) override;

 private:
  void build();
  nn::ModuleList<> conv_blocks_{this, "conv_blocks"};
  nn::Sequential decision_{this, "decision"};
};

}  // namespace gradus::models

extern template class gradus::nn::ModuleWith<gradus::models::LSGANGeneratorOptions, gradus::nn::Layer>;
extern template class gradus::nn::ModuleWith<gradus::models::LSGANDiscriminatorOptions, gradus::nn::Layer>;
