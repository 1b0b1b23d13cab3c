// Convolution and transposed convolution layers over signals, images and volumes.
#pragma once

#include "gradus/nn/layer.h"

namespace gradus::nn {

// The values of the padding: zeros, the mirror image without the edge, the edge, or the elements at the other end.
enum class PaddingMode { kZeros, kReflect, kReplicate, kCircular };

// Options of a convolution whose sizes are of type Size: int64_t, Size2 or Size3.
template <class Size> struct ConvOptions {
  Required<int64_t, "in"> in;
  Required<int64_t, "out"> out;  // channels
  Required<Size, "kernel"> kernel;
  Size stride = 1;
  Size padding = 0;
  Size dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  bool same_padding = false;  // as much padding as keeps the size; for stride 1
  PaddingMode padding_mode = PaddingMode::kZeros;
};
using Conv1dOptions = ConvOptions<int64_t>;
using Conv2dOptions = ConvOptions<Size2>;
using Conv3dOptions = ConvOptions<Size3>;
extern template class ModuleWith<Conv1dOptions, Layer>;
extern template class ModuleWith<Conv2dOptions, Layer>;
extern template class ModuleWith<Conv3dOptions, Layer>;

template <class Size> struct ConvTransposeOptions {
  Required<int64_t, "in"> in;
  Required<int64_t, "out"> out;  // channels
  Required<Size, "kernel"> kernel;
  Size stride = 1;
  Size padding = 0;
  Size output_padding = 0;
  Size dilation = 1;
  int64_t groups = 1;
  bool bias = true;
};
using ConvTranspose1dOptions = ConvTransposeOptions<int64_t>;
using ConvTranspose2dOptions = ConvTransposeOptions<Size2>;
using ConvTranspose3dOptions = ConvTransposeOptions<Size3>;
extern template class ModuleWith<ConvTranspose1dOptions, Layer>;
extern template class ModuleWith<ConvTranspose2dOptions, Layer>;
extern template class ModuleWith<ConvTranspose3dOptions, Layer>;

// A convolution layer; N is the name of the class. Initial weight and bias are uniform on
// +-1/sqrt(weight.size(1) * elements of the kernel).
template <class O, OptionName N> class Conv : public LayerWith<O> {
 public:
  using LayerWith<O>::LayerWith;

  Parameter weight{this, "weight", initial_weight()};
  Parameter bias{this, "bias", initial_bias()};

  Tensor forward(const Tensor& x) override;
  std::string type_name() const override { return N.name; }

 private:
  Tensor initial_weight() const;
  Tensor initial_bias() const;
};

// Applies conv1d.
// Shapes: x [N,in,L] or [in,L] -> [N,out,P] or [out,P]; weight [out,in/groups,kernel], bias [out].
using Conv1d = Conv<Conv1dOptions, "Conv1d">;

// Applies conv2d.
// Shapes: x [N,in,H,W] or [in,H,W] -> [N,out,P,Q] or [out,P,Q]; weight
// [out,in/groups,kernel.h,kernel.w], bias [out].
class Conv2d final : public Conv<Conv2dOptions, "Conv2d"> {
 public:
  using Conv::Conv;

  // Returns relu(layer(x)), by conv2d_relu unless the layer has hooks, which get the result before the relu.
  Tensor relu(const Tensor& x);
  // Fuses a ReLU.
  std::optional<Tensor> fuse_next(const Layer& next, const Tensor& x) override;
};

// Applies conv3d.
// Shapes: x [N,in,D,H,W] or [in,D,H,W] -> as many dims; weight
// [out,in/groups,kernel.d,kernel.h,kernel.w], bias [out].
using Conv3d = Conv<Conv3dOptions, "Conv3d">;

// Applies conv_transpose1d.
// Shapes: x [N,in,L] or [in,L]; weight [in,out/groups,kernel], bias [out].
using ConvTranspose1d = Conv<ConvTranspose1dOptions, "ConvTranspose1d">;

// Applies conv_transpose2d.
// Shapes: x [N,in,H,W] or [in,H,W]; weight [in,out/groups,kernel.h,kernel.w], bias [out].
using ConvTranspose2d = Conv<ConvTranspose2dOptions, "ConvTranspose2d">;

// Applies conv_transpose3d.
// Shapes: x [N,in,D,H,W] or [in,D,H,W]; weight [in,out/groups,kernel.d,kernel.h,kernel.w], bias [out].
using ConvTranspose3d = Conv<ConvTranspose3dOptions, "ConvTranspose3d">;

}  // namespace gradus::nn
