// Inception v3, and the preprocessing of images for it. With the options of fid_inception_v3 it is the network whose
// features FID, KID and the Inception score compare. Parameters and buffers have torchvision's names
// ("Mixed_5b.branch5x5_2.conv.weight"), so that weights can be exchanged with torchvision.
//
//   models::InceptionV3 net(models::fid_inception_v3());
//   io::load_weights(net, "inception.safetensors");  // of pt_inception-2015-12-05-6726825d.pth
//   net.eval();
//   const Tensor features = net.features(models::inception_input(images));  // u8[N,3,H,W] -> f32[N,2048]
#pragma once

#include <memory>
#include <vector>

#include "gradus/nn/nn.h"

namespace gradus::models {

struct InceptionV3Options {
  // The pooling branches of the network that FID is defined by: averages do not count the padding, and the last block
  // (Mixed_7c) takes the maximum. False: averages that count the padding, as in torchvision's inception_v3.
  bool fid_pooling = false;
  int64_t classes = 1000;  // number of logits
  double dropout = 0.5;    // probability before the last layer
};

// Returns the options of the network of FID, with 1008 classes.
InceptionV3Options fid_inception_v3(InceptionV3Options options = {});

// Returns logits. Without the auxiliary classifier of torchvision's training. Initial weights are normal with standard
// deviation 0.1, truncated at +-2. In evaluation the batch norms are folded into the convolutions.
// Shapes: x [N,3,H,W], H and W of 75 or more, made for 299 -> [N,classes].
// Source: Szegedy et al., "Rethinking the Inception architecture for computer vision", CVPR 2016.
class InceptionV3 final : public nn::LayerWith<InceptionV3Options> {
 public:
  // Errors: ValueError for options out of range.
  explicit InceptionV3(Options options = {}) : LayerWith(options) { build(); }
  InceptionV3(nn::Module* parent, std::string name, Options options = {})
      : LayerWith(parent, std::move(name), options) {
    build();
  }

  Tensor forward(const Tensor& x) override;
  // Returns the means over the positions of a feature map: of the first max pooling (64), the second one (192),
  // Mixed_6e (768), or Mixed_7c (2048, the input of the last layer). Later layers are not computed.
  // Shapes: x [N,3,H,W] -> [N,depth].
  // Errors: ValueError for another depth.
  Tensor features(const Tensor& x, int64_t depth = 2048);
  // Applies the last layer to features of depth 2048. The Inception score leaves out the bias.
  // Shapes: [N,2048] -> [N,classes].
  Tensor logits(const Tensor& features, bool with_bias = true) const;

 private:
  // A layer of the feature maps. Depths of 64 and 192 include a max pooling after the layer.
  struct Stage {
    std::unique_ptr<nn::Layer> layer;
    int64_t depth;  // by which features() returns the result; 0: none
  };
  void build();
  std::vector<Stage> stages_;
  std::unique_ptr<nn::Linear> fc_;
};

// How images are resized to 299x299.
enum class InceptionResize {
  // Bilinear as in TensorFlow 1: position = i * in / out, without half pixels and without antialiasing. FID in papers.
  kTf,
  // Pillow's bicubic with antialiasing, limited to [0,255] and not rounded: clean-fid.
  // Source: Parmar et al., "On aliased resizing and surprising subtleties in GAN evaluation", CVPR 2022.
  kClean,
};

// Returns the network's input, (x - 128) / 128, of images with values 0 ... 255. Repeats gray to three channels. The
// interpolation is in f64.
// Shapes: u8[N,C,H,W], C of 1 or 3 -> dtype[N,3,299,299].
// Errors: DTypeError unless u8; ShapeError.
Tensor inception_input(const Tensor& images, InceptionResize resize = InceptionResize::kTf,
                       DType dtype = DType::kF32);

}  // namespace gradus::models

extern template class gradus::nn::ModuleWith<gradus::models::InceptionV3Options, gradus::nn::Layer>;
