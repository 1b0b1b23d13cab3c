// FIR filtering and resampling of images, as in StyleGAN2. Results have x's dtype and are channels-last; 16-bit
// floats are computed in f32.
#pragma once

#include "gradus/tensor/ops/images/upfirdn.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// Upsamples by inserting zeros, pads or crops, filters and downsamples each channel. With u = x with up - 1 zeros
// after every pixel, and 0 outside:
//   y[n,c,p,q] = sum over i,j of kernel[KH-1-i][KW-1-j] u[n, c, p down + i - top, q down + j - left].
// A kernel of one dim is replaced by its outer product with itself. The options are up and down, by default 1,
// each for height and width, and the padding (left, right, top, bottom) of u, by default 0; a negative padding
// crops.
// Shapes: x [N,C,H,W], kernel [KH,KW] or [K] -> [N,C,P,Q], P = floor((H up + top + bottom - KH) / down) + 1, and Q
// likewise from W, left, right and KW.
// Errors: ShapeError for other dims, an x or a kernel without pixels, or a kernel larger than the padded image;
// ValueError for up or down below 1; DTypeError unless both are of one floating dtype; DeviceError unless both are
// on one device.
// Grad: dx by upfirdn2d with up and down exchanged and the kernel rotated by 180 degrees; dkernel by
// upfirdn2d_kernel_grad.
// Source: Karras et al. 2020, https://arxiv.org/abs/1912.04958
Tensor upfirdn2d(const Tensor& x, const Tensor& kernel, const Upfirdn2dOptions& options = {});

// Filters images with `kernel`: upfirdn2d with zeros around x, (KH - 1) / 2 rows below x and KH / 2 above,
// likewise for columns.
// Shapes: x [N,C,H,W], kernel [KH,KW] or [K] -> [N,C,H,W].
// Errors: as upfirdn2d.
Tensor filter2d(const Tensor& x, const Tensor& kernel);
// Upsamples images by `factor`: factor^2 times upfirdn2d with up = factor. The factor^2 makes up for the inserted
// zeros: a kernel of sum 1 preserves the mean brightness. Zero padding centers the kernel; if that is
// impossible, the zeros above and on the left are rounded up, as in StyleGAN2.
// Shapes: x [N,C,H,W], kernel [KH,KW] or [K] -> [N,C,H factor,W factor].
// Errors: as upfirdn2d; ValueError for a factor below 1.
Tensor upsample2d(const Tensor& x, const Tensor& kernel, int64_t factor = 2);
// Downsamples images by `factor`: upfirdn2d with down = factor. Zero padding centers the kernel; if that is
// impossible, there is one zero more above and on the left, as in StyleGAN2.
// Shapes: x [N,C,H,W], kernel [KH,KW] or [K] -> [N,C,floor(H / factor),floor(W / factor)].
// Errors: as upfirdn2d; ValueError for a factor below 1.
Tensor downsample2d(const Tensor& x, const Tensor& kernel, int64_t factor = 2);

}  // namespace gradus
