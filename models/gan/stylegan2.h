// StyleGAN2: a generator that maps a latent vector z to a style vector w, which modulates the convolutions of the
// synthesis of an image, and a residual discriminator.
//
//   models::StyleGAN2Generator gen({.size = 32, .channel_base = 1024});
//   Tensor images = gen(z);                               // the same as gen.synthesis(gen.mapping(z))
//   Tensor typical = gen(z, {.truncation = 0.7});
//
// Parameters and buffers have the names of StyleGAN2-ADA ("synthesis.b8.conv0.affine.weight").
#pragma once

#include <memory>
#include <vector>

#include "gradus/models/gan/styles.h"
#include "gradus/nn/nn.h"

namespace gradus::models {

struct StyleGAN2GeneratorOptions {
  int64_t size = 1024;         // height and width of the images: 4, 8, 16, ...
  int64_t channels = 3;        // channels of the images
  int64_t latent = 512;        // length of the latent vector z
  int64_t style = 512;         // length of the style vector w
  int64_t classes = 0;         // number of classes of labels; 0: no labels
  int64_t mapping_layers = 8;  // linear layers between z and w
  // Blocks for s x s pixels have min(channel_base / s, channel_max) channels.
  int64_t channel_base = 32768;
  int64_t channel_max = 512;
  double w_avg_decay = 0.995;  // of the average of w
  nn::ModulationForm form = nn::ModulationForm::kScaled;
};

// Maps latent vectors to style vectors, by linear layers with leaky ReLU. Computes in the dtype of the parameters
// also under autocast. All L style vectors of an image are equal.
// Shapes: z [N,latent] or [N,latent,1,1], integer labels [N] -> [N,L,style], L = 2 log2(size) - 2.
// Errors: as StyleGAN2Generator.
class StyleGAN2Mapping final : public nn::Module {
 public:
  StyleGAN2Mapping(nn::Module* parent, std::string name, const StyleGAN2GeneratorOptions& options);
  ~StyleGAN2Mapping();

  nn::Buffer w_avg;  // [style], the running average of w

  Tensor operator()(const Tensor& z, const Truncation& truncation = {});
  // Conditional generation: concatenates an embedding of the labels to z.
  Tensor operator()(const Tensor& z, const Tensor& labels, const Truncation& truncation = {});

  // w_avg = decay w_avg + (1 - decay) * mean of w over the batch. Calls of the network do not update w_avg. For
  // the same average on all ranks, pass the mean over all ranks' batches.
  // Shapes: w [N,style] or [N,L,style], of which the first style vectors count.
  // Errors: ShapeError.
  void update_w_avg(const Tensor& w);

 private:
  struct Layers;
  Tensor compute(const Tensor& z, const Tensor& labels, const Truncation& truncation);

  const int64_t latent_, classes_, styles_;
  const double decay_;
  std::unique_ptr<Layers> layers_;
};

// Makes images of style vectors. The block for 4x4 pixels starts from a learned constant; each further block
// doubles height and width. An image is the sum of all blocks' images, upsampled.
// Shapes: ws [N,L,style], L = 2 log2(size) - 2 -> [N,channels,size,size].
// Errors: ShapeError; ValueError for another number of planes.
class StyleGAN2Synthesis final : public nn::Module {
 public:
  StyleGAN2Synthesis(nn::Module* parent, std::string name, const StyleGAN2GeneratorOptions& options);
  ~StyleGAN2Synthesis();

  Tensor operator()(const Tensor& ws, const SynthesisNoise& noise = {});
  // Returns height and width of each noise plane: {4, 8, 8, 16, 16, ..., size, size}.
  std::vector<int64_t> noise_sizes() const;

 private:
  struct Block;
  const int64_t style_, styles_;
  std::vector<std::unique_ptr<Block>> blocks_;
};

// Returns images of unbounded values. Initial weights are from N(0, 1); runtime factors scale them (equalized
// learning rates).
// Shapes: z [N,latent] or [N,latent,1,1], integer labels [N] -> [N,channels,size,size].
// Errors: ValueError for options out of range; StateError for labels without classes, and for classes without
// labels; IndexError for a label outside of [0, classes); ShapeError.
// Source: Karras et al., "Analyzing and improving the image quality of StyleGAN", CVPR 2020; names, labels: Karras
// et al., "Training generative adversarial networks with limited data", NeurIPS 2020.
class StyleGAN2Generator final : public nn::LayerWith<StyleGAN2GeneratorOptions> {
 public:
  using LayerWith::LayerWith;

  StyleGAN2Synthesis synthesis{this, "synthesis", options()};
  StyleGAN2Mapping mapping{this, "mapping", options()};

  Tensor forward(const Tensor& z) override;
  using Layer::operator();
  // The same as synthesis(mapping(z, labels, truncation), noise).
  Tensor operator()(const Tensor& z, const Truncation& truncation, const SynthesisNoise& noise = {});
  Tensor operator()(const Tensor& z, const Tensor& labels, const Truncation& truncation = {},
                    const SynthesisNoise& noise = {});
};

struct StyleGAN2DiscriminatorOptions {
  enum class Form {
    kResidual,  // each block adds a 1x1 convolution of its input
    kOrig,      // no 1x1 convolution
  };
  int64_t size = 1024;           // height and width of the images: 8, 16, 32, ...
  int64_t channels = 3;          // channels of the images
  int64_t classes = 0;           // number of classes of labels; 0: no labels
  int64_t channel_base = 32768;  // as in StyleGAN2GeneratorOptions
  int64_t channel_max = 512;
  int64_t group_size = 4;  // samples whose standard deviation is a feature (nn::MinibatchStdDev)
  Form form = Form::kResidual;
  int64_t label_features = 0;  // length of the vectors that labels are mapped to; 0: channels at 4x4 pixels
  int64_t mapping_layers = 8;  // linear layers of this mapping
};

// Returns scores without bounds; larger for images that are classified as real. With labels, the score is
// <features, mapped label> / sqrt(label_features).
// Shapes: x [N,channels,size,size], integer labels [N] -> [N,1]; N at most or a multiple of group_size.
// Errors, source: as StyleGAN2Generator.
class StyleGAN2Discriminator final : public nn::LayerWith<StyleGAN2DiscriminatorOptions> {
 public:
  explicit StyleGAN2Discriminator(Options options);
  StyleGAN2Discriminator(nn::Module* parent, std::string name, Options options);
  ~StyleGAN2Discriminator();

  Tensor forward(const Tensor& x) override;
  using Layer::operator();
  Tensor operator()(const Tensor& x, const Tensor& labels);

 private:
  struct LabelMapping;
  struct Epilogue;
  void build();
  Tensor compute(const Tensor& x, const Tensor& labels);

  std::vector<std::unique_ptr<nn::Layer>> blocks_;
  std::unique_ptr<LabelMapping> mapping_;  // null without classes
  std::unique_ptr<Epilogue> epilogue_;
};

}  // namespace gradus::models

extern template class gradus::nn::ModuleWith<gradus::models::StyleGAN2GeneratorOptions, gradus::nn::Layer>;
extern template class gradus::nn::ModuleWith<gradus::models::StyleGAN2DiscriminatorOptions,
                                             gradus::nn::Layer>;
