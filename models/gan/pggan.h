// PGGAN: progressive growing of GANs. Training begins with images of 4x4 pixels; blocks for twice the resolution
// are faded in one after the other (train/gan/growth.h).
//
//   models::PGGANGenerator gen{this, "gen", {.size = 32, .channel_base = 512}};
//   models::PGGANDiscriminator disc{this, "disc", {.size = 32, .channel_base = 512}};
//   ...
//   const models::Scale scale = {.size = 16, .fade = 0.25};  // 0.75 of the 8x8 path, 0.25 of the 16x16 path
//   disc(gen(z, scale), scale);
//
// Constructors make the blocks of all resolutions. Blocks for larger resolutions than that of a call are not
// computed and get no gradient. Parameters have mmgeneration's names ("conv_blocks.0.conv.weight_orig").
#pragma once

#include <memory>

#include "gradus/nn/nn.h"

namespace gradus::models {

// The resolution of a call during progressive growing.
struct Scale {
  int64_t size;     // height and width of the images: 4, 8, 16, ..., options().size
  double fade = 1;  // weight in [0,1] of this size's blocks; 1 - fade: weight of the path of half the size
};

struct PGGANGeneratorOptions {
  int64_t size = 1024;   // height and width of the largest images: 4, 8, 16, ...
  int64_t channels = 3;  // channels of the images
  int64_t latent = 512;  // length of the latent vector z
  int64_t classes = 0;   // number of classes of labels; 0: no labels
  // Blocks for 2^r x 2^r pixels have min(channel_base / 2^(channel_decay (r - 1)), channel_max) channels.
  int64_t channel_base = 8192;
  double channel_decay = 1;
  int64_t channel_max = 512;
  nn::PixelNormOptions pixel_norm = {};
  // Which fan the weights of upsampling convolutions are scaled by: gain / sqrt(fan) (equalized learning
  // rate).
  nn::init::FanMode up_fan = nn::init::FanMode::kFanIn;
};

// Returns images of unbounded values. Applies a pixel norm to z. All layers have equalized learning rates.
// Shapes: z [N,latent] or [N,latent,1,1], integer labels [N] -> [N,channels,scale.size,scale.size].
// Errors: ValueError for options or a scale out of range; StateError for labels without classes, and for classes
// without labels; IndexError for a label outside of [0, classes); ShapeError for an input of another shape.
// Source: Karras et al., "Progressive growing of GANs", ICLR 2018.
class PGGANGenerator final : public nn::LayerWith<PGGANGeneratorOptions> {
 public:
  explicit PGGANGenerator(Options options);
  PGGANGenerator(nn::Module* parent, std::string name, Options options);

  Tensor forward(const Tensor& z) override;  // images of the largest size
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
  int64_t classes = 0;          // number of class scores, which follow the real/fake score; 0: none
  int64_t channel_base = 8192;  // as in PGGANGeneratorOptions
  double channel_decay = 1;
  int64_t channel_max = 512;
  int64_t group_size = 4;  // samples whose standard deviation is a feature (nn::MinibatchStdDev)
  bool last_conv = true;   // false: skips the convolution on 4x4 pixels, whose parameters exist anyway
};

// Returns scores without bounds; larger first scores for images that are classified as real.
// Shapes: x [N,channels,scale.size,scale.size] -> [N,1+classes]; N at most or a multiple of group_size.
// Errors, source: as PGGANGenerator.
class PGGANDiscriminator final : public nn::LayerWith<PGGANDiscriminatorOptions> {
 public:
  explicit PGGANDiscriminator(Options options);
  PGGANDiscriminator(nn::Module* parent, std::string name, Options options);

  Tensor forward(const Tensor& x) override;  // for images of the largest size
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
// fan_out for upsampling convolutions, no convolution on 4x4 pixels in the discriminator. Other options stay.
// Source: open-mmlab/mmgeneration, mmgen/models/architectures/pggan.
PGGANGeneratorOptions mmgen(PGGANGeneratorOptions options);
PGGANDiscriminatorOptions mmgen(PGGANDiscriminatorOptions options);

}  // namespace gradus::models

extern template class gradus::nn::ModuleWith<gradus::models::PGGANGeneratorOptions, gradus::nn::Layer>;
extern template class gradus::nn::ModuleWith<gradus::models::PGGANDiscriminatorOptions, gradus::nn::Layer>;
