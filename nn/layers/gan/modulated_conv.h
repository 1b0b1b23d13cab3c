// ModulatedConv2d: the convolution of StyleGAN2's generator, whose weight depends on a style vector.
#pragma once

#include <vector>

#include "gradus/nn/layer.h"
#include "gradus/nn/layers/linear.h"

namespace gradus::nn {

enum class ModulationForm {
  kScaled,   // one convolution with the weight; scales its input and output channels by numbers per image
  kGrouped,  // one convolution with a group per image, each with a weight of its own
};

struct ModulatedConv2dOptions {
  Required<int64_t, "in"> in;               // channels of x
  Required<int64_t, "out"> out;             // channels of the result
  Required<int64_t, "kernel"> kernel;       // height and width of the weight, odd
  Required<int64_t, "style"> style;         // size of the style vector w
  bool demodulate = true;                   // normalizes the weight of each image and output channel
  int64_t up = 1, down = 1;                 // resampling (resampled_conv2d)
  std::vector<double> taps = {1, 3, 3, 1};  // FIR filter of resampling; without, may be empty
  double gain = 1;                          // factor of the result
  ModulationForm form = ModulationForm::kScaled;
};
extern template class ModuleWith<ModulatedConv2dOptions>;

// y[n] = gain * resampled_conv2d(x[n], v[n]) with the weight of image n
//   u[n,o,i,k] = s[n,i] weight[o,i,k] / sqrt(in kernel^2), s = affine(w / sqrt(style)),
//   v[n,o,i,k] = u[n,o,i,k] / sqrt(sum over i,k of u[n,o,i,k]^2 + 1e-8 / (in kernel^2)),
// or v = u without demodulation. Both forms compute this function. Initial weights are from N(0, 1), the bias of
// affine is 1.
// Shapes: x [N,in,H,W], w [N,style] -> [N,out,H up/down,W up/down]; weight [out,in,kernel,kernel],
// affine.weight [in,style], affine.bias [in]; buffer resample_filter [K,K] for K taps.
// Errors: ValueError, from the constructor, for options out of range; ShapeError, DTypeError.
// Source: Karras et al., "Analyzing and improving the image quality of StyleGAN", CVPR 2020.
class ModulatedConv2d final : public ModuleWith<ModulatedConv2dOptions> {
 public:
  ModulatedConv2d(Module* parent, std::string name, Options options);
  explicit ModulatedConv2d(Options options);

  Parameter weight{this, "weight", initial_weight()};
  Buffer resample_filter{this, "resample_filter", initial_filter()};
  Linear affine{this, "affine", {.in = *options().style, .out = *options().in}};

  Tensor forward(const Tensor& x, const Tensor& w);
  Tensor operator()(const Tensor& x, const Tensor& w) {
    return call([&] { return forward(x, w); });
  }

 private:
  Tensor initial_weight() const;
  Tensor initial_filter() const;
  void initialize_affine();
  Tensor demodulation(const Tensor& s) const;
};

}  // namespace gradus::nn
