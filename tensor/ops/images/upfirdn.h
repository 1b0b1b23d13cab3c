// Raw upfirdn2d (StyleGAN): upsampling with zeros, FIR filtering and downsampling in one pass. The differentiable
// forms are in gradus/autograd/ops/images/upfirdn.h.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// Pixels added on each side of an upsampled image; negative numbers crop.
struct ImagePadding {
  int64_t left = 0, right = 0, top = 0, bottom = 0;
  bool operator==(const ImagePadding&) const = default;
};

struct Upfirdn2dOptions {
  Size2 up = 1;    // each pixel is followed by up - 1 zeros
  Size2 down = 1;  // every down-th pixel of the result is kept
  ImagePadding padding = {};
};

namespace raw {

// The sizes of one call. With u the upsampled x, 0 outside:
//   y[n,c,p,q] = sum_{i,j} kernel[KH-1-i][KW-1-j] * u[n, c, p * down + i - top, q * down + j - left]
struct UpfirdnGeometry {
  Size2 input, output, kernel, up, down;
  int64_t left = 0, top = 0;
  bool flipped = false;  // kernel[i][j] instead of kernel[KH-1-i][KW-1-j]
};
// Checks x [N,C,H,W] and the filter `kernel` [KH,KW], of x's dtype. A side of the result has
// (side * up + padding - kernel) / down + 1 pixels. Errors: ShapeError, DTypeError, DeviceError, ValueError.
UpfirdnGeometry upfirdn2d_geometry(const Tensor& x, const Tensor& kernel, const Upfirdn2dOptions& options,
                                   bool flipped);

// Returns y. `geometry` is that of these operands.
Tensor upfirdn2d(const Tensor& x, const Tensor& kernel, const UpfirdnGeometry& geometry);
// Returns the gradient of the filter, for the gradient dy of y, of y's shape and x's dtype (unchecked).
Tensor upfirdn2d_kernel_grad(const Tensor& dy, const Tensor& x, const UpfirdnGeometry& geometry);

// Kernels: f32 or f64; images channels-last, filters row-major; y, dy and x are not empty.
extern KernelSlot<void(const Tensor& y, const Tensor& x, const Tensor& kernel, UpfirdnGeometry)>
    upfirdn2d_kernel;
extern KernelSlot<void(const Tensor& dk, const Tensor& dy, const Tensor& x, UpfirdnGeometry)>
    upfirdn2d_kernel_grad_kernel;

}  // namespace raw
}  // namespace gradus
