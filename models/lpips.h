// LPIPS: a perceptual distance between images, from the feature maps of VGG16.
#pragma once

#include <memory>
#include <vector>

#include "gradus/models/vgg.h"

namespace gradus::models {

struct LPIPSOptions {
  VGGOptions vgg = vgg16();
};

// Returns distances of pairs of images: the sum over the stages l of VGG of the mean over positions of
//   sum_c lin_l[c] (f_l(a)[c] - f_l(b)[c])^2,
// where f_l is the result of the stage's last ReLU, divided by its norm over channels + 1e-10. For trained distances in
// evaluation load VGG16's weights and those of the layers lin0 to lin4:
//
//   models::LPIPS lpips;
//   io::load_weights(lpips.vgg, "vgg16.safetensors");                   // torchvision's
//   io::load_weights(lpips, "lpips.safetensors", {.except = {"vgg"}});  // "lin0.model.1.weight", ...
//   lpips.eval();
//
// Shapes: a, b [N,C,H,W] in [-1,1], C of 1 (repeated) or 3 -> [N].
// Errors: ShapeError.
// Source: Zhang et al., "The unreasonable effectiveness of deep features as a perceptual metric", CVPR 2018.
class LPIPS final : public nn::ModuleWith<LPIPSOptions> {
 public:
  explicit LPIPS(Options options = {}) : ModuleWith(std::move(options)) { build(); }
  LPIPS(nn::Module* parent, std::string name, Options options = {})
      : ModuleWith(parent, std::move(name), std::move(options)) {
    build();
  }

  VGG vgg{this, "vgg", options().vgg};

  Tensor operator()(const Tensor& a, const Tensor& b);

 private:
  void build();
  std::vector<std::unique_ptr<nn::Layer>> lin_;  // lin0, lin1, ...: 1x1 convolutions to one channel
};

}  // namespace gradus::models

extern template class gradus::nn::ModuleWith<gradus::models::LPIPSOptions>;
