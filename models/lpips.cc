// LPIPS: differences of normalized feature maps of VGG, weighted by 1x1 convolutions without bias.
#include "gradus/models/lpips.h"

#include <string>
#include <utility>

#include "gradus/autograd/ops/ops.h"

namespace gradus::models {
namespace {

// Named as in the paper's code: "lin0.model.1.weight" is a convolution after a dropout.
struct Lin final : nn::Layer {
  Lin(nn::Module* parent, std::string name, int64_t in)
      : Layer(parent, std::move(name)),
        model{this,
              "model",
              {nn::layer<nn::Dropout>(),
               nn::layer<nn::Conv2d>({.in = in, .out = 1, .kernel = 1, .bias = false})}} {}
  Tensor forward(const Tensor& x) override { return model(x); }
  nn::Sequential model;
};

// The normalization of VGG's input, of values in [-1,1].
Tensor vgg_input(const Tensor& x) {
  const auto channels = [&](const std::vector<double>& v) {
    return to(to(tensor(v, {3, 1, 1}), x.dtype()), x.device());
  };
  return (x - channels({-0.030, -0.088, -0.188})) / channels({0.458, 0.448, 0.450});
}

Tensor normalized(const Tensor& x) { return x / (sqrt(sum(square(x), {1}, true)) + 1e-10); }

}  // namespace

void LPIPS::build() {
  const VGGOptions& o = vgg.options();
  for (size_t s = 0; s < o.stages.size(); ++s)
    lin_.push_back(std::make_unique<Lin>(this, "lin" + std::to_string(s), o.width << std::min<size_t>(s, 3)));
}

Tensor LPIPS::operator()(const Tensor& a, const Tensor& b) {
  return call([&] {
    if (a.dim() != 4 || (a.size(1) != 1 && a.size(1) != 3) || a.shape() != b.shape())
      throw ShapeError("LPIPS", "expected two batches of images [N,C,H,W] of one shape, C of 1 or 3: a ",
                       describe(a), ", b ", describe(b));
    const std::vector<Tensor> of_a = vgg.stage_maps(vgg_input(a)), of_b = vgg.stage_maps(vgg_input(b));
    Tensor distance;
    for (size_t s = 0; s < lin_.size(); ++s) {
      const Tensor d = mean((*lin_[s])(square(normalized(of_a[s]) - normalized(of_b[s]))), {1, 2, 3});
      distance = s == 0 ? d : distance + d;
    }
    return distance;
  });
}

}  // namespace gradus::models

template class gradus::nn::ModuleWith<gradus::models::LPIPSOptions>;
