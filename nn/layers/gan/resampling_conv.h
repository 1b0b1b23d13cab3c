// Resampling layers of GANs: FirFilter2d, a fixed low-pass filter, such as [1,3,3,1], for upsampling and
// downsampling without aliasing; UpConv2d and DownConv2d, a 3x3 convolution fused with upsampling or downsampling
// by 2. Functions: fir_filter2d, the op of FirFilter2d; resampled_conv2d, a convolution with such a filter.
#pragma once

#include <vector>

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct FirFilter2dOptions {
  std::vector<double> taps = {1, 3, 3, 1};  // 1-d filter, used along both dims; divided by its sum
  int64_t up = 1;                           // upsampling: up - 1 zeros after each pixel, also the last
  int64_t down = 1;                         // downsampling: keeps every down-th pixel, from the first
  Shape padding = {0, 0};                   // zeros before (left, top), after (right, bottom); < 0 crops
  double gain = 1;                          // factor of the filter; up^2 preserves the mean of the image
};
extern template class ModuleWith<FirFilter2dOptions, Layer>;

// Upsamples by inserting zeros, pads, convolves each channel with the outer product of the taps, and downsamples,
// in this order. The filter is constant: the layer has no parameters.
//
//   FirFilter2d blur(this, "blur", {.taps = {1, 2, 1}, .padding = {1, 1}});      // the same size
//   FirFilter2d up(this, "up", {.up = 2, .padding = {2, 1}, .gain = 4});         // twice the size
//   FirFilter2d down(this, "down", {.down = 2, .padding = {1, 1}});              // half the size
//
// Shapes: x [N,C,H,W] -> [N,C,P,Q], P = floor((H up + padding[0] + padding[1] - K) / down) + 1 for K taps,
// Q likewise from W.
// Errors, thrown by forward: ValueError for taps of sum 0 or none, up or down < 1; ShapeError for an empty result.
// Source: Karras et al., "Analyzing and improving the image quality of StyleGAN", CVPR 2020.
class FirFilter2d final : public LayerWith<FirFilter2dOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

// Returns the outer product of the taps with themselves, divided by the square of their sum.
// Shapes: K taps -> f64[K,K] on the CPU.
// Errors: ValueError for no taps, or taps of sum 0.
Tensor fir_filter(const std::vector<double>& taps);

struct FirFilter2dFuncOptions {
  int64_t up = 1, down = 1;  // as in FirFilter2dOptions
  Shape padding = {0, 0};
  double gain = 1;
};

// FirFilter2d with a filter of any K x K numbers: convolves each channel of x, upsampled and padded, with
// gain * filter. The filter has no gradient.
// Shapes: x [N,C,H,W], filter [K,K] -> as FirFilter2d.
// Errors: ShapeError.
Tensor fir_filter2d(const Tensor& x, const Tensor& filter, const FirFilter2dFuncOptions& options = {});

struct ResampledConv2dFuncOptions {
  int64_t up = 1, down = 1;  // factors, at most one of them above 1
  int64_t groups = 1;        // as in conv2d
};

// conv2d with padding K/2 for an odd kernel size K, combined with resampling by a FIR filter. For up > 1: a
// transposed convolution with stride `up`, then the filter with gain up^2. For down > 1: the filter, then a
// convolution with stride `down`. The filter is undefined if up and down are 1.
// Shapes: x [N,C,H,W], w [O,C/groups,K,K], bias [O] or undefined, filter [F,F]
//   -> [N,O,H up/down,W up/down], H and W multiples of down.
// Errors: ValueError for up and down above 1; those of the convolutions.
// Source: Karras et al., "Analyzing and improving the image quality of StyleGAN", CVPR 2020.
Tensor resampled_conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& filter,
                        const ResampledConv2dFuncOptions& options = {});

struct UpConv2dOptions {
  Required<int64_t, "in"> in;    // channels of x
  Required<int64_t, "out"> out;  // channels of the result
  bool bias = true;
};
extern template class ModuleWith<UpConv2dOptions, Layer>;
using DownConv2dOptions = UpConv2dOptions;

// Nearest-neighbor upsampling by 2 followed by a 3x3 convolution with padding 1, computed as a transposed
// convolution with stride 2 whose 4x4 filter is the sum of four shifted 3x3 filters. The weight is laid out as
// that of conv_transpose2d: the equivalent conv2d has the weight with `in` and `out` exchanged and each 3x3 filter
// rotated by 180 degrees. Initial weight and bias are uniform on +-1/sqrt(9 in).
// Shapes: x [N,in,H,W] -> [N,out,2H,2W]; weight [in,out,3,3], bias [out].
// Errors: ValueError for in or out < 1; those of conv_transpose2d.
// Source: Karras et al., "Progressive growing of GANs", ICLR 2018.
class UpConv2d final : public LayerWith<UpConv2dOptions> {
 public:
  using LayerWith::LayerWith;
  Parameter weight{this, "weight", initial_weight()};
  Parameter bias{this, "bias", initial_bias()};
  Tensor forward(const Tensor& x) override;

 private:
  Tensor initial_weight() const;
  Tensor initial_bias() const;
};

// A 3x3 convolution with padding 1 followed by 2x2 average pooling, computed as a convolution with stride 2 and a
// 4x4 filter: the mean of four shifted 3x3 filters. Initial weight and bias are uniform on +-1/sqrt(9 in).
// Shapes: x [N,in,H,W] -> [N,out,floor(H/2),floor(W/2)]; weight [out,in,3,3], bias [out].
// Errors: ValueError for in or out < 1; those of conv2d.
// Source: Karras et al., "Progressive growing of GANs", ICLR 2018.
class DownConv2d final : public LayerWith<DownConv2dOptions> {
 public:
  using LayerWith::LayerWith;
  Parameter weight{this, "weight", initial_weight()};
  Parameter bias{this, "bias", initial_bias()};
  Tensor forward(const Tensor& x) override;

 private:
  Tensor initial_weight() const;
  Tensor initial_bias() const;
};

}  // namespace gradus::nn
