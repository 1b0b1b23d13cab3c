// Pixel and channel shuffle, for any dtype. Results are channels-last if x [N,C,H,W] is, row-major if x is,
// and may share x's storage.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// Rearranges factor^2 channels to squares of factor x factor pixels (sub-pixel convolution). With f = factor:
//   y[..., c, h f + i, w f + j] = x[..., (c f + i) f + j, h, w]
// Shapes: x [...,C f^2,H,W] -> [...,C,H f,W f].
// Errors: ShapeError for fewer than 3 dims or channels that f^2 does not divide; ValueError for a
// factor below 1.
// Grad: pixel_unshuffle of dy.
// Source: Shi et al. 2016, https://arxiv.org/abs/1609.05158
Tensor pixel_shuffle(const Tensor& x, int64_t factor);
// Rearranges squares of factor x factor pixels to channels: the inverse of pixel_shuffle.
// Shapes: x [...,C,H f,W f] -> [...,C f^2,H,W].
// Errors: ShapeError for fewer than 3 dims or sizes that f does not divide; ValueError for a factor below 1.
// Grad: pixel_shuffle of dy.
Tensor pixel_unshuffle(const Tensor& x, int64_t factor);

// Interleaves the channels of `groups` groups:
//   y[n, i groups + g, ...] = x[n, g C/groups + i, ...]
// Shapes: x [N,C,...] -> the same.
// Errors: ShapeError for fewer than 3 dims or channels that `groups` does not divide; ValueError for
// groups below 1.
// Grad: channel_shuffle of dy with C / groups groups.
// Source: Zhang et al. 2017, https://arxiv.org/abs/1707.01083
Tensor channel_shuffle(const Tensor& x, int64_t groups);

}  // namespace gradus
