// U-Net: an encoder and a decoder with skip connections, for the segmentation of images. Parameters and buffers have
// the names of github.com/milesial/Pytorch-UNet ("down1.maxpool_conv.1.double_conv.0.weight").
//
//   models::UNet net({.in = 1, .classes = 2});
//   Tensor logits = net(images);  // f32[N,1,H,W] -> f32[N,2,H,W]
#pragma once

#include <memory>
#include <vector>

#include "gradus/nn/nn.h"

namespace gradus::models {

struct UNetOptions {
  int64_t in = 3;         // channels of the images
  int64_t classes = 2;    // number of logits per pixel
  bool bilinear = false;  // upsampling by bilinear interpolation instead of transposed convolutions
  int64_t width = 64;     // channels of the first level; each of the four further levels has twice as many
};

// Returns logits of each pixel. Each level has two 3x3 convolutions with batch norm and ReLU. Max pooling halves the
// image between levels; on the way back it is doubled, and concatenated with the result of that level.
// Shapes: x [N,in,H,W] -> [N,classes,H,W]; H and W of 16 or more.
// Source: Ronneberger et al., MICCAI 2015.
class UNet final : public nn::LayerWith<UNetOptions> {
 public:
  // Errors: ValueError for options out of range.
  explicit UNet(Options options = {}) : LayerWith(options) { build(); }
  UNet(nn::Module* parent, std::string name, Options options = {})
      : LayerWith(parent, std::move(name), options) {
    build();
  }
  Tensor forward(const Tensor& x) override;

 private:
  void build();
  std::vector<std::unique_ptr<nn::Layer>> down_;  // inc, down1, ..., down4
  std::vector<std::unique_ptr<nn::Module>> up_;   // up1, ..., up4
  std::unique_ptr<nn::Layer> outc_;
};

}  // namespace gradus::models

extern template class gradus::nn::ModuleWith<gradus::models::UNetOptions, gradus::nn::Layer>;
