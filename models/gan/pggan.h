// PGGAN: networks that grow. Training begins with images of 4x4 pixels. Blocks for twice the size fade in one
// after the other (train/gan/growth.h).
//
//   models::PGGANGenerator gen{this, "gen", {.size = 32, .channel_base = 512}};
//   models::PGGANDiscriminator disc{this, "disc", {.size = 32, .channel_base = 512}};
//   ...
//   const models::Scale scale = {.size = 16, .fade = 0.25};  // a quarter of the way from 8x8 to 16x16
//   disc(gen(z, scale), scale);
//
// All blocks exist from the start. Those of larger sizes than the current one are not computed, and get no
// gradient. Parameters have mmgeneration's names ("conv_blocks.0.conv.weight_orig").
#pragma once

#include <memory>

#include "gradus/nn/nn.h"

namespace gradus::models {

// How far a network has grown.
struct Scale {
  int64_t size;     // of the images: 4, 8, 16, ...
  double fade = 1;  // share of the newest blocks' result in [0,1]; the rest is that of half the size
};

struct PGGANGeneratorOptions {
  int64_t size = 1024;   // of the largest images: 4, 8, 16, ...
  int64_t channels = 3;  // of the images
  int64_t latent = 512;
  int64_t classes = 0;  // 0: no labels
  // Blocks for 2^r by 2^r pixels have min(channel_base / 2^(channel_decay (r - 1)), channel_max) channels.
  int64_t channel_base = 8192;
  double channel_decay = 1;
  int64_t channel_max = 512;
  nn::PixelNormOptions pixel_norm = {};
  nn::init::FanMode up_fan = nn::init::FanMode::kFanIn;  // by which convolutions that upsample are scaled
};

// Returns images, which are not bounded. Each z is normalized. All layers' learning rates are equalized.
// Shapes: z [N,latent], labels [N] -> [N,channels,scale.size,scale.size].
// Errors: ValueError for options or a scale outside of their domain; StateError for labels without classes,
// and classes without labels; IndexError for a label that is no class; ShapeError.
// Source: Karras et al., "Progressive growing of GANs", ICLR 2018.
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
  // The label's class is told by ones and zeros behind z.
  Tensor operator()(const Tensor& z, const Tensor& labels, Scale scale);

 private:
  void build();
  Tensor compute(const Tensor& vectors, Scale scale);

  std::unique_ptr<nn::Layer> noise2feat_;
  std::unique_ptr<nn::ModuleList<>> torgb_layers_, conv_blocks_;
};

struct PGGANDiscriminatorOptions {
  int64_t size = 1024;          // of the largest images: 4, 8, 16, ...
  int64_t channels = 3;         // of the images
  int64_t classes = 0;          // scores of as many classes follow that of being real
  int64_t channel_base = 8192;  // as in PGGANGeneratorOptions
  double channel_decay = 1;
  int64_t channel_max = 512;
  int64_t group_size = 4;  // of the minibatch standard deviation
  bool last_conv = true;   // a convolution for 4x4 pixels; false: it exists, but is not computed
};

// Returns scores without bounds: the larger, the more real the image seems.
// Shapes: x [N,channels,scale.size,scale.size] -> [N,1+classes]; N as MinibatchStdDev takes it.
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

// Return the options of mmgeneration's networks: another pixel norm, convolutions that upsample scaled by
// their number of outputs, no convolution for 4x4 pixels in the discriminator.
// Source: open-mmlab/mmgeneration, mmgen/models/architectures/pggan.
PGGANGeneratorOptions mmgen(PGGANGeneratorOptions options);
PGGANDiscriminatorOptions mmgen(PGGANDiscriminatorOptions options);

}  // namespace gradus::models
