// FirFilter2d: a fixed smooth filter, such as [1,3,3,1], that upsamples or downsamples without aliases.
#pragma once

#include <vector>

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct FirFilter2dOptions {
  std::vector<double> taps = {1, 3, 3, 1};  // along both dims; their sum counts as 1
  int64_t up = 1;                           // puts up - 1 zeros behind each pixel, first
  int64_t down = 1;                         // keeps one of `down` pixels, last
  Shape padding = {0, 0};                   // zeros before (left and top) and behind (right and bottom)
  double gain = 1;                          // up^2 keeps the brightness
};
extern template class ModuleWith<FirFilter2dOptions, Layer>;

// Upsamples by zeros, pads, convolves each channel with taps^T taps, downsamples.
//
//   FirFilter2d blur(this, "blur", {.taps = {1, 2, 1}, .padding = {1, 1}});      // the same size
//   FirFilter2d up(this, "up", {.up = 2, .padding = {2, 1}, .gain = 4});         // twice the size
//   FirFilter2d down(this, "down", {.down = 2, .padding = {1, 1}});              // half the size
//
// Shapes: x [N,C,H,W] -> [N,C,P,Q], P = (H up + padding[0] + padding[1] - taps) / down + 1, Q likewise.
// Errors: ValueError for no taps or a sum of 0, factors < 1; ShapeError for no result left.
// Source: Karras et al., "Analyzing and improving the image quality of StyleGAN", CVPR 2020.
class FirFilter2d final : public LayerWith<FirFilter2dOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;

 private:
  Tensor filter(const Tensor& like) const;
};

}  // namespace gradus::nn
