// SNGAN: residual networks with spectral normalization, conditional by batch norm per class in the generator and by
// projection in the discriminator.
//
//   models::SNGANGenerator gen{this, "gen", {.classes = 10}};
//   models::SNGANDiscriminator disc{this, "disc", {.classes = 10}};
//   ...
//   disc(gen(z, labels), labels);
//
// Parameters and buffers have mmgeneration's names ("conv_blocks.0.norm_1.weight_embedding.weight").
#pragma once

#include <memory>

#include "gradus/nn/nn.h"

namespace gradus::models {

enum class SNGANInit {
  // Orthogonal weights; the scale of a conditional batch norm is 1 + embedding. PyTorch-StudioGAN's.
  kStudio,
  // The paper's: Xavier uniform with gain sqrt(2), 1 for shortcuts, linear layers and the last convolution; the
  // scale of a conditional batch norm is the embedding, initially 1; no bias in the discriminator's last layer.
  kPaper,
};

struct SNGANGeneratorOptions {
  int64_t size = 32;  // height and width of the images: 8, 16, 32, ...; the paper's networks are those for 32
  int64_t channels = 3;  // channels of the images
  int64_t latent = 128;  // length of the latent vector z
  int64_t classes = 0;   // number of classes of labels; 0: no labels
  int64_t width = 256;   // channels of all hidden layers
  double eps = 1e-4;     // of batch norms
  SNGANInit init = SNGANInit::kStudio;
};

// Returns images in [-1,1].
// Shapes: z [N,latent] or [N,latent,1,1], integer labels [N] -> [N,channels,size,size].
// Errors: ValueError for options out of range; StateError for labels without classes, and for classes without
// labels; IndexError for a label outside of [0, classes); ShapeError for an input of another shape.
// Source: Miyato et al., "Spectral normalization for generative adversarial networks"; Miyato and Koyama, "cGANs
// with projection discriminator", both ICLR 2018; open-mmlab/mmgeneration,
// mmgen/models/architectures/sngan_proj.
class SNGANGenerator final : public nn::LayerWith<SNGANGeneratorOptions> {
 public:
  explicit SNGANGenerator(Options options = {});
  SNGANGenerator(nn::Module* parent, std::string name, Options options = {});

  Tensor forward(const Tensor& z) override;
  using Layer::operator();
  Tensor operator()(const Tensor& z, const Tensor& labels);

 private:
  void build();
  Tensor compute(const Tensor& z, const Tensor& labels);
  std::unique_ptr<nn::Linear> noise2feat_;
  std::unique_ptr<nn::ModuleList<nn::Module>> conv_blocks_;
  std::unique_ptr<nn::Layer> to_rgb_;
};

struct SNGANDiscriminatorOptions {
  int64_t size = 32;     // height and width of the images: 16, 32, 64, ...
  int64_t channels = 3;  // channels of the images
  int64_t classes = 0;   // number of classes of labels; 0: no labels
  int64_t width = 128;   // channels of all hidden layers
  SNGANInit init = SNGANInit::kStudio;
};

// Returns scores without bounds; larger ones for images that are classified as real: linear(h) + <embedding[label], h>
// for the features h [N,width], a sum over 8x8 pixels. All weights have spectral normalization, which updates its
// buffers in each call in training.
// Shapes: x [N,channels,size,size], integer labels [N] -> [N,1].
// Errors, source: as SNGANGenerator.
class SNGANDiscriminator final : public nn::LayerWith<SNGANDiscriminatorOptions> {
 public:
  explicit SNGANDiscriminator(Options options = {});
  SNGANDiscriminator(nn::Module* parent, std::string name, Options options = {});

  Tensor forward(const Tensor& x) override;
  using Layer::operator();
  Tensor operator()(const Tensor& x, const Tensor& labels);

 private:
  void build();
  Tensor compute(const Tensor& x, const Tensor& labels);
  std::unique_ptr<nn::Layer> from_rgb_;
  std::unique_ptr<nn::ModuleList<>> conv_blocks_;
  std::unique_ptr<nn::Linear> decision_;
  std::unique_ptr<nn::Embedding> proj_y_;  // null without classes
};

}  // namespace gradus::models

extern template class gradus::nn::ModuleWith<gradus::models::SNGANGeneratorOptions, gradus::nn::Layer>;
extern template class gradus::nn::ModuleWith<gradus::models::SNGANDiscriminatorOptions, gradus::nn::Layer>;
