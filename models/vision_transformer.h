// Vision transformers: an image is a sequence of patches, which a transformer encoder maps to the features of a class
// token. Parameters have torchvision's names ("encoder.layers.encoder_layer_0.ln_1.weight"), so that weights can be
// exchanged with torchvision.
//
//   models::VisionTransformer net(models::vit_b_16({.classes = 10}));
#pragma once

#include <memory>

#include "gradus/nn/nn.h"

namespace gradus::models {

// The defaults are those of vit_b_16.
struct VisionTransformerOptions {
  int64_t image_size = 224;  // height and width of the images; a multiple of patch_size
  int64_t patch_size = 16;
  int64_t num_layers = 12;
  int64_t num_heads = 12;
  int64_t hidden_dim = 768;  // size of a patch's embedding; a multiple of num_heads
  int64_t mlp_dim = 3072;
  double dropout = 0;
  double attention_dropout = 0;
  int64_t in = 3;          // channels of the images
  int64_t classes = 1000;  // number of logits
};

// Return the options with the sizes of the named network: 86.6, 88.2, 304.3, 306.5 and 632.0 million parameters.
VisionTransformerOptions vit_b_16(VisionTransformerOptions options = {});
VisionTransformerOptions vit_b_32(VisionTransformerOptions options = {});
VisionTransformerOptions vit_l_16(VisionTransformerOptions options = {});
VisionTransformerOptions vit_l_32(VisionTransformerOptions options = {});
VisionTransformerOptions vit_h_14(VisionTransformerOptions options = {});

// Returns logits. Each block: x += attention(layer_norm(x)), x += mlp(layer_norm(x)). Initial values are torchvision's:
// the last layer is 0.
// Shapes: x [N,in,image_size,image_size] -> [N,classes].
// Source: Dosovitskiy et al., ICLR 2021.
class VisionTransformer final : public nn::LayerWith<VisionTransformerOptions> {
 public:
  // Errors: ValueError for options out of range.
  explicit VisionTransformer(Options options = {}) : LayerWith(options) { build(); }
  VisionTransformer(nn::Module* parent, std::string name, Options options = {})
      : LayerWith(parent, std::move(name), options) {
    build();
  }

  // Errors: ShapeError for another x.
  Tensor forward(const Tensor& x) override;

 private:
  void build();
  std::unique_ptr<nn::Conv2d> conv_proj_;
  std::unique_ptr<nn::Parameter> class_token_;
  std::unique_ptr<nn::Layer> encoder_;
  std::unique_ptr<nn::Sequential> heads_;
};

}  // namespace gradus::models

extern template class gradus::nn::ModuleWith<gradus::models::VisionTransformerOptions, gradus::nn::Layer>;
