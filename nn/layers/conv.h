// Convolution and transposed convolution layers over signals, images and volumes, as torch.nn.Conv1d to
// ConvTranspose3d. Formulas and errors: autograd/ops/images/conv.h.
#pragma once

#include "gradus/nn/layer.h"

namespace gradus::nn {

class Conv2d;

// The padding's values: zeros, the mirror image without the edge, the edge, or those at the opposite end.
enum class PaddingMode { kZeros, kReflect, kReplicate, kCircular };

// Options of a convolution whose sizes are of type Size: int64_t, Size2 or Size3. One number sets all dims.
template <class Size> struct ConvOptions {
  Required<int64_t, "in"> in;    // input channels, or kLazy
  Required<int64_t, "out"> out;  // output channels
  Required<Size, "kernel"> kernel;
  Size stride = 1;
  Size padding = 0;  // elements added at both ends of each dim
  Size dilation = 1;
  int64_t groups = 1;  // divides in and out
  bool bias = true;    // false: the layer's bias is undefined
  // Pads so that the output has the input's size (padding='same' in PyTorch). Needs stride 1 and padding 0.
  bool same_padding = false;
  PaddingMode padding_mode = PaddingMode::kZeros;
};
using Conv1dOptions = ConvOptions<int64_t>;
using Conv2dOptions = ConvOptions<Size2>;
using Conv3dOptions = ConvOptions<Size3>;
extern template class ModuleWith<Conv1dOptions, Layer>;
extern template class ModuleWith<Conv2dOptions, Layer>;
extern template class ModuleWith<Conv3dOptions, Layer>;

// Options of a transposed convolution. Output size per dim:
//   (size - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1.
template <class Size> struct ConvTransposeOptions {
  Required<int64_t, "in"> in;    // input channels, or kLazy
  Required<int64_t, "out"> out;  // output channels
  Required<Size, "kernel"> kernel;
  Size stride = 1;
  Size padding = 0;         // elements removed at both ends
  Size output_padding = 0;  // elements added at one end
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
// Errors of the constructor: ValueError for in, out, kernel or groups below 1, or channels that `groups` does
// not divide. The other options are checked by calls.
template <class O, OptionName N> class Conv : public LayerWith<O> {
 public:
  using LayerWith<O>::LayerWith;

  Parameter weight{this, "weight", initial_weight()};
  Parameter bias{this, "bias", initial_bias()};

  // Errors: ShapeError, DTypeError, DeviceError for an x that does not match the weight; ShapeError for an x
  // too small for its padding_mode; ValueError for options out of range.
  Tensor forward(const Tensor& x) override;
  std::string type_name() const override { return N.name; }

 private:
  friend class Conv2d;
  Tensor initial_weight();
  Tensor initial_bias() const;
  void set_size(const Tensor& x);
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

  // Returns relu(layer(x)). Computed by the fused conv2d_relu, unless the layer has hooks, which get the
  // result before the relu, or pads with other values than zeros.
  Tensor relu(const Tensor& x);
  // Called by Sequential: returns next(layer(x)) if `next` is a ReLU without hooks, else nullopt.
  std::optional<Tensor> fuse_next(const Layer& next, const Tensor& x) override;
};

// Applies conv3d.
// Shapes: x [N,in,D,H,W] or [in,D,H,W] -> [N,out,O,P,Q] or [out,O,P,Q]; weight
// [out,in/groups,kernel.d,kernel.h,kernel.w], bias [out].
using Conv3d = Conv<Conv3dOptions, "Conv3d">;

// Applies conv_transpose1d.
// Shapes: x [N,in,L] or [in,L] -> [N,out,P] or [out,P]; weight [in,out/groups,kernel], bias [out].
using ConvTranspose1d = Conv<ConvTranspose1dOptions, "ConvTranspose1d">;

// Applies conv_transpose2d.
// Shapes: x [N,in,H,W] or [in,H,W] -> [N,out,P,Q] or [out,P,Q]; weight [in,out/groups,kernel.h,kernel.w],
// bias [out].
using ConvTranspose2d = Conv<ConvTranspose2dOptions, "ConvTranspose2d">;

// Applies conv_transpose3d.
// Shapes: x [N,in,D,H,W] or [in,D,H,W] -> [N,out,O,P,Q] or [out,O,P,Q]; weight
// [in,out/groups,kernel.d,kernel.h,kernel.w], bias [out].
using ConvTranspose3d = Conv<ConvTranspose3dOptions, "ConvTranspose3d">;

}  // namespace gradus::nn
