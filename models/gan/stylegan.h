// StyleGAN (the first version): a mapping network turns latent vectors into styles w, and a synthesis network,
// which grows as PGGAN's, normalizes the features of each of its layers in the style of one w and adds noise.
//
//   models::StyleGANGenerator gen{this, "gen", {.size = 32, .channel_base = 512}};
//   models::StyleGANDiscriminator disc{this, "disc", {.size = 32, .channel_base = 512}};
//   ...
//   const models::Scale scale = {.size = 16, .fade = 0.25};
//   const Tensor ws = gen.mapping(z);           // [N,num_ws,style]: one style for each layer of the synthesis
//   disc(gen.synthesis(ws, scale), scale);      // gen(z, scale) does both
//   gen.update_w_avg(ws);                       // in training
//   gen.synthesis(gen.mapping(z, {.truncation = 0.7}), scale, {.mode = nn::NoiseMode::kFixed});  // typical images
//
// Parameters have mmgeneration's names ("convs.1.conv2.conv.weight_orig").
#pragma once

#include <memory>
#include <numbers>
#include <optional>
#include <vector>

#include "gradus/models/gan/pggan.h"
#include "gradus/models/gan/styles.h"

namespace gradus::models {
namespace internal {
struct StyleBlock;
}

struct StyleGANGeneratorOptions {
  int64_t size = 1024;         // height and width of the largest images: 4, 8, 16, ...
  int64_t channels = 3;        // channels of the images
  int64_t latent = 512;        // length of the latent vector z
  int64_t style = 512;         // length of a style w, and of the mapping's hidden vectors
  int64_t mapping_layers = 8;  // linear layers of the mapping
  // Blocks for 2^r x 2^r pixels have min(channel_base / 2^(r - 1), channel_max) channels.
  int64_t channel_base = 8192;
  int64_t channel_max = 512;

  nn::PixelNormOptions pixel_norm = {};       // of z
  double mapping_gain = std::numbers::sqrt2;  // gain of the mapping's equalized learning rates
  // false: the constant, which is the input of the synthesis, starts as ones and has a bias; true: it starts as
  // normal numbers, without a bias.
  bool random_constant = false;
  bool noise_per_channel = true;  // false: one strength of the noise for all channels of a layer
  // false: after the convolution of an upsampling layer come blur, noise, bias, leaky ReLU; true: bias, leaky
  // ReLU, blur, noise, leaky ReLU.
  bool activate_before_blur = false;
  // Options of nn::AdaptiveInstanceNorm.
  double norm_eps = 1e-8;
  double norm_gain = 1;
  bool norm_add_one = true;
  double rgb_gain = 1;  // gain of the equalized learning rates of the layers that make images
  // Weight of the old average in update_w_avg. With 0 the average is that of the last call.
  double w_avg_decay = 0.995;
  std::optional<int64_t> truncation_cutoff = 8;  // Truncation::cutoff by default; nullopt: all styles
};

// Returns images of unbounded values. Applies a pixel norm to z. All layers have equalized learning rates; the
// mapping's is multiplied by 0.01. Buffers: w_avg [style], initially 0, and injected_noise_<k> [1,1,H,W], the fixed
// noise of layer k, initially normal.
// Shapes: z [N,latent] or [N,latent,1,1] -> [N,channels,scale.size,scale.size].
// Errors: ValueError for options or a scale out of range; ShapeError for an input of another shape.
// Source: Karras et al., "A style-based generator architecture for GANs", CVPR 2019.
class StyleGANGenerator final : public nn::LayerWith<StyleGANGeneratorOptions> {
 public:
  explicit StyleGANGenerator(Options options);
  StyleGANGenerator(nn::Module* parent, std::string name, Options options);
  ~StyleGANGenerator() override;

  Tensor forward(const Tensor& z) override;  // images of the largest size, with random noise
  using Layer::operator();
  Tensor operator()(const Tensor& z, Scale scale);  // with random noise

