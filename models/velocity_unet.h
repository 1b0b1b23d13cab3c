// VelocityUNet: a U-Net with an embedding of the time, the velocity of flow matching (train/flow/flow_matching.h).
//
//   models::VelocityUNet net({.channels = 1, .classes = 10});
//   Tensor v = net(x, t, labels);  // f32[N,1,32,32], f32[N], i64[N] -> f32[N,1,32,32]
#pragma once

#include <memory>
#include <vector>

#include "gradus/nn/nn.h"

namespace gradus::models {

struct VelocityUNetOptions {
  int64_t size = 32;     // height and width of the images
  int64_t channels = 3;  // channels of the images
  int64_t width = 64;    // channels of the first level
  // Channels of each level, as multiples of `width`. Each level has half the height and width of the one before.
  std::vector<int64_t> multipliers = {1, 2};
  int64_t blocks = 1;  // residual blocks of a level, on the way down and on the way up
  // The first level has the pixels of each square of patch x patch pixels as channels (nn::PixelUnshuffle).
  int64_t patch = 2;
  std::vector<int64_t> attention = {};  // heights of the levels whose blocks end with self-attention
  int64_t heads = 1;                    // of the self-attention
  int64_t groups = 8;                   // of the group norms
  int64_t classes = 0;                  // number of classes of labels; 0: no labels
};

// Returns v(x, t). The time t in [0,1] is embedded by sinusoids of 1000 t and two linear layers. With classes, an
// embedding of the label is added. Each residual block adds its projection of the sum to all pixels:
//   h = conv(silu(norm(x))) + linear(silu(embedding)),  y = shortcut(x) + conv(silu(norm(h)))
// Blocks on the way up get the output of the block on the way down as further channels. Initial values are those of
// the layers, but the last convolution is 0.
// Shapes: x [N,channels,size,size], t [N], integer labels [N] or undefined -> [N,channels,size,size].
// The label `classes` is that of no class, as are undefined labels: the velocity of all classes, for classifier-free
// guidance.
// Errors: ValueError for options out of range; ShapeError for other shapes; StateError for labels without classes;
// IndexError for a label outside of [0, classes].
// Source: Ronneberger et al., MICCAI 2015; Ho et al., "Denoising diffusion probabilistic models", NeurIPS 2020.
class VelocityUNet final : public nn::ModuleWith<VelocityUNetOptions> {
 public:
  explicit VelocityUNet(Options options = {});
  VelocityUNet(nn::Module* parent, std::string name, Options options = {});
  ~VelocityUNet() override;
  Tensor operator()(const Tensor& x, const Tensor& t, const Tensor& labels = {});

 private:
  class Block;
  void build();
  Tensor embed(const Tensor& x, const Tensor& t, const Tensor& labels);

  std::unique_ptr<nn::Sequential> time_;
  std::unique_ptr<nn::Embedding> label_;
  std::unique_ptr<nn::Conv2d> conv_in_, conv_out_;
  std::unique_ptr<nn::ModuleList<Block>> down_, up_;  // options().blocks of each level
  std::unique_ptr<Block> middle_;
  std::unique_ptr<nn::ModuleList<nn::Conv2d>> downsample_, upsample_;
  std::unique_ptr<nn::GroupNorm> norm_out_;
};

}  // namespace gradus::models

extern template class gradus::nn::ModuleWith<gradus::models::VelocityUNetOptions>;
