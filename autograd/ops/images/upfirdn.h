// FIR filtering and resampling of images, as in StyleGAN2. Results are channels-last; 16-bit floats are computed
// in f32.
#pragma once

#include "gradus/tensor/ops/images/upfirdn.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// Upsamples by inserting zeros, pads or crops, filters and downsamples each channel. With u = x with up - 1 zeros
// after every pixel, and 0 outside:
//   y[n,c,p,q] = sum over i,j of kernel[KH-1-i][KW-1-j] u[n, c, p down + i - top, q down + j - left].
// A kernel of one dim stands for its outer product with itself.
// Shapes: x [N,C,H,W], kernel [KH,KW] or [K] -> [N,C,P,Q], P = floor((H up + top + bottom - KH) / down) + 1.
// Errors: ShapeError for other dims or a kernel larger than the padded image; ValueError for up or down below
// 1; DTypeError unless both are of one floating dtype; DeviceError.
// Grad: dx by upfirdn2d with up and down exchanged and the kernel rotated by 180 degrees; dkernel by
// upfirdn2d_kernel_grad.
// Source: Karras et al. 2020, https://arxiv.org/abs/1912.04958
Tensor upfirdn2d(const Tensor& x, const Tensor& kernel, const Upfirdn2dOptions& options = {});

// Filters images with `kernel`; the result has x's size.
// Shapes: as upfirdn2d.
// Errors: as upfirdn2d.
Tensor filter2d(const Tensor& x, const Tensor& kernel);
// Upsamples images by `factor`; a kernel of sum 1 preserves their mean brightness.
// Errors: as upfirdn2d; ValueError for a factor below 1.
Tensor upsample2d(const Tensor& x, const Tensor& kernel, int64_t factor = 2);
// Downsamples images by `factor`.
// Errors: as upfirdn2d; ValueError for a factor below 1.
Tensor downsample2d(const Tensor& x, const Tensor& kernel, int64_t factor = 2);

}  // namespace gradus
