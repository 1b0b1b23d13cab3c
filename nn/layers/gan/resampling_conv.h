// UpConv2d and DownConv2d: a 3x3 convolution fused with upsampling or downsampling by 2.
#pragma once

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct UpConv2dOptions {
  Required<int64_t, "in"> in;
  Required<int64_t, "out"> out;  // channels
  bool bias = true;
};
extern template class ModuleWith<UpConv2dOptions, Layer>;
struct DownConv2dOptions {
  Required<int64_t, "in"> in;
  Required<int64_t, "out"> out;  // channels
  bool bias = true;
};
extern template class ModuleWith<DownConv2dOptions, Layer>;

// Nearest-neighbor upsampling by 2 followed by a 3x3 convolution, computed as a transposed convolution with
// stride 2 whose 4x4 filter is the sum of four shifted 3x3 filters. As in a transposed convolution, the filters
// are rotated by 180 degrees.
// Shapes: x [N,in,H,W] -> [N,out,2H,2W]; weight [in,out,3,3], bias [out].
// Errors: as conv_transpose2d.
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

// A 3x3 convolution followed by 2x2 average pooling, computed as a convolution with stride 2 and a 4x4 filter.
// Shapes: x [N,in,H,W] -> [N,out,H/2,W/2]; weight [out,in,3,3], bias [out].
// Errors: as conv2d.
// Source: as UpConv2d.
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
