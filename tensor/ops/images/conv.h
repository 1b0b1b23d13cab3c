// Raw convolution of 2 or 3 spatial dims, and its input and weight gradients; check_conv also takes 1 spatial
// dim. The three ops are bilinear, and the derivatives of each are the other two. The differentiable forms
// are in gradus/autograd/ops/images/conv.h.
#pragma once

#include <optional>
#include <utility>

#include "gradus/tensor/tensor.h"

namespace gradus {

// PyTorch's padding "valid": no padding. For "same" set same_padding.
inline constexpr int64_t kValidPadding = 0;

// Options of convolution, as in PyTorch. S: int64_t, Size2 or Size3.
template <class S> struct ConvFuncOptions {
  S stride = 1;
  S padding = 0;              // zeros on both sides
  S dilation = 1;             // distance between adjacent filter elements
  int64_t groups = 1;         // channels in independent groups
  bool same_padding = false;  // pads to keep the size (an odd zero at the end); requires stride 1, padding 0
};
using Conv1dFuncOptions = ConvFuncOptions<int64_t>;
using Conv2dFuncOptions = ConvFuncOptions<Size2>;
using Conv3dFuncOptions = ConvFuncOptions<Size3>;

namespace raw {

// The options for any number of spatial dims, with one entry per dim. same_padding is lost: callers that
// support it have replaced it by padding.
struct ConvGeometry {
  ConvGeometry() = default;
  template <class S>
  ConvGeometry(const ConvFuncOptions<S>& o)
      : stride(dims(o.stride)), padding(dims(o.padding)), dilation(dims(o.dilation)), groups(o.groups) {}
  int rank() const { return stride.size(); }

  Dims stride, padding, dilation;
  int64_t groups = 1;

 private:
  static Dims dims(int64_t w) { return {w}; }
  static Dims dims(Size2 s) { return {s.h, s.w}; }
  static Dims dims(Size3 s) { return {s.d, s.h, s.w}; }
};

// Checks that x [N,C,...], w [O,C/groups,...] and bias [O] (may be undefined) are valid. Returns the shape of the
// result.
// Errors: ShapeError, DTypeError, DeviceError, ValueError naming `op`.
Shape check_conv(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias,
                 const ConvGeometry& geometry);

// Returns the convolution of x, which has two more dims than the geometry. Errors of this and the functions
// below: as check_conv; ShapeError unless dy has the shape of conv's result. y and dx are channels-last.
Tensor conv(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias,
            const ConvGeometry& geometry);
// Returns relu(conv(...)).
Tensor conv_relu(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias,
                 const ConvGeometry& geometry);
// Returns the gradient of conv's x[N,C,...], which has shape `x_shape`, for the gradient dy of the result.
// Adds bias[C] to the gradient if defined.
Tensor conv_input_grad(const char* op, const Tensor& dy, const Tensor& w, const Tensor& bias,
                       const Shape& x_shape, const ConvGeometry& geometry);
// Returns the gradients of conv's w[O,C/groups,...], which has shape `w_shape`, and of its bias (undefined
// unless `with_bias`). They have x's dtype, or `dtype` if given, which may be f32.
std::pair<Tensor, Tensor> conv_weight_grad(const char* op, const Tensor& dy, const Tensor& x,
                                           const Shape& w_shape, bool with_bias, const ConvGeometry& geometry,
                                           std::optional<DType> dtype = {});

inline Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dFuncOptions& o = {}) {
  return conv("conv2d", x, w, bias, o);
}
inline Tensor conv2d_input_grad(const Tensor& dy, const Tensor& w, const Shape& x_shape,
                                const Conv2dFuncOptions& o = {}) {
  return conv_input_grad("conv2d_input_grad", dy, w, {}, x_shape, o);
}
inline std::pair<Tensor, Tensor> conv2d_weight_grad(const Tensor& dy, const Tensor& x, const Shape& w_shape,
                                                    bool with_bias, const Conv2dFuncOptions& o = {}) {
  return conv_weight_grad("conv2d_weight_grad", dy, x, w_shape, with_bias, o);
}

// Kernels for two or three spatial dims. x, y and their gradients are channels-last; w and bias are row-major;
// bias and db may be undefined; no tensor is empty. All have one floating dtype, except that dw and db may be
// f32 if x and dy have 16 bits.
extern KernelSlot<void(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias, ConvGeometry)>
    conv_kernel;
// The same with y = relu(conv).
extern KernelSlot<void(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias, ConvGeometry)>
    conv_relu_kernel;
extern KernelSlot<void(const Tensor& dx, const Tensor& dy, const Tensor& w, const Tensor& bias, ConvGeometry)>
    conv_input_grad_kernel;
extern KernelSlot<void(const Tensor& dw, const Tensor& db, const Tensor& dy, const Tensor& x, ConvGeometry)>
    conv_weight_grad_kernel;

}  // namespace raw
}  // namespace gradus