  // Returns styles, the same for all layers. Style i is that of layer i of the synthesis, which has two layers for
  // each size from 4 on.
  // Shapes: z [N,latent] or [N,latent,1,1] -> ws [N,num_ws(),style].
  Tensor mapping(const Tensor& z, const Truncation& truncation = {});
  // Shapes: ws [N,num_ws(),style] -> [N,channels,scale.size,scale.size].
  Tensor synthesis(const Tensor& ws, Scale scale, const SynthesisNoise& noise = {});

  // Returns the heights (and widths) of the planes of noise at a scale: 4, 4, 8, 8, ..., scale.size, scale.size.
  std::vector<int64_t> noise_sizes(Scale scale) const;
  int64_t num_ws() const;  // 2 log2(size) - 2

  // w_avg = decay w_avg + (1 - decay) m, where m [style] is the mean over all other dims of w, detached. Training
  // steps call it with the styles of a global batch, or their mean over all ranks, before styles are mixed.
  // Shapes: w [...,style].
  void update_w_avg(const Tensor& w);

  nn::Buffer w_avg{this, "w_avg", initial_w_avg(options())};

 private:
  static Tensor initial_w_avg(const Options& options);
  void build();
  Tensor map(const Tensor& z, const Truncation& truncation);
  Tensor synthesize(const Tensor& ws, Scale scale, const std::vector<Tensor>& noise);
  std::vector<Tensor> planes(const Tensor& ws, Scale scale, const SynthesisNoise& noise) const;
  std::vector<std::unique_ptr<nn::Buffer>> injected_noise_;
  std::unique_ptr<nn::Sequential> style_mapping_;
  std::unique_ptr<nn::ModuleList<internal::StyleBlock>> convs_;
  std::unique_ptr<nn::ModuleList<>> to_rgbs_;
};

struct StyleGANDiscriminatorOptions {
  int64_t size = 1024;          // height and width of the largest images: 4, 8, 16, ...
  int64_t channels = 3;         // channels of the images
  int64_t channel_base = 8192;  // as in StyleGANGeneratorOptions
  int64_t channel_max = 512;
  int64_t group_size = 4;  // samples whose standard deviation is a feature (nn::MinibatchStdDev)
  int64_t rgb_kernel = 1;  // kernel size of the layers that take images, with padding rgb_kernel / 2: 1 or 3
  // Which convolution of a block changes the number of channels: the second, which also halves the size, or the
  // first.
  bool widen_first = false;
  bool last_activation = true;  // false: no leaky ReLU between the last two layers
};

// PGGAN's discriminator with a blur before each downsampling. Returns scores without bounds; larger ones for images
// that are classified as real.
// Shapes: x [N,channels,scale.size,scale.size] -> [N,1]; N at most or a multiple of group_size.
// Errors, source: as StyleGANGenerator.
class StyleGANDiscriminator final : public nn::LayerWith<StyleGANDiscriminatorOptions> {
 public:
  explicit StyleGANDiscriminator(Options options);
  StyleGANDiscriminator(nn::Module* parent, std::string name, Options options);

  Tensor forward(const Tensor& x) override;  // for images of the largest size
  using Layer::operator();
  Tensor operator()(const Tensor& x, Scale scale);

 private:
  void build();
  Tensor compute(const Tensor& x, Scale scale);
  std::unique_ptr<nn::ModuleList<>> convs_, from_rgb_;
  std::unique_ptr<nn::MinibatchStdDev> minibatch_stddev_;
  std::unique_ptr<nn::Sequential> final_linear_;
};

// Return the options with the values of mmgeneration's networks. Other options stay. Its checkpoints have no
// average of w: before truncation call gen.update_w_avg(gen.mapping(randn({4096, latent}))). Its discriminator works
// from 8x8 pixels on; here also on 4x4.
// Source: open-mmlab/mmgeneration, mmgen/models/architectures/stylegan.
StyleGANGeneratorOptions mmgen(StyleGANGeneratorOptions options);
StyleGANDiscriminatorOptions mmgen(StyleGANDiscriminatorOptions options);

}  // namespace gradus::models

extern template class gradus::nn::ModuleWith<gradus::models::StyleGANGeneratorOptions, gradus::nn::Layer>;
extern template class gradus::nn::ModuleWith<gradus::models::StyleGANDiscriminatorOptions, gradus::nn::Layer>;
