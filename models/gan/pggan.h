// PGGAN: progressive growing of GANs. Training begins with images of 4x4 pixels; blocks for twice the resolution
// are faded in one after the other (train/gan/growth.h).
//
//   models::PGGANGenerator gen{this, "gen", {.size = 32, .channel_base = 512}};
//   models::PGGANDiscriminator disc{this, "disc", {.size = 32, .channel_base = 512}};
//   ...
//   const models::Scale scale = {.size = 16, .fade = 0.25};  // a quarter of the way from 8x8 to 16x16
//   disc(gen(z, scale), scale);
//
// All blocks are constructed at the start. Blocks for larger resolutions than the current one are not computed
// and get no gradient. Parameters have mmgeneration's names ("conv_blocks.0.conv.weight_orig").
#pragma once

#include <memory>

#include "gradus/nn/nn.h"

namespace gradus::models {

// The resolution of a call during progressive growing.
struct Scale {
  int64_t size;     // height and width of the images: 4, 8, 16, ...
  double fade = 1;  // weight in [0,1] of this size's blocks; 1 - fade: of the image of half the size
};

struct PGGANGeneratorOptions {
  int64_t size = 1024;   // height and width of the largest images: 4, 8, 16, ...
  int64_t channels = 3;  // channels of the images
  int64_t latent = 512;
  int64_t classes = 0;  // number of classes of labels; 0: no labels
  // Blocks for 2^r x 2^r pixels have min(channel_base / 2^(channel_decay (r - 1)), channel_max) channels.
  int64_t channel_base = 8192;
  double channel_decay = 1;
  int64_t channel_max = 512;
  nn::PixelNormOptions pixel_norm = {};
  nn::init::FanMode up_fan = nn::init::FanMode::kFanIn;  // fan that scales upsampling convolutions
};

// Returns images without bounds on the values. Normalizes each z by a pixel norm. All layers have equalized
// learning rates.
// Shapes: z [N,latent], labels [N] -> [N,channels,scale.size,scale.size].
// Errors: ValueError for options or a scale out of range; StateError for labels without classes, and for classes
// without labels; IndexError for a label outside of [0, classes); ShapeError. Source: Karras et al.,
// "Progressive growing of GANs", ICLR 2018.
class PGGANGenerator final : public nn::LayerWith<PGGANGeneratorOptions> {
 public:
  explicit PGGANGenerator(Options options) : LayerWith(std::move(options)) { build(); }
  PGGANGenerator(nn::Module* parent, std::string name, Options options)
      : LayerWith(parent, std::move(name), std::move(options)) {
    build();
  }

  // At the largest size.
  Tensor forward(const Tensor& z) override;
  using Layer::operator();
  Tensor operator()(const Tensor& z, Scale scale);
  // Conditional generation: concatenates the labels' one-hot encoding to z.
  Tensor operator()(const Tensor& z, const Tensor& labels, Scale scale);

 private:
  void build();
  Tensor compute(const Tensor& vectors, Scale scale);

  std::unique_ptr<nn::Layer> noise2feat_;
  std::unique_ptr<nn::ModuleList<>> torgb_layers_, conv_blocks_;
};

struct PGGANDiscriminatorOptions {
  int64_t size = 1024;          // height and width of the largest images: 4, 8, 16, ...
  int64_t channels = 3;         // channels of the images
  int64_t classes = 0;          // number of class scores, which follow the real/fake score
  int64_t channel_base = 8192;  // as in PGGANGeneratorOptions
  double channel_decay = 1;
  int64_t channel_max = 512;
  int64_t group_size = 4;  // MinibatchStdDevOptions::group_size
  bool last_conv = true;   // applies a convolution to 4x4 pixels; false: has it, but skips it
};

// Returns scores without bounds; larger first scores for images that are classified as real.
// Shapes: x [N,channels,scale.size,scale.size] -> [N,1+classes]; N at most or a multiple of group_size.
// Errors, source: as PGGANGenerator.
class PGGANDiscriminator final : public nn::LayerWith<PGGANDiscriminatorOptions> {
 public:
  explicit PGGANDiscriminator(Options options) : LayerWith(std::move(options)) { build(); }
  PGGANDiscriminator(nn::Module* parent, std::string name, Options options)
      : LayerWith(parent, std::move(name), std::move(options)) {
    build();
  }

  // At the largest size.
  Tensor forward(const Tensor& x) override;
  using Layer::operator();
  Tensor operator()(const Tensor& x, Scale scale);

 private:
  void build();
  Tensor compute(const Tensor& x, Scale scale);

  std::unique_ptr<nn::ModuleList<>> conv_blocks_, fromrgb_layers_;
  std::unique_ptr<nn::MinibatchStdDev> minibatch_stddev_;
  std::unique_ptr<nn::Layer> decision_;
};

// Return the options with the values of mmgeneration's networks: eps of the pixel norm outside of the root,
// fan_out for upsampling convolutions, and no convolution on 4x4 pixels in the discriminator. Source:
// open-mmlab/mmgeneration, mmgen/models/architectures/pggan.
PGGANGeneratorOptions mmgen(PGGANGeneratorOptions options);
PGGANDiscriminatorOptions mmgen(PGGANDiscriminatorOptions options);

}  // namespace gradus::models

extern template class gradus::nn::ModuleWith<gradus::models::PGGANGeneratorOptions, gradus::nn::Layer>;
extern template class gradus::nn::ModuleWith<gradus::models::PGGANDiscriminatorOptions, gradus::nn::Layer>;
