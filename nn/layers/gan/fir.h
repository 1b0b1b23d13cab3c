// FirFilter2d: a fixed low-pass filter, such as [1,3,3,1], for upsampling and downsampling without aliasing.
#pragma once

#include <vector>

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct FirFilter2dOptions {
  std::vector<double> taps = {1, 3, 3, 1};  // 1-d filter, used along both dims; divided by its sum
  int64_t up = 1;                           // first inserts up - 1 zeros after each pixel
  int64_t down = 1;                         // last keeps every down-th pixel
  Shape padding = {0, 0};                   // zeros before (left, top) and after (right, bottom)
  double gain = 1;                          // factor of the filter; up^2 preserves the brightness
};
extern template class ModuleWith<FirFilter2dOptions, Layer>;

// Upsamples by inserting zeros, pads, convolves each channel with the outer product of the taps, and downsamples.
//
//   FirFilter2d blur(this, "blur", {.taps = {1, 2, 1}, .padding = {1, 1}});      // the same size
//   FirFilter2d up(this, "up", {.up = 2, .padding = {2, 1}, .gain = 4});         // twice the size
//   FirFilter2d down(this, "down", {.down = 2, .padding = {1, 1}});              // half the size
//
// Shapes: x [N,C,H,W] -> [N,C,P,Q], P = (H up + padding[0] + padding[1] - taps) / down + 1, Q likewise.
// Errors: ValueError for no taps or a sum of 0, factors < 1; ShapeError for an empty result.
// Source: Karras et al., "Analyzing and improving the image quality of StyleGAN", CVPR 2020.
class FirFilter2d final : public LayerWith<FirFilter2dOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;

 private:
  Tensor filter(const Tensor& like) const;
};

}  // namespace gradus::nn
