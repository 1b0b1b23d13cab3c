// Residual networks: ResNet, ResNeXt and Wide ResNet for ImageNet, and the small ResNets for CIFAR.
//
//   models::ResNet net(models::resnet50({.classes = 10}));
//   io::load_weights(net, "resnet50.safetensors", {.except = {"fc"}});  // all weights but those of the head
//
// Parameters and buffers have torchvision's names ("layer3.1.conv2.weight"), so that weights can be exchanged
// with torchvision. tools/export_weights.py writes the file.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/nn/nn.h"

namespace gradus::models {

struct ResNetOptions {
  enum class Block {
    kBasic,       // two 3x3 convolutions
    kBottleneck,  // 1x1, 3x3 (with the stride, as in torchvision), and 1x1 convolution to 4 times as many
                  // channels
  };
  enum class Stem {
    kImageNet,  // 7x7 convolution with stride 2, max pooling with stride 2
    kCifar,     // 3x3 convolution
  };
  // The shortcut of blocks that change the shape; other blocks use the identity.
  enum class Shortcut {
    kProjection,  // 1x1 convolution and batch norm ("downsample")
    kPad,         // every second pixel, padded with zero channels; no parameters
  };

  std::vector<int64_t> stages = {2, 2, 2, 2};  // blocks per stage; all stages but the first halve the image
  Block block = Block::kBasic;
  Stem stem = Stem::kImageNet;
  Shortcut shortcut = Shortcut::kProjection;
  int64_t width = 64;  // channels of the first stage; each following stage has twice as many
  // A bottleneck's 3x3 convolution has groups * width_per_group / 64 * (width of the stage) channels.
  int64_t groups = 1;
  int64_t width_per_group = 64;
  int64_t in = 3;          // channels of the images
  int64_t classes = 1000;  // number of logits
  // Initializes the weight of each block's last batch norm to 0, so that the block starts as the identity.
  bool zero_init_residual = false;
  // Activation checkpointing: the backward computes each block again instead of saving its activations.
  bool checkpoint = false;
};

// The options that the functions below leave to the caller.
struct ResNetHead {
  int64_t classes = 1000;
  bool zero_init_residual = false;
  bool checkpoint = false;
};

// Source: He et al., CVPR 2016; with the stride in the 3x3 convolution ("v1.5").
ResNetOptions resnet18(ResNetHead head = {});
ResNetOptions resnet34(ResNetHead head = {});
ResNetOptions resnet50(ResNetHead head = {});
ResNetOptions resnet101(ResNetHead head = {});
ResNetOptions resnet152(ResNetHead head = {});
// Source: Xie et al., CVPR 2017.
ResNetOptions resnext50_32x4d(ResNetHead head = {});
ResNetOptions resnext101_32x8d(ResNetHead head = {});
ResNetOptions resnext101_64x4d(ResNetHead head = {});
// Source: Zagoruyko and Komodakis, BMVC 2016.
ResNetOptions wide_resnet50_2(ResNetHead head = {});
ResNetOptions wide_resnet101_2(ResNetHead head = {});
// Returns the options of a network for 32x32 images with depth = 6 n + 2 layers, such as 20, 32, 56 or 110.
// Source: He et al., CVPR 2016, section 4.2.
// Errors: ValueError for another depth, and above 10000.
ResNetOptions cifar_resnet(int64_t depth, ResNetHead head = {.classes = 10});

// Returns the options of a network by its name: "resnet18" to "wide_resnet101_2", "resnet20" to "resnet110".
// Errors: ValueError listing the existing names.
ResNetOptions resnet(std::string_view name, ResNetHead head);
std::vector<std::string> resnet_names();

// Returns logits. Initial weights of convolutions are Kaiming-normal by fan_out (He et al., ICCV 2015).
// Shapes: x [N,in,H,W] -> [N,classes]; H and W of 32 or more for the ImageNet stem.
class ResNet : public nn::LayerWith<ResNetOptions> {
 public:
  // Errors: ValueError for options out of range.
  explicit ResNet(Options options);
  ResNet(nn::Module* parent, std::string name, Options options);

  Tensor forward(const Tensor& x) override;
  // Returns the input of the last layer: the global average of the last stage's result.
  // Shapes: x [N,in,H,W] -> [N,C].
  Tensor features(const Tensor& x);

  // The parts of forward, for feature maps of stages, or for stages on several devices:
  //   forward(x) = head(stage(4, stage(3, stage(2, stage(1, stem(x))))))
  Tensor stem(const Tensor& x);  // conv1, bn1, relu and max pooling
  // Applies the stage named "layer<number>" to h.
  // Errors: ValueError unless 1 <= number <= number of stages.
  Tensor stage(int64_t number, Tensor h);
  Tensor head(const Tensor& h);  // global average pooling and fc

 private:
  void build();
  std::vector<std::unique_ptr<nn::Layer>> layers_;  // conv1, bn1, layer1, ..., fc
};

}  // namespace gradus::models

extern template class gradus::nn::ModuleWith<gradus::models::ResNetOptions, gradus::nn::Layer>;
