// VGG networks: 3x3 convolutions and max pooling, then three linear layers. Parameters and buffers have torchvision's
// names ("features.0.weight"), so that weights can be exchanged with torchvision.
//
//   models::VGG net(models::vgg16_bn({.classes = 10}));
#pragma once

#include <vector>

#include "gradus/nn/nn.h"

namespace gradus::models {

struct VGGOptions {
  std::vector<int64_t> stages = {2, 2, 3, 3,
                                 3};  // convolutions before each max pooling, which halves the image
  bool batch_norm = false;            // after each convolution
  int64_t width = 64;      // channels of the first stage; the next three stages each have twice as many
  int64_t hidden = 4096;   // features between the linear layers
  int64_t in = 3;          // channels of the images
  int64_t classes = 1000;  // number of logits
  double dropout = 0.5;    // probability before the second and third linear layer
};

// Return the options with the stages and batch_norm of the named network.
VGGOptions vgg11(VGGOptions options = {});
VGGOptions vgg13(VGGOptions options = {});
VGGOptions vgg16(VGGOptions options = {});
VGGOptions vgg19(VGGOptions options = {});
VGGOptions vgg11_bn(VGGOptions options = {});
VGGOptions vgg13_bn(VGGOptions options = {});
VGGOptions vgg16_bn(VGGOptions options = {});
VGGOptions vgg19_bn(VGGOptions options = {});

// Returns logits. The last stage's result is averaged to 7x7 pixels. Initial weights of convolutions are Kaiming-normal
// by fan_out, those of linear layers normal with standard deviation 0.01; biases are 0.
// Shapes: x [N,in,H,W] -> [N,classes]; H and W of 32 or more for five stages.
// Source: Simonyan and Zisserman, ICLR 2015.
class VGG final : public nn::LayerWith<VGGOptions> {
 public:
  // Errors: ValueError for options out of range.
  explicit VGG(Options options = {}) : LayerWith(std::move(options)) { build(); }
  VGG(nn::Module* parent, std::string name, Options options = {})
      : LayerWith(parent, std::move(name), std::move(options)) {
    build();
  }

  nn::Sequential features{this, "features"};
  nn::Sequential classifier{this, "classifier"};

  Tensor forward(const Tensor& x) override;
  // Returns the result of the second linear layer, before its ReLU: features for precision and recall.
  // Shapes: x [N,in,H,W] -> [N,hidden].
  Tensor hidden(const Tensor& x);
  // Returns the feature map of each stage before its max pooling: of VGG16 relu1_2, relu2_2, relu3_3, relu4_3 and
  // relu5_3. The last max pooling and the linear layers are not computed.
  // Shapes: x [N,in,H,W] -> [N,width,H,W], [N,2 width,H/2,W/2], ...
  std::vector<Tensor> stage_maps(const Tensor& x);

 private:
  void build();
};

}  // namespace gradus::models

extern template class gradus::nn::ModuleWith<gradus::models::VGGOptions, gradus::nn::Layer>;
